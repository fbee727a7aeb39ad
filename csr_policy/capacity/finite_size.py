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
"""The hit ratio at finite N: own size, and the spread of the displacement.

Theorem 3.1's limit differs from a real N by O(1/N), from two sides. The tagged
content's own size evicts it earlier (`mean_field.reuse_by_size`). The displacement
jumps by whole conversations, so it passes N later than its mean does. The second
needs Var D(t), which has the same closed form as d(t) with squared sizes: the
background is a Poisson measure, and what a conversation adds to D(t) is its size at
its last access in (0, t]. A normal law with that mean and variance gives

    P(D(W) <= x) = integral of F(w) dP(tau_x <= w),  P(tau_x <= w) = P(D(w) > x).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from csr_policy.capacity.arrays import FloatArray, row_sum
from csr_policy.capacity.gaps import GapLaw
from csr_policy.capacity.mean_field import (
    characteristic_time,
    check_rate,
    displacement_curve,
)
from csr_policy.capacity.tail_law import Displacement, TailLaw, displacement
from csr_policy.capacity.workload import Workload, statistics

_GRID = 800
_SPREADS = 7.0
_TARGETS = 400


@dataclass(frozen=True, slots=True)
class Background:
    """The others, as a tagged content sees them pass.

    Attributes:
        mean: d(t) in blocks.
        deviation: Standard deviation of D(t) in blocks.
        horizon_s: A time by which D is surely past N.
        floor: Blocks that lie in front of any content from the first moment on.
    """

    mean: Callable[[FloatArray], FloatArray]
    deviation: Callable[[FloatArray], FloatArray]
    horizon_s: float
    floor: float = 0.0


def found_probability(targets: npt.ArrayLike, background: Background, gap: GapLaw) -> FloatArray:
    """P(D(W) <= x) for each target x: the chance that a content x from the end is found."""
    wanted = np.asarray(targets, dtype=np.float64)
    if wanted.size == 0:
        return np.zeros(0)
    some = np.unique(wanted)
    if some.size > _TARGETS:
        some = np.linspace(some[0], some[-1], _TARGETS)
    times = np.linspace(0, background.horizon_s, _GRID + 1)[1:]
    mean, deviation = background.mean(times), np.maximum(background.deviation(times), 1e-9)
    # D counts blocks, hence the half; nothing passes without time, hence the zero before.
    passed = special.ndtr((mean[None, :] - some[:, None] - 0.5) / deviation[None, :])
    passed = np.where(some[:, None] < background.floor, 1.0, passed)
    steps = np.diff(passed, axis=1, prepend=0.0)
    shorter = gap.cdf(times)
    middle = (shorter + np.concatenate(([float(gap.cdf(0.0))], shorter[:-1]))) / 2
    found = (steps * middle).sum(axis=1) + (1 - passed[:, -1]) * shorter[-1]
    found = np.where(some < background.floor, 0.0, np.clip(found, 0.0, 1.0))
    return np.asarray(np.interp(wanted, some, found))


def poisson_background(
    workload: Workload, law: TailLaw, gap: GapLaw, arrival_rate_hz: float, blocks: int
) -> Background:
    """Background of conversations that arrive by a Poisson process."""
    check_rate(arrival_rate_hz)
    curve = displacement(statistics(workload), law)
    last, going_on = _squared_sizes(workload, law)

    def mean(t_s: FloatArray) -> FloatArray:
        return displacement_curve(t_s, curve, gap, arrival_rate_hz)

    def deviation(t_s: FloatArray) -> FloatArray:
        spread = last * t_s + going_on * gap.tail_integral(t_s)
        return np.asarray(np.sqrt(arrival_rate_hz * spread))

    horizon_s = _horizon(mean, deviation, curve, gap, arrival_rate_hz, blocks)
    return Background(mean, deviation, horizon_s, float(curve.shared))


def _horizon(
    mean: Callable[[FloatArray], FloatArray],
    deviation: Callable[[FloatArray], FloatArray],
    curve: Displacement,
    gap: GapLaw,
    rate_hz: float,
    blocks: int,
) -> float:
    """Time at which the displacement is many deviations past N."""
    time_s = float(characteristic_time(float(blocks), curve, gap, rate_hz))
    if not math.isfinite(time_s):
        return 50 * gap.mean_s
    for _ in range(3):
        spread = float(deviation(np.array([time_s]))[0])
        goal = blocks + _SPREADS * spread
        time_s = float(characteristic_time(goal, curve, gap, rate_hz))
        if not math.isfinite(time_s):
            return 50 * gap.mean_s
    return time_s


def _squared_sizes(workload: Workload, law: TailLaw) -> tuple[float, float]:
    """E[size^2] at the last turn and its sum over the others, of what others see pass."""
    if law in (TailLaw.IDEAL, TailLaw.PAPER):
        size = workload.size - workload.shared_blocks
    elif law is TailLaw.TAILS_RECENT:
        size = workload.reusable + workload.dead + workload.partial
    else:
        size = workload.reusable + workload.dead
    squares = size.astype(np.float64) ** 2
    ends = workload.offsets[1:] - 1
    going_on = row_sum(np.where(workload.continues, squares, 0.0), workload.offsets)
    return float(squares[ends].mean()), float(going_on.mean())


def reused_blocks(
    own: npt.ArrayLike, blocks: int, background: Background, gap: GapLaw
) -> FloatArray:
    """Expected blocks reused of contents of `own` full blocks, block by block."""
    sizes = np.asarray(own, dtype=np.int64)
    most = int(sizes.max(initial=0))
    found = found_probability(blocks - np.arange(1, most + 1), background, gap)
    return np.asarray(np.concatenate(([0.0], np.cumsum(found)))[sizes])


def hit_ratio_finite(
    workload: Workload, *, law: TailLaw, gap: GapLaw, arrival_rate_hz: float, blocks: int
) -> float:
    """Blocks reused over blocks asked for, with both finite-N corrections."""
    background = poisson_background(workload, law, gap, arrival_rate_hz, blocks)
    going_on = workload.continues
    if law in (TailLaw.IDEAL, TailLaw.PAPER):
        # Whole contents: found or not, with all their blocks in the way.
        loss = 0 if law is TailLaw.IDEAL else 1
        sizes = workload.size[going_on] - workload.shared_blocks - loss
        distinct, index = np.unique(sizes, return_inverse=True)
        found = found_probability(blocks - distinct, background, gap)
        reused = sizes * found[index]
    else:
        reused = reused_blocks(workload.reusable[going_on], blocks, background, gap)
    stats = statistics(workload)
    assert stats.e_m is not None
    shared = workload.shared_blocks * stats.e_m
    return float((reused.sum() / workload.conversations + shared) / stats.a_r)
