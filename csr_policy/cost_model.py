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
"""What a request costs: the fitted form of equation (25), and what follows from it.

    TTFT(L, r) = t0 + t1 L + a (L - r) + kappa (L - r)(L + r + 1) / 2

L is the prompt, r what is cached of it, in tokens. The last term is (25), the sum of
attended positions with i* = r + 1. Alone it misses what measurements show: a constant
(t0: network, scheduling), a cost of every token even when cached (t1: body, hashing,
reading the cache) and one of every new token (a: the layers outside attention).

Used by reconciliation (Theorem 4), capacity and evaluation; needs NumPy only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

TERMS = 4
_MOST_ROUNDS = 1000


@dataclass(frozen=True, slots=True)
class CostModel:
    """Coefficients, all 0 or more.

    Attributes:
        t0_s: Per request.
        per_token_s: t1, per token of the prompt.
        per_new_token_s: a, per token that is not cached.
        per_pair_s: kappa, per pair of a new token and a position it attends to.
    """

    t0_s: float
    per_token_s: float
    per_new_token_s: float
    per_pair_s: float

    def ttft_s(self, prompt_tokens: npt.ArrayLike, cached_tokens: npt.ArrayLike) -> FloatArray:
        """Time to the first token of each request, without queueing."""
        coefficients = (self.t0_s, self.per_token_s, self.per_new_token_s, self.per_pair_s)
        result: FloatArray = cost_terms(prompt_tokens, cached_tokens) @ np.array(coefficients)
        return result

    def request_s(self, prompt_tokens: float, cached_tokens: float) -> float:
        """Time to the first token of one request."""
        return float(self.ttft_s(prompt_tokens, cached_tokens))


def cost_terms(prompt_tokens: npt.ArrayLike, cached_tokens: npt.ArrayLike) -> FloatArray:
    """The four terms of each request, in the order of the coefficients."""
    prompt = np.asarray(prompt_tokens, dtype=np.float64)
    cached = np.asarray(cached_tokens, dtype=np.float64)
    new = prompt - cached
    pairs = new * (prompt + cached + 1) / 2
    return np.stack(np.broadcast_arrays(np.ones_like(new), prompt, new, pairs), axis=-1)


@dataclass(frozen=True, slots=True)
class FitQuality:
    """How a model meets the observations it was fitted to.

    Attributes:
        observations: How many.
        rms_relative: Root of the mean squared relative error.
        max_relative: Largest relative error.
    """

    observations: int
    rms_relative: float
    max_relative: float


class CostFit:
    """Least squares on relative errors with coefficients bounded at 0, request by request.

    Keeps sums only, so that a robot can fit for ever: memory and time do not grow. Not
    thread-safe; one thread observes and asks.
    """

    def __init__(self, *, half_life: float = math.inf) -> None:
        """Start without observations.

        Args:
            half_life: Observations after which one counts half; infinite never forgets.
        """
        self._keep = 0.5 ** (1 / half_life) if math.isfinite(half_life) else 1.0
        self._products: FloatArray = np.zeros((TERMS, TERMS))
        self._sums: FloatArray = np.zeros(TERMS)
        self.observations = 0

    def observe(self, prompt_tokens: float, cached_tokens: float, seconds: float) -> None:
        """Take a measured request.

        Raises:
            ValueError: It makes no sense: not 0 <= cached <= prompt, or seconds <= 0.
        """
        if not (0 <= cached_tokens <= prompt_tokens and 0 < seconds < math.inf):
            raise ValueError(
                f"observation: prompt {prompt_tokens:g}, cached {cached_tokens:g}, "
                f"{seconds:g} s; expected 0 <= cached <= prompt and a positive time"
            )
        row = cost_terms(prompt_tokens, cached_tokens) / seconds
        self._products = self._keep * self._products + np.outer(row, row)
        self._sums = self._keep * self._sums + row
        self.observations += 1

    def model(self) -> CostModel | None:
        """The best model so far; None before the first observation."""
        if self.observations == 0:
            return None
        return CostModel(*_bounded(self._products, self._sums))


def _bounded(products: FloatArray, sums: FloatArray) -> tuple[float, float, float, float]:
    """Minimise x' products x - 2 sums' x over x >= 0 by trying every set of free terms."""
    scale = np.sqrt(np.maximum(np.diag(products), 1e-300))
    scaled = products / np.outer(scale, scale)
    goal = sums / scale
    best: FloatArray = np.zeros(TERMS)
    best_value = 0.0
    for size in range(1, TERMS + 1):
        for free in itertools.combinations(range(TERMS), size):
            part = np.ix_(free, free)
            try:
                values = np.linalg.solve(scaled[part], goal[list(free)])
            except np.linalg.LinAlgError:
                continue
            # Smaller sets come first: a term must earn its place, or two requests
            # would be explained by four coefficients.
            value = -float(goal[list(free)] @ values)
            if np.all(values >= 0) and value < best_value - 1e-12 * abs(best_value):
                best_value = value
                best = np.zeros(TERMS)
                best[list(free)] = values
    t0, t1, a, kappa = (best / scale).tolist()
    return t0, t1, a, kappa


def fit(
    prompt_tokens: Sequence[float], cached_tokens: Sequence[float], seconds: Sequence[float]
) -> tuple[CostModel, FitQuality]:
    """Fit a model to measured requests.

    Raises:
        ValueError: There are none, the lengths differ, or one makes no sense.
    """
    if not (0 < len(seconds) == len(prompt_tokens) == len(cached_tokens)):
        raise ValueError(
            f"fit: {len(prompt_tokens)} prompts, {len(cached_tokens)} cached, "
            f"{len(seconds)} times; expected equally many, at least 1"
        )
    running = CostFit()
    for prompt, cached, measured in zip(prompt_tokens, cached_tokens, seconds, strict=True):
        running.observe(prompt, cached, measured)
    model = running.model()
    assert model is not None
    ratio = model.ttft_s(prompt_tokens, cached_tokens) / np.asarray(seconds) - 1
    quality = FitQuality(
        observations=len(seconds),
        rms_relative=float(np.sqrt(np.mean(ratio**2))),
        max_relative=float(np.max(np.abs(ratio))),
    )
    return model, quality


@dataclass(frozen=True, slots=True)
class ReconciliationTime:
    """Inequality (54): must be done before the primary overflows.

    Attributes:
        warm_up_s: Computing the evicted state on the secondary.
        catch_up_s: Adding what arrived meanwhile; infinite where it never catches up.
        rounds: Catch-up requests.
        to_overflow_s: Time until the primary's limit, from the eviction.
    """

    warm_up_s: float
    catch_up_s: float
    rounds: int
    to_overflow_s: float

    @property
    def margin_s(self) -> float:
        """Time left; negative where Theorem 4 cannot hold."""
        return self.to_overflow_s - self.warm_up_s - self.catch_up_s

    @property
    def holds(self) -> bool:
        """Whether Theorem 4's inequality holds."""
        return self.margin_s >= 0


def reconciliation_time(
    model: CostModel,
    *,
    kept_tokens: float,
    cached_tokens: float,
    rate_tokens_hz: float,
    room_tokens: float,
    n_catchup_tokens: float,
    step_tokens: float = 0.0,
    pause_s: float = 0.0,
    slowdown: float = 1.0,
) -> ReconciliationTime:
    """Time of warm-up and catch-up by Algorithm 1, from the cost of single requests.

    The paper's (59) compares tokens squared with seconds; here both sides are seconds.

    Args:
        model: Cost of one request.
        kept_tokens: Static tokens after the eviction.
        cached_tokens: Of these, cached on the secondary already (the prefix).
        rate_tokens_hz: Tokens appended a second.
        room_tokens: Tokens between the static state at the eviction and the limit.
        n_catchup_tokens: N_catchup, what may be missing at the swap.
        step_tokens: Tokens a warm-up request adds; 0 warms up in one request.
        pause_s: Pause between two warm-up requests.
        slowdown: Factor on every request, for hardware shared with other work.
    """
    overflow_s = room_tokens / rate_tokens_hz if rate_tokens_hz > 0 else math.inf
    step = step_tokens if step_tokens > 0 else max(kept_tokens - cached_tokens, 1.0)
    ends = np.minimum(np.arange(cached_tokens, kept_tokens, step) + step, kept_tokens)
    starts = np.concatenate(([cached_tokens], ends[:-1])) if ends.size else ends
    warm_up_s = float(np.sum(model.ttft_s(ends, starts))) * slowdown if ends.size else 0.0
    warm_up_s += pause_s * max(ends.size - 1, 0)
    done, catch_up_s, rounds = kept_tokens, 0.0, 0
    behind = rate_tokens_hz * warm_up_s
    while behind > n_catchup_tokens:
        rounds += 1
        spent = model.request_s(done + behind, done) * slowdown
        done += behind
        catch_up_s += spent
        # A round that takes longer than it makes up for never ends.
        if rounds >= _MOST_ROUNDS or catch_up_s > max(overflow_s, 1.0) * 1e3:
            catch_up_s = math.inf
            break
        behind = rate_tokens_hz * spent
    return ReconciliationTime(warm_up_s, catch_up_s, rounds, overflow_s)
