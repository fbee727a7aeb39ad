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
"""`csr-policy capacity watch`: is a live engine behaving as predicted?"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from csr_policy.capacity.commands.bundles import ALARM_STATUS, command
from csr_policy.capacity.commands.flags import Conversations, Load, Output
from csr_policy.capacity.commands.output import plain, say, write_csv, write_json
from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.mean_field import estimate
from csr_policy.capacity.watch import (
    Counters,
    DriftDetector,
    DriftState,
    WatchReport,
    Window,
    fetch_metrics,
    parse_cache,
    parse_counters,
    report_markdown,
    watch,
)


@command
def watch_command(
    conversations: Conversations,
    load: Load,
    output: Output,
    engine: Annotated[str | None, typer.Option(help="URL of the engine.")] = None,
    blocks: Annotated[int | None, typer.Option(help="N; else what the engine says.")] = None,
    expected: Annotated[
        float | None, typer.Option(help="Token hit ratio to hold it to, instead of a workload.")
    ] = None,
    duration_s: Annotated[float, typer.Option(help="How long to watch.")] = 300.0,
    interval_s: Annotated[float, typer.Option(help="Length of a window.")] = 15.0,
    tolerance: Annotated[float, typer.Option(help="Acceptable deviation.")] = 0.03,
    windows: Annotated[int, typer.Option(help="Newest windows judged together.")] = 6,
    api_key_env: Annotated[
        str, typer.Option(help="Variable that holds the API key.")
    ] = "CSR_POLICY_API_KEY",
    report: Annotated[Path | None, typer.Option(help="Write a Markdown report.")] = None,
) -> None:
    """Compare an engine's own counters with the prediction; exit 3 on drift."""
    if engine is None:
        raise CapacityError("engine: is missing; expected http://host:port")
    key = os.environ.get(api_key_env, "").strip() or None
    predict, time_s = _prediction(conversations, load, engine, key, blocks, expected)
    result = watch(
        lambda: _read(engine, key),
        predict,
        duration_s=duration_s,
        interval_s=interval_s,
        detector=DriftDetector(tolerance, windows=windows, least=min(3, windows)),
        characteristic_time_s=time_s,
        on_window=_tell,
    )
    _deliver(result, engine, output, report)
    if result.alarm:
        raise typer.Exit(ALARM_STATUS)


def _read(engine: str, key: str | None) -> Counters:
    return parse_counters(fetch_metrics(engine, key))


def _prediction(
    conversations: Conversations,
    load: Load,
    engine: str,
    key: str | None,
    blocks: int | None,
    expected: float | None,
) -> tuple[Callable[[Window], float], float]:
    """A constant, or the theory at the load of each window."""
    if expected is not None:
        if not 0 <= expected <= 1:
            raise CapacityError(f"expected: is {expected:g}; expected a ratio from 0 to 1")
        return (lambda _: expected), math.nan
    resolved = conversations.resolve(load.tail_law)
    resolved.require()
    count = blocks if blocks is not None else _blocks_of(engine, key, conversations.block_tokens)

    def at_rate(rate_hz: float) -> tuple[float, float]:
        found = estimate(
            resolved.statistics,
            law=load.tail_law,
            gap=load.law,
            arrival_rate_hz=rate_hz,
            blocks=count,
            workload=resolved.workload,
        )
        assert found.token_hit_ratio is not None
        return found.token_hit_ratio, found.characteristic_time_s

    if load.arrival_rate is not None:
        ratio, time_s = at_rate(load.rate_hz)
        return (lambda _: ratio), time_s
    turns = resolved.statistics.e_m
    assert turns is not None
    return _AtLoad(at_rate, turns), math.nan


class _AtLoad:
    """The theory at the load seen so far: finished requests over turns each.

    The mean since the start, not the window's own: the hit ratio is convex in the load, so
    the noise of short windows would not average out.
    """

    def __init__(self, at_rate: Callable[[float], tuple[float, float]], turns: float) -> None:
        self._at_rate, self._turns = at_rate, turns
        self._requests = self._seconds = 0.0

    def __call__(self, seen: Window) -> float:
        """Predict a window."""
        if not seen.restarted:
            self._requests += seen.request_rate_hz * seen.seconds
            self._seconds += seen.seconds
        if self._requests <= 0:
            return math.nan
        return self._at_rate(self._requests / self._seconds / self._turns)[0]


def _blocks_of(engine: str, key: str | None, block_tokens: int) -> int:
    try:
        cache = parse_cache(fetch_metrics(engine, key))
    except OSError as error:
        raise CapacityError(f"engine: {engine} does not answer ({error})") from None
    if cache is None:
        raise CapacityError("blocks: the engine does not tell; expected --blocks")
    if cache.block_tokens != block_tokens:
        raise CapacityError(
            f"block_tokens: is {block_tokens}; expected {cache.block_tokens}, the engine's"
        )
    return cache.blocks


def _tell(seen: Window, state: DriftState) -> None:
    mark = "  ALARM: drift" if state.alarm else "  engine restarted" if seen.restarted else ""
    say(
        f"{seen.request_rate_hz:.2f} requests/s, hit ratio {seen.hit_ratio:.4f}; last "
        f"{state.windows} windows {state.observed:.4f} against {state.predicted:.4f}{mark}"
    )


def _deliver(result: WatchReport, engine: str, output: Output, report: Path | None) -> None:
    rows: list[dict[str, Any]] = [
        {**plain(seen), "predicted": predicted, "alarm": state.alarm}
        for seen, predicted, state in zip(
            result.windows, result.predictions, result.states, strict=True
        )
    ]
    if report is not None:
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(report_markdown(result, engine), encoding="utf-8")
    if output.json_file is not None:
        write_json(output.json_file, {"alarm": result.alarm, **plain(result)})
    if output.csv_file is not None and rows:
        write_csv(output.csv_file, rows)
    say("ALARM: the hit ratio has drifted" if result.alarm else "as predicted")
