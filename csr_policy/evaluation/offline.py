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
"""A bag, decided on in lock-step: bag time is the only clock.

A message is taken, and if it triggers a reconciliation, that is finished before
the next one; decisions fall due on bag time. So the same bag gives the same
prompts and the same decisions, however fast the engines are.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from csr_policy.context.errors import ChunkRefusedError
from csr_policy.decision import Decision
from csr_policy.engine.errors import EngineError
from csr_policy.observation.bags import BagMessage, BagReader
from csr_policy.observation.ingest import Ingest, Observation
from csr_policy.policy import Policy
from csr_policy.settings import Placement, Settings

DECISION_DEADLINE_S = 600.0
"""Off the robot nothing waits for the decision, so only a hang ends it."""


class ReplayError(RuntimeError):
    """A replay cannot go on: one line."""


@dataclass(frozen=True, slots=True)
class ReplayedDecision:
    """One decision of a replay.

    Attributes:
        bag_time_ns: When it fell due.
        prompt_sha256: Digest of the prompt's token ids, 32 bits each, little-endian.
        decision: What was decided.
    """

    bag_time_ns: int
    prompt_sha256: str
    decision: Decision


class OfflineReplay:
    """Replays one bag. Used by one thread."""

    def __init__(
        self,
        settings: Settings,
        *,
        ready_timeout_s: float = 300.0,
        warn: Callable[[str], None] | None = None,
        open_policy: Callable[..., Policy] = Policy,
    ) -> None:
        """Prepare a policy on bag time.

        Raises:
            PolicyError: The settings cannot be used; one line.
            TemplateError: A template cannot be compiled; one line.
        """
        self._settings = settings
        self._now_ns = 0
        self._ready_timeout_s = ready_timeout_s
        self.ingest = Ingest(settings, warn=warn)
        self.refused: dict[str, int] = {}
        """Observations that could not become chunks, by source."""
        self.policy = open_policy(settings, now_ns=lambda: self._now_ns)

    def run(
        self, bag: BagReader, topics: Mapping[str, str], *, max_decisions: int = 0
    ) -> Iterator[ReplayedDecision]:
        """Replay a bag.

        Args:
            bag: Open reader.
            topics: Topic to observation source.
            max_decisions: Stop after this many; 0 goes on to the bag's end.

        Yields:
            Every decision, when it is made.

        Raises:
            ReplayError: An engine is not ready in time, or a reconciliation does not end.
        """
        self.policy.start()
        if not self.policy.wait_ready(self._ready_timeout_s):
            raise ReplayError(f"engines not ready: {self.policy.status().degraded}")
        period_ns = round(1e9 / self._settings.decision.rate_hz)
        due_ns: int | None = None
        made = 0
        for message in bag.messages(list(topics)):
            due_ns = message.stamp_ns + period_ns if due_ns is None else due_ns
            while due_ns <= message.stamp_ns:
                yield self._decide(due_ns)
                made += 1
                if made == max_decisions:
                    return
                due_ns += period_ns
            self._take(message, topics[message.topic])
        if due_ns is not None:
            yield self._decide(due_ns)

    def close(self) -> None:
        """End the policy."""
        self.policy.close()

    def _take(self, message: BagMessage, source: str) -> None:
        self._now_ns = message.stamp_ns
        for name in self.ingest.expired(message.stamp_ns):
            self.policy.set_suffix(name, "")
        observation = self.ingest.offer(
            source,
            message.message,
            ros_time_ns=message.stamp_ns,
            steady_ns=message.stamp_ns,
        )
        if observation is not None:
            self._enter(observation)

    def _enter(self, observation: Observation) -> None:
        if observation.placement is Placement.SUFFIX:
            self.policy.set_suffix(observation.source, observation.text)
            return
        try:
            self.policy.append(
                observation.text,
                observation.source,
                stamp_ns=observation.stamp_ns,
                keep=observation.keep,
                max_tokens=observation.max_tokens,
            )
        except ChunkRefusedError:
            name = observation.source
            self.refused[name] = self.refused.get(name, 0) + 1
        self._settle()

    def _decide(self, due_ns: int) -> ReplayedDecision:
        self._now_ns = due_ns
        for name in self.ingest.expired(due_ns):
            self.policy.set_suffix(name, "")
        query = self.policy.freeze()
        try:
            ids = self.policy.prompt_ids(query)
        except EngineError as error:
            raise ReplayError(str(error)) from error
        decision = self.policy.dispatch(query, deadline_s=DECISION_DEADLINE_S)
        if decision.action:
            self.policy.remember_action(decision.action, stamp_ns=due_ns)
            self._settle()
        digest = hashlib.sha256(array("I", ids).tobytes()).hexdigest()
        return ReplayedDecision(due_ns, digest, decision)

    def _settle(self) -> None:
        if not self.policy.wait_reconciled(self._ready_timeout_s):
            status = self.policy.status()
            raise ReplayError(
                f"reconciliation did not end in {self._ready_timeout_s:g} s "
                f"({status.phase}): {status.last_error}"
            )
