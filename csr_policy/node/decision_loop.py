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
"""The control loop: a tick, a decision, a message, on the steady clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from csr_policy.asking import Query
from csr_policy.context.errors import ChunkRefusedError
from csr_policy.decision import Decision, Outcome
from csr_policy.node.complaints import Complaints
from csr_policy.node.decision_window import DecisionWindow
from csr_policy.node.ticks import next_tick
from csr_policy.policy import Policy
from csr_policy.settings import Settings


class DecisionLoop:
    """Starts ticks at the configured rate; each ends in exactly one decision.

    `run` is the body of the decision thread. `paused` may be set by the executor's
    thread at any time. ROS time plays no part: a paused bag does not stop a robot's
    decisions.
    """

    def __init__(
        self,
        settings: Settings,
        policy: Policy,
        window: DecisionWindow,
        publish: Callable[[Decision], None],
        complaints: Complaints,
    ) -> None:
        """Ask `policy` and hand every decision to `publish`."""
        self._policy = policy
        self._window = window
        self._publish = publish
        self._complaints = complaints
        self._period_s = 1.0 / settings.decision.rate_hz
        self._deadline_s = settings.deadline_s
        self._fallback = settings.decision.fallback_action
        self.paused = False

    def run(self, stop: threading.Event) -> None:
        """Start ticks until `stop` is set; then publish a last fallback."""
        due_s = time.monotonic()
        while not stop.wait(max(0.0, due_s - time.monotonic())):
            running = not self.paused
            if running:
                self._tick()
            following = next_tick(due_s, time.monotonic(), self._period_s)
            due_s = following.due_s
            if running:
                self._window.ticks_skipped(following.skipped)
        # No tick owns this one, so it is published and not counted.
        self._publish(self._marked(self._policy.freeze(), Outcome.NOT_READY, "the node stops"))

    def _tick(self) -> None:
        query = self._policy.freeze()
        self._window.tick_started()
        try:
            decision = self._policy.dispatch(query, deadline_s=self._deadline_s)
        except Exception as error:
            # The tick was started and is owed a decision; then the thread dies and says so.
            reason = " ".join(f"internal: {type(error).__name__}: {error}".split())
            self._settle(self._marked(query, Outcome.FALLBACK_ENGINE, reason))
            raise
        self._settle(decision)
        self._remember(decision)

    def _settle(self, decision: Decision) -> None:
        self._window.add(decision)
        self._publish(decision)

    def _remember(self, decision: Decision) -> None:
        """Let the model see what was published; a full disk must not end the decisions."""
        if not decision.action or decision.outcome is Outcome.NOT_READY:
            return
        if not decision.stamp_ns:
            # Simulated time has not begun: a chunk from before it would spoil every time after.
            return
        try:
            self._policy.remember_action(decision.action)
        except ChunkRefusedError as refused:
            self._complaints.raised("own action", str(refused))
        else:
            self._complaints.over("own action")

    def _marked(self, query: Query, outcome: Outcome, reason: str) -> Decision:
        return Decision(
            id=query.id,
            stamp_ns=query.stamp_ns,
            action=self._fallback,
            outcome=outcome,
            reason=reason,
            version=query.state.version,
            last_chunk_index=query.state.last_chunk_index,
            phase=query.state.phase.value,
        )
