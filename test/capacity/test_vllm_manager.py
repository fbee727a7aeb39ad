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
"""vLLM's own KVCacheManager: the simulators find the same blocks, to the last one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from csr_policy.capacity.gaps import Exponential
from csr_policy.capacity.simulator.block_lru import replay
from csr_policy.capacity.simulator.block_pool import BlockPool, PoolRequest
from csr_policy.capacity.simulator.exact import replay_exact
from csr_policy.capacity.simulator.timeline import poisson_timeline
from csr_policy.capacity.tail_law import TailLaw
from csr_policy.capacity.trace import Trace
from csr_policy.capacity.vllm_manager import ManagedRequest, VllmManager, vllm_available
from csr_policy.capacity.workload import Boundary, Reading, blocks_of

pytestmark = pytest.mark.skipif(not vllm_available(), reason="needs vllm")

BLOCK_TOKENS = 16


def keys_of(owner: int, tokens: int, shared: int) -> list[int]:
    """Hashes of a prompt's full blocks; the first ones are every owner's."""
    count = tokens // BLOCK_TOKENS
    return [block if block < shared else owner * 10_000 + block for block in range(count)]


def random_stream(seed: int, requests: int) -> tuple[int, int]:
    """Random requests to both; returns blocks found and requests refused.

    Prompts grow, start anew, repeat exactly, share prefixes, overlap in time (also within
    one owner, so that blocks are computed twice), write replies, and may not fit.
    """
    rng = np.random.default_rng(seed)
    blocks = int(rng.integers(40, 120))
    tails_first = seed % 2 == 0
    shared = int(rng.integers(0, 4))
    pool = BlockPool(blocks, block_tokens=BLOCK_TOKENS, tails_first=tails_first)
    manager = VllmManager(blocks, block_tokens=BLOCK_TOKENS, tails_first=tails_first)
    lengths: dict[int, int] = {}
    running: list[tuple[PoolRequest, ManagedRequest, int, int]] = []
    found = refused = 0
    for _ in range(requests):
        while running and (len(running) > 3 or rng.random() < 0.5):
            ours, theirs, owner, tokens = running.pop(int(rng.integers(len(running))))
            reply = int(rng.integers(0, 40))
            keys = keys_of(owner, tokens + reply, shared)
            grown = pool.extend(ours, keys, reply)
            assert grown == manager.extend(theirs, keys, reply)
            lengths[owner] = tokens + reply * grown
            pool.finish(ours)
            manager.finish(theirs)
        owner = int(rng.integers(1, 14))
        tokens = lengths.get(owner, 0) + int(rng.integers(0, 60))
        if not 1 <= tokens <= 300:
            tokens = int(rng.integers(1, 60))
        keys = keys_of(owner, tokens, shared)
        ours_now, theirs_now = pool.arrive(keys, tokens), manager.arrive(keys, tokens)
        assert (ours_now is None) == (theirs_now is None)
        if ours_now is None or theirs_now is None:
            refused += 1
            continue
        assert ours_now.found == theirs_now.found
        found += ours_now.found
        running.append((ours_now, theirs_now, owner, tokens))
    return found, refused


@pytest.mark.parametrize("seed", range(6))
def test_a_random_stream_reuses_equal_blocks(seed: int) -> None:
    found, _ = random_stream(seed, 1500)
    assert found > 500


@pytest.mark.parametrize("law", [TailLaw.TAILS_FIRST, TailLaw.TAILS_RECENT])
@pytest.mark.parametrize(
    ("shared", "boundary", "service_s"),
    [
        (0, Boundary.DISAGGREGATED, 0.0),
        (100, Boundary.COLOCATED, 0.0),
        (70, Boundary.COLOCATED, 15.0),
    ],
)
def test_conversations_reuse_equal_blocks(
    small_trace: Trace, law: TailLaw, shared: int, boundary: Boundary, service_s: float
) -> None:
    work = blocks_of(
        replace(small_trace, shared_tokens=shared),
        BLOCK_TOKENS,
        reading=Reading.LIVE,
        boundary=boundary,
    )
    timeline = poisson_timeline(
        work,
        arrival_rate_hz=0.3,
        gap=Exponential(25.0),
        rng=np.random.default_rng(3),
        measured=300,
        warm_up=50,
        service_s=service_s,
    )
    manager = VllmManager(500, block_tokens=BLOCK_TOKENS, tails_first=law is TailLaw.TAILS_FIRST)
    theirs = replay_exact(manager, timeline, work)
    assert replay(timeline, work, 500, law).blocks.tolist() == theirs.tolist()
