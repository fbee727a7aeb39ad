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
"""A snapshot of the policy for operators."""

from __future__ import annotations

from dataclasses import dataclass

from csr_policy.reconciliation.state import SharedState
from csr_policy.settings import Settings


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """One engine: its role, whether it is ready, what it holds of the newest version."""

    name: str
    url: str
    role: str
    ready: bool
    version: int
    warmed_tokens: int
    error: str


@dataclass(frozen=True, slots=True)
class Status:
    """The policy at one moment. Token counts are of the current sequence version.

    Attributes:
        phase: Phase of the reconciliation: idle, warming, catching_up, failed.
        ready: Whether the primary is primed.
        version: Current sequence version `k`.
        engines: Every engine, in the order of the settings.
        static_tokens: Length of `X_static` now.
        prefix_tokens: Length of `X_pre`.
        head_tokens: Length of the carried head.
        tau_mem_tokens: Threshold of the next eviction.
        limit_tokens: Longest prompt the primary takes; 0 while unknown.
        chunks: Chunks ever appended to the log.
        first_chunk_index: Oldest chunk in the prompt.
        last_chunk_index: Newest chunk in the log; -1 for none.
        swaps: Reconciliations that ended in a swap.
        swap_missing_tokens: Static tokens left to compute at the newest swap; at most
            `N_catchup`.
        failovers: Moves to the secondary after the primary was lost.
        in_place_evictions: Evictions at the hard limit, each with a latency spike.
        cache_losses: Decisions whose cached tokens fell short.
        stragglers: Queries served on the previous version.
        restitched: Queries rebuilt on the current version.
        reconciliation_failures: Warm-ups and catch-ups that failed.
        refused_chunks: Texts that could not become chunks.
        refused_pins: Pinned chunks taken without their pin, beyond eviction.head_max_tokens.
        degraded: Why the policy cannot keep its promise now; empty while it can.
        last_error: Newest fault, one line; empty for none.
    """

    phase: str
    ready: bool
    version: int
    engines: tuple[EngineStatus, ...]
    static_tokens: int
    prefix_tokens: int
    head_tokens: int
    tau_mem_tokens: int
    limit_tokens: int
    chunks: int
    first_chunk_index: int
    last_chunk_index: int
    swaps: int
    swap_missing_tokens: int
    failovers: int
    in_place_evictions: int
    cache_losses: int
    stragglers: int
    restitched: int
    reconciliation_failures: int
    refused_chunks: int
    refused_pins: int
    degraded: str
    last_error: str


def take_status(
    state: SharedState, settings: Settings, *, refused_chunks: int, refused_pins: int
) -> Status:
    """Read everything in one step."""
    with state.lock:
        current, counters = state.context.current, state.counters
        end = state.context.log.end
        return Status(
            phase=state.phase.value,
            ready=state.primary_slot.ready,
            version=current.version.number,
            engines=tuple(_engine_status(state, number) for number in range(len(state.slots))),
            static_tokens=current.tokens,
            prefix_tokens=len(state.context.prefix),
            head_tokens=current.version.head_tokens,
            tau_mem_tokens=settings.reconciliation.tau_mem_tokens,
            limit_tokens=state.limit_tokens(),
            chunks=end,
            first_chunk_index=current.version.start,
            last_chunk_index=end - 1,
            swaps=counters.swaps,
            swap_missing_tokens=state.swap_missing_tokens,
            failovers=counters.failovers,
            in_place_evictions=counters.in_place_evictions,
            cache_losses=counters.cache_losses,
            stragglers=counters.stragglers,
            restitched=counters.restitched,
            reconciliation_failures=counters.reconciliation_failures,
            refused_chunks=refused_chunks,
            refused_pins=refused_pins,
            degraded=_degraded(state),
            last_error=state.last_error,
        )


def _engine_status(state: SharedState, number: int) -> EngineStatus:
    slot = state.slots[number]
    newest = max(slot.held, default=-1)
    return EngineStatus(
        name=slot.client.name,
        url=slot.client.url,
        role="primary" if number == state.primary else "secondary",
        ready=slot.ready,
        version=newest,
        warmed_tokens=slot.held.get(newest, 0),
        error=slot.error,
    )


def _degraded(state: SharedState) -> str:
    if state.dead_thread:
        return f"background thread ended: {state.dead_thread}"
    if not state.primary_slot.ready:
        return f"no engine serves: {state.primary_slot.error}"
    if len(state.slots) == 1:
        return "one engine: warm-ups and decisions share it"
    if not state.secondary_slot.ready:
        return f"no engine to warm up: {state.secondary_slot.error}"
    return ""
