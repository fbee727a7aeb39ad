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
"""Eviction policies: where the next sequence version starts, and what it carries over.

Pure functions of the chunks. Each policy drops a share, never the minimum:
evicting one chunk a step would move the prefix, and so lose the cache, at
every step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from csr_policy.context.chunk import Chunk
from csr_policy.settings import EvictionPolicyName, EvictionSettings

StartRule = Callable[[Sequence[Chunk], EvictionSettings], int]
"""How many of the oldest chunks to drop, given all chunks of the current version."""


MAX_KEPT_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Cut:
    """An eviction, decided.

    Attributes:
        start: `s_{k+1}`, index of the first chunk that stays.
        head: Pinned chunks the next version carries in front of it, oldest first.
    """

    start: int
    head: tuple[Chunk, ...]


def oldest_fraction(chunks: Sequence[Chunk], settings: EvictionSettings) -> int:
    """Drop the oldest share of the chunks (the paper's `Evict`: one half)."""
    return max(1, round(len(chunks) * settings.fraction))


def oldest_tokens(chunks: Sequence[Chunk], settings: EvictionSettings) -> int:
    """Drop the oldest chunks that hold at least `eviction.tokens` together."""
    dropped_tokens = 0
    for count, chunk in enumerate(chunks):
        if dropped_tokens >= settings.tokens:
            return count
        dropped_tokens += chunk.tokens
    return len(chunks)


POLICIES: dict[EvictionPolicyName, StartRule] = {
    EvictionPolicyName.OLDEST_FRACTION: oldest_fraction,
    EvictionPolicyName.OLDEST_TOKENS: oldest_tokens,
}


def evict(
    chunks: Sequence[Chunk],
    head: tuple[Chunk, ...],
    settings: EvictionSettings,
    room_tokens: int,
) -> Cut:
    """Choose `s_{k+1} > s_k` and `head_{k+1}`.

    Whatever the policy says, what stays fills at most nine tenths of the room: a version
    that starts at its threshold would be evicted again at once.

    Args:
        chunks: `log[s_k : t]`, at least one.
        head: Pinned chunks that version k carries already.
        settings: Which policy, how much.
        room_tokens: Tokens for head and chunks together below `tau_mem`.

    Returns:
        The cut; its head is `head` followed by the pinned chunks among those dropped.
    """
    assert chunks, "an eviction needs a chunk to drop"
    dropped = POLICIES[settings.policy](chunks, settings)
    pinned = tuple(chunk for chunk in chunks[:dropped] if chunk.keep)
    kept_tokens = sum(chunk.tokens for chunk in (*head, *pinned, *chunks[dropped:]))
    while dropped < len(chunks) and kept_tokens > MAX_KEPT_SHARE * room_tokens:
        oldest = chunks[dropped]
        if oldest.keep:
            pinned = (*pinned, oldest)
        else:
            kept_tokens -= oldest.tokens
        dropped += 1
    return Cut(start=chunks[0].index + dropped, head=(*head, *pinned))
