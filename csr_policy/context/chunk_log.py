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
"""The one append-only chunk log.

Everything else is a view of it: a sequence version is a start index, the
reconciliation buffer is a range, a crash recovery is a replay.
"""

from __future__ import annotations

from collections.abc import Sequence

from csr_policy.context.chunk import Chunk


class ChunkLog:
    """Chunks by index, without gaps; the oldest may be let go from memory.

    Not thread-safe: used under the state lock.
    """

    def __init__(self, first_index: int = 0) -> None:
        """Start empty; the next chunk has index `first_index`."""
        self._chunks: list[Chunk] = []
        self._first = first_index

    @property
    def first(self) -> int:
        """Oldest index still in memory."""
        return self._first

    @property
    def end(self) -> int:
        """Index of the next chunk."""
        return self._first + len(self._chunks)

    def append(self, chunk: Chunk) -> None:
        """Append the next chunk."""
        assert chunk.index == self.end, f"chunk {chunk.index} appended at {self.end}"
        self._chunks.append(chunk)

    def between(self, start: int, stop: int | None = None) -> Sequence[Chunk]:
        """Chunks from index `start` up to `stop`.

        Raises:
            ValueError: The range reaches before what is in memory.
        """
        if start < self._first:
            raise ValueError(f"chunk {start}: only {self._first} and later are in memory")
        last = self.end if stop is None else stop
        return self._chunks[start - self._first : last - self._first]

    def forget_before(self, index: int) -> None:
        """Let go of chunks below `index`; the journal still has them."""
        drop = min(index, self.end) - self._first
        if drop > 0:
            del self._chunks[:drop]
            self._first += drop
