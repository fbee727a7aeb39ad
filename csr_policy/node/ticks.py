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
"""When a tick of the control loop is due: arithmetic on the steady clock, no clock in it."""

from __future__ import annotations

from dataclasses import dataclass

LATENESS_SHARE = 0.2
"""A tick may start this share of a period late.

With a deadline of one period a fallback ends just when the next tick is due; without
room every such tick would be skipped and the rate halved while the engine is slow.
"""


@dataclass(frozen=True, slots=True)
class Next:
    """What comes after a tick.

    Attributes:
        due_s: When the next tick starts, steady clock.
        skipped: Ticks that came due meanwhile and do not start.
    """

    due_s: float
    skipped: int


def next_tick(due_s: float, now_s: float, period_s: float) -> Next:
    """Choose the tick after the one that was due at `due_s` and ended at `now_s`.

    Ticks stay on the grid `due_s + n * period_s`, so that a slow one does not shift
    the rest.
    """
    candidate = due_s + period_s
    late_s = now_s - candidate - LATENESS_SHARE * period_s
    if late_s <= 0:
        return Next(candidate, 0)
    skipped = int(late_s / period_s) + 1
    return Next(candidate + skipped * period_s, skipped)
