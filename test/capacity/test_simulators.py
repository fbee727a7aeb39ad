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
"""The simulators against plain implementations and each other."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from csr_policy.capacity.arrays import IntArray
from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.gaps import Exponential
from csr_policy.capacity.generators import mcm, parse_integer_law
from csr_policy.capacity.robots import Session, cycle
from csr_policy.capacity.simulator.block_lru import replay, simulate_block_lru
from csr_policy.capacity.simulator.block_pool import BlockPool
from csr_policy.capacity.simulator.exact import replay_exact
from csr_policy.capacity.simulator.fleet import fleet_timeline, with_groups
from csr_policy.capacity.simulator.result import ratio_with_error
from csr_policy.capacity.simulator.timeline import Timeline, poisson_timeline
from csr_policy.capacity.simulator.whole_content import lru_hits
from csr_policy.capacity.tail_law import TailLaw
from csr_policy.capacity.trace import Trace
from csr_policy.capacity.workload import Boundary, Reading, Workload, blocks_of


def plain_lru(conversation: IntArray, size: IntArray, blocks: int) -> list[bool]:
    """Algorithm 1 as it is written, on a Python list."""
    order: list[int] = []
    held: dict[int, int] = {}
    hits = []
    for owner, grown in zip(conversation.tolist(), size.tolist(), strict=True):
        hits.append(owner in held)
        if owner in held:
            order.remove(owner)
        held[owner] = grown
        order.insert(0, owner)
        while sum(held.values()) > blocks:
            del held[order.pop()]
    return hits


def plain_list_lru(conversation: IntArray, size: IntArray, blocks: int) -> list[float]:
    """The same with a running sum, as one would write it first; CPU time after each turn."""
    order: list[int] = []
    held: dict[int, int] = {}
    used = 0
    spent = []
    for owner, grown in zip(conversation.tolist(), size.tolist(), strict=True):
        if owner in order:
            order.remove(owner)
            used -= held[owner]
        order.insert(0, owner)
        held[owner] = grown
        used += grown
        while used > blocks:
            used -= held.pop(order.pop())
        spent.append(time.process_time())
    return spent


@pytest.fixture(scope="module")
def turns() -> tuple[Workload, Timeline]:
    work = mcm(
        np.random.default_rng(1),
        20_000,
        parse_integer_law("geometric:0.75", "turns"),
        parse_integer_law("uniform:1,9", "increments"),
    )
    timeline = poisson_timeline(
        work,
        arrival_rate_hz=50.0,
        gap=Exponential(135.0),
        rng=np.random.default_rng(2),
        measured=240_000,
        warm_up=11_000,
    )
    return work, timeline


@pytest.mark.parametrize("blocks", [5, 40, 300, 3000])
def test_whole_content_lru_is_algorithm_1(turns: tuple[Workload, Timeline], blocks: int) -> None:
    work, timeline = turns
    owners, size = timeline.conversation[:3000], work.size[timeline.turn[:3000]]
    assert lru_hits(owners, size, blocks).tolist() == plain_lru(owners, size, blocks)


def test_a_million_turns_are_fast_and_a_list_is_ten_times_slower(
    turns: tuple[Workload, Timeline],
) -> None:
    work, timeline = turns
    count, blocks, few = 1_000_000, 100_000, 5000
    assert timeline.turns >= count
    owners, size = timeline.conversation[:count], work.size[timeline.turn[:count]]
    begin = time.process_time()
    hits = lru_hits(owners, size, blocks)
    ours_s = time.process_time() - begin
    assert 0.01 < hits.mean() < 0.99
    # The list is slow once the cache is full, which the turns before see to.
    part = slice(count // 2, count // 2 + 40_000 + few)
    spent = plain_list_lru(owners[part], size[part], blocks)
    list_s = spent[-1] - spent[-1 - few]
    print(f"a million turns {ours_s:.2f} s; a list {list_s / few * count / ours_s:.0f} times that")
    assert ours_s < 20
    assert list_s / few >= 10 * ours_s / count


@pytest.mark.parametrize("law", [TailLaw.TAILS_FIRST, TailLaw.TAILS_RECENT])
@pytest.mark.parametrize(
    ("block_tokens", "shared", "boundary", "service_s", "blocks"),
    [
        (16, 0, Boundary.DISAGGREGATED, 0.0, 400),
        (32, 70, Boundary.COLOCATED, 0.0, 200),
        (16, 100, Boundary.COLOCATED, 15.0, 700),
        (128, 300, Boundary.DISAGGREGATED, 9.0, 60),
        # So small that some requests do not fit beside those in service.
        (16, 64, Boundary.COLOCATED, 40.0, 260),
    ],
)
def test_ranges_of_blocks_are_blocks(
    small_trace: Trace,
    law: TailLaw,
    block_tokens: int,
    shared: int,
    boundary: Boundary,
    service_s: float,
    blocks: int,
) -> None:
    trace = replace(small_trace, shared_tokens=shared)
    work = blocks_of(trace, block_tokens, reading=Reading.LIVE, boundary=boundary)
    timeline = poisson_timeline(
        work,
        arrival_rate_hz=0.3,
        gap=Exponential(25.0),
        rng=np.random.default_rng(7),
        measured=500,
        warm_up=50,
        service_s=service_s,
    )
    first = law is TailLaw.TAILS_FIRST
    pool = BlockPool(blocks, block_tokens=block_tokens, tails_first=first)
    found = replay(timeline, work, blocks, law).blocks
    assert found.sum() > 0
    assert found.tolist() == replay_exact(pool, timeline, work).tolist()


@pytest.mark.parametrize("law", [TailLaw.TAILS_FIRST, TailLaw.TAILS_RECENT])
@pytest.mark.parametrize("shared_prefix", [True, False])
@pytest.mark.parametrize("engines", [1, 2])
def test_ranges_of_blocks_are_blocks_for_robots(
    law: TailLaw, shared_prefix: bool, engines: int
) -> None:
    session = Session(
        200, 30, 45, 1200, shared_prefix=shared_prefix, engines=engines, warm_up=engines == 2
    )
    work = with_groups(session, cycle(session))
    timeline = fleet_timeline(
        session, cycle(session), robots=8, cycles=2, rng=np.random.default_rng(1)
    )
    pool = BlockPool(480, block_tokens=16, tails_first=law is TailLaw.TAILS_FIRST)
    found = replay(timeline, work, 480, law).blocks
    assert 0 < found.sum() < work.size[timeline.turn].sum()
    assert found.tolist() == replay_exact(pool, timeline, work).tolist()


def test_turns_that_do_not_fit_are_counted(small_trace: Trace) -> None:
    work = blocks_of(small_trace, 16, reading=Reading.LIVE)
    timeline = poisson_timeline(
        work,
        arrival_rate_hz=1.0,
        gap=Exponential(20.0),
        rng=np.random.default_rng(0),
        measured=200,
        warm_up=0,
    )
    result = simulate_block_lru(timeline, work, 50, TailLaw.TAILS_FIRST)
    assert result.refused == int((work.size[timeline.turn] > 50).sum()) > 0


def test_a_law_without_an_engine_is_refused(small_trace: Trace) -> None:
    work = blocks_of(small_trace, 16)
    timeline = poisson_timeline(
        work,
        arrival_rate_hz=1.0,
        gap=Exponential(20.0),
        rng=np.random.default_rng(0),
        measured=10,
        warm_up=0,
    )
    with pytest.raises(CapacityError, match="'paper' is no engine's"):
        replay(timeline, work, 100, TailLaw.PAPER)


def test_standard_error_covers_the_truth() -> None:
    rng = np.random.default_rng(8)
    outside = 0
    for _ in range(200):
        asked = rng.integers(1, 10, 4000).astype(np.float64)
        ratio, error = ratio_with_error(asked * (rng.random(4000) < 0.3), asked)
        outside += abs(ratio - 0.3) > 2 * error
    # Two standard errors of 20 batches: about 6 % lie outside.
    assert 0.02 * 200 <= outside <= 0.12 * 200
