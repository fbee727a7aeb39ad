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
"""The live table, on a terminal and off it."""

from __future__ import annotations

import io
import math

from rich.console import Console

from csr_policy.demo.summary import DecisionRow
from csr_policy.demo.table import LiveTable


def row(id: int, version: int = 0, **changes: object) -> DecisionRow:
    values: dict[str, object] = {
        "time_s": float(id),
        "observation": f"observation {id}",
        "action": "E",
        "outcome": "OK",
        "reason": "",
        "probability": 0.51,
        "label_mass": 0.1,
        "ttft_s": 0.25,
        "prompt_tokens": 1000,
        "cached_tokens": 900,
        "must_be_cached": 896,
        "last_chunk_index": id,
        "engine": f"engine_{version % 2}",
        "route": "continuation",
        "phase": "idle",
        "after_swap": False,
    }
    return DecisionRow(id=id, version=version, **(values | changes))  # type: ignore[arg-type]


def drawn(rows: list[DecisionRow], *, terminal: bool, height: int = 30) -> str:
    screen = io.StringIO()
    console = Console(
        file=screen, force_terminal=terminal, width=120, height=height, color_system=None
    )
    with LiveTable(console, "what is to be seen") as table:
        for one in rows:
            table.add(one)
        screen.truncate(0)
        screen.seek(0)
        table.status("all is well")
        return screen.getvalue()


def printed(rows: list[DecisionRow]) -> list[str]:
    screen = io.StringIO()
    with LiveTable(Console(file=screen, width=80), "what is to be seen") as table:
        for one in rows:
            table.add(one)
        table.status("is not printed")
    return screen.getvalue().splitlines()


def test_off_a_terminal_every_decision_is_one_line_without_control_codes() -> None:
    lines = printed([row(1), row(2, observation="o" * 300)])

    assert lines[0] == "what is to be seen"
    assert len(lines) == 4
    assert all(
        text in lines[2] for text in ("observation 1", "0.51", "0.25 s", "90 %", "engine_0")
    )
    assert "\x1b" not in "".join(lines)


def test_a_fallback_shows_its_outcome_and_no_numbers() -> None:
    nothing = {"ttft_s": math.nan, "probability": math.nan}

    line = printed([row(1, action="", outcome="FALLBACK_DEADLINE", **nothing)])[2]

    assert "- (deadline)" in line
    assert "nan" not in line


def test_a_swap_is_said_once_though_its_first_decisions_got_no_reply() -> None:
    late = {"outcome": "FALLBACK_DEADLINE", "after_swap": True}

    lines = printed([row(1), row(2, 1, **late), row(3, 1, after_swap=True), row(4, 1)])

    swaps = [number for number, line in enumerate(lines) if "swap" in line]
    assert swaps == [3]
    assert "engine_1 now serves version 1" in lines[3]


def test_a_terminal_keeps_the_newest_decisions_in_sight() -> None:
    rows = [row(1), *(row(id, id // 4, after_swap=id % 4 == 0) for id in range(2, 60))]

    text = drawn(rows, terminal=True, height=24)

    assert "observation 59" in text
    assert "observation 1 " not in text
    assert "all is well" in text
    assert len(text.splitlines()) <= 24
