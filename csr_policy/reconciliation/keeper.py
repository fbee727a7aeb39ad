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
"""Getting an engine ready, and ready again: one thread an engine.

The robot never waits for this: while an engine is not ready, decisions go to
the other one or are marked fallbacks. One log line a change, not one a try.
"""

from __future__ import annotations

import logging
import threading

from csr_policy.context.assembler import PromptAssembler
from csr_policy.context.prompt import TokenPrompt, complete
from csr_policy.context.token_buffer import TokenBuffer
from csr_policy.engine.client import EngineInfo
from csr_policy.engine.errors import EngineError, EngineMismatchError
from csr_policy.engine.readiness import discover, prime
from csr_policy.reconciliation.state import EngineSlot, SharedState
from csr_policy.settings import Settings

LOG = logging.getLogger(__name__)
_STILL_THERE_S = 3.0


class EngineKeeper:
    """Looks after one engine; `run` is the body of its thread."""

    def __init__(
        self,
        number: int,
        state: SharedState,
        settings: Settings,
        assembler: PromptAssembler,
        stop: threading.Event,
    ) -> None:
        """Take care of `state.slots[number]`."""
        self._number = number
        self._state = state
        self._settings = settings
        self._assembler = assembler
        self._stop = stop
        self._tail = assembler.decision_tail({}, settings.task, assembler.actions)
        self._said = ""

    @property
    def _slot(self) -> EngineSlot:
        return self._state.slots[self._number]

    def run(self) -> None:
        """Until the stop: whenever the engine is not ready, or in doubt, see to it."""
        slot = self._slot
        while not self._stop.is_set():
            with self._state.changed:
                self._state.changed.wait_for(
                    lambda: self._stop.is_set() or slot.doubted or not slot.ready
                )
                ready, slot.doubted = slot.ready, False
            if self._stop.is_set():
                return
            try:
                if ready:
                    slot.client.get("/v1/models", _STILL_THERE_S)
                else:
                    self._make_ready()
            except EngineError as error:
                self._note_failure(error)
                self._stop.wait(self._settings.engine.probe_period_s)

    def _make_ready(self) -> None:
        slot, assembler = self._slot, self._assembler
        slot.client.forget_address()
        info = discover(
            slot.client,
            self._settings.engine,
            assembler.tokenizer.encode_frame,
            self._short_probe(),
            assembler.actions.tokens,
        )
        info = self._limited(info)
        with self._state.lock:
            slot.info = info
            slot.held.clear()  # what it held before the loss is not known to be there
            primary = self._state.primary == self._number
            live = self._state.context.current
            tokens = live.tokens
            static = live.buffer.json(tokens)
        prompt = complete(static, tokens, self._tail) if primary else self._short_probe()
        prime(
            slot.client,
            info,
            prompt,
            assembler.actions.tokens,
            self._settings.engine.warm_up_timeout_s,
        )
        with self._state.lock:
            if primary and self._state.context.find(live.version.number) is live:
                slot.held[live.version.number] = tokens
            slot.ready, slot.lost, slot.error = True, False, ""
            slot.misses, slot.doubted = 0, False
            self._state.changed.notify_all()
        self._said = ""
        LOG.info(
            "%s ready: %s at %s, %d tokens",
            slot.client.name,
            info.model,
            slot.client.url,
            info.usable_tokens,
        )

    def _limited(self, info: EngineInfo) -> EngineInfo:
        """Apply the user's limit, and check that the threshold lies below it."""
        usable = info.usable_tokens
        if self._settings.engine.max_prompt_tokens:
            usable = min(usable, self._settings.engine.max_prompt_tokens)
        tau_mem = self._settings.reconciliation.tau_mem_tokens
        if tau_mem + len(self._tail) >= usable:
            raise EngineMismatchError(
                f"reconciliation.tau_mem_tokens: is {tau_mem}; expected less than "
                f"{usable - len(self._tail)}, the limit of {self._slot.client.url} "
                f"({usable}) less the task's {len(self._tail)} tokens"
            )
        return EngineInfo(
            info.model,
            usable,
            info.endpoint,
            info.scoring,
            info.block_tokens,
            info.kv_cache_tokens,
        )

    def _short_probe(self) -> TokenPrompt:
        buffer = TokenBuffer(self._assembler.prefix)
        return complete(buffer.json(), len(buffer), self._tail)

    def _note_failure(self, error: EngineError) -> None:
        line = f"{self._slot.client.name} not ready: {error}"
        with self._state.lock:
            self._slot.fail(str(error))
            self._state.last_error = line
            self._state.changed.notify_all()
        if line != self._said:
            self._said = line
            LOG.warning("%s", line)
