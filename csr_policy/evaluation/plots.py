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
"""Pictures of a run: TTFT against time above the token count's sawtooth.

Pure: values in, a PNG file out. One thread at a time, since Matplotlib is not thread-safe.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

_QUERY_COLOUR = "#1f5fa8"
_FIRST_COLOUR = "#d1495b"
_SWAP_COLOUR = "#7a7a7a"
_WARMING_COLOUR = "#f2c14e"
_TOKENS_COLOUR = "#2a7f62"
_SIZE_INCHES = (10.0, 6.2)
_DPI = 130


@dataclass(frozen=True, slots=True)
class DecisionPoint:
    """One decision in the picture.

    Attributes:
        time_s: When its state was frozen, from the start of the run.
        ttft_s: Time to first token; NaN where no reply came in time.
        prompt_tokens: Length of its prompt; 0 where none was asked.
        version: Sequence version.
        reconciling: True while the other engine was warmed or caught up.
        after_swap: True for the first decision on a version after a swap.
    """

    time_s: float
    ttft_s: float
    prompt_tokens: int
    version: int
    reconciling: bool = False
    after_swap: bool = False


def plot_ttft(
    points: Sequence[DecisionPoint],
    path: Path,
    *,
    title: str,
    tau_mem_tokens: int = 0,
    deadline_s: float = 0.0,
) -> None:
    """Draw TTFT with the swaps marked, above the prompt's length; write a PNG file.

    Args:
        points: Decisions in order of time.
        path: File to write.
        title: First line of the picture.
        tau_mem_tokens: Threshold of an eviction, drawn where it is not 0.
        deadline_s: tau_max, drawn where it is not 0 and within sight of the data.
    """
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    figure.suptitle(title, fontsize=12)
    _draw_ttft(upper, points, deadline_s)
    _draw_tokens(lower, points, tau_mem_tokens)
    for axes in (upper, lower):
        _mark_reconciliation(axes, points, named=axes is upper)
        axes.grid(visible=True, axis="y", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="upper left", fontsize=8, ncols=3, framealpha=0.9)
    figure.savefig(path, dpi=_DPI)


def _draw_ttft(axes: Axes, points: Sequence[DecisionPoint], deadline_s: float) -> None:
    answered = [p for p in points if math.isfinite(p.ttft_s)]
    plain = [p for p in answered if not p.after_swap]
    first = [p for p in answered if p.after_swap]
    axes.plot(
        [p.time_s for p in plain],
        [p.ttft_s for p in plain],
        ".",
        color=_QUERY_COLOUR,
        markersize=6,
        label="decision",
    )
    if first:
        axes.plot(
            [p.time_s for p in first],
            [p.ttft_s for p in first],
            "D",
            color=_FIRST_COLOUR,
            markersize=6,
            label="first decision after a swap",
        )
    top = max((p.ttft_s for p in answered), default=0.1)
    lost = [p.time_s for p in points if not math.isfinite(p.ttft_s)]
    if lost:
        axes.plot(
            lost, [0.0] * len(lost), "x", color=_FIRST_COLOUR, markersize=6, label="no reply"
        )
    if 0 < deadline_s <= 4 * top:
        axes.axhline(deadline_s, color=_SWAP_COLOUR, linewidth=1, linestyle=":", label="deadline")
        top = max(top, deadline_s)
    # Room above the data for the legend and the names of the swaps.
    axes.set_ylim(-0.03 * top, 1.35 * top)
    axes.set_ylabel("time to first token (s)")


def _draw_tokens(axes: Axes, points: Sequence[DecisionPoint], tau_mem_tokens: int) -> None:
    asked = [p for p in points if p.prompt_tokens > 0]
    for number, (_, group) in enumerate(groupby(asked, key=lambda p: p.version)):
        part = list(group)
        axes.plot(
            [p.time_s for p in part],
            [p.prompt_tokens for p in part],
            color=_TOKENS_COLOUR,
            linewidth=1.8,
            marker=".",
            markersize=3,
            label="prompt, one line a version" if number == 0 else None,
        )
    top = max([p.prompt_tokens for p in asked] + [tau_mem_tokens, 1])
    if tau_mem_tokens:
        axes.axhline(
            tau_mem_tokens, color=_SWAP_COLOUR, linewidth=1, linestyle="--", label="tau_mem"
        )
    axes.set_ylim(0, 1.3 * top)
    axes.set_ylabel("prompt (tokens)")
    axes.set_xlabel("time (s)")


def _mark_reconciliation(axes: Axes, points: Sequence[DecisionPoint], *, named: bool) -> None:
    """Shade the times of warm-up and catch-up, and draw a line at each swap."""
    for number, (start_s, end_s) in enumerate(_reconciliations(points)):
        label = "other engine warms up" if named and number == 0 else None
        axes.axvspan(start_s, end_s, color=_WARMING_COLOUR, alpha=0.25, label=label)
    swaps: dict[int, float] = {}
    for point in points:
        if point.after_swap:
            # Until its first reply, every decision on a version is marked.
            swaps.setdefault(point.version, point.time_s)
    for number, time_s in enumerate(swaps.values()):
        label = "swap" if named and number == 0 else None
        axes.axvline(time_s, color=_SWAP_COLOUR, linewidth=1, linestyle="-.", label=label)


def _reconciliations(points: Sequence[DecisionPoint]) -> list[tuple[float, float]]:
    """Start and end of each, to the next decision outside it."""
    spans: list[tuple[float, float]] = []
    start_s: float | None = None
    for point in points:
        if point.reconciling and start_s is None:
            start_s = point.time_s
        elif not point.reconciling and start_s is not None:
            spans.append((start_s, point.time_s))
            start_s = None
    if start_s is not None:
        spans.append((start_s, points[-1].time_s))
    return spans
