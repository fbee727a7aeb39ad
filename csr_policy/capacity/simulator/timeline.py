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
"""Turns of many conversations in order of time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from csr_policy.capacity.arrays import BoolArray, FloatArray, IntArray, gather_rows, row_cumsum
from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.gaps import GapLaw
from csr_policy.capacity.mean_field import check_rate
from csr_policy.capacity.workload import Workload


@dataclass(frozen=True, slots=True)
class Timeline:
    """Turns sorted by submission time, one element a turn.

    Attributes:
        conversation: Number of the conversation instance.
        group: Number of those who begin with the same shared blocks.
        turn: Index of the turn in the workload's flat arrays.
        first: Whether it opens its conversation.
        time_s: Submission time.
        finish_s: When its blocks are released; equal to `time_s` for instant service.
        counted: Whether it counts; a warm-up request does not.
        window_s: Measurement window, begin and end.
    """

    conversation: IntArray
    group: IntArray
    turn: IntArray
    first: BoolArray
    time_s: FloatArray
    finish_s: FloatArray
    counted: BoolArray
    window_s: tuple[float, float]

    @property
    def turns(self) -> int:
        """Number of turns."""
        return int(self.turn.size)

    @property
    def measured(self) -> BoolArray:
        """Turns that count, submitted inside the window."""
        begin, end = self.window_s
        return self.counted & (self.time_s >= begin) & (self.time_s <= end)


def poisson_timeline(
    workload: Workload,
    *,
    arrival_rate_hz: float,
    gap: GapLaw,
    rng: np.random.Generator,
    measured: int,
    warm_up: int,
    in_order: bool = False,
    service_s: float = 0.0,
) -> Timeline:
    """Conversations by a Poisson process, as in Appendix E.

    The window begins with the first measured conversation and ends with the last one, so
    that no turn is counted after arrivals have stopped.

    Args:
        workload: Conversations to draw from.
        arrival_rate_hz: New conversations a second.
        gap: Law of the time between two prompts of a conversation.
        rng: Source of randomness.
        measured: Conversations in the window.
        warm_up: Conversations before it.
        in_order: Take the workload's conversations one after another instead of drawing.
        service_s: Time a request holds its blocks; a gap is never shorter (equation (80)).

    Raises:
        CapacityError: A number is out of range.
    """
    check_rate(arrival_rate_hz)
    if measured < 2 or warm_up < 0:
        raise CapacityError(
            f"conversations: {measured} measured and {warm_up} before; expected at least 2 and 0"
        )
    count = measured + warm_up
    if in_order:
        rows = np.arange(count, dtype=np.int64) % workload.conversations
    else:
        rows = rng.integers(0, workload.conversations, count)
    arrivals = np.cumsum(rng.exponential(1 / arrival_rate_hz, count))
    offsets, flat = gather_rows(workload.offsets, rows)
    # A little longer than the service, or rounding would let a turn overtake the one before.
    gaps = np.maximum(gap.sample(rng, int(offsets[-1])), service_s * (1 + 1e-9))
    first = np.zeros(flat.size, dtype=np.bool_)
    first[offsets[:-1]] = True
    gaps[first] = arrivals
    times = row_cumsum(gaps, offsets)
    owner = np.repeat(np.arange(count, dtype=np.int64), np.diff(offsets))
    order = np.argsort(times, kind="stable")
    sorted_times = np.asarray(times[order], dtype=np.float64)
    return Timeline(
        conversation=owner[order],
        group=np.zeros(owner.size, dtype=np.int64),
        turn=flat[order],
        first=first[order],
        time_s=sorted_times,
        finish_s=sorted_times + service_s,
        counted=np.ones(owner.size, dtype=np.bool_),
        window_s=(float(arrivals[warm_up]), float(arrivals[-1])),
    )


def warm_up_conversations(
    workload: Workload, gap: GapLaw, arrival_rate_hz: float, blocks: int
) -> int:
    """Conversations after which cache and open conversations have settled.

    The open conversations settle within the longest lifetimes, the cache within the time
    that new blocks take to fill it; both are covered.
    """
    longest = float(np.quantile(workload.turn_counts - 1, 0.995)) * gap.mean_s * 1.5
    ends = workload.offsets[1:] - 1
    new_a_conversation = float(workload.size[ends].mean())
    fill = 2.0 * blocks / (arrival_rate_hz * new_a_conversation)
    return int(np.ceil(max(longest, fill) * arrival_rate_hz)) + 10
