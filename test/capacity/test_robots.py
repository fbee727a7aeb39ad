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
"""Robots on one engine: the normal law against block-level simulation, and the planner."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.planner import Verdict, plan, shared_secondary
from csr_policy.capacity.robots import (
    Session,
    cycle,
    found_by_block,
    most_robots,
    predict_fleet,
    tick_prompts,
)
from csr_policy.capacity.simulator.fleet import simulate_fleet
from csr_policy.capacity.tail_law import TailLaw
from csr_policy.capacity.ttft import predict
from csr_policy.cost_model import CostModel

PAIR = Session(600, 40, 60, 6000)
SALTED_ALONE = Session(600, 40, 60, 6000, engines=1, warm_up=False)
SAME_PREFIX = Session(600, 40, 60, 6000, shared_prefix=True)
COARSE = Session(500, 25, 45, 4000, block_tokens=128, fraction=0.3)


def blocks_at(session: Session, robots: int, share: float) -> int:
    """N at which the fleet's mean content is that share of it."""
    work = cycle(session)
    content = float((work.reusable + work.dead)[int(session.warm_up) :].mean())
    return int(robots * content * share + work.shared_blocks)


@pytest.mark.parametrize(
    ("session", "robots", "law"),
    [
        (PAIR, 40, TailLaw.TAILS_FIRST),
        (PAIR, 100, TailLaw.TAILS_FIRST),
        (SALTED_ALONE, 60, TailLaw.TAILS_RECENT),
        (SAME_PREFIX, 40, TailLaw.TAILS_FIRST),
        (COARSE, 80, TailLaw.TAILS_RECENT),
    ],
    ids=["pair-40", "pair-100", "alone-60", "same-prefix-40", "coarse-80"],
)
def test_the_prediction_is_the_simulation_along_the_cliff(
    session: Session, robots: int, law: TailLaw
) -> None:
    for share in (0.95, 1.0, 1.03, 1.1):
        blocks = blocks_at(session, robots, share)
        predicted = predict_fleet(session, robots=robots, blocks=blocks, law=law)
        simulated = simulate_fleet(
            session, robots=robots, blocks=blocks, law=law, fleets=10, cycles=1.0
        )
        print(
            f"{share:.2f} N: predicted {predicted.hit_ratio:.4f}, simulated "
            f"{simulated.hit_ratio:.4f}, standard error {simulated.standard_error:.4f}"
        )
        assert predicted.hit_ratio == pytest.approx(simulated.hit_ratio, abs=0.03)


def test_points_lie_inside_the_cliff() -> None:
    """The test above would say little if hits were all or nothing at its points."""
    ratios = [
        predict_fleet(PAIR, robots=40, blocks=blocks_at(PAIR, 40, share)).hit_ratio
        for share in (0.9, 0.97, 1.0, 1.03, 1.1)
    ]
    assert ratios[0] < 0.15
    assert sum(0.2 < ratio < 0.9 for ratio in ratios) >= 2
    assert ratios[-1] > 0.95


def test_most_robots_is_the_largest_fleet_that_reaches_the_target() -> None:
    found = most_robots(PAIR, blocks=20_000, target_hit_ratio=0.9)
    more = predict_fleet(PAIR, robots=found.robots + 1, blocks=20_000)
    assert found.hit_ratio >= 0.9 > more.hit_ratio


def test_a_cycle_counts_every_block() -> None:
    """One robot alone: what is new is what the pool gives, what is reused what it keeps."""
    session = replace(SALTED_ALONE, prefix_tokens=640)
    work = cycle(session)
    reused = tick_prompts(session).own
    assert (work.size - reused >= 0).all()
    new = work.size - reused
    # A version begins with its own prefix, which one engine still has.
    assert reused[0] == 40
    assert work.new[0] - 40 == new[0]
    assert work.new[1:].tolist() == new[1:].tolist()
    assert work.partial.any()
    assert work.dead.any()


def test_reprefill_a_tick_is_delta_times_one_minus_f_over_f() -> None:
    for fraction in (0.25, 0.5, 0.8):
        (row,) = plan(PAIR, tau_mem_tokens=[60_600], fractions=[fraction])
        assert row.reprefill_tokens_per_tick == pytest.approx(40 * (1 - fraction) / fraction, 0.01)
        assert row.ideal_reprefill_tokens_per_tick == pytest.approx(40 * (1 - fraction) / fraction)


def test_dropping_more_fits_more_robots_and_forgets_more() -> None:
    little, much = plan(
        PAIR,
        tau_mem_tokens=[6000],
        fractions=[0.25, 0.75],
        blocks=20_000,
        target_hit_ratio=0.9,
    )
    assert little.robots is not None
    assert much.robots is not None
    assert much.robots > little.robots
    assert much.kept_tokens < little.kept_tokens
    assert much.reprefill_tokens_per_tick < little.reprefill_tokens_per_tick


@pytest.mark.parametrize(
    ("robots", "limit", "verdict"),
    [(3, 8191, Verdict.ALWAYS), (20, 6500, Verdict.STAGGERED), (400, 8191, Verdict.NEVER)],
)
def test_theorem_4_on_a_shared_secondary(robots: int, limit: int, verdict: Verdict) -> None:
    cost = CostModel(0.05, 1e-6, 3e-4, 1e-9)
    found = shared_secondary(PAIR, cost, robots=robots, limit_tokens=limit, n_catchup_tokens=256)
    assert found.verdict is verdict


def test_a_secondary_too_slow_for_one_robot_never_works() -> None:
    cost = CostModel(0.05, 0.0, 0.02, 0.0)
    found = shared_secondary(PAIR, cost, robots=1, limit_tokens=8191, n_catchup_tokens=256)
    assert found.verdict is Verdict.NEVER


def test_ttft_of_a_fleet_lies_between_hits_and_misses() -> None:
    cost = CostModel(0.04, 2.6e-6, 3.6e-5, 1.2e-9)
    blocks = blocks_at(PAIR, 40, 1.0)
    found = found_by_block(PAIR, robots=40, blocks=blocks, law=TailLaw.TAILS_FIRST)
    result = predict(tick_prompts(PAIR), found, cost, deadline_s=0.1)
    assert result.hit_mean_s < result.mean_s < result.miss_mean_s
    assert result.late_probability is not None
    assert 0.1 < result.late_probability < 0.6


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"tau_mem_tokens": 650}, "at least the prefix and two chunks, 680"),
        ({"fraction": 1.0}, "fraction: is 1"),
        ({"chunk_tokens": 0}, "chunk_tokens: is 0"),
        ({"jitter": 0.0}, "period_s, jitter"),
        ({"engines": 3}, "engines: is 3"),
    ],
)
def test_a_wrong_session_is_one_line(changes: dict[str, float], part: str) -> None:
    with pytest.raises(CapacityError, match=part):
        replace(PAIR, **changes)  # type: ignore[arg-type]


def test_an_engine_smaller_than_a_session_is_one_line() -> None:
    with pytest.raises(CapacityError, match="at least one session"):
        predict_fleet(PAIR, robots=2, blocks=100)
    with pytest.raises(CapacityError, match="what one robot alone reaches"):
        most_robots(PAIR, blocks=20_000, target_hit_ratio=0.99)


def test_sawtooth_sizes_are_uniform_over_a_cycle() -> None:
    steps = np.diff(PAIR.static_tokens)
    assert (steps == PAIR.chunk_tokens).all()
    assert PAIR.static_tokens[-1] >= PAIR.tau_mem_tokens
    assert PAIR.static_tokens[-2] < PAIR.tau_mem_tokens
