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
"""Versions over one log: nothing lost, nothing doubled, order kept."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from csr_policy.context.chunk import Chunk
from csr_policy.context.eviction import MAX_KEPT_SHARE, evict
from csr_policy.context.tokens import token_ids
from csr_policy.context.versions import LiveVersion, SequenceVersion, VersionedContext
from csr_policy.settings import EvictionPolicyName, EvictionSettings

PREFIX = token_ids([1, 2, 3])
ROOM = 100_000


def make_chunk(index: int, tokens: int = 2, keep: bool = False) -> Chunk:
    ids = token_ids([1000 + index] * tokens)
    return Chunk(index, index, "test", keep, f"chunk {index}", ids)


def static_ids(version: SequenceVersion, log: list[Chunk]) -> list[int]:
    """`X_pre ⊕ head_k ⊕ log[s_k : t]`, from scratch."""
    chunks = [*version.head, *log[version.start :]]
    return [*PREFIX, *(token for chunk in chunks for token in chunk.ids)]


@settings(max_examples=200, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=60),
    pins=st.sets(st.integers(0, 59)),
    policy=st.sampled_from(EvictionPolicyName),
    fraction=st.floats(0.1, 0.95),
    tokens=st.integers(1, 500),
)
def test_an_eviction_drops_the_oldest_and_carries_the_pins(
    sizes: list[int],
    pins: set[int],
    policy: EvictionPolicyName,
    fraction: float,
    tokens: int,
) -> None:
    chunks = [make_chunk(i, size, i in pins) for i, size in enumerate(sizes)]
    chosen = EvictionSettings(policy=policy, fraction=fraction, tokens=tokens)
    old_head = (make_chunk(-1, 3, True),)
    cut = evict(chunks, old_head, chosen, ROOM)
    dropped = chunks[: cut.start]
    assert dropped, "something is dropped"
    assert cut.head == (*old_head, *(chunk for chunk in dropped if chunk.keep))


def test_oldest_fraction_drops_half_by_default() -> None:
    cut = evict([make_chunk(i) for i in range(10)], (), EvictionSettings(), ROOM)
    assert cut.start == 5


def test_oldest_tokens_drops_whole_chunks_up_to_the_number() -> None:
    chosen = EvictionSettings(policy=EvictionPolicyName.OLDEST_TOKENS, tokens=5)
    cut = evict([make_chunk(i, 2) for i in range(10)], (), chosen, ROOM)
    assert cut.start == 3


def test_an_eviction_always_makes_room() -> None:
    chunks = [make_chunk(i, 1) for i in range(10)] + [make_chunk(10 + i, 50) for i in range(10)]
    cut = evict(chunks, (), EvictionSettings(fraction=0.1), 400)
    kept = sum(chunk.tokens for chunk in chunks[cut.start :])
    assert kept <= MAX_KEPT_SHARE * 400


class ContextMachine(RuleBasedStateMachine):
    """Random appends, pins, evictions, swaps, resets and queries held across them."""

    @initialize()
    def begin(self) -> None:
        self.context = VersionedContext(PREFIX, SequenceVersion(0, 0))
        self.log: list[Chunk] = []
        self.queries: list[tuple[int, int, list[int]]] = []

    @rule(tokens=st.integers(1, 9), keep=st.booleans())
    def append(self, tokens: int, keep: bool) -> None:
        chunk = make_chunk(len(self.log), tokens, keep)
        self.log.append(chunk)
        self.context.append(chunk)

    @precondition(lambda self: self.context.next is None and self.context.chunks_of_current())
    @rule(fraction=st.floats(0.1, 0.95), late=st.integers(0, 3))
    def begin_eviction(self, fraction: float, late: int) -> None:
        chosen = EvictionSettings(fraction=fraction)
        chunks = list(self.context.chunks_of_current())
        cut = evict(chunks, self.context.current.version.head, chosen, ROOM)
        version = self.context.successor(cut)
        live = LiveVersion(version, PREFIX)
        live.append_all(self.context.log.between(version.start))
        for _ in range(late):  # chunks that come while the version is prepared
            self.append(2, False)
        self.context.attach_next(live)

    @precondition(lambda self: self.context.next is not None)
    @rule()
    def swap(self) -> None:
        self.context.promote()

    @precondition(lambda self: self.context.next is not None)
    @rule()
    def give_up(self) -> None:
        self.context.drop_next()

    @rule()
    def ask(self) -> None:
        live = self.context.current
        ids = static_ids(live.version, self.log)
        self.queries.append((live.version.number, live.tokens, ids))

    @invariant()
    def every_version_is_prefix_head_and_log(self) -> None:
        for live in (self.context.current, self.context.next):
            if live is not None:
                assert list(live.buffer.ids()) == static_ids(live.version, self.log)

    @invariant()
    def a_held_query_keeps_its_tokens(self) -> None:
        for number, tokens, ids in self.queries:
            live = self.context.find(number)
            if live is not None:
                assert list(live.buffer.ids(0, tokens)) == ids

    @invariant()
    def no_pinned_chunk_is_lost(self) -> None:
        current = self.context.current.version
        present = [*current.head, *self.log[current.start :]]
        assert [c for c in self.log if c.keep] == [c for c in present if c.keep]


TestContextMachine = ContextMachine.TestCase
TestContextMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_the_log_refuses_a_gap() -> None:
    context = VersionedContext(PREFIX, SequenceVersion(0, 0))
    with pytest.raises(AssertionError, match="chunk 1 appended at 0"):
        context.append(make_chunk(1))


def test_the_log_lets_go_of_what_no_version_needs() -> None:
    context = VersionedContext(PREFIX, SequenceVersion(0, 0))
    for index in range(10):
        context.append(make_chunk(index))
    cut = evict(list(context.chunks_of_current()), (), EvictionSettings(), ROOM)
    live = LiveVersion(context.successor(cut), PREFIX)
    context.attach_next(live)
    context.promote()
    assert (context.log.first, context.log.end) == (5, 10)
    with pytest.raises(ValueError, match="only 5 and later"):
        context.log.between(4)
