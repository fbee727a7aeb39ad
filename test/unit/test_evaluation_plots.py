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
"""The picture of a run."""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib.image
import pytest

from csr_policy.evaluation.plots import DecisionPoint, plot_ttft


def run_of(count: int) -> list[DecisionPoint]:
    return [
        DecisionPoint(
            time_s=float(second),
            ttft_s=math.nan if second % 17 == 3 else 0.2 + second % 5 / 50,
            prompt_tokens=500 + 40 * (second % 30),
            version=second // 30,
            reconciling=second % 30 > 25,
            after_swap=second >= 30 and second % 30 == 0,
        )
        for second in range(count)
    ]


@pytest.mark.parametrize("count", [0, 1, 100])
def test_a_run_of_any_length_becomes_a_picture(tmp_path: Path, count: int) -> None:
    file = tmp_path / "ttft.png"

    plot_ttft(run_of(count), file, title="a run", tau_mem_tokens=1700, deadline_s=1.0)

    height, width = matplotlib.image.imread(file).shape[:2]
    assert width > height > 500


def test_a_swap_is_drawn(tmp_path: Path) -> None:
    with_swaps, without = tmp_path / "with.png", tmp_path / "without.png"
    points = run_of(100)
    plain = [DecisionPoint(p.time_s, p.ttft_s, p.prompt_tokens, p.version) for p in points]

    plot_ttft(points, with_swaps, title="a run")
    plot_ttft(plain, without, title="a run")

    difference = matplotlib.image.imread(with_swaps) - matplotlib.image.imread(without)
    assert abs(difference).sum() > 0


def test_a_run_without_a_single_reply_becomes_a_picture(tmp_path: Path) -> None:
    file = tmp_path / "ttft.png"
    points = [DecisionPoint(float(t), math.nan, 0, 0) for t in range(5)]

    plot_ttft(points, file, title="nobody answered")

    assert file.stat().st_size > 0
