# Copyright 2026 The csr_policy Authors
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Laws F of the time between two prompts of one conversation (Assumption B.4).

Each gives its CDF and the integral of its tail in closed form, which is all that
equation (38) needs. `gap_text` reads them as they are written on a command line.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy import special

from csr_policy.capacity.arrays import FloatArray
from csr_policy.capacity.errors import CapacityError


class GapLaw(Protocol):
    """Distribution of the gap W; all arguments and results in seconds."""

    @property
    def mean_s(self) -> float:
        """E[W]."""

    @property
    def lipschitz_hz(self) -> float:
        """Lipschitz constant of F; infinite where F has jumps."""

    def cdf(self, t_s: npt.ArrayLike) -> FloatArray:
        """F(t) = P(W <= t)."""

    def tail_integral(self, t_s: npt.ArrayLike) -> FloatArray:
        """Integral of 1 - F from 0 to t, that is E[min(W, t)]."""

    def sample(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Independent gaps."""

    def describe(self) -> str:
        """The law as it is written on the command line."""


def _positive(t_s: npt.ArrayLike) -> FloatArray:
    return np.maximum(np.asarray(t_s, dtype=np.float64), 0.0)


@dataclass(frozen=True, slots=True)
class Exponential:
    """Memoryless gaps, as in the paper's experiments."""

    mean_s: float

    @property
    def lipschitz_hz(self) -> float:
        """Density at 0, its maximum."""
        return 1.0 / self.mean_s

    def cdf(self, t_s: npt.ArrayLike) -> FloatArray:
        """F(t)."""
        return np.asarray(-np.expm1(-_positive(t_s) / self.mean_s))

    def tail_integral(self, t_s: npt.ArrayLike) -> FloatArray:
        """E[min(W, t)]."""
        return self.mean_s * self.cdf(t_s)

    def sample(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Independent gaps."""
        return rng.exponential(self.mean_s, count)

    def describe(self) -> str:
        """The law as written."""
        return f"exponential:{self.mean_s:g}"


@dataclass(frozen=True, slots=True)
class Gamma:
    """Gamma gaps; shape 1 is exponential, below 1 burstier, above 1 more regular."""

    shape: float
    mean_s: float

    @property
    def lipschitz_hz(self) -> float:
        """Density at the mode; infinite for shape below 1, whose density is unbounded."""
        if self.shape < 1:
            return math.inf
        mode = self.shape - 1
        log_density = mode * math.log(mode) - mode if mode > 0 else 0.0
        return math.exp(log_density - math.lgamma(self.shape)) * self.shape / self.mean_s

    def cdf(self, t_s: npt.ArrayLike) -> FloatArray:
        """F(t)."""
        return np.asarray(special.gammainc(self.shape, _positive(t_s) * self.shape / self.mean_s))

    def tail_integral(self, t_s: npt.ArrayLike) -> FloatArray:
        """E[min(W, t)]."""
        t = _positive(t_s)
        scaled = t * self.shape / self.mean_s
        tail = special.gammaincc(self.shape, scaled)
        # An infinite t has no tail left; the product would be inf * 0.
        rest = np.where(tail > 0, np.where(np.isfinite(t), t, 0.0) * tail, 0.0)
        return np.asarray(self.mean_s * special.gammainc(self.shape + 1, scaled) + rest)

    def sample(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Independent gaps."""
        return rng.gamma(self.shape, self.mean_s / self.shape, count)

    def describe(self) -> str:
        """The law as written."""
        return f"gamma:{self.shape:g},{self.mean_s:g}"


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Lognormal gaps: all moments finite, a tail heavier than exponential."""

    mu: float
    sigma: float

    @property
    def mean_s(self) -> float:
        """E[W]."""
        return math.exp(self.mu + self.sigma**2 / 2)

    @property
    def lipschitz_hz(self) -> float:
        """Density at the mode."""
        return math.exp(self.sigma**2 / 2 - self.mu) / (self.sigma * math.sqrt(2 * math.pi))

    def _standard(self, t: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            return np.asarray((np.log(t) - self.mu) / self.sigma)

    def cdf(self, t_s: npt.ArrayLike) -> FloatArray:
        """F(t)."""
        return np.asarray(special.ndtr(self._standard(_positive(t_s))))

    def tail_integral(self, t_s: npt.ArrayLike) -> FloatArray:
        """E[min(W, t)]."""
        t = _positive(t_s)
        z = self._standard(t)
        tail = special.ndtr(-z)
        rest = np.where(tail > 0, np.where(np.isfinite(t), t, 0.0) * tail, 0.0)
        return np.asarray(self.mean_s * special.ndtr(z - self.sigma) + rest)

    def sample(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Independent gaps."""
        return rng.lognormal(self.mu, self.sigma, count)

    def describe(self) -> str:
        """The law as written."""
        return f"lognormal:{self.mu:g},{self.sigma:g}"


@dataclass(frozen=True, slots=True)
class Lomax:
    """Power-law gaps, P(W > t) = (1 + t/scale)^-shape; the mean exists for shape above 1."""

    shape: float
    scale_s: float

    @property
    def mean_s(self) -> float:
        """E[W]; infinite for shape up to 1."""
        return self.scale_s / (self.shape - 1) if self.shape > 1 else math.inf

    @property
    def lipschitz_hz(self) -> float:
        """Density at 0, its maximum."""
        return self.shape / self.scale_s

    def cdf(self, t_s: npt.ArrayLike) -> FloatArray:
        """F(t)."""
        return np.asarray(-np.expm1(-self.shape * np.log1p(_positive(t_s) / self.scale_s)))

    def tail_integral(self, t_s: npt.ArrayLike) -> FloatArray:
        """E[min(W, t)]."""
        power = (1 - self.shape) * np.log1p(_positive(t_s) / self.scale_s)
        if self.shape == 1:
            return np.asarray(self.scale_s * np.log1p(_positive(t_s) / self.scale_s))
        return np.asarray(self.scale_s * np.expm1(power) / (1 - self.shape))

    def sample(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Independent gaps."""
        return rng.pareto(self.shape, count) * self.scale_s

    def describe(self) -> str:
        """The law as written."""
        return f"lomax:{self.shape:g},{self.scale_s:g}"


@dataclass(frozen=True, slots=True)
class Deterministic:
    """A fixed gap; F has a jump, so Theorem 3.1 holds only away from T_C = the gap."""

    mean_s: float

    @property
    def lipschitz_hz(self) -> float:
        """Infinite: F jumps."""
        return math.inf

    def cdf(self, t_s: npt.ArrayLike) -> FloatArray:
        """F(t)."""
        return np.asarray(_positive(t_s) >= self.mean_s, dtype=np.float64)

    def tail_integral(self, t_s: npt.ArrayLike) -> FloatArray:
        """E[min(W, t)]."""
        return np.minimum(_positive(t_s), self.mean_s)

    def sample(self, rng: np.random.Generator, count: int) -> FloatArray:
        """The same gap each time."""
        del rng
        return np.full(count, self.mean_s)

    def describe(self) -> str:
        """The law as written."""
        return f"deterministic:{self.mean_s:g}"


@dataclass(frozen=True, slots=True)
class Empirical:
    """The law of measured gaps."""

    sorted_s: FloatArray
    source: str = "measured"
    _cumulative: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Prepare the sums that give E[min(W, t)] without a loop."""
        total = np.concatenate(([0.0], np.cumsum(self.sorted_s)))
        object.__setattr__(self, "_cumulative", total)

    @classmethod
    def of(cls, gaps_s: npt.ArrayLike, source: str = "measured") -> Empirical:
        """Build the law from unsorted gaps.

        Raises:
            CapacityError: There are none, or one is negative or not a number.
        """
        gaps = np.sort(np.asarray(gaps_s, dtype=np.float64).ravel())
        if gaps.size == 0:
            raise CapacityError(f"gap: {source} holds no gaps; expected at least one")
        if not np.all(np.isfinite(gaps)) or gaps[0] < 0:
            raise CapacityError(f"gap: {source} holds {gaps[0]:g}; expected seconds, 0 or more")
        if gaps[-1] <= 0:
            raise CapacityError(f"gap: {source} has mean 0; expected a positive mean")
        return cls(gaps, source)

    @property
    def mean_s(self) -> float:
        """E[W]."""
        return float(self._cumulative[-1] / self.sorted_s.size)

    @property
    def lipschitz_hz(self) -> float:
        """Infinite: F is a staircase."""
        return math.inf

    def cdf(self, t_s: npt.ArrayLike) -> FloatArray:
        """F(t)."""
        below = np.searchsorted(self.sorted_s, _positive(t_s), side="right")
        return np.asarray(below / self.sorted_s.size)

    def tail_integral(self, t_s: npt.ArrayLike) -> FloatArray:
        """E[min(W, t)]."""
        t = _positive(t_s)
        below = np.searchsorted(self.sorted_s, t, side="right")
        above = self.sorted_s.size - below
        rest = np.where(above > 0, np.where(np.isfinite(t), t, 0.0) * above, 0.0)
        return np.asarray((self._cumulative[below] + rest) / self.sorted_s.size)

    def sample(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Gaps drawn from the measured ones."""
        return rng.choice(self.sorted_s, count)

    def describe(self) -> str:
        """Where the gaps came from."""
        return f"empirical:{self.source}"


@dataclass(frozen=True, slots=True)
class NotBeforeReply:
    """W = max{E2E, sample}: a prompt waits for the reply before it (equation (80))."""

    gap: GapLaw
    latency: Empirical

    @property
    def mean_s(self) -> float:
        """E[W]."""
        return float(self.tail_integral(math.inf))

    @property
    def lipschitz_hz(self) -> float:
        """Infinite: the measured latencies are a staircase."""
        return math.inf

    def cdf(self, t_s: npt.ArrayLike) -> FloatArray:
        """F(t), the product of the two."""
        return self.gap.cdf(t_s) * self.latency.cdf(t_s)

    def tail_integral(self, t_s: npt.ArrayLike) -> FloatArray:
        """E[min(W, t)] = I(t) + E[min(t, e) - I(min(t, e))], I that of the gap alone."""
        t = _positive(t_s)
        base = self.gap.tail_integral(t)
        latencies = self.latency.sorted_s
        extra = np.concatenate(([0.0], np.cumsum(latencies - self.gap.tail_integral(latencies))))
        below = np.searchsorted(latencies, t, side="right")
        above = latencies.size - below
        with np.errstate(invalid="ignore"):
            rest = np.where(above > 0, above * (t - base), 0.0)
        return np.asarray(base + (extra[below] + rest) / latencies.size)

    def sample(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Independent gaps."""
        return np.maximum(self.gap.sample(rng, count), self.latency.sample(rng, count))

    def describe(self) -> str:
        """Both laws."""
        return f"max({self.gap.describe()}, {self.latency.describe()})"


def require_mean(law: GapLaw) -> None:
    """Refuse a law without a mean.

    Raises:
        CapacityError: E[W] is infinite, which Assumption B.4 excludes: the number of
            open conversations then grows for ever and no stationary hit ratio exists.
    """
    if not math.isfinite(law.mean_s):
        raise CapacityError(
            f"gap: {law.describe()} has an infinite mean, so the open conversations never "
            "settle (Assumption B.4); expected a law with a finite mean"
        )
