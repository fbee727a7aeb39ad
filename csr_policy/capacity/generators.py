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
"""Synthetic conversations: the MCM in general and the SCM of Zhang et al.

Turn laws: `geometric:p` (continue with probability p), `fixed:n`, `uniform:a,b`,
`zeta:s` (heavy tail). Increment laws: `constant:n`, `geometric:mean`, `uniform:a,b`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from csr_policy.capacity.arrays import FloatArray, IntArray, positions
from csr_policy.capacity.errors import CapacityError, nearest
from csr_policy.capacity.workload import Workload, workload_from_increments

_LAWS = {
    "constant": ("n",),
    "fixed": ("n",),
    "geometric": ("p or mean",),
    "uniform": ("a", "b"),
    "zeta": ("s",),
}


@dataclass(frozen=True, slots=True)
class IntegerLaw:
    """A law on the positive integers, sampled by inverting its CDF.

    `geometric` has two readings: the probability to continue where it is below 1, else
    the mean.
    """

    name: str
    values: tuple[float, ...]

    def quantile(self, u: FloatArray) -> IntArray:
        """Smallest integer whose CDF reaches u."""
        if self.name in ("constant", "fixed"):
            return np.full(u.shape, int(self.values[0]), dtype=np.int64)
        if self.name == "uniform":
            low, high = self.values
            return np.floor(low + u * (high - low + 1)).astype(np.int64)
        if self.name == "zeta":
            # The continuous Pareto rounded down: the same tail exponent, closed form.
            return np.minimum((1 - u) ** (-1 / (self.values[0] - 1)), 1e9).astype(np.int64)
        ongoing = self.continuation
        if ongoing == 0:
            return np.ones(u.shape, dtype=np.int64)
        return (1 + np.floor(np.log1p(-u) / math.log(ongoing))).astype(np.int64)

    @property
    def continuation(self) -> float:
        """P of the geometric law."""
        value = self.values[0]
        return value if value < 1 else 1 - 1 / value

    def describe(self) -> str:
        """The law as written."""
        return f"{self.name}:{','.join(f'{value:g}' for value in self.values)}"


def parse_integer_law(text: str, what: str) -> IntegerLaw:
    """Read a law of turns or increments.

    Raises:
        CapacityError: The name or a number is wrong.
    """
    name, _, rest = text.partition(":")
    if name not in _LAWS:
        raise CapacityError(f"{what}: {name!r} is no law; {nearest(name, _LAWS)}")
    try:
        values = tuple(float(part) for part in rest.split(","))
    except ValueError:
        raise CapacityError(f"{what}: {text!r}; expected {name}:{','.join(_LAWS[name])}") from None
    if len(values) != len(_LAWS[name]):
        raise CapacityError(f"{what}: {text!r}; expected {name}:{','.join(_LAWS[name])}")
    wrong = (
        (name in ("constant", "fixed") and not values[0] >= 1)
        or (name == "geometric" and not values[0] > 0)
        or (name == "uniform" and not 1 <= values[0] <= values[-1])
        or (name == "zeta" and not values[0] > 2)
    )
    if wrong or not all(math.isfinite(value) for value in values):
        limit = "s above 2 (a finite mean)" if name == "zeta" else "positive integers, a <= b"
        raise CapacityError(f"{what}: {text!r} is out of range; expected {limit}")
    return IntegerLaw(name, values)


def mcm(
    rng: np.random.Generator,
    conversations: int,
    turns: IntegerLaw,
    increments: IntegerLaw,
    *,
    dependence: float = 0.0,
) -> Workload:
    """Sample conversations of the multi-turn model.

    Args:
        rng: Source of randomness.
        conversations: How many.
        turns: Law of M.
        increments: Law of Z_j, the same at every turn.
        dependence: Correlation, in normal scores, of two increments of one conversation;
            the model allows any dependence across turns, not with M.

    Raises:
        CapacityError: A number is out of range.
    """
    if conversations < 1:
        raise CapacityError(f"conversations: is {conversations}; expected 1 or more")
    if not 0 <= dependence < 1:
        raise CapacityError(f"dependence: is {dependence:g}; expected 0 up to below 1")
    counts = turns.quantile(rng.random(conversations))
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    own = rng.standard_normal(int(offsets[-1]))
    common = np.repeat(rng.standard_normal(conversations), counts)
    score = math.sqrt(1 - dependence) * own + math.sqrt(dependence) * common
    u = np.clip(special.ndtr(score), 0.0, np.nextafter(1.0, 0.0))
    law = f"mcm({turns.describe()}, {increments.describe()})"
    return workload_from_increments(offsets, increments.quantile(u), law)


def scm(
    rng: np.random.Generator,
    conversations: int,
    continue_probability: float,
    prompt_blocks: IntegerLaw,
    reply_blocks: IntegerLaw,
) -> Workload:
    """Sample the stochastic conversation model: geometric M, i.i.d. (X_j, Y_j).

    Raises:
        CapacityError: A number is out of range.
    """
    if not 0 < continue_probability < 1:
        raise CapacityError(f"p: is {continue_probability:g}; expected between 0 and 1")
    counts = IntegerLaw("geometric", (continue_probability,)).quantile(rng.random(conversations))
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    total = int(offsets[-1])
    increments = prompt_blocks.quantile(rng.random(total))
    replies = reply_blocks.quantile(rng.random(total))
    increments = increments + np.where(positions(offsets) > 0, replies, 0)
    return workload_from_increments(offsets, increments, f"scm(p={continue_probability:g})")
