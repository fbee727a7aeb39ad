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
"""What all threads share: log and versions, which engine holds what, and the phase.

One lock, held for a few assignments and never during I/O. Every read that a
query needs (version, engine, position) is one critical section, and so is the
swap: a query sees the engines before it or after it, nothing between.

Lock order: the append lock of `Policy`, then this one. The journal's own lock
is taken with neither of them waiting on it in turn.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from enum import StrEnum

from csr_policy.context.versions import VersionedContext
from csr_policy.engine.client import EngineClient, EngineInfo


class Phase(StrEnum):
    """Where the reconciliation stands."""

    IDLE = "idle"
    WARMING = "warming"
    CATCHING_UP = "catching_up"
    FAILED = "failed"


@dataclass(slots=True)
class EngineSlot:
    """One engine and what is known of it.

    Attributes:
        client: How it is asked.
        info: What it said of itself; None until it was reached.
        ready: A primed, cached probe succeeded, and nothing failed since.
        error: Why it is not ready, one line.
        held: Version number to static tokens of it that this engine has computed.
        misses: Deadlines missed in a row.
        lost: It failed, rather than not having been reached yet.
        doubted: It missed deadlines, and is to be asked whether it still answers.
    """

    client: EngineClient
    info: EngineInfo | None = None
    ready: bool = False
    error: str = "not reached yet"
    held: dict[int, int] = field(default_factory=dict)
    misses: int = 0
    lost: bool = False
    doubted: bool = False

    def fail(self, error: str) -> None:
        """Note that the engine cannot be used until it was checked again."""
        self.ready = False
        self.lost = True
        self.error = error
        self.misses = 0
        self.doubted = False

    @property
    def block_tokens(self) -> int:
        """Tokens in a cache block; 0 while it is unknown."""
        return self.info.block_tokens if self.info else 0


@dataclass(slots=True)
class Counters:
    """Events since the start."""

    swaps: int = 0
    failovers: int = 0
    in_place_evictions: int = 0
    cache_losses: int = 0
    stragglers: int = 0
    restitched: int = 0
    reconciliation_failures: int = 0


class SharedState:
    """State under one lock. Every attribute but `changed` and `lock` needs it."""

    def __init__(self, context: VersionedContext, slots: list[EngineSlot]) -> None:
        """Start on the first engine."""
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        """Notified whenever a thread may have something to do."""
        self.context = context
        self.slots = slots
        self.primary = 0
        self.phase = Phase.IDLE
        self.counters = Counters()
        self.last_decided_version = context.current.version.number
        self.reconcile_requested = False
        self.last_error = ""
        self.swap_missing_tokens = 0
        """Static tokens the new primary had yet to compute at the newest swap."""
        self.dead_thread = ""
        """Name and fault of a background thread that ended; empty while all live."""

    @property
    def secondary(self) -> int:
        """Engine that is warmed or holds the previous version; the primary itself if alone."""
        return (self.primary + 1) % len(self.slots)

    @property
    def primary_slot(self) -> EngineSlot:
        """The engine that serves queries now."""
        return self.slots[self.primary]

    @property
    def secondary_slot(self) -> EngineSlot:
        """The engine in the background."""
        return self.slots[self.secondary]

    def limit_tokens(self) -> int:
        """Longest prompt the primary takes; 0 while it is unknown."""
        info = self.primary_slot.info
        return info.usable_tokens if info else 0

    def replace_current(self) -> None:
        """After the context took a new current version on the same primary (no warm-up)."""
        number = self.context.current.version.number
        held = self.primary_slot.held
        held[number] = min(len(self.context.prefix), max(held.values(), default=0))
        self.phase = Phase.IDLE
        self.reconcile_requested = False
        self.prune_held()
        self.changed.notify_all()

    def prune_held(self) -> None:
        """Forget what engines held of versions that are no longer live."""
        for slot in self.slots:
            slot.held = {k: n for k, n in slot.held.items() if self.context.find(k) is not None}


def full_blocks(tokens: int, prompt_tokens: int, block_tokens: int) -> int:
    """Tokens of `tokens` computed ones that a prompt must find cached.

    vLLM reuses full blocks, and always computes the last token of a prompt itself.

    Args:
        tokens: Leading tokens of the prompt that the engine has computed.
        prompt_tokens: Length of the prompt.
        block_tokens: Block size; 0 where it is unknown.
    """
    if block_tokens <= 0:
        return 0
    return min(tokens, max(prompt_tokens - 1, 0)) // block_tokens * block_tokens
