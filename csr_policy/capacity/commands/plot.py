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
"""`csr-policy capacity plot`: curves of a workload, and Figures 2 to 6 of a validation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from csr_policy.capacity.commands.bundles import command
from csr_policy.capacity.commands.flags import Conversations, Load, require_blocks
from csr_policy.capacity.commands.output import say
from csr_policy.capacity.commands.validate import point_of
from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.finite_size import hit_ratio_finite
from csr_policy.capacity.gaps import GapLaw
from csr_policy.capacity.mean_field import displacement_curve, estimate
from csr_policy.capacity.plots import plot_curve, plot_points, plot_workload, sampled
from csr_policy.capacity.tail_law import TailLaw, displacement
from csr_policy.capacity.workload import Statistics, Workload


@command
def plot_command(
    conversations: Conversations,
    load: Load,
    blocks: Annotated[int | None, typer.Option(help="N of the engine.")] = None,
    validation: Annotated[
        Path | None, typer.Option(help="Folder of a validation: its Figures 3 to 6.")
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path(
        "capacity_plots"
    ),
) -> None:
    """Draw hit ratio against N and load, and the displacement curve."""
    if validation is not None:
        for path in _figures(validation, output):
            say(str(path))
        return
    resolved = conversations.resolve(load.tail_law)
    count = require_blocks(blocks)
    paths = _curves(
        resolved.statistics,
        resolved.workload,
        load.tail_law,
        load.law,
        load.rate_hz,
        count,
        output,
    )
    if resolved.workload is not None:
        paths.append(plot_workload(resolved.workload, output / "workload.png"))
    for path in paths:
        say(str(path))


def _figures(validation: Path, output: Path) -> list[Path]:
    file = validation / "points.jsonl"
    if not file.is_file():
        raise CapacityError(f"validation: no {str(file)!r}; expected a folder that validate wrote")
    paths = []
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for name, number in (("gap_mean_s", 3), ("arrival_rate_hz", 5)):
        chosen = [
            point_of(record["point"]) for record in records if json.loads(record["key"])[0] == name
        ]
        if chosen:
            paths += plot_points(chosen, output, against=name, number=number)
    return paths


def _curves(
    stats: Statistics,
    work: Workload | None,
    law: TailLaw,
    gap: GapLaw,
    rate: float,
    blocks: int,
    output: Path,
) -> list[Path]:
    def limit(count: float, rate_hz: float) -> float:
        return estimate(
            stats, law=law, gap=gap, arrival_rate_hz=rate_hz, blocks=int(count)
        ).hit_ratio

    def finite(count: float, rate_hz: float) -> float:
        assert work is not None
        return hit_ratio_finite(work, law=law, gap=gap, arrival_rate_hz=rate_hz, blocks=int(count))

    counts = np.linspace(max(blocks / 20, stats.e_b + 1), 3 * blocks, 60)
    rates = np.linspace(rate / 10, 3 * rate, 60)
    by_blocks = {"limit": sampled(lambda x: limit(x, rate), counts)}
    by_rate = {"limit": sampled(lambda x: limit(blocks, x), rates)}
    if work is not None:
        by_blocks["finite size"] = sampled(lambda x: finite(x, rate), counts)
        by_rate["finite size"] = sampled(lambda x: finite(blocks, x), rates)
    curve = displacement(stats, law)
    times = np.linspace(0, 2 * gap.mean_s, 200)
    passed = displacement_curve(times, curve, gap, rate)
    return [
        plot_curve(
            counts,
            by_blocks,
            output / "hit_ratio_by_blocks.png",
            x_label="KV blocks N",
            y_label="hit ratio",
        ),
        plot_curve(
            rates,
            by_rate,
            output / "hit_ratio_by_rate.png",
            x_label="conversations a second",
            y_label="hit ratio",
        ),
        plot_curve(
            times,
            {"d(t)": passed, "N": np.full(times.size, float(blocks))},
            output / "displacement.png",
            x_label="time since a conversation was served, s",
            y_label="blocks in front of it",
        ),
    ]
