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
"""Tables on the screen, JSON and CSV in files, progress on the error stream."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from csr_policy.capacity.commands.flags import Output

_TABLE_WIDTH = 150


class Report(Protocol):
    """Takes work done and work in all."""

    def __call__(self, done: int, total: int) -> None:
        """Show it."""


def plain(value: Any) -> Any:
    """A value as JSON knows it; what is not a finite number becomes null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    return str(value) if isinstance(value, Path) else value


def write_json(path: Path, document: Any) -> None:
    """Write a result."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(plain(document), indent=2) + "\n", encoding="utf-8")


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows([{key: plain(value) for key, value in row.items()} for row in rows])


def deliver(output: Output, document: Any, rows: Sequence[Mapping[str, Any]], title: str) -> None:
    """Show a table and write what was asked for."""
    show(rows, title)
    if output.json_file is not None:
        write_json(output.json_file, document)
    if output.csv_file is not None:
        write_csv(output.csv_file, rows)


def show(rows: Sequence[Mapping[str, Any]], title: str) -> None:
    """Print a table; a single row stands upright."""
    if len(rows) == 1:
        upright = [{"": key, "value": value} for key, value in rows[0].items()]
        show_rows(upright, title)
    else:
        show_rows(rows, title)


def show_rows(rows: Sequence[Mapping[str, Any]], title: str) -> None:
    """Print a table as it is."""
    table = Table(title=title, title_justify="left")
    for name in rows[0]:
        table.add_column(name, justify="left" if name == "" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(text(value) for value in row.values()))
    # A table cut to a narrow terminal is worth less than one whose lines wrap.
    Console(width=max(Console().width, _TABLE_WIDTH)).print(table)


def text(value: Any) -> str:
    """A value for the screen."""
    if value is None:
        return "-"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, float):
        return f"{value:.5g}"
    return str(value)


def say(line: str) -> None:
    """Print a line."""
    print(line, flush=True)


@contextmanager
def progress(what: str) -> Iterator[Report]:
    """A progress bar on the error stream, shown where that is a terminal."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn(what),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    task = bar.add_task(what, total=1)
    with bar:

        def update(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield update
