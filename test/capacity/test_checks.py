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
"""Assumptions, confidence, bounds: told from data, with what follows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from csr_policy.capacity.bounds import bounds
from csr_policy.capacity.checks import (
    Finding,
    bootstrap,
    bootstrap_hit_ratio,
    check_assumptions,
    product_form,
)
from csr_policy.capacity.gaps import Deterministic, Exponential
from csr_policy.capacity.generators import mcm, parse_integer_law
from csr_policy.capacity.tail_law import TailLaw
from csr_policy.capacity.trace import Trace, trace_from_turns
from csr_policy.capacity.workload import Workload, blocks_of, statistics

GAP = Exponential(20.0)


def generated(turns: str, increments: str, count: int = 6000) -> Workload:
    return mcm(
        np.random.default_rng(0),
        count,
        parse_integer_law(turns, "turns"),
        parse_integer_law(increments, "increments"),
    )


def finding(findings: tuple[Finding, ...], word: str) -> Finding:
    (found,) = (one for one in findings if word in one.assumption)
    return found


def arrivals(gaps: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Trace:
    trace = trace_from_turns([[(50, 50)]] * gaps.size)
    return replace(trace, start_s=np.cumsum(gaps))


def test_the_model_itself_passes() -> None:
    found = check_assumptions(generated("geometric:0.7", "uniform:1,5"))
    assert finding(found, "independent").holds is True
    assert finding(found, "light tail").holds is True
    assert finding(found, "stationarity").holds is True
    assert finding(found, "Poisson").holds is None


def test_a_heavy_tail_is_seen() -> None:
    found = finding(check_assumptions(generated("zeta:2.4", "constant:3")), "light tail")
    assert found.holds is False
    assert "confidence interval" in found.effect


def test_dependence_of_turns_and_sizes_is_seen_on_real_conversations(sharegpt: Trace) -> None:
    work = blocks_of(sharegpt.with_at_least(2), 128)
    found = finding(check_assumptions(work), "independent")
    assert found.holds is False
    assert "direct averages" in found.effect
    off = product_form(work).a_r / statistics(work).a_r - 1
    assert 0.02 < abs(off) < 0.5


def test_product_form_is_exact_under_independence() -> None:
    work = generated("geometric:0.7", "uniform:1,5", 40_000)
    assert product_form(work).a_r == pytest.approx(statistics(work).a_r, rel=0.01)


def test_poisson_arrivals_pass_and_bursts_do_not() -> None:
    rng = np.random.default_rng(1)
    for gaps, holds in ((rng.exponential(1, 500), True), (rng.gamma(0.2, 5, 500), False)):
        trace = arrivals(gaps)
        found = finding(check_assumptions(blocks_of(trace, 16), trace), "Poisson")
        assert found.holds is holds


def test_a_rising_load_is_not_stationary() -> None:
    rng = np.random.default_rng(1)
    trace = arrivals(np.sort(rng.exponential(1, 500))[::-1])
    found = finding(check_assumptions(blocks_of(trace, 16), trace), "stationarity")
    assert found.holds is False
    assert "busy hours" in found.effect


def test_confidence_intervals_cover_the_truth() -> None:
    truth = statistics(generated("geometric:0.7", "uniform:1,5", 200_000)).a_r
    rng = np.random.default_rng(2)
    covered = 0
    for seed in range(40):
        work = mcm(
            np.random.default_rng(seed),
            300,
            parse_integer_law("geometric:0.7", "turns"),
            parse_integer_law("uniform:1,5", "increments"),
        )
        interval = bootstrap(work, rng, replicates=200)["a_r"]
        covered += interval.low <= truth <= interval.high
    assert covered >= 33


def test_the_hit_ratio_has_an_interval(small_trace: Trace) -> None:
    work = blocks_of(small_trace, 16)
    interval = bootstrap_hit_ratio(
        work,
        np.random.default_rng(0),
        law=TailLaw.PAPER,
        gap=GAP,
        arrival_rate_hz=0.5,
        blocks=900,
        replicates=60,
    )
    assert interval.low < interval.value < interval.high


def test_bound_26_is_vacuous_at_practical_n_and_tends_to_zero(sharegpt: Trace) -> None:
    work = blocks_of(sharegpt, 128)
    practical = bounds(work, gap=GAP, arrival_rate_hz=1.5, blocks=2275, practical=True)
    assert practical.vacuous
    light = generated("geometric:0.5", "constant:1")
    errors = [
        bounds(light, gap=GAP, arrival_rate_hz=0.02 * n, blocks=n).hit_ratio_error
        for n in (10**4, 10**7, 10**10)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0] / 2


def test_constants_are_those_of_theorem_c2(small_trace: Trace) -> None:
    work = blocks_of(small_trace, 16)
    stats = statistics(work)
    found = bounds(work, gap=GAP, arrival_rate_hz=0.5, blocks=1000)
    rate = 0.5 / 1000
    ends = work.size[work.offsets[1:] - 1].astype(float)
    later = work.turn_counts - 1
    v_t = rate * (found.horizon_s * np.mean(ends**2) + 20.0 * np.mean(later * ends**2))
    assert found.v_t == pytest.approx(v_t)
    assert found.slope == pytest.approx(rate * stats.e_b)
    assert stats.a_h is not None
    assert found.lipschitz == pytest.approx(rate * (stats.e_b + stats.a_h))
    assert found.c_t == pytest.approx(16 * v_t / 9 * (2 + 4 * found.lipschitz * found.horizon_s))


def test_a_law_with_jumps_has_no_bound(small_trace: Trace) -> None:
    found = bounds(
        blocks_of(small_trace, 16), gap=Deterministic(20.0), arrival_rate_hz=0.5, blocks=1000
    )
    assert found.hit_ratio_error == float("inf")
    assert found.vacuous
