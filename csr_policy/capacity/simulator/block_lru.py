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
"""Block-level LRU as vLLM does it, for conversations, a range of blocks at a time.

vLLM keeps released blocks in one queue, least recent first. A request takes the
blocks it finds out of the queue, fills its need from the front (which evicts),
and puts all back at its end, last block first, so that a suffix goes before its
prefix. A partly filled block has no hash: older versions queue it like the rest
(`tails-recent`), newer ones put it in front (`tails-first`).

Because suffixes go first, what is left of a conversation is always a prefix: its
whole state is one number, and a range costs what a block costs. Conversations of a
group begin with the same blocks; these are released last and so outlive all that
follows them.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from csr_policy.capacity.arrays import IntArray
from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.simulator.result import HitRatio, measure
from csr_policy.capacity.simulator.timeline import Timeline
from csr_policy.capacity.tail_law import TailLaw
from csr_policy.capacity.workload import Reading, Workload


@dataclass(frozen=True, slots=True)
class Reuse:
    """Blocks that each turn found.

    Attributes:
        own: Of its conversation.
        shared: Of its group.
        refused: Turns that did not fit beside those in service; they reuse nothing.
    """

    own: IntArray
    shared: IntArray
    refused: int

    @property
    def blocks(self) -> IntArray:
        """All blocks found."""
        return self.own + self.shared


class BlockLru:
    """Cache state; calls come in order of time, `arrive` before `finish`."""

    def __init__(self, blocks: int, shared_blocks: int, *, tails_first: bool) -> None:
        """Start with an empty cache.

        Args:
            blocks: N, without the null block that vLLM keeps for itself.
            shared_blocks: Full blocks that the conversations of a group begin with.
            tails_first: Whether partly filled blocks are evicted first.
        """
        self._free = blocks
        self._front = blocks
        # Ranges by key: even ones are conversations, odd ones groups, negative ones dead.
        self._queue: OrderedDict[int, int] = OrderedDict()
        self._cached: dict[int, int] = {}
        self._users: dict[int, int] = {}
        self._shared = shared_blocks
        self._tails_first = tails_first
        self._next_dead = -1

    def arrive(self, owner: int, group: int, full: int, loose: int) -> tuple[int, int] | None:
        """Serve a prompt.

        Args:
            owner: Conversation, 0 or more.
            group: Whose first blocks it begins with, 0 or more.
            full: Own full blocks of the prompt that stay reusable, at least those cached.
            loose: Further blocks: a partly filled one, full ones nobody will ask for.

        Returns:
            Own and shared blocks found, or None where the prompt does not fit.
        """
        key, prefix = 2 * owner, 2 * group + 1
        own = self._cached.get(key, 0)
        shared = self._cached.get(prefix, 0)
        idle = 0 if self._users.get(group, 0) else shared
        need = self._shared - shared + full - own + loose
        if need + own + idle > self._free:
            return None
        if own:
            del self._queue[key]
        if idle:
            del self._queue[prefix]
        self._free -= own + idle + need
        self._evict(need)
        self._cached[key] = full
        if self._shared:
            self._cached[prefix] = self._shared
            self._users[group] = self._users.get(group, 0) + 1
        return own, shared

    def extend(self, blocks: int) -> bool:
        """Take further blocks for a reply; false where they do not fit."""
        if blocks > self._free:
            return False
        self._free -= blocks
        self._evict(blocks)
        return True

    def finish(self, owner: int, group: int, full: int, dead: int, partial: int) -> None:
        """Release a request: suffix first, then the prefix, then what its group shares.

        Args:
            owner: Conversation.
            group: Its group.
            full: Own full blocks that stay reusable.
            dead: Full blocks nobody will ask for.
            partial: Partly filled blocks, 0 or 1.
        """
        self._free += full + dead + partial
        if self._tails_first:
            self._front += partial
        else:
            dead += partial
        if dead:
            self._queue[self._next_dead] = dead
            self._next_dead -= 1
        if full:
            self._queue[2 * owner] = full
            self._cached[2 * owner] = full
        else:
            del self._cached[2 * owner]
        if self._shared:
            self._users[group] -= 1
            if self._users[group] == 0:
                self._queue[2 * group + 1] = self._shared
                self._free += self._shared

    def _evict(self, need: int) -> None:
        taken = min(need, self._front)
        self._front -= taken
        need -= taken
        queue = self._queue
        while need:
            key = next(iter(queue))
            left = queue[key] - need
            if left > 0:
                queue[key] = left
                if key >= 0:
                    self._cached[key] = left
                return
            need -= queue.popitem(last=False)[1]
            if key >= 0:
                del self._cached[key]


def replay(timeline: Timeline, workload: Workload, blocks: int, law: TailLaw) -> Reuse:
    """Run the turns of a timeline through the cache.

    A prompt's blocks are taken when it arrives, a reply's when it finishes.

    Raises:
        CapacityError: The law is no engine's, N is not positive, or a prompt does not
            contain what its conversation left in the cache.
    """
    if law.reading is not Reading.LIVE:
        raise CapacityError(
            f"tail_law: {law.value!r} is no engine's; expected tails-recent or tails-first"
        )
    if blocks < 1:
        raise CapacityError(f"blocks: is {blocks}; expected 1 or more")
    # A server always computes a prompt's last token again, whatever is cached.
    most = (workload.prompt_tokens - 1) // workload.block_tokens - workload.shared_blocks
    if np.any(workload.history > most):
        raise CapacityError(f"workload: {workload.source} has a prompt within its own history")
    cache = BlockLru(blocks, workload.shared_blocks, tails_first=law is TailLaw.TAILS_FIRST)
    if np.array_equal(timeline.time_s, timeline.finish_s):
        return _replay_instant(cache, timeline, workload)
    return _replay_timed(cache, timeline, workload)


def _replay_instant(cache: BlockLru, timeline: Timeline, workload: Workload) -> Reuse:
    turn = timeline.turn
    own, shared = [0] * turn.size, [0] * turn.size
    refused = 0
    columns = (
        timeline.conversation.tolist(),
        timeline.group.tolist(),
        workload.reusable[turn].tolist(),
        workload.dead[turn].tolist(),
        workload.partial[turn].astype(np.int64).tolist(),
    )
    for index, (owner, group, full, dead, partial) in enumerate(zip(*columns, strict=True)):
        found = cache.arrive(owner, group, full, dead + partial)
        if found is None:
            refused += 1
            continue
        own[index], shared[index] = found
        cache.finish(owner, group, full, dead, partial)
    return Reuse(np.array(own, dtype=np.int64), np.array(shared, dtype=np.int64), refused)


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Own blocks of a request: reusable, full but dead, partly filled."""

    full: int
    dead: int
    partial: int

    @property
    def all(self) -> int:
        """How many."""
        return self.full + self.dead + self.partial


@dataclass(frozen=True, slots=True)
class _Running:
    """A request in service, with its blocks before and after its reply."""

    owner: int
    group: int
    prompt: _Blocks
    stored: _Blocks


def _replay_timed(cache: BlockLru, timeline: Timeline, workload: Workload) -> Reuse:
    turn = timeline.turn
    own, shared = np.zeros(turn.size, dtype=np.int64), np.zeros(turn.size, dtype=np.int64)
    # Heap of (finish time, index); the requests by conversation.
    ends: list[tuple[float, int]] = []
    running: dict[int, _Running] = {}
    refused = 0
    for index, row in enumerate(turn.tolist()):
        while ends and ends[0][0] <= timeline.time_s[index]:
            done = int(timeline.conversation[heapq.heappop(ends)[1]])
            refused += _complete(cache, running.pop(done))
        owner, group = int(timeline.conversation[index]), int(timeline.group[index])
        if owner in running:
            raise CapacityError(f"timeline: turns of conversation {owner} overlap")
        prompt = _prompt_blocks(workload, row)
        found = cache.arrive(owner, group, prompt.full, prompt.dead + prompt.partial)
        if found is None:
            refused += 1
            continue
        own[index], shared[index] = found
        stored = _Blocks(
            int(workload.reusable[row]), int(workload.dead[row]), int(workload.partial[row])
        )
        running[owner] = _Running(owner, group, prompt, stored)
        heapq.heappush(ends, (float(timeline.finish_s[index]), index))
    return Reuse(own, shared, refused)


def _prompt_blocks(workload: Workload, row: int) -> _Blocks:
    """Own blocks of a turn before its reply."""
    tokens = int(workload.prompt_tokens[row])
    full = tokens // workload.block_tokens - workload.shared_blocks
    reusable = min(full, int(workload.reusable[row]))
    return _Blocks(reusable, full - reusable, int(tokens % workload.block_tokens > 0))


def _complete(cache: BlockLru, request: _Running) -> bool:
    """Finish a request; true where its reply did not fit and was cut off."""
    fits = cache.extend(request.stored.all - request.prompt.all)
    kept = request.stored if fits else request.prompt
    cache.finish(request.owner, request.group, kept.full, kept.dead, kept.partial)
    return not fits


def simulate_block_lru(
    timeline: Timeline, workload: Workload, blocks: int, law: TailLaw
) -> HitRatio:
    """Hit ratio of block-level LRU.

    Raises:
        CapacityError: A number is out of range, or no turn lies in the window.
    """
    reuse = replay(timeline, workload, blocks, law)
    return measure(timeline, workload, reuse.blocks, refused=reuse.refused)
