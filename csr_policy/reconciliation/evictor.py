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
"""Making the next sequence version: decide the cut, journal it, build its tokens.

Three occasions: the eviction of a reconciliation, which the secondary warms
first; the eviction in place at the hard limit, the last resort; and a reset.
Any thread may call; one transition is made at a time.

Lock order: the transition lock, then the state lock. The journal is written
and the tokens are built with the state lock free.
"""

from __future__ import annotations

import threading
from typing import Protocol

from csr_policy.context.eviction import Cut, evict
from csr_policy.context.versions import LiveVersion, SequenceVersion
from csr_policy.reconciliation.state import SharedState
from csr_policy.settings import Settings


class VersionJournal(Protocol):
    """Where versions are written before they are used."""

    def begin_version(self, version: SequenceVersion) -> None:
        """Write a version."""


class Evictor:
    """Makes versions k+1."""

    def __init__(
        self, state: SharedState, settings: Settings, journal: VersionJournal | None
    ) -> None:
        """Without a journal nothing is written."""
        self._state = state
        self._settings = settings
        self._journal = journal
        self._transition = threading.Lock()

    def begin_next(self) -> LiveVersion | None:
        """Decide the eviction and attach version k+1, not yet served by anyone.

        Returns:
            The version, which follows the log from here on; None where there is nothing to
            evict or another version is under way.
        """
        with self._transition:
            with self._state.lock:
                if self._state.context.next is not None:
                    return None
                cut = self._cut()
            return None if cut is None else self._attach(cut)

    def evict_in_place(self, room_tokens: int, limit_tokens: int) -> bool:
        """Shorten the prompt at once, on the primary; the next query pays for it.

        Args:
            room_tokens: Tokens that must fit behind the static state.
            limit_tokens: The engine's usable limit.

        Returns:
            Whether a new version was made; False where another thread had made room.
        """
        with self._transition:
            with self._state.lock:
                if self._state.context.current.tokens + room_tokens <= limit_tokens:
                    return False
                ready = self._state.context.next is not None
                cut = None if ready else self._cut()
            if not ready:
                if cut is None:
                    return False
                self._attach(cut)
            with self._state.lock:
                self._promote_on_primary()
                self._state.counters.in_place_evictions += 1
            return True

    def reset(self) -> int:
        """Start a new version at the log's end with an empty head.

        Returns:
            Its number.
        """
        with self._transition:
            with self._state.lock:
                self._state.context.drop_next()
                cut = Cut(self._state.context.log.end, ())
            self._attach(cut)
            with self._state.lock:
                return self._promote_on_primary()

    def _cut(self) -> Cut | None:
        context = self._state.context
        chunks = context.chunks_of_current()
        if not chunks:
            return None
        tau_mem = self._settings.reconciliation.tau_mem_tokens
        room = tau_mem - len(context.prefix)
        return evict(chunks, context.current.version.head, self._settings.eviction, room)

    def _attach(self, cut: Cut) -> LiveVersion:
        state = self._state
        with state.lock:
            version = state.context.successor(cut)
            chunks = list(state.context.log.between(cut.start))
        if self._journal is not None:
            self._journal.begin_version(version)
        live = LiveVersion(version, state.context.prefix)
        live.append_all(chunks)
        with state.lock:
            state.context.attach_next(live)
        return live

    def _promote_on_primary(self) -> int:
        self._state.context.promote()
        self._state.replace_current()
        return self._state.context.current.version.number
