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
"""What the status says about the decisions."""

from __future__ import annotations

import math

from csr_policy.decision import Decision, Outcome
from csr_policy.node.decision_window import DecisionWindow, quantile


def decision(number: int, outcome: Outcome = Outcome.OK, ttft_s: float = math.nan) -> Decision:
    replied = not math.isnan(ttft_s)
    return Decision(
        id=number,
        stamp_ns=0,
        action="go",
        outcome=outcome,
        ttft_s=ttft_s,
        prompt_tokens=100 if replied else 0,
        cached_tokens=90 if replied else 0,
    )


def test_outcomes_sum_to_the_decisions() -> None:
    window = DecisionWindow()
    for number, outcome in enumerate((Outcome.OK, Outcome.OK, Outcome.NOT_READY)):
        window.add(decision(number, outcome))

    outcomes = window.summary().outcomes

    assert outcomes[Outcome.OK] == 2
    assert outcomes[Outcome.NOT_READY] == 1
    assert sum(outcomes.values()) == 3


def test_quantiles_cover_the_newest_replies_alone() -> None:
    window = DecisionWindow(size=3)
    for number, ttft_s in enumerate((9.0, 0.1, math.nan, 0.2, 0.3)):
        window.add(decision(number, ttft_s=ttft_s))

    summary = window.summary()

    assert (summary.ttft_median_s, summary.ttft_p99_s) == (0.2, 0.3)
    assert summary.cached_share == 0.9
    assert summary.replies == 3


def test_no_reply_has_no_latency() -> None:
    summary = DecisionWindow().summary()

    assert math.isnan(summary.ttft_median_s)
    assert math.isnan(summary.cached_share)
    assert summary.last_id == -1


def test_a_quantile_is_one_of_the_values() -> None:
    values = [float(number) for number in range(1, 101)]

    assert quantile(values, 0.5) == 50.0
    assert quantile(values, 0.99) == 99.0
    assert quantile([7.0], 0.99) == 7.0
