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
"""Pictures: Figures 2 to 6 from a validation, and curves of a workload."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from csr_policy.capacity.arrays import FloatArray
from csr_policy.capacity.validate import Point
from csr_policy.capacity.workload import Workload

_SIZE = (6.0, 3.8)
_SIMULATED = "simulator on the same requests"


def _canvas(columns: int = 1) -> tuple[Any, Any]:
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(
        1, columns, figsize=(_SIZE[0] * columns, _SIZE[1]), layout="constrained"
    )
    return figure, axes


def _save(figure: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140)
    importlib.import_module("matplotlib.pyplot").close(figure)
    return path


def plot_workload(workload: Workload, path: Path) -> Path:
    """Figure 2: turns a conversation, and new blocks a turn."""
    figure, (left, right) = _canvas(2)
    for axis, values, label in (
        (left, workload.turn_counts, "turns of a conversation"),
        (right, workload.new, "new KV blocks of a turn"),
    ):
        top = int(np.quantile(values, 0.999)) + 1
        counts = np.bincount(np.minimum(values, top))[1:]
        axis.bar(np.arange(1, counts.size + 1), counts / counts.sum(), color="tab:blue")
        axis.set_xlabel(f"{label} (mean {values.mean():.2f}, maximum {values.max()})")
        axis.set_ylabel("share")
    return _save(figure, path)


def plot_points(points: Sequence[Point], folder: Path, *, against: str, number: int) -> list[Path]:
    """Figures 3 and 4 (against the gap) or 5 and 6 (against the arrival rate).

    Args:
        points: Measured and predicted, in any order.
        folder: Where the pictures go.
        against: `gap_mean_s` or `arrival_rate_hz`.
        number: Of the first figure.
    """
    ordered = sorted(points, key=lambda point: float(getattr(point, against)))
    x = np.array([getattr(point, against) for point in ordered])
    label = {
        "gap_mean_s": "target mean gap between prompts, s",
        "arrival_rate_hz": "conversations a second",
    }[against]
    actual = np.array([point.actual for point in ordered])
    series = {
        "prior": np.array([point.prior.size_corrected for point in ordered]),
        "posterior": np.array([point.posterior.size_corrected for point in ordered]),
        _SIMULATED: np.array([point.simulated for point in ordered]),
    }
    paths = [_hit_ratios(ordered, x, actual, series, label, folder / f"figure_{number}.png")]
    figure, axes = _canvas(2)
    for axis, scale, name in (
        (axes[0], np.ones_like(actual), "absolute error"),
        (axes[1], actual / 100, "relative error, %"),
    ):
        for (key, values), colour in zip(series.items(), _COLOURS, strict=True):
            axis.plot(x, np.abs(values - actual) / scale, "o-", label=key, color=colour)
        axis.set_xlabel(label)
        axis.set_ylabel(name)
        axis.set_ylim(bottom=0)
    axes[0].legend()
    paths.append(_save(figure, folder / f"figure_{number + 1}.png"))
    return paths


_COLOURS = ("tab:orange", "tab:green", "tab:grey")


def _hit_ratios(
    ordered: Sequence[Point],
    x: FloatArray,
    actual: FloatArray,
    series: dict[str, FloatArray],
    label: str,
    path: Path,
) -> Path:
    figure, axis = _canvas()
    error = 2 * np.array([point.standard_error for point in ordered])
    axis.errorbar(x, actual, yerr=error, fmt="ks-", capsize=3, label="vLLM, two standard errors")
    for (key, values), colour in zip(series.items(), _COLOURS, strict=True):
        if key == _SIMULATED:
            # It hides behind the measured points otherwise: a ring around them.
            axis.plot(x, values, "o", label=key, color=colour, mfc="none", ms=12)
        else:
            axis.plot(x, values, "o--", label=key, color=colour)
    axis.set_xlabel(label)
    axis.set_ylabel("hit ratio")
    axis.set_ylim(bottom=0)
    axis.legend()
    return _save(figure, path)


def plot_curve(
    x: FloatArray, curves: dict[str, FloatArray], path: Path, *, x_label: str, y_label: str
) -> Path:
    """Curves over one axis."""
    figure, axis = _canvas()
    for name, values in curves.items():
        axis.plot(x, values, label=name)
    axis.set_xlabel(x_label)
    axis.set_ylabel(y_label)
    axis.set_ylim(bottom=0)
    axis.legend()
    return _save(figure, path)


def sampled(function: Callable[[float], float], x: FloatArray) -> FloatArray:
    """Values of a function at points."""
    return np.array([function(float(value)) for value in x])
