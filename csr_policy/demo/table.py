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
"""The live table of decisions; plain lines where the output is no terminal.

Used by one thread, the one that draws.
"""

from __future__ import annotations

import math
from collections import deque
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from csr_policy.demo.summary import DecisionRow

_FRAME_LINES = 9
"""Lines around the rows: explanation, header, borders, status, progress."""
_REFRESH_HZ = 4
_KEPT_ROWS = 200
_OBSERVATION_WIDTH = 46
_COLUMNS = (
    ("time", "right"),
    ("last observation", "left"),
    ("action", "left"),
    ("prob", "right"),
    ("TTFT", "right"),
    ("cached", "right"),
    ("tokens", "right"),
    ("version", "right"),
    ("engine", "left"),
)


class LiveTable:
    """Shows decisions as they come; a context manager.

    Args:
        console: Where to draw.
        explanation: A line or two that say what is to be seen.
    """

    def __init__(self, console: Console, explanation: str) -> None:
        self._console = console
        self._explanation = explanation
        self._rows: deque[DecisionRow] = deque(maxlen=_KEPT_ROWS)
        self._swaps: set[int] = set()
        self._version: int | None = None
        self._status = ""
        self._live = Live(
            console=console, refresh_per_second=_REFRESH_HZ, transient=False, auto_refresh=False
        )

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        else:
            self._console.print(self._explanation)
            self._print(_plain([name for name, _ in _COLUMNS]))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def add(self, row: DecisionRow) -> None:
        """Show one more decision."""
        # A version may need several decisions until its first reply; it began with one swap.
        swapped = row.after_swap and self._version not in (None, row.version)
        self._version = row.version if row.engine else self._version
        self._rows.append(row)
        if swapped:
            self._swaps.add(row.id)
        if not self._console.is_terminal:
            if swapped:
                self._print(f"-- {_swap_text(row)} --")
            self._print(_plain(cells(row)))

    def status(self, line: str) -> None:
        """Show how far the run is; on a terminal only."""
        self._status = line
        if self._console.is_terminal:
            self._live.update(self._render(), refresh=True)

    def note(self, line: str) -> None:
        """Print a line that stays."""
        self._console.print(line, highlight=False, markup=False)

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _render(self) -> RenderableType:
        table = Table(expand=True, pad_edge=False)
        for name, justify in _COLUMNS:
            wide = name == "last observation"
            table.add_column(
                name,
                justify=justify,  # type: ignore[arg-type]
                no_wrap=True,
                overflow="ellipsis",
                ratio=1 if wide else None,
            )
        room = max(4, self._console.height - _FRAME_LINES)
        shown = list(self._rows)[-room:]
        # A swap takes a line of its own.
        shown = shown[sum(row.id in self._swaps for row in shown[1:]) :]
        for row in shown:
            if row.id in self._swaps:
                table.add_row("", Text(_swap_text(row), style="bold yellow"))
            style = "" if row.ok else "red"
            table.add_row(*(Text(cell, style=style) for cell in cells(row)))
        return Group(Text(self._explanation, style="dim"), table, Text(self._status, style="bold"))


def cells(row: DecisionRow) -> list[str]:
    """The columns of one decision."""
    return [
        f"{row.time_s:.1f}",
        row.observation,
        row.action if row.ok else f"{row.action or '-'} ({_short(row.outcome)})",
        _number(row.probability, "{:.2f}"),
        _number(row.ttft_s, "{:.2f} s"),
        _number(100 * row.cached_share, "{:.0f} %"),
        str(row.prompt_tokens or "-"),
        str(row.version),
        row.engine or "-",
    ]


def _plain(columns: list[str]) -> str:
    time, observation, action, probability, ttft, cached, tokens, version, engine = columns
    if len(observation) > _OBSERVATION_WIDTH:
        observation = observation[: _OBSERVATION_WIDTH - 1] + "…"
    return (
        f"{time:>6}  {observation:{_OBSERVATION_WIDTH}}  {action:14} {probability:>5} "
        f"{ttft:>7} {cached:>6} {tokens:>6} {version:>7}  {engine}"
    )


def _swap_text(row: DecisionRow) -> str:
    return f"swap: {row.engine} now serves version {row.version}"


def _short(outcome: str) -> str:
    return outcome.removeprefix("FALLBACK_").lower().replace("_", " ")


def _number(value: float, form: str) -> str:
    return form.format(value) if math.isfinite(value) else "-"
