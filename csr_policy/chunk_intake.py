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
"""A text on its way into the log: tokens, journal, log; in this order.

Any thread may append; the append lock keeps index, journal and log in step.
Lock order: append lock, transition lock, state lock.
"""

from __future__ import annotations

import logging
import threading

from csr_policy.context.assembler import PromptAssembler
from csr_policy.context.chunk import Chunk, chunk_text, encode_chunk
from csr_policy.context.errors import ChunkRefusedError
from csr_policy.journal import Journal, JournalError
from csr_policy.reconciliation.evictor import Evictor
from csr_policy.reconciliation.state import SharedState
from csr_policy.settings import Settings

LOG = logging.getLogger(__name__)
_UNREACHED_FACTOR = 2
"""While no engine told its limit, the prompt is kept below this many tau_mem."""


class ChunkIntake:
    """Appends chunks. Thread-safe."""

    def __init__(
        self,
        settings: Settings,
        assembler: PromptAssembler,
        state: SharedState,
        evictor: Evictor,
        journal: Journal | None,
        epoch_ns: int | None,
    ) -> None:
        """Continue a log whose times count from `epoch_ns`; None for an empty one."""
        self._settings = settings
        self._assembler = assembler
        self._state = state
        self._evictor = evictor
        self._journal = journal
        self._epoch_ns = epoch_ns
        self._lock = threading.Lock()
        self.refused_chunks = 0
        self.refused_pins = 0

    def append(self, text: str, source: str, stamp_ns: int, keep: bool, max_tokens: int) -> int:
        """Journal a chunk and append it to every version that grows.

        Args:
            text: What was seen; cut where it is too long, visibly.
            source: Name of the observation.
            stamp_ns: When.
            keep: Pin it.
            max_tokens: Longest chunk; 0 takes the setting.

        Returns:
            Its index: from now on it is acknowledged.

        Raises:
            ChunkRefusedError: It is empty, or the journal cannot take it.
        """
        with self._lock:
            try:
                chunk = self._make(text, source, stamp_ns, keep, max_tokens)
                if self._journal is not None:
                    self._journal.append(chunk)
            except ChunkRefusedError:
                self.refused_chunks += 1
                raise
            except JournalError as error:
                self.refused_chunks += 1
                self._note(str(error))
                raise ChunkRefusedError(f"chunk from {source!r}: {error}") from error
            self._enter(chunk)
            return chunk.index

    def _make(self, text: str, source: str, stamp_ns: int, keep: bool, max_tokens: int) -> Chunk:
        limit = self._settings.ingest.max_text_characters
        if len(text) > limit:
            text = f"{text[:limit]} …[cut {len(text) - limit} characters]"
        epoch_ns = stamp_ns if self._epoch_ns is None else self._epoch_ns
        whole = chunk_text(text, source, stamp_ns, epoch_ns)
        if self._epoch_ns is None:
            if self._journal is not None:
                self._journal.set_epoch(epoch_ns)
            self._epoch_ns = epoch_ns
        longest = self._settings.ingest.max_chunk_tokens
        cut, ids = encode_chunk(
            self._assembler.tokenizer, whole, min(max_tokens or longest, longest)
        )
        with self._state.lock:
            index = self._state.context.log.end
            pinned = self._state.context.pinned_tokens() if keep else 0
        bound = self._settings.eviction.head_max_tokens
        if keep and pinned + len(ids) > bound:
            self.refused_pins += 1
            keep = False
            LOG.warning(
                "pin refused: chunk %d from %r has %d tokens, %d of eviction.head_max_tokens "
                "%d are taken; it is kept until it is evicted",
                index,
                source,
                len(ids),
                pinned,
                bound,
            )
        return Chunk(index, stamp_ns, source, keep, cut, ids)

    def _enter(self, chunk: Chunk) -> None:
        state = self._state
        with state.lock:
            state.context.append(chunk)
            tokens = state.context.current.tokens
            tau_mem = self._settings.reconciliation.tau_mem_tokens
            if tokens >= tau_mem:
                state.changed.notify_all()
            limit = state.limit_tokens() or _UNREACHED_FACTOR * tau_mem
        if tokens > limit:
            try:
                self._evictor.evict_in_place(0, limit)
            except JournalError as error:
                self._note(str(error))

    def _note(self, line: str) -> None:
        with self._state.lock:
            self._state.last_error = line
