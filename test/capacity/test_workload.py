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
"""Conversations as blocks: readings, boundaries, averages."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from capacity_timelines import one_after_another

from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.generators import mcm, parse_integer_law, scm
from csr_policy.capacity.scm import scm_statistics
from csr_policy.capacity.simulator.whole_content import simulate_whole_content
from csr_policy.capacity.tail_law import TailLaw, displacement
from csr_policy.capacity.trace import Trace, trace_from_turns
from csr_policy.capacity.workload import (
    Boundary,
    Reading,
    blocks_of,
    given_statistics,
    statistics,
)


@pytest.fixture
def running_example() -> Trace:
    """X = 2, 4, 3 and Y = 2, 5, counted in blocks of one token."""
    return trace_from_turns([[(2, 2), (4, 5), (3, 0)]])


def test_the_running_example_has_the_papers_sizes(running_example: Trace) -> None:
    assert blocks_of(running_example, 1).size.tolist() == [2, 8, 16]


def test_the_running_example_reuses_10_of_26(running_example: Trace) -> None:
    work = blocks_of(running_example, 1)
    result = simulate_whole_content(one_after_another(work), work, blocks=16)
    assert Fraction(result.hit_ratio).limit_denominator(1000) == Fraction(10, 26)
    assert result.hit_ratio == 10 / 26


@pytest.mark.parametrize("reading", list(Reading))
def test_the_running_example_has_reuse_potential_10_of_26(
    running_example: Trace, reading: Reading
) -> None:
    assert statistics(blocks_of(running_example, 1, reading=reading)).h_max == 10 / 26


def test_cumulative_counts_partial_blocks_again() -> None:
    # 10 tokens take 3 blocks of 4; the 2 in the last one are computed again with 8 more.
    trace = trace_from_turns([[(10, 3), (5, 0)]])
    assert blocks_of(trace, 4, reading=Reading.CUMULATIVE).size.tolist() == [3, 6]
    assert blocks_of(trace, 4, reading=Reading.LIVE).size.tolist() == [3, 5]


def test_a_colocated_turn_keeps_the_reply_but_not_its_last_token() -> None:
    trace = trace_from_turns([[(10, 3), (5, 7)]])
    work = blocks_of(trace, 4, reading=Reading.LIVE, boundary=Boundary.COLOCATED)
    assert work.size.tolist() == [3, 6]
    assert work.reusable.tolist() == [3, 6]
    assert work.prompt_tokens.tolist() == [10, 18]


@pytest.mark.parametrize("reading", list(Reading))
@pytest.mark.parametrize("boundary", list(Boundary))
def test_a_r_minus_a_h_is_e_b(small_trace: Trace, reading: Reading, boundary: Boundary) -> None:
    stats = statistics(blocks_of(small_trace, 16, reading=reading, boundary=boundary))
    assert stats.a_h is not None
    assert stats.a_r - stats.a_h == pytest.approx(stats.e_b, rel=1e-12)


def test_averages_are_those_of_the_formulas(small_trace: Trace) -> None:
    work = blocks_of(small_trace, 16)
    rows = [work.size[a:b] for a, b in zip(work.offsets[:-1], work.offsets[1:], strict=True)]
    stats = statistics(work)
    assert stats.a_r == pytest.approx(np.mean([row.sum() for row in rows]))
    assert stats.a_h_hash == pytest.approx(np.mean([(row[:-1] - 1).sum() for row in rows]))
    assert stats.e_b == pytest.approx(np.mean([row[-1] for row in rows]))
    assert stats.e_m == pytest.approx(np.mean([row.size for row in rows]))


def test_exact_counts_meet_the_laws_formulas_where_every_tail_is_partial() -> None:
    trace = trace_from_turns([[(10, 3), (6, 4), (4, 2)]] * 3)
    work = blocks_of(trace, 4, reading=Reading.LIVE)
    assert work.partial.all()
    exact = statistics(work)
    published = given_statistics(
        a_r=exact.a_r, a_h_hash=exact.a_h_hash, e_b=exact.e_b, e_m=exact.e_m
    )
    for law in (TailLaw.TAILS_RECENT, TailLaw.TAILS_FIRST):
        assert displacement(exact, law) == displacement(published, law)


def test_a_shared_prompt_is_in_every_size_and_in_no_history() -> None:
    alone = trace_from_turns([[(10, 3), (6, 4)]])
    together = trace_from_turns([[(10, 3), (6, 4)]], shared_tokens=8)
    plain = blocks_of(alone, 4, reading=Reading.LIVE)
    shared = blocks_of(together, 4, reading=Reading.LIVE)
    assert shared.shared_blocks == 2
    assert (shared.size - plain.size).tolist() == [2, 2]
    assert shared.reusable.tolist() == plain.reusable.tolist()


def test_generated_averages_are_the_closed_forms_of_the_scm() -> None:
    work = scm(
        np.random.default_rng(1),
        60_000,
        0.7,
        parse_integer_law("geometric:3", "k"),
        parse_integer_law("uniform:1,5", "m"),
    )
    expected = scm_statistics(0.7, 3, 3)
    found = statistics(work)
    for name in ("a_r", "a_h_hash", "e_b", "e_m"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=0.03)


def test_dependent_increments_vary_more_from_one_conversation_to_another() -> None:
    def spread(dependence: float) -> float:
        work = mcm(
            np.random.default_rng(2),
            5000,
            parse_integer_law("fixed:5", "turns"),
            parse_integer_law("uniform:1,9", "increments"),
            dependence=dependence,
        )
        return float(work.size[work.offsets[1:] - 1].std())

    assert spread(0.8) > 1.5 * spread(0.0)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("poisson:3", "no law"),
        ("uniform:5,2", "out of range"),
        ("zeta:1.5", "finite mean"),
        ("fixed:x", "expected fixed:n"),
        ("uniform:1", "expected uniform:a,b"),
    ],
)
def test_a_wrong_law_is_one_line(text: str, part: str) -> None:
    with pytest.raises(CapacityError, match=part):
        parse_integer_law(text, "turns")


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"a_r": -1.0, "a_h_hash": 1.0, "e_b": 1.0}, "a_r: is -1"),
        ({"a_r": 2.0, "a_h_hash": 3.0, "e_b": 1.0}, "at most a_r"),
        ({"a_r": 2.0, "a_h_hash": 1.0, "e_b": 0.0}, "e_b: is 0"),
        ({"a_r": 2.0, "a_h_hash": 1.0, "e_b": 1.0, "e_m": 0.5}, "e_m: is 0.5"),
        ({"a_r": 2.0, "a_h_hash": 1.0, "e_b": 1.0, "shared_blocks": 3}, "e_m: is missing"),
    ],
)
def test_wrong_averages_are_one_line(values: dict[str, float], part: str) -> None:
    with pytest.raises(CapacityError, match=part):
        given_statistics(**values)  # type: ignore[arg-type]


def test_a_turn_without_prompt_tokens_is_named() -> None:
    with pytest.raises(CapacityError, match="conversation 1 has a turn of 0 prompt"):
        trace_from_turns([[(1, 1)], [(5, 0), (0, 3)]])
