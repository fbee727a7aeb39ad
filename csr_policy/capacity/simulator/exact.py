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
"""A timeline through an exact pool: ours, or vLLM's own manager."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol, TypeVar

import numpy as np

from csr_policy.capacity.arrays import IntArray
from csr_policy.capacity.mooncake import BLOCK_TOKENS, LoggedRequest
from csr_policy.capacity.simulator.timeline import Timeline
from csr_policy.capacity.workload import Workload

Progress = Callable[[int, int], None]
"""Called with requests done and requests in all."""


class _Found(Protocol):
    found: int


R = TypeVar("R", bound=_Found)


class ExactPool(Protocol[R]):
    """What `block_pool.BlockPool` and `vllm_manager.VllmManager` have in common."""

    def arrive(self, keys: Sequence[Hashable], tokens: int) -> R | None:
        """Serve a prompt."""

    def extend(self, request: R, keys: Sequence[Hashable], tokens: int) -> bool:
        """Store a reply."""

    def finish(self, request: R) -> None:
        """Release a request."""


_STRIDE = 1 << 24
"""Blocks a conversation has at most; a key is a number of its owner * stride + block."""


def _keys(workload: Workload, timeline: Timeline, index: int, tokens: int) -> list[int]:
    """Hashes of a prefix: shared, then the conversation's, then what never comes back."""
    row, owner = int(timeline.turn[index]), int(timeline.conversation[index])
    group = int(timeline.group[index])
    shared = workload.shared_blocks
    full = tokens // workload.block_tokens
    kept = min(full, shared + int(workload.reusable[row]))
    base, begin = (2 * owner + 2) * _STRIDE, (2 * group + 1) * _STRIDE
    keys = list(range(begin, begin + min(shared, full)))
    keys += range(base + shared, base + kept)
    # A changing suffix has a content, and so a hash, of its own at every turn.
    keys += [-((index + 1) * _STRIDE + block) for block in range(kept, full)]
    return keys


def replay_exact(
    pool: ExactPool[R],
    timeline: Timeline,
    workload: Workload,
    progress: Progress | None = None,
) -> IntArray:
    """Blocks that each turn finds, shared ones included; 0 where it did not fit."""
    found = np.zeros(timeline.turns, dtype=np.int64)
    running: list[tuple[float, int, R, list[int], int]] = []
    times, ends = timeline.time_s.tolist(), timeline.finish_s.tolist()
    for index, row in enumerate(timeline.turn.tolist()):
        while running and running[0][0] <= times[index]:
            _complete(pool, heapq.heappop(running))
        prompt = int(workload.prompt_tokens[row])
        request = pool.arrive(_keys(workload, timeline, index, prompt), prompt)
        if request is None:
            continue
        found[index] = request.found
        stored = _stored_tokens(workload, row)
        keys = _keys(workload, timeline, index, stored)
        done = (ends[index], index, request, keys, stored - prompt)
        if ends[index] <= times[index]:
            _complete(pool, done)
        else:
            heapq.heappush(running, done)
        if progress is not None and index % 512 == 0:
            progress(index, timeline.turns)
    return found


def _complete(pool: ExactPool[R], done: tuple[float, int, R, list[int], int]) -> None:
    _, _, request, keys, reply = done
    if reply > 0:
        pool.extend(request, keys, reply)
    pool.finish(request)


def _stored_tokens(workload: Workload, row: int) -> int:
    """Tokens a turn stores; of a partly filled block at least one, never fewer than asked."""
    blocks = int(workload.reusable[row] + workload.dead[row]) + workload.shared_blocks
    stored = blocks * workload.block_tokens + int(workload.partial[row])
    return max(stored, int(workload.prompt_tokens[row]))


def replay_log(pool: ExactPool[R], requests: Sequence[LoggedRequest]) -> tuple[IntArray, int]:
    """Blocks that each request of a log finds, served at once; and how many did not fit."""
    found = np.zeros(len(requests), dtype=np.int64)
    refused = 0
    for index, logged in enumerate(requests):
        keys = logged.hashes[: logged.prompt_tokens // BLOCK_TOKENS]
        request = pool.arrive(keys, logged.prompt_tokens)
        if request is None:
            refused += 1
            continue
        found[index] = request.found
        pool.finish(request)
    return found, refused
