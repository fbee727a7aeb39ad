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
"""One query: frozen in one step, routed in one step, recorded in one step.

Called from any thread. The model call itself is made with no lock held.
"""

from __future__ import annotations

from dataclasses import dataclass

from csr_policy.context.prompt import TokenPrompt, complete
from csr_policy.context.tokens import TokenIds
from csr_policy.engine.client import EngineClient, EngineInfo
from csr_policy.engine.errors import (
    EngineDeadlineError,
    EngineError,
    EngineUnreachableError,
)
from csr_policy.engine.protocol import Usage
from csr_policy.reconciliation.routing import RouteCase, route
from csr_policy.reconciliation.state import Phase, SharedState, full_blocks

MISSES_BEFORE_DOUBT = 3
"""Deadlines missed in a row after which the engine is asked whether it still answers."""
MISSES_BEFORE_LOSS = 12
"""Deadlines missed in a row after which it is given up although it answers.

A slow engine keeps what it computed of a request that was cancelled, so the next one has less
to compute: a few misses in a row are no reason to move the robot to a cold cache.
"""


@dataclass(frozen=True, slots=True)
class FrozenState:
    """The state as a query saw it.

    Attributes:
        version: Sequence version.
        static_tokens: Length of its static state then.
        last_chunk_index: Newest chunk in it; -1 for none.
        newest_stamp_ns: Stamp of that chunk; 0 for none.
        phase: Phase of the reconciliation then.
    """

    version: int
    static_tokens: int
    last_chunk_index: int
    newest_stamp_ns: int
    phase: Phase


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A query on its way: the prompt, and the engine that gets it."""

    case: RouteCase
    engine: int
    client: EngineClient
    info: EngineInfo
    prompt: TokenPrompt
    state: FrozenState
    must_be_cached: int
    after_swap: bool


class EngineNotReadyError(EngineError):
    """No engine holds the state yet."""


class PromptRoomError(EngineError):
    """The prompt does not fit the engine; an eviction has to come first."""


def freeze(state: SharedState) -> FrozenState:
    """Note version and position in one step."""
    with state.lock:
        return _freeze_locked(state)


def prepare(
    state: SharedState, frozen: FrozenState, dynamic: TokenIds[int], reply_tokens: int = 1
) -> Dispatch:
    """Route a frozen query and take its views of the tokens, in one step.

    Args:
        state: Shared state.
        frozen: What the query saw.
        dynamic: Ids of suffix, task and tail.
        reply_tokens: Longest reply; counts against the limit like the prompt.

    Raises:
        EngineNotReadyError: The engine it has to go to is not ready.
        PromptRoomError: It would exceed the engine's usable limit.
    """
    with state.lock:
        secondary = state.secondary_slot
        chosen = route(
            frozen.version,
            state.context.current.version.number,
            primary=state.primary,
            secondary=state.secondary,
            reconciling=state.phase in (Phase.WARMING, Phase.CATCHING_UP),
            secondary_holds=secondary.ready
            and frozen.version in secondary.held
            and state.context.find(frozen.version) is not None,
        )
        if chosen.case is RouteCase.RESTITCHED:
            frozen = _freeze_locked(state)
            state.counters.restitched += 1
        elif chosen.case is RouteCase.STRAGGLER:
            state.counters.stragglers += 1
        slot = state.slots[chosen.engine]
        if slot.info is None or not slot.ready:
            raise EngineNotReadyError(f"{slot.client.name}: {slot.error}")
        live = state.context.find(chosen.version)
        assert live is not None, "a routed version is live"
        prompt = complete(live.buffer.json(frozen.static_tokens), frozen.static_tokens, dynamic)
        limit = slot.info.usable_tokens + 1 - reply_tokens
        if prompt.tokens > limit:
            raise PromptRoomError(f"prompt has {prompt.tokens} tokens; the limit is {limit}")
        held = min(slot.held.get(chosen.version, 0), frozen.static_tokens)
        return Dispatch(
            case=chosen.case,
            engine=chosen.engine,
            client=slot.client,
            info=slot.info,
            prompt=prompt,
            state=frozen,
            must_be_cached=full_blocks(held, prompt.tokens, slot.block_tokens),
            after_swap=chosen.version > state.last_decided_version,
        )


def record_success(state: SharedState, dispatch: Dispatch, usage: Usage) -> str:
    """Note what the engine holds now.

    Returns:
        Empty, or one line when tokens that had to be cached were not.
    """
    with state.lock:
        slot = state.slots[dispatch.engine]
        slot.misses, slot.doubted = 0, False
        version = dispatch.state.version
        if state.context.find(version) is not None:
            known = slot.held.get(version, 0)
            slot.held[version] = max(known, dispatch.state.static_tokens)
        state.last_decided_version = max(state.last_decided_version, version)
        cached = usage.cached_tokens or 0
        if cached >= dispatch.must_be_cached:
            return ""
        state.counters.cache_losses += 1
        line = (
            f"{slot.client.name} lost its cache: {cached} of "
            f"{dispatch.must_be_cached} expected tokens were cached"
        )
        state.last_error = line
        return line


def record_failure(state: SharedState, dispatch: Dispatch, error: EngineError) -> None:
    """Have the engine checked in the background, when the error means it may be lost."""
    with state.lock:
        slot = state.slots[dispatch.engine]
        state.last_error = f"{slot.client.name}: {error}"
        if isinstance(error, EngineDeadlineError):
            slot.misses += 1
            if slot.misses < MISSES_BEFORE_LOSS:
                slot.doubted |= slot.misses % MISSES_BEFORE_DOUBT == 0
                state.changed.notify_all()
                return
        elif not isinstance(error, EngineUnreachableError) and _status(error) < 500:
            return
        slot.fail(str(error))
        state.changed.notify_all()


def _status(error: EngineError) -> int:
    return int(getattr(error, "status", 500))


def _freeze_locked(state: SharedState) -> FrozenState:
    current = state.context.current
    end = state.context.log.end
    newest = state.context.log.between(end - 1) if end > state.context.log.first else ()
    return FrozenState(
        version=current.version.number,
        static_tokens=current.tokens,
        last_chunk_index=end - 1,
        newest_stamp_ns=newest[0].stamp_ns if newest else 0,
        phase=state.phase,
    )
