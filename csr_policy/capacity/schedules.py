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
"""What a validation sends when, and how much a window of that length varies by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from csr_policy.capacity.arrays import gather_rows, row_cumsum
from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.server_replay import Schedule
from csr_policy.capacity.simulator.block_lru import simulate_block_lru
from csr_policy.capacity.simulator.timeline import Timeline
from csr_policy.capacity.tail_law import TailLaw
from csr_policy.capacity.trace import Trace
from csr_policy.capacity.workload import Boundary, Reading, Workload, blocks_of

_REPLICATES = 40


@dataclass(frozen=True, slots=True)
class Setting:
    """What a point runs.

    Attributes:
        arrival_rate_hz: Conversations a second.
        gap_mean_s: Mean of the exponential gaps.
        blocks: N of the engine, without its null block.
        block_tokens: Tokens a block.
        measured: Conversations in the window.
        warm_up: Conversations before.
        law: Tail law of the engine.
        boundary: Turn boundary.
        seed: Of the conversations, arrivals and gaps.
        text_seed: Of the texts; two points on one engine must not share theirs.
    """

    arrival_rate_hz: float
    gap_mean_s: float
    blocks: int
    block_tokens: int
    measured: int = 600
    warm_up: int = 120
    law: TailLaw = TailLaw.TAILS_FIRST
    boundary: Boundary = Boundary.DISAGGREGATED
    seed: int = 0
    text_seed: int = 0


def scale_tokens(trace: Trace, factor: float) -> Trace:
    """Shrink conversations: with blocks shrunk alike, the same blocks at less computing.

    Raises:
        CapacityError: The factor is not positive.
    """
    if not 0 < factor <= 1:
        raise CapacityError(f"token_scale: is {factor:g}; expected above 0, at most 1")
    prompt = np.maximum(np.rint(trace.prompt_tokens * factor), 1).astype(np.int64)
    reply = np.rint(trace.reply_tokens * factor).astype(np.int64)
    return replace(trace, prompt_tokens=prompt, reply_tokens=reply)


def enough_warm_up(trace: Trace, setting: Setting) -> int:
    """Conversations before the window: 95 % of lifetimes, and two fillings of the cache."""
    lifetime_s = float(np.quantile(trace.turn_counts - 1, 0.95)) * setting.gap_mean_s
    work = blocks_of(trace, setting.block_tokens, reading=Reading.LIVE)
    filling = 2 * setting.blocks / float(work.size[work.offsets[1:] - 1].mean())
    return int(np.ceil(max(lifetime_s * setting.arrival_rate_hz, filling))) + 10


def schedule_of(trace: Trace, setting: Setting) -> Schedule:
    """Draw conversations, Poisson arrivals and exponential gaps."""
    rng = np.random.default_rng(setting.seed)
    count = setting.measured + setting.warm_up
    rows = rng.integers(0, trace.conversations, count)
    arrivals = np.cumsum(rng.exponential(1 / setting.arrival_rate_hz, count))
    gaps = rng.exponential(setting.gap_mean_s, int(trace.turn_counts[rows].sum()))
    return Schedule(rows, arrivals, gaps, setting.warm_up)


def window_deviation(trace: Trace, setting: Setting) -> float:
    """Standard deviation of the hit ratio between windows of the same setting.

    Other draws of conversations, arrivals and gaps are simulated. The spread inside one
    window would be too small a measure: a window is a few lifetimes of a conversation long.
    """
    work = blocks_of(trace, setting.block_tokens, reading=Reading.LIVE, boundary=setting.boundary)
    ratios = []
    for number in range(1, _REPLICATES + 1):
        other = schedule_of(trace, replace(setting, seed=setting.seed + 7919 * number))
        timeline = _instant(work, other)
        ratios.append(simulate_block_lru(timeline, work, setting.blocks, setting.law).hit_ratio)
    return float(np.std(ratios, ddof=1))


def _instant(work: Workload, schedule: Schedule) -> Timeline:
    """A schedule as it would be served without any delay, up to its last arrival."""
    offsets, flat = gather_rows(work.offsets, schedule.rows)
    steps = np.empty(flat.size)
    steps[1:] = schedule.gaps_s[:-1]
    steps[offsets[:-1]] = schedule.arrivals_s
    times = row_cumsum(steps, offsets)
    owner = np.repeat(np.arange(schedule.rows.size, dtype=np.int64), np.diff(offsets))
    first = np.zeros(flat.size, dtype=np.bool_)
    first[offsets[:-1]] = True
    order = np.argsort(times, kind="stable")
    end = float(schedule.arrivals_s[-1])
    order = order[times[order] <= end]
    return Timeline(
        conversation=owner[order],
        group=np.zeros(order.size, dtype=np.int64),
        turn=flat[order],
        first=first[order],
        time_s=times[order],
        finish_s=times[order],
        counted=np.ones(order.size, dtype=np.bool_),
        window_s=(float(schedule.arrivals_s[schedule.warm_up]), end),
    )
