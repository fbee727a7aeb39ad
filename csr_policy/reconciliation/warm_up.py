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
"""Bringing an engine to a version: warm-up, and each round of catch-up.

One request, or steps with a pause between them, so that a warm-up can share
hardware with the decisions. What was computed stays cached whatever happens
next, so a step that failed is not lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from csr_policy.context.prompt import TokenPrompt
from csr_policy.context.versions import LiveVersion
from csr_policy.engine.errors import EngineError
from csr_policy.reconciliation.state import EngineSlot, SharedState
from csr_policy.settings import EngineSettings, ReconciliationSettings


class WarmUpAbortedError(EngineError):
    """The version is not wanted any more, or the policy stops."""


class WarmUp:
    """Warms one engine on one version. Used by one thread at a time."""

    def __init__(
        self,
        state: SharedState,
        settings: ReconciliationSettings,
        engine: EngineSettings,
        stop: threading.Event,
    ) -> None:
        """Take what does not change from one warm-up to the next."""
        self._state = state
        self._settings = settings
        self._timeout_s = engine.warm_up_timeout_s
        self._stop = stop

    def run(self, slot: EngineSlot, live: LiveVersion, wanted: Callable[[], bool]) -> int:
        """Compute what the engine lacks of a version as it stands now.

        Args:
            slot: The engine.
            live: The version.
            wanted: Called under the state lock before each step; False ends the warm-up.

        Returns:
            Tokens of the version that the engine holds.

        Raises:
            WarmUpAbortedError: It was not wanted any more.
            EngineError: The engine failed.
        """
        assert slot.info is not None, "an engine is discovered before it is warmed"
        number = live.version.number
        with self._state.lock:
            target = live.tokens
        while True:
            with self._state.lock:
                if self._stop.is_set() or not wanted():
                    raise WarmUpAbortedError("warm-up is not wanted any more")
                held = slot.held.get(number, 0)
                if held >= target:
                    return held
                goal = target
                if self._settings.warm_up_step_tokens:
                    goal = min(target, held + self._settings.warm_up_step_tokens)
                prompt = _prefix_of(live, goal)
            slot.client.first_token(slot.info, prompt, (), time.monotonic() + self._timeout_s)
            with self._state.lock:
                slot.held[number] = max(slot.held.get(number, 0), goal)
            if goal < target and self._settings.warm_up_pause_s:
                self._stop.wait(self._settings.warm_up_pause_s)


def _prefix_of(live: LiveVersion, tokens: int) -> TokenPrompt:
    views: tuple[bytes | memoryview, ...] = live.buffer.json(tokens)
    # The last id has no comma behind it when it ends the prompt.
    closed = (*views[:-1], views[-1][:-1])
    return TokenPrompt(closed, tokens, tokens)
