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
"""`csr-policy capacity validate`: section 4 of the paper at a scale this machine can do."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from csr_policy.capacity.arrays import row_sum
from csr_policy.capacity.commands.bundles import command
from csr_policy.capacity.commands.flags import Conversations, Load, Output
from csr_policy.capacity.commands.output import deliver, plain, progress, say, write_csv
from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.own_server import own_server
from csr_policy.capacity.plots import plot_points, plot_workload
from csr_policy.capacity.schedules import Setting, enough_warm_up, scale_tokens
from csr_policy.capacity.server_replay import Server
from csr_policy.capacity.tail_law import TailLaw
from csr_policy.capacity.trace import Trace
from csr_policy.capacity.validate import (
    ManagerPoint,
    Point,
    Prediction,
    compare_with_manager,
    run_point,
)
from csr_policy.capacity.watch import fetch_metrics, parse_cache
from csr_policy.capacity.workload import Reading, blocks_of

DEFAULT_MEANS_S = (4.0, 6.0, 8.0, 10.0, 12.0)
DEFAULT_RATES_HZ = (1.0, 1.5, 2.0, 2.5, 3.0)


@dataclass(frozen=True, slots=True)
class Engine:
    """Which server, or which one to start."""

    engine: Annotated[str | None, typer.Option(help="URL; else an own CPU server.")] = None
    api_key_env: Annotated[str, typer.Option(help="Variable that holds the API key.")] = (
        "CSR_POLICY_API_KEY"
    )
    model: Annotated[Path | None, typer.Option(help="Model folder; else the tiny one.")] = None
    core: Annotated[int | None, typer.Option(help="Processor of the own server.")] = None


@dataclass(frozen=True, slots=True)
class Runs:
    """What is run."""

    mean: Annotated[list[float] | None, typer.Option(help="Experiment 1: mean gaps, s.")] = None
    rate: Annotated[
        list[float] | None, typer.Option(help="Experiment 2: conversations a second.")
    ] = None
    fixed_rate: Annotated[float, typer.Option(help="Of experiment 1.")] = 2.0
    fixed_mean: Annotated[float, typer.Option(help="Of experiment 2, s.")] = 8.0
    measured: Annotated[int, typer.Option(help="Conversations in the window.")] = 600
    warm_up: Annotated[int, typer.Option(help="Conversations before; 0: enough.")] = 0
    token_scale: Annotated[
        float, typer.Option(help="Shrink texts; shrink block tokens alike.")
    ] = 1.0
    seed: Annotated[int, typer.Option(help="Of all that is drawn.")] = 0

    def settings(self, base: Setting, trace: Trace) -> list[tuple[str, Setting]]:
        """Every point, with the experiment it belongs to."""
        first = [
            ("gap_mean_s", replace(base, arrival_rate_hz=self.fixed_rate, gap_mean_s=mean))
            for mean in self.mean or DEFAULT_MEANS_S
        ]
        second = [
            ("arrival_rate_hz", replace(base, arrival_rate_hz=rate, gap_mean_s=self.fixed_mean))
            for rate in self.rate or DEFAULT_RATES_HZ
        ]
        points = []
        for index, (name, one) in enumerate(first + second):
            own = replace(one, text_seed=self.seed * 1000 + index)
            points.append((name, replace(own, warm_up=self.warm_up or enough_warm_up(trace, own))))
        return points


@command
def validate_command(
    conversations: Conversations,
    load: Load,
    engine: Engine,
    runs: Runs,
    output: Output,
    blocks: Annotated[list[int] | None, typer.Option(help="N; several with --manager.")] = None,
    manager: Annotated[
        bool, typer.Option(help="Drive vLLM's KVCacheManager instead of a server.")
    ] = False,
    folder: Annotated[
        Path, typer.Option("--output", help="Folder of a server run; a second run resumes.")
    ] = Path("validation_output"),
) -> None:
    """Compare predictions with vLLM."""
    trace = scale_tokens(conversations.read(), runs.token_scale)
    if not blocks:
        raise CapacityError("blocks: is missing; expected N, the KV blocks of the engine")
    if manager:
        _with_manager(conversations, load, runs, trace, tuple(blocks), output)
        return
    base = Setting(
        arrival_rate_hz=runs.fixed_rate,
        gap_mean_s=runs.fixed_mean,
        blocks=blocks[0],
        block_tokens=conversations.block_tokens,
        measured=runs.measured,
        law=load.tail_law,
        boundary=conversations.boundary,
        seed=runs.seed,
    )
    if load.tail_law.reading is not Reading.LIVE:
        raise CapacityError(
            f"tail_law: {load.tail_law.value!r} is no engine's; expected that of the engine, "
            "tails-recent or tails-first"
        )
    points = _run(trace, runs.settings(base, trace), engine, folder)
    rows = [_row(point) for _, point in points]
    _write(folder, trace, base, points, rows)
    deliver(output, {"points": plain(points)}, rows, f"{trace.source} on {base.blocks} blocks")
    say(f"figures and tables are in {folder}")


def _run(
    trace: Trace, settings: list[tuple[str, Setting]], engine: Engine, folder: Path
) -> list[tuple[str, Point]]:
    """Run the points that the folder does not hold yet."""
    folder.mkdir(parents=True, exist_ok=True)
    done = _kept(folder / "points.jsonl")
    keys = [json.dumps([name, plain(setting), trace.source]) for name, setting in settings]
    missing = [index for index, key in enumerate(keys) if key not in done]
    if missing:
        with _server(trace, settings[0][1], engine) as server:
            for number, index in enumerate(missing, start=1):
                setting = settings[index][1]
                say(
                    f"point {number} of {len(missing)}: {setting.arrival_rate_hz:g}/s, gap "
                    f"{setting.gap_mean_s:g} s, about "
                    f"{(setting.measured + setting.warm_up) / setting.arrival_rate_hz:.0f} s"
                )
                with progress("replaying") as report:
                    point = run_point(server, trace, setting, report)
                done[keys[index]] = point
                with (folder / "points.jsonl").open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps({"key": keys[index], "point": plain(point)}) + "\n")
    return [(name, done[key]) for (name, _), key in zip(settings, keys, strict=True)]


def _kept(path: Path) -> dict[str, Point]:
    if not path.is_file():
        return {}
    kept = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        kept[record["key"]] = point_of(record["point"])
    return kept


def point_of(record: dict[str, Any]) -> Point:
    """A point back from JSON."""
    names = ("prior", "posterior", "empirical")
    return Point(**{**record, **{name: Prediction(**record[name]) for name in names}})


@contextmanager
def _server(trace: Trace, setting: Setting, engine: Engine) -> Iterator[Server]:
    """The engine named, or an own one with the KV pool asked for."""
    if engine.engine is not None:
        key = _api_key(engine.api_key_env)
        try:
            cache = parse_cache(fetch_metrics(engine.engine, key))
        except OSError as error:
            raise CapacityError(f"engine: {engine.engine} does not answer ({error})") from None
        wanted = (setting.blocks, setting.block_tokens)
        if cache is not None and (cache.blocks, cache.block_tokens) != wanted:
            raise CapacityError(
                f"engine: has {cache.blocks} blocks of {cache.block_tokens} tokens; expected "
                f"{setting.blocks} of {setting.block_tokens}"
            )
        yield Server(engine.engine, key)
        return
    longest = int(row_sum(trace.prompt_tokens + trace.reply_tokens, trace.offsets).max())
    with (
        tempfile.TemporaryDirectory(prefix="csr_policy_capacity_") as logs,
        own_server(
            blocks=setting.blocks,
            block_tokens=setting.block_tokens,
            longest_tokens=longest + trace.shared_tokens,
            model=engine.model,
            core=engine.core,
            log=Path(logs) / "server.log",
            say=say,
        ) as server,
    ):
        yield server


def _api_key(variable: str) -> str | None:
    return os.environ.get(variable, "").strip() or None


def _row(point: Point) -> dict[str, Any]:
    prior, posterior = point.prior.size_corrected, point.posterior.size_corrected
    return {
        "rate": point.arrival_rate_hz,
        "gap": point.gap_mean_s,
        "real gap": point.measured_gap_mean_s,
        "actual": point.actual,
        "se": point.standard_error,
        "simulated": point.simulated,
        "prior": prior,
        "AE": abs(prior - point.actual),
        "RE %": 100 * abs(prior - point.actual) / point.actual if point.actual else float("nan"),
        "posterior": posterior,
        "AE post": abs(posterior - point.actual),
        "paper's actual": point.paper_actual,
        "paper's": point.prior.paper,
        "late": point.late_share,
        "failed": point.failed,
    }


def _write(
    folder: Path,
    trace: Trace,
    base: Setting,
    points: list[tuple[str, Point]],
    rows: list[dict[str, Any]],
) -> None:
    write_csv(folder / "points.csv", rows)
    plot_workload(blocks_of(trace, base.block_tokens), folder / "figure_2.png")
    for name, number in (("gap_mean_s", 3), ("arrival_rate_hz", 5)):
        chosen = [point for kind, point in points if kind == name]
        if chosen:
            plot_points(chosen, folder, against=name, number=number)


def _with_manager(
    conversations: Conversations,
    load: Load,
    runs: Runs,
    trace: Trace,
    blocks: tuple[int, ...],
    output: Output,
) -> None:
    with progress("driving the manager") as report:
        points = compare_with_manager(
            trace,
            block_tokens=conversations.block_tokens,
            blocks=blocks,
            gap=load.law,
            arrival_rate_hz=load.rate_hz,
            law=load.tail_law if load.tail_law.reading is Reading.LIVE else TailLaw.TAILS_FIRST,
            boundary=conversations.boundary,
            measured=runs.measured,
            seed=runs.seed,
            progress=report,
        )
    rows = [_manager_row(point) for point in points]
    deliver(output, {"points": plain(points)}, rows, f"{trace.source}, vLLM's KVCacheManager")


def _manager_row(point: ManagerPoint) -> dict[str, Any]:
    actual = point.actual.hit_ratio
    return {
        "blocks": point.blocks,
        "manager": actual,
        "se": point.actual.standard_error,
        "different turns": point.different_turns,
        "limit": point.limit,
        "size corrected": point.size_corrected,
        "finite": point.finite,
        "AE limit": abs(point.limit - actual),
        "AE finite": abs(point.finite - actual),
        "paper live AE": abs(point.paper_live - actual),
        "paper's actual": point.paper_actual,
        "paper AE": abs(point.paper - point.paper_actual),
    }
