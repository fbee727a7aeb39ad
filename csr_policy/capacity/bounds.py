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
"""Constants and bounds of Theorems C.2, C.4, C.5 and C.6.

They prove convergence; as numbers they are vacuous at practical N (a probability
above 1, an error above h_max). They are printed to be seen, not to be leaned on:
`finite_size` gives the error that is there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from csr_policy.capacity.arrays import BoolArray, IntArray, positions
from csr_policy.capacity.gaps import GapLaw
from csr_policy.capacity.mean_field import characteristic_time, check_rate
from csr_policy.capacity.tail_law import Displacement
from csr_policy.capacity.workload import Workload, statistics


@dataclass(frozen=True, slots=True)
class Bounds:
    """In the paper's scaling: rates a block of N, displacement over N.

    Attributes:
        horizon_s: T, twice T_C.
        v_t: Second-moment constant V_T, equation (42).
        lipschitz: L, the largest slope of d.
        c_t: C_T of the uniform bound (17).
        slope: c_d, the least slope of d.
        displacement_deviation: sqrt(V_T / N), the scale in (16).
        time_deviation_s: sqrt(18 V_T / N) / c_d, the scale of |tau - T_C| in (22).
        hit_ratio_error: The least value of bound (26), or (33), over epsilon, J and theta.
        epsilon_s: Where it is least.
        turns: J where it is least.
        theta: theta where it is least.
        vacuous: Whether the bound exceeds h_max, so that it says nothing.
    """

    horizon_s: float
    v_t: float
    lipschitz: float
    c_t: float
    slope: float
    displacement_deviation: float
    time_deviation_s: float
    hit_ratio_error: float
    epsilon_s: float
    turns: int
    theta: float
    vacuous: bool


def bounds(
    workload: Workload,
    *,
    gap: GapLaw,
    arrival_rate_hz: float,
    blocks: int,
    practical: bool = False,
) -> Bounds:
    """Evaluate the bounds with empirical moments.

    Args:
        workload: Conversations.
        gap: Law of the gap; one that is not Lipschitz gives an infinite bound.
        arrival_rate_hz: Conversations a second, unscaled.
        blocks: N.
        practical: Theorem C.6 (R_j - 1 reusable) instead of C.5.
    """
    check_rate(arrival_rate_hz)
    stats = statistics(workload)
    assert stats.a_h is not None
    history = stats.a_h_hash if practical else stats.a_h
    rate = arrival_rate_hz / blocks
    curve = Displacement(stats.e_b, history)
    time_s = float(characteristic_time(float(blocks), curve, gap, arrival_rate_hz))
    horizon = 2 * time_s if math.isfinite(time_s) else 2 * blocks / arrival_rate_hz
    ends = workload.size[workload.offsets[1:] - 1].astype(np.float64)
    later = (workload.turn_counts - 1).astype(np.float64)
    second = float(np.mean(ends**2)) * horizon + gap.mean_s * float(np.mean(later * ends**2))
    v_t = rate * second
    slope = rate * stats.e_b
    lipschitz = slope + rate * history
    error, epsilon, turns, theta = _least(
        workload, gap, blocks, v_t, slope, min(time_s, horizon - time_s), stats.a_r, practical
    )
    return Bounds(
        horizon_s=horizon,
        v_t=v_t,
        lipschitz=lipschitz,
        c_t=16 * v_t / 9 * (2 + 4 * lipschitz * horizon),
        slope=slope,
        displacement_deviation=math.sqrt(v_t / blocks),
        time_deviation_s=math.sqrt(18 * v_t / blocks) / slope,
        hit_ratio_error=error,
        epsilon_s=epsilon,
        turns=turns,
        theta=theta,
        vacuous=error > history / stats.a_r,
    )


def _least(
    workload: Workload,
    gap: GapLaw,
    blocks: int,
    v_t: float,
    slope: float,
    room_s: float,
    a_r: float,
    practical: bool,
) -> tuple[float, float, int, float]:
    """Search epsilon, J and theta for the least bound."""
    ends = workload.size[workload.offsets[1:] - 1].astype(np.float64)
    counts = workload.turn_counts
    place = positions(workload.offsets) + 1
    size = workload.size - int(practical)
    best = (math.inf, math.nan, 0, math.nan)
    most = int(np.quantile(counts, 0.999))
    epsilons = room_s * np.geomspace(1e-3, 0.99, 25)
    for theta in np.geomspace(1e-3, 1.0, 13) / max(float(ends.mean()), 1.0):
        moment = float(np.mean(np.exp(theta * ends)))
        tail = float(np.mean(ends**2 * np.exp(theta * ends)))
        for turns in np.unique(np.geomspace(1, max(most - 1, 1), 12).astype(int)):
            survive = float(np.mean(counts >= turns + 1))
            if survive == 0:
                continue
            upto = workload.continues & (place <= turns)
            a_h = float(size[upto].sum()) / workload.conversations
            k_j = sum(
                float(np.mean(counts > j)) * math.sqrt(_second_moment(size, place == j))
                for j in range(1, int(turns) + 1)
            )
            reach = float(np.mean(counts >= turns))
            p = 18 * v_t / (blocks * slope**2 * epsilons**2) + moment / reach * np.exp(
                -theta * slope * blocks * epsilons / 3
            )
            rest = 2 * tail * math.exp(-theta * (turns + 2))
            values = (gap.lipschitz_hz * epsilons * a_h + k_j * np.sqrt(p) + rest) / a_r
            index = int(np.argmin(values))
            if values[index] < best[0]:
                chosen = (float(values[index]), float(epsilons[index]), int(turns), float(theta))
                best = chosen
    return best


def _second_moment(size: IntArray, at: BoolArray) -> float:
    chosen = size[at].astype(np.float64)
    return float(np.mean(chosen**2)) if chosen.size else 0.0
