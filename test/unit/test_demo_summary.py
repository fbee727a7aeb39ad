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
"""What a run of the demo leaves behind."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest

from csr_policy.demo.summary import (
    DecisionRow,
    RunCounters,
    closing_lines,
    decision_points,
    summarise,
    write_decisions,
    write_summary,
)

NAMED_KEYS = {
    "ticks",
    "outcomes",
    "swaps",
    "rate_hz",
    "ttft_median_s",
    "ttft_p99_s",
    "ttft_max_s",
    "cached_share_median",
    "topics_in_prompt",
}
COUNTERS = RunCounters(swaps=2, tau_mem_tokens=2000, topics_in_prompt=("/odom", "/view"))


def row(id: int, **changes: Any) -> DecisionRow:
    values: dict[str, Any] = {
        "time_s": float(id),
        "observation": "walls N",
        "action": "E",
        "outcome": "OK",
        "reason": "",
        "probability": 0.5,
        "label_mass": 0.1,
        "ttft_s": 0.2,
        "prompt_tokens": 1000,
        "cached_tokens": 900,
        "must_be_cached": 896,
        "version": 0,
        "last_chunk_index": id,
        "engine": "engine_0",
        "route": "continuation",
        "phase": "idle",
        "after_swap": False,
    }
    return DecisionRow(id=id, **(values | changes))


def missed(id: int, **changes: Any) -> DecisionRow:
    """A tick whose reply was late."""
    nothing = {"probability": math.nan, "label_mass": math.nan, "ttft_s": math.nan}
    return row(
        id,
        **(nothing | {"action": "", "outcome": "FALLBACK_DEADLINE", "cached_tokens": 0}),
        **changes,
    )


def test_outcomes_sum_to_the_ticks_and_all_named_keys_are_there() -> None:
    summary = summarise([row(1), missed(2), row(3)], COUNTERS, {})

    assert set(summary) >= NAMED_KEYS
    assert summary["ticks"] == 3
    assert summary["outcomes"] == {"OK": 2, "FALLBACK_DEADLINE": 1}
    assert (summary["swaps"], summary["topics_in_prompt"]) == (2, ["/odom", "/view"])


def test_numbers_are_over_the_decisions_that_had_a_reply() -> None:
    rows = [row(1, ttft_s=0.1), missed(2), row(3, ttft_s=0.3, cached_tokens=500), row(4)]

    summary = summarise(rows, COUNTERS, {})

    assert (summary["ttft_median_s"], summary["ttft_max_s"]) == (0.2, 0.3)
    assert summary["cached_share_median"] == 0.9
    assert summary["rate_hz"] == 1.0


def test_a_decision_that_never_arrived_is_counted() -> None:
    assert summarise([row(1), row(4)], COUNTERS, {})["decisions_not_received"] == 2


def test_what_should_have_been_cached_and_was_not_is_counted() -> None:
    rows = [row(1), row(2, cached_tokens=800)]

    assert summarise(rows, COUNTERS, {})["cached_less_than_must"] == 1


def test_a_run_without_a_reply_writes_null_not_nan(tmp_path: Path) -> None:
    file = tmp_path / "summary.json"

    write_summary(file, summarise([missed(1)], RunCounters(), {"source": "bag"}))

    read = json.loads(file.read_text(encoding="utf-8"))
    assert (read["ttft_median_s"], read["rate_hz"], read["source"]) == (None, None, "bag")


def test_decisions_are_written_one_a_line_with_absent_numbers_empty(tmp_path: Path) -> None:
    file = tmp_path / "decisions.csv"
    observation = 'a "quoted", comma'

    write_decisions(file, [row(1, observation=observation), missed(2)])

    with file.open(encoding="utf-8", newline="") as lines:
        first, second = csv.DictReader(lines)
    assert (first["observation"], first["ttft_s"]) == (observation, "0.2")
    assert (second["ttft_s"], second["outcome"]) == ("", "FALLBACK_DEADLINE")


@pytest.mark.parametrize(
    ("phase", "reconciling"),
    [("idle", False), ("warming", True), ("catching_up", True), ("failed", False)],
)
def test_the_plot_knows_when_the_other_engine_was_warmed(phase: str, reconciling: bool) -> None:
    assert decision_points([row(1, phase=phase)])[0].reconciling is reconciling


def test_the_closing_lines_tell_of_goals_only_where_there_is_a_robot() -> None:
    facts = {"goals_reached": 7, "actions_done": 90, "goals_at_random": 0.25}

    with_robot = closing_lines(summarise([row(1)], COUNTERS, facts))
    without = closing_lines(summarise([missed(1)], RunCounters(), {}))

    assert any("7 goals reached in 90 actions" in line for line in with_robot)
    assert not any("goals" in line for line in without)
