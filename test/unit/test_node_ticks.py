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
"""When ticks are due."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csr_policy.node.ticks import LATENESS_SHARE, Next, next_tick


def test_a_quick_tick_is_followed_after_one_period() -> None:
    assert next_tick(due_s=10.0, now_s=10.1, period_s=0.5) == Next(10.5, 0)


def test_a_tick_that_ends_at_its_deadline_skips_none() -> None:
    assert next_tick(due_s=10.0, now_s=10.5 + 0.5 * LATENESS_SHARE, period_s=0.5).skipped == 0


def test_ticks_due_meanwhile_are_counted_and_do_not_start() -> None:
    following = next_tick(due_s=10.0, now_s=11.7, period_s=0.5)

    assert following.skipped == 3
    assert following.due_s == pytest.approx(12.0)


@given(
    due_s=st.floats(0, 1e6),
    late_s=st.floats(0, 1e3),
    period_s=st.floats(0.02, 20),
)
def test_ticks_stay_on_the_grid(due_s: float, late_s: float, period_s: float) -> None:
    following = next_tick(due_s, due_s + late_s, period_s)

    assert following.due_s == pytest.approx(due_s + (following.skipped + 1) * period_s)
    assert following.due_s >= due_s + late_s - LATENESS_SHARE * period_s - 1e-6
