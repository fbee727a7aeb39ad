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
"""The mean-field limit: displacement curve, characteristic time, hit ratio.

A conversation that was just served lies at the recent end of the LRU order. By
time t, d(t) blocks of others have moved in front of it; at d(T_C) = N it is
evicted. Its next prompt comes after W, so it hits with probability F(T_C)
(Theorems 3.1, C.6), and the estimator (39) weighs that with the reusable share.
At finite N the tagged content's own size counts as well: block k of it goes
when d = N - k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import special

from csr_policy.capacity.arrays import FloatArray
from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.gaps import Deterministic, GapLaw, require_mean
from csr_policy.capacity.tail_law import Displacement, TailLaw, displacement
from csr_policy.capacity.workload import Statistics, Workload, statistics

_MOST_STEPS = 200


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the theory says about one engine.

    Attributes:
        law: Tail law used.
        arrival_rate_hz: New conversations a second.
        gap: Gap law as written.
        blocks: N.
        characteristic_time_s: T_C; infinite where everything fits.
        hit_probability: F(T_C).
        hit_ratio: Equation (39), blocks reused over blocks asked for.
        hit_ratio_size_corrected: With the content's own size at this N; None without a trace.
        token_hit_ratio: Cached over queried prompt tokens as vLLM counts them, size
            corrected; None without a trace.
        h_max: Equation (11); None without E[M].
        h_max_hash: Reusable share of an endless cache.
        notes: What the reader must know, one sentence each.
    """

    law: TailLaw
    arrival_rate_hz: float
    gap: str
    blocks: int
    characteristic_time_s: float
    hit_probability: float
    hit_ratio: float
    hit_ratio_size_corrected: float | None
    token_hit_ratio: float | None
    h_max: float | None
    h_max_hash: float
    notes: tuple[str, ...] = ()


def check_rate(arrival_rate_hz: float) -> None:
    """Refuse an arrival rate that is not positive.

    Raises:
        CapacityError: The rate is wrong.
    """
    if not math.isfinite(arrival_rate_hz) or arrival_rate_hz <= 0:
        raise CapacityError(
            f"arrival_rate: is {arrival_rate_hz:g}; expected a positive number of "
            "conversations a second"
        )


def displacement_curve(
    t_s: npt.ArrayLike, curve: Displacement, gap: GapLaw, arrival_rate_hz: float
) -> FloatArray:
    """d(t) in blocks, equation (15) or (29) times N."""
    t = np.asarray(t_s, dtype=np.float64)
    moved = curve.new * t + curve.history * gap.tail_integral(t)
    return np.asarray(arrival_rate_hz * moved + curve.shared)


def characteristic_time(
    blocks: npt.ArrayLike, curve: Displacement, gap: GapLaw, arrival_rate_hz: float
) -> FloatArray:
    """Solve d(T) = blocks for each element; 0 where blocks <= 0, inf where d stays below.

    Newton from the left: d is increasing and concave, so its tangents never overshoot.
    """
    check_rate(arrival_rate_hz)
    require_mean(gap)
    target = np.asarray(blocks, dtype=np.float64) - curve.shared
    slope_at_0 = arrival_rate_hz * (curve.new + curve.history)
    endless = np.zeros(target.shape, dtype=np.bool_)
    if curve.new == 0:
        endless = target >= arrival_rate_hz * curve.history * gap.mean_s * (1 - 1e-12)
    if slope_at_0 == 0:
        return np.where(target > 0, np.inf, 0.0)
    goal = np.where(endless, 0.0, np.maximum(target, 0.0))
    t = goal / slope_at_0
    for _ in range(_MOST_STEPS):
        missing = goal + curve.shared - displacement_curve(t, curve, gap, arrival_rate_hz)
        slope = arrival_rate_hz * (curve.new + curve.history * (1 - gap.cdf(t)))
        step = np.divide(missing, slope, out=np.zeros_like(t), where=slope > 0)
        t = np.maximum(t + step, 0.0)
        if np.all(np.abs(step) <= 1e-13 * np.maximum(t, 1e-300)):
            break
    return np.where(endless, np.inf, t)


def characteristic_time_exponential(
    blocks: float, curve: Displacement, mean_s: float, arrival_rate_hz: float
) -> float:
    """Closed form for exponential gaps without shared blocks.

    With x = T / mean, A = (N / rate - history mean) / (new mean) and r = history / new,
    x = A + r exp(-x), so x = A + W(r exp(-A)); the Wright omega function keeps it finite.
    """
    assert curve.new > 0 and curve.shared == 0
    a = (blocks / arrival_rate_hz - curve.history * mean_s) / (curve.new * mean_s)
    if curve.history == 0:
        return a * mean_s
    return mean_s * float(a + special.wrightomega(math.log(curve.history / curve.new) - a))


def reuse_by_size(
    own: npt.ArrayLike, blocks: int, curve: Displacement, gap: GapLaw, rate_hz: float
) -> FloatArray:
    """Expected blocks reused of a content of `own` full blocks, evicted block by block.

    Block k of k = 1..own has k - 1 own blocks in front of it (the suffix goes first), so it
    is found if the gap is shorter than T_C(N - k).
    """
    sizes = np.asarray(own, dtype=np.int64)
    most = int(sizes.max(initial=0))
    times = characteristic_time(blocks - np.arange(1, most + 1), curve, gap, rate_hz)
    found = gap.cdf(times) * (times > 0)
    return np.concatenate(([0.0], np.cumsum(found)))[sizes]


def reuse_whole(
    own: npt.ArrayLike, blocks: int, curve: Displacement, gap: GapLaw, rate_hz: float
) -> FloatArray:
    """Probability that a content of `own` blocks is found whole: F(T_C(N - own))."""
    sizes = np.asarray(own, dtype=np.int64)
    distinct, index = np.unique(sizes, return_inverse=True)
    times = characteristic_time(blocks - distinct, curve, gap, rate_hz)
    found = np.where(distinct <= blocks, gap.cdf(times) * ((times > 0) | (distinct == blocks)), 0)
    return np.asarray(found[index.reshape(sizes.shape)])


def estimate(
    stats: Statistics,
    *,
    law: TailLaw,
    gap: GapLaw,
    arrival_rate_hz: float,
    blocks: int,
    workload: Workload | None = None,
) -> Estimate:
    """Estimator (39) under a tail law, size corrected where a workload is given.

    Raises:
        CapacityError: A number is out of range, or N holds not one conversation.
    """
    check_rate(arrival_rate_hz)
    require_mean(gap)
    _check_blocks(blocks, stats)
    curve = displacement(stats, law)
    time_s = float(characteristic_time(float(blocks), curve, gap, arrival_rate_hz))
    probability = float(gap.cdf(time_s)) if math.isfinite(time_s) else 1.0
    shared = curve.shared * curve.turns
    ratio = (curve.history * probability + shared) / stats.a_r
    result = Estimate(
        law=law,
        arrival_rate_hz=arrival_rate_hz,
        gap=gap.describe(),
        blocks=blocks,
        characteristic_time_s=time_s,
        hit_probability=probability,
        hit_ratio=ratio,
        hit_ratio_size_corrected=None,
        token_hit_ratio=None,
        h_max=stats.h_max,
        h_max_hash=stats.h_max_hash,
        notes=_notes(stats, law, gap, time_s),
    )
    if workload is None:
        return result
    reused = _size_corrected(workload, law, curve, gap, arrival_rate_hz, blocks)
    real = workload.reusable[workload.continues]
    cached = reuse_by_size(real, blocks, curve, gap, arrival_rate_hz).sum()
    assert stats.prompt_tokens is not None
    cached_tokens = (cached / workload.conversations + shared) * workload.block_tokens
    return replace(
        result,
        hit_ratio_size_corrected=(reused + shared) / stats.a_r,
        token_hit_ratio=float(cached_tokens / stats.prompt_tokens),
    )


def estimate_workload(
    workload: Workload, *, law: TailLaw, gap: GapLaw, arrival_rate_hz: float, blocks: int
) -> Estimate:
    """`estimate` with the direct averages of a workload."""
    return estimate(
        statistics(workload),
        law=law,
        gap=gap,
        arrival_rate_hz=arrival_rate_hz,
        blocks=blocks,
        workload=workload,
    )


def _size_corrected(
    workload: Workload,
    law: TailLaw,
    curve: Displacement,
    gap: GapLaw,
    rate_hz: float,
    blocks: int,
) -> float:
    """Blocks reused a conversation, E[R_j F(T_C(N - R_j))] or its block-by-block form."""
    go_on = workload.continues
    if law is TailLaw.IDEAL:
        sizes = workload.size[go_on] - workload.shared_blocks
        reused = sizes * reuse_whole(sizes, blocks, curve, gap, rate_hz)
    elif law is TailLaw.PAPER:
        sizes = workload.size[go_on] - workload.shared_blocks - 1
        reused = sizes * reuse_whole(sizes, blocks, curve, gap, rate_hz)
    else:
        reused = reuse_by_size(workload.reusable[go_on], blocks, curve, gap, rate_hz)
    return float(reused.sum() / workload.conversations)


def _check_blocks(blocks: int, stats: Statistics) -> None:
    least = stats.e_b
    if blocks < least:
        raise CapacityError(
            f"blocks: is {blocks}; expected at least one conversation, {math.ceil(least)}"
        )


def _notes(stats: Statistics, law: TailLaw, gap: GapLaw, time_s: float) -> tuple[str, ...]:
    notes = []
    if isinstance(gap, Deterministic):
        side = "below" if time_s < gap.mean_s else "above"
        notes.append(
            f"The gap is fixed, so F jumps (Assumption B.4): T_C is {side} it and the limit "
            "is all or nothing; near the jump only the simulator tells."
        )
    if math.isinf(time_s):
        notes.append("Everything fits: nothing is ever evicted.")
    if stats.a_h is not None and abs(stats.a_r - stats.a_h - stats.e_b) > 0.01 * stats.e_b:
        notes.append(
            "The averages contradict each other: A_R - A_H is E[B] on any data set, here "
            f"{stats.a_r - stats.a_h:.4g} and {stats.e_b:.4g}."
        )
    if stats.shared_blocks and law is TailLaw.PAPER:
        notes.append("Shared blocks are counted once; the paper's formula has no such term.")
    return tuple(notes)
