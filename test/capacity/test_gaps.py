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
"""Gap laws: closed forms against quadrature, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate

from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.gap_text import parse_gap
from csr_policy.capacity.gaps import (
    Deterministic,
    Empirical,
    Exponential,
    Gamma,
    GapLaw,
    Lognormal,
    Lomax,
    NotBeforeReply,
    require_mean,
)

LAWS: list[GapLaw] = [
    Exponential(135.0),
    Gamma(0.4, 60.0),
    Gamma(5.0, 60.0),
    Lognormal(4.0, 1.2),
    Lomax(2.5, 30.0),
    Deterministic(40.0),
    Empirical.of([3.0, 10.0, 10.0, 70.0]),
    NotBeforeReply(Exponential(20.0), Empirical.of([1.0, 5.0, 30.0])),
]


def by_name(law: GapLaw) -> str:
    return law.describe()


@pytest.mark.parametrize("law", LAWS, ids=by_name)
@pytest.mark.parametrize("t", [0.0, 2.0, 10.0, 33.0, 150.0])
def test_tail_integral_is_the_integral_of_the_tail(law: GapLaw, t: float) -> None:
    jumps = [x for x in (1.0, 3.0, 5.0, 10.0, 30.0, 40.0, 70.0) if 0 < x < t]
    expected, _ = integrate.quad(
        lambda u: 1 - float(law.cdf(u)), 0, t, points=jumps or None, limit=200
    )
    assert float(law.tail_integral(t)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("law", LAWS, ids=by_name)
def test_the_whole_tail_is_the_mean(law: GapLaw) -> None:
    assert float(law.tail_integral(math.inf)) == pytest.approx(law.mean_s, rel=1e-9)


@pytest.mark.parametrize("law", LAWS, ids=by_name)
def test_samples_follow_the_law(law: GapLaw) -> None:
    sample = law.sample(np.random.default_rng(0), 200_000)
    for t in (5.0, 12.0, 55.0):
        assert float(np.mean(sample <= t)) == pytest.approx(float(law.cdf(t)), abs=0.005)


@pytest.mark.parametrize("law", [Exponential(10.0), Gamma(3.0, 10.0), Lognormal(1.0, 0.5)])
def test_lipschitz_constant_is_the_steepest_slope(law: GapLaw) -> None:
    t = np.linspace(0, 40, 400_001)
    assert float(np.max(np.diff(law.cdf(t)) / np.diff(t))) == pytest.approx(
        law.lipschitz_hz, rel=1e-3
    )


@pytest.mark.parametrize("law", [Gamma(0.5, 3.0), Deterministic(3.0), Empirical.of([1.0])])
def test_a_law_that_is_not_lipschitz_says_so(law: GapLaw) -> None:
    assert math.isinf(law.lipschitz_hz)


@pytest.mark.parametrize("text", ["lomax:1,30", "lomax:0.7,30"])
def test_an_infinite_mean_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(CapacityError, match=r"infinite mean.*never settle.*B\.4"):
        parse_gap(text)


def test_a_heavy_tail_with_a_mean_is_accepted() -> None:
    require_mean(parse_gap("lomax:1.5,30"))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("exponential", "expected exponential:mean"),
        ("exponential:", "expected exponential:mean"),
        ("exponential:-3", "positive"),
        ("exponential:nan", "positive"),
        ("gamma:2", "expected gamma:shape,mean"),
        ("gama:2,3", "did you mean 'gamma'"),
        ("empirical", "names no file"),
        ("empirical:/nonexistent", "cannot read"),
    ],
)
def test_a_wrong_law_is_one_line(text: str, part: str) -> None:
    with pytest.raises(CapacityError, match=part) as caught:
        parse_gap(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "gaps"), [("[1, 2.5]", [1.0, 2.5]), ("1\n2.5\n", [1.0, 2.5]), ("2.5,1", [1, 2.5])]
)
def test_measured_gaps_come_from_a_file(tmp_path: Path, content: str, gaps: list[float]) -> None:
    path = tmp_path / "gaps.txt"
    path.write_text(content)
    law = parse_gap(f"empirical:{path}")
    assert isinstance(law, Empirical)
    assert law.sorted_s.tolist() == gaps


@pytest.mark.parametrize("content", ["", "one two", "-1 3", "0 0"])
def test_a_file_without_usable_gaps_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "gaps.txt"
    path.write_text(content)
    with pytest.raises(CapacityError, match="gap:"):
        parse_gap(f"empirical:{path}")
