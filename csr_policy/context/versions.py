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
"""Sequence versions: `X_static^k(t) = X_pre ⊕ head_k ⊕ log[s_k : t]`.

At most three live at once: the current one, the one before it (a straggler may
still ask for it), and the next one while it is being warmed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from csr_policy.context.chunk import Chunk
from csr_policy.context.chunk_log import ChunkLog
from csr_policy.context.eviction import Cut
from csr_policy.context.token_buffer import TokenBuffer
from csr_policy.context.tokens import TokenIds


@dataclass(frozen=True, slots=True)
class SequenceVersion:
    """One life of `X_static` between two evictions, fixed when it is made.

    Attributes:
        number: `k`, from 0.
        start: `s_k`, index of its first chunk.
        head: Pinned chunks carried over, oldest first.
    """

    number: int
    start: int
    head: tuple[Chunk, ...] = ()

    @property
    def head_tokens(self) -> int:
        """Length of the carried head."""
        return sum(chunk.tokens for chunk in self.head)


class LiveVersion:
    """A version with its growing tokens. Not thread-safe: used under the state lock."""

    def __init__(self, version: SequenceVersion, prefix: TokenIds[int]) -> None:
        """Start with the prefix and the carried head; chunks follow by `append`."""
        self.version = version
        self.buffer = TokenBuffer(prefix)
        for chunk in version.head:
            self.buffer.extend(chunk.ids)
        self.next_chunk = version.start
        """Index of the next chunk to append."""

    @property
    def tokens(self) -> int:
        """Length of `X_static^k` now."""
        return len(self.buffer)

    def append(self, chunk: Chunk) -> None:
        """Append the next chunk of the log."""
        assert chunk.index == self.next_chunk, f"chunk {chunk.index} at {self.next_chunk}"
        self.buffer.extend(chunk.ids)
        self.next_chunk += 1

    def append_all(self, chunks: Sequence[Chunk]) -> None:
        """Append a range of the log."""
        for chunk in chunks:
            self.append(chunk)


class VersionedContext:
    """The log and its live versions. Not thread-safe: used under the state lock."""

    def __init__(
        self, prefix: TokenIds[int], version: SequenceVersion, log: ChunkLog | None = None
    ) -> None:
        """Start at a version; `log` holds its chunks already after a crash."""
        self.prefix = prefix
        self.log = log if log is not None else ChunkLog(version.start)
        self.current = LiveVersion(version, prefix)
        self.current.append_all(self.log.between(version.start))
        self.previous: LiveVersion | None = None
        self.next: LiveVersion | None = None

    def append(self, chunk: Chunk) -> None:
        """Append a chunk to the log and to every version that still grows."""
        self.log.append(chunk)
        self.current.append(chunk)
        if self.next is not None:
            self.next.append(chunk)

    def chunks_of_current(self) -> Sequence[Chunk]:
        """`log[s_k : t]`."""
        return self.log.between(self.current.version.start)

    def pinned_tokens(self) -> int:
        """Tokens that the next head would hold if everything were evicted now."""
        pinned = (chunk.tokens for chunk in self.chunks_of_current() if chunk.keep)
        return self.current.version.head_tokens + sum(pinned)

    def successor(self, cut: Cut) -> SequenceVersion:
        """Version k+1 by a decided eviction; nothing is changed yet."""
        return SequenceVersion(self.current.version.number + 1, cut.start, cut.head)

    def attach_next(self, live: LiveVersion) -> None:
        """Take a prepared version k+1 and let it follow the log from here on."""
        assert self.next is None, "one reconciliation at a time"
        assert live.version.number == self.current.version.number + 1
        live.append_all(self.log.between(live.next_chunk))
        self.next = live

    def drop_next(self) -> None:
        """Give up the version being warmed."""
        self.next = None

    def promote(self) -> None:
        """The swap: k+1 becomes current, k stays as it is for stragglers."""
        assert self.next is not None, "nothing to promote"
        self.previous, self.current, self.next = self.current, self.next, None
        self.log.forget_before(self.current.version.start)

    def find(self, number: int) -> LiveVersion | None:
        """The live version with this number, if any."""
        for live in (self.current, self.previous, self.next):
            if live is not None and live.version.number == number:
                return live
        return None
