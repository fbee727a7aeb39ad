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
"""Theorem 3.1 at work: the error shrinks as 1/N, the displacement's deviation as N^-1/2."""

from __future__ import annotations

import numpy as np
import pytest

from csr_policy.capacity.arrays import FloatArray
from csr_policy.capacity.finite_size import hit_ratio_finite, poisson_background
from csr_policy.capacity.gap_text import parse_gap
from csr_policy.capacity.gaps import Deterministic, Exponential, GapLaw
from csr_policy.capacity.generators import mcm, parse_integer_law, scm
from csr_policy.capacity.mean_field import characteristic_time, estimate_workload
from csr_policy.capacity.scm import scm_limit
from csr_policy.capacity.simulator.timeline import (
    Timeline,
    poisson_timeline,
    warm_up_conversations,
)
from csr_policy.capacity.simulator.whole_content import lru_hits, simulate_whole_content
from csr_policy.capacity.tail_law import TailLaw, displacement
from csr_policy.capacity.workload import Workload, statistics

GAP = Exponential(20.0)
RATE_A_BLOCK = 0.0011


@pytest.fixture(scope="module")
def work() -> Workload:
    """Contents of 40 blocks on average, with dependent increments."""
    return mcm(
        np.random.default_rng(3),
        20_000,
        parse_integer_law("geometric:0.8", "turns"),
        parse_integer_law("uniform:1,15", "increments"),
        dependence=0.5,
    )


def timeline_of(work: Workload, blocks: int, measured: int, gap: GapLaw = GAP) -> Timeline:
    rate = RATE_A_BLOCK * blocks
    return poisson_timeline(
        work,
        arrival_rate_hz=rate,
        gap=gap,
        rng=np.random.default_rng(blocks),
        measured=measured,
        warm_up=warm_up_conversations(work, gap, rate, blocks),
    )


def limit_time(work: Workload, blocks: int) -> float:
    curve = displacement(statistics(work), TailLaw.IDEAL)
    return float(characteristic_time(float(blocks), curve, GAP, RATE_A_BLOCK * blocks))


def previous_times(timeline: Timeline) -> FloatArray:
    """Time of the same conversation's turn before; nan at its first."""
    before = np.full(timeline.turns, np.nan)
    last: dict[int, float] = {}
    rows = zip(timeline.conversation.tolist(), timeline.time_s.tolist(), strict=True)
    for index, (owner, now) in enumerate(rows):
        before[index] = last.get(owner, np.nan)
        last[owner] = now
    return before


def error_of_limit(work: Workload, blocks: int, measured: int) -> float:
    """Simulated minus limiting hit ratio.

    The limit is taken on the same sample, as the rule W < T_C in place of LRU: what is left
    is the error itself, without most of the noise.
    """
    timeline = timeline_of(work, blocks, measured)
    size = work.size[timeline.turn].astype(np.float64)
    history = np.where(timeline.first, 0, work.size[timeline.turn - 1])
    hits = lru_hits(timeline.conversation, work.size[timeline.turn], blocks)
    in_time = timeline.time_s - previous_times(timeline) < limit_time(work, blocks)
    inside = timeline.measured
    return float(((hits * 1.0 - in_time) * history)[inside].sum() / size[inside].sum())


def slope(x: list[int], y: list[float]) -> float:
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def test_the_mean_error_shrinks_as_one_over_n(work: Workload) -> None:
    counts = [100, 200, 400, 800]
    errors = [abs(error_of_limit(work, n, 12_000 * (1 + n // 400))) for n in counts]
    print(f"errors {errors} at N {counts}: slope {slope(counts, errors):.3f}")
    assert slope(counts, errors) == pytest.approx(-1.0, abs=0.25)


def displaced(work: Workload, timeline: Timeline, moments: FloatArray, t_s: float) -> FloatArray:
    """D(t) from each moment on: each conversation's newest size, history moved once."""
    before = previous_times(timeline)
    size = work.size[timeline.turn].astype(np.float64)
    history = np.where(timeline.first, 0, work.size[timeline.turn - 1]).astype(np.float64)
    begin = np.searchsorted(timeline.time_s, moments, side="right")
    end = np.searchsorted(timeline.time_s, moments + t_s, side="right")
    total = np.empty(moments.size)
    for index, (low, high, moment) in enumerate(zip(begin, end, moments, strict=True)):
        again = before[low:high] > moment
        total[index] = size[low:high].sum() - history[low:high][again].sum()
    return total


def test_the_deviation_of_the_displacement_shrinks_as_its_root(work: Workload) -> None:
    counts, found = [50, 200, 800], []
    for blocks in counts:
        timeline = timeline_of(work, blocks, 60 * blocks)
        time_s = limit_time(work, blocks)
        begin, end = timeline.window_s
        moments = np.arange(begin, end - time_s, 2 * time_s)
        normalised = displaced(work, timeline, moments, time_s) / blocks
        assert normalised.mean() == pytest.approx(1.0, abs=0.05)
        background = poisson_background(work, TailLaw.IDEAL, GAP, RATE_A_BLOCK * blocks, blocks)
        predicted = float(background.deviation(np.array([time_s]))[0]) / blocks
        assert normalised.std() == pytest.approx(predicted, rel=0.12)
        found.append(float(normalised.std()))
    print(f"deviations {found} at N {counts}: slope {slope(counts, found):.3f}")
    assert slope(counts, found) == pytest.approx(-0.5, abs=0.07)


@pytest.mark.parametrize(
    "text", ["exponential:20", "gamma:0.5,20", "lognormal:2.5,1", "lomax:2.5,30"]
)
def test_simulated_hit_ratio_meets_the_finite_size_law(work: Workload, text: str) -> None:
    gap = parse_gap(text)
    blocks, rate = 400, RATE_A_BLOCK * 400
    result = simulate_whole_content(timeline_of(work, blocks, 8000, gap), work, blocks)
    expected = hit_ratio_finite(
        work, law=TailLaw.IDEAL, gap=gap, arrival_rate_hz=rate, blocks=blocks
    )
    assert result.hit_ratio == pytest.approx(expected, abs=0.004 + 2.5 * result.standard_error)


def test_scm_closed_form_is_what_a_large_cache_does() -> None:
    laws = parse_integer_law("uniform:1,3", "k"), parse_integer_law("constant:1", "m")
    work = scm(np.random.default_rng(4), 20_000, 0.7, *laws)
    rate, blocks = 3.0, 500
    timeline = poisson_timeline(
        work,
        arrival_rate_hz=rate,
        gap=GAP,
        rng=np.random.default_rng(0),
        measured=30_000,
        warm_up=warm_up_conversations(work, GAP, rate, blocks),
    )
    result = simulate_whole_content(timeline, work, blocks)
    closed = scm_limit(0.7, 2, 1, gap_mean_s=20.0, arrival_rate_hz=rate, blocks=blocks)
    assert result.hit_ratio == pytest.approx(
        closed.hit_ratio, abs=0.004 + 2.5 * result.standard_error
    )


@pytest.mark.parametrize(("share", "expected"), [(0.6, 1.0), (1.6, 0.0)])
def test_a_fixed_gap_hits_always_or_never_away_from_t_c(
    work: Workload, share: float, expected: float
) -> None:
    blocks = 4000
    curve = displacement(statistics(work), TailLaw.IDEAL)
    rate = RATE_A_BLOCK * blocks
    # A gap at which d(gap) is the given share of N.
    gap = Deterministic(share * blocks / (rate * (curve.new + curve.history)))
    timeline = poisson_timeline(
        work,
        arrival_rate_hz=rate,
        gap=gap,
        rng=np.random.default_rng(0),
        measured=3000,
        warm_up=warm_up_conversations(work, gap, rate, blocks),
    )
    result = simulate_whole_content(timeline, work, blocks)
    most = estimate_workload(work, law=TailLaw.IDEAL, gap=gap, arrival_rate_hz=rate, blocks=blocks)
    assert most.hit_probability == expected
    assert result.hit_ratio == pytest.approx(expected * (most.h_max or 0), abs=0.02)
