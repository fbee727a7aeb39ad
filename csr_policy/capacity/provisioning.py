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
"""How much cache is enough: N for a hit ratio or a TTFT, and how to keep idle sessions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.finite_size import (
    Background,
    found_probability,
    hit_ratio_finite,
    poisson_background,
)
from csr_policy.capacity.gaps import GapLaw
from csr_policy.capacity.mean_field import check_rate, estimate
from csr_policy.capacity.tail_law import TailLaw, displacement
from csr_policy.capacity.ttft import late_probability, prompts_of
from csr_policy.capacity.workload import Statistics, Workload, statistics
from csr_policy.cost_model import CostModel

_MOST_BLOCKS = 1 << 40


@dataclass(frozen=True, slots=True)
class Provision:
    """The smallest N that does it.

    Attributes:
        blocks: N.
        reached: Hit ratio, or share of turns in time, at N.
        target: What was asked for.
        ceiling: The same for an endless cache.
        method: `finite-size` with a trace, `limit` from averages alone.
    """

    blocks: int
    reached: float
    target: float
    ceiling: float
    method: str


def ceiling(stats: Statistics, law: TailLaw) -> float:
    """Hit ratio of an endless cache under a law."""
    curve = displacement(stats, law)
    return (curve.history + curve.shared * curve.turns) / stats.a_r


def blocks_for_hit_ratio(
    stats: Statistics,
    target: float,
    *,
    law: TailLaw,
    gap: GapLaw,
    arrival_rate_hz: float,
    workload: Workload | None = None,
) -> Provision:
    """Smallest N whose hit ratio reaches the target.

    With a workload the finite-size law is inverted (own size and spread of the
    displacement), else the limit (39).

    Raises:
        CapacityError: The target is out of range or no cache reaches it.
    """
    check_rate(arrival_rate_hz)
    most = ceiling(stats, law)
    if not 0 < target < 1:
        raise CapacityError(f"target: is {target:g}; expected a hit ratio between 0 and 1")
    if target >= most:
        raise CapacityError(
            f"target: is {target:g}; expected below {most:.4f}, what an endless cache reaches"
        )

    def reached(blocks: int) -> float:
        if workload is not None:
            return hit_ratio_finite(
                workload, law=law, gap=gap, arrival_rate_hz=arrival_rate_hz, blocks=blocks
            )
        return estimate(
            stats, law=law, gap=gap, arrival_rate_hz=arrival_rate_hz, blocks=blocks
        ).hit_ratio

    least = max(1, math.ceil(stats.e_b))
    blocks = _smallest(least, lambda n: reached(n) >= target, f"target: {target:g}")
    method = "limit" if workload is None else "finite-size"
    return Provision(blocks, reached(blocks), target, most, method)


def blocks_for_ttft(
    workload: Workload,
    cost: CostModel,
    *,
    deadline_s: float,
    probability: float,
    law: TailLaw,
    gap: GapLaw,
    arrival_rate_hz: float,
) -> Provision:
    """Smallest N with P(TTFT <= deadline) >= probability over all turns.

    Raises:
        CapacityError: A number is out of range or no cache reaches it.
    """
    check_rate(arrival_rate_hz)
    if not 0 < probability < 1:
        raise CapacityError(f"probability: is {probability:g}; expected between 0 and 1")
    prompts = prompts_of(workload)
    most_own = int(prompts.own.max(initial=0))
    best = 1 - late_probability(prompts, np.ones(most_own), cost, deadline_s)
    if best < probability:
        raise CapacityError(
            f"deadline_s: {deadline_s:g} s is met by {best:.4f} of the turns with an endless "
            f"cache; expected {probability:g} to be within reach"
        )

    def in_time(blocks: int) -> float:
        background = poisson_background(workload, law, gap, arrival_rate_hz, blocks)
        found = found_probability(blocks - np.arange(1, most_own + 1), background, gap)
        return 1 - late_probability(prompts, found, cost, deadline_s)

    least = max(1, math.ceil(statistics(workload).e_b))
    blocks = _smallest(least, lambda n: in_time(n) >= probability, f"deadline_s: {deadline_s:g}")
    return Provision(blocks, in_time(blocks), probability, best, "finite-size")


def _smallest(least: int, enough: Callable[[int], bool], what: str) -> int:
    """Smallest N from `least` on; enough is monotone."""
    if enough(least):
        return least
    low, high = least, 2 * least
    while not enough(high):
        low, high = high, 2 * high
        if high > _MOST_BLOCKS:
            raise CapacityError(f"{what} needs more than {_MOST_BLOCKS} blocks")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """How often idle sessions must ask to stay cached.

    Attributes:
        interval_s: Longest time between two requests of one idle session; infinite where
            nothing evicts them.
        requests_hz: Requests of all idle sessions together.
        probability: That a session is whole at its next request.
    """

    interval_s: float
    requests_hz: float
    probability: float


def keep_alive(
    background: Background,
    *,
    blocks: int,
    session_blocks: int,
    idle_sessions: int = 1,
    probability: float = 0.99,
) -> KeepAlive:
    """Longest interval at which an idle session finds itself whole.

    The idle ones keep each other out of the way: within an interval all of them pass once,
    so their blocks are taken off N; what is left must outlast the active ones.

    Raises:
        CapacityError: A number is out of range, or the idle sessions alone do not fit.
    """
    if session_blocks < 1 or idle_sessions < 1:
        raise CapacityError(
            f"idle sessions: {idle_sessions} of {session_blocks} blocks; expected 1 or more"
        )
    if not 0.5 <= probability < 1:
        raise CapacityError(f"probability: is {probability:g}; expected from 0.5 to below 1")
    room = blocks - session_blocks * idle_sessions
    spreads = float(special.ndtri(probability))

    def passed(t_s: float) -> float:
        at = np.array([t_s])
        return float(background.mean(at)[0] + spreads * background.deviation(at)[0])

    if passed(1e-6) > room:
        raise CapacityError(
            f"blocks: is {blocks}; expected more than the idle sessions and those in service "
            f"take, {session_blocks * idle_sessions + math.ceil(passed(1e-6))}"
        )
    low, high = 1e-6, 1.0
    while passed(high) <= room:
        low, high = high, 2 * high
        if high > 1e9:
            return KeepAlive(math.inf, 0.0, probability)
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if passed(middle) <= room else (low, middle)
    return KeepAlive(low, idle_sessions / low, probability)
