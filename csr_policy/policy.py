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
"""The façade without ROS: start, append, decide, ask, status, close.

    policy = Policy(settings)
    policy.start()
    policy.append("x 1.2 m, y 0.4 m", "odom")
    print(policy.decide().action)

Thread-safe: every public method may be called from any thread. `decide` never
raises for trouble with an engine; it answers with a marked fallback by its
deadline.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from csr_policy.asking import Asker, Query
from csr_policy.chunk_intake import ChunkIntake
from csr_policy.context.assembler import PromptAssembler
from csr_policy.context.chunk_log import ChunkLog
from csr_policy.context.errors import ContextError
from csr_policy.context.versions import SequenceVersion, VersionedContext
from csr_policy.decision import Answer, Decision, Outcome
from csr_policy.engine.client import EngineClient
from csr_policy.journal import Journal, JournalError
from csr_policy.reconciliation.evictor import Evictor
from csr_policy.reconciliation.keeper import EngineKeeper
from csr_policy.reconciliation.manager import ReconciliationManager
from csr_policy.reconciliation.owned_thread import start_thread
from csr_policy.reconciliation.query import prepare
from csr_policy.reconciliation.state import EngineSlot, Phase, SharedState
from csr_policy.reconciliation.warm_up import WarmUp
from csr_policy.settings import RememberActions, Settings, api_key
from csr_policy.status import Status, take_status

LOG = logging.getLogger(__name__)
_JOIN_S = 5.0


class PolicyError(RuntimeError):
    """The policy cannot start: one line."""


class Policy:
    """A language model as the continuously running policy of a robot."""

    def __init__(self, settings: Settings, *, now_ns: Callable[[], int] = time.time_ns) -> None:
        """Load what can be loaded without the network.

        Args:
            settings: Everything a user can set.
            now_ns: Clock of stamps, nanoseconds (ROS time in the node, bag time offline).

        Raises:
            PolicyError: Tokenizer, journal or key cannot be used; one line.
        """
        self.settings = settings
        self._now_ns = now_ns
        self._journal: Journal | None = None
        try:
            key = api_key(settings.engine)
            self.assembler = PromptAssembler(settings)
            clients = [
                EngineClient(f"engine_{number}", url, settings.engine, key)
                for number, url in enumerate(settings.engines)
            ]
            epoch_ns, context = self._recover()
        except (ContextError, JournalError, ValueError) as error:
            if self._journal is not None:
                self._journal.close()
            raise PolicyError(str(error)) from error
        self._stop = threading.Event()
        self._state = SharedState(context, [EngineSlot(client) for client in clients])
        self._evictor = Evictor(self._state, settings, self._journal)
        self._intake = ChunkIntake(
            settings, self.assembler, self._state, self._evictor, self._journal, epoch_ns
        )
        self._asker = Asker(settings, self.assembler, self._state, self._evictor, now_ns)
        self._threads: list[threading.Thread] = []
        self._suffix: dict[str, str] = {}
        self._task = settings.task
        self._last_action: str | None = None
        self._text_lock = threading.Lock()  # suffix, task, last action
        if self.assembler.warning:
            LOG.warning("%s", self.assembler.warning)

    def start(self) -> None:
        """Start the background threads and return at once; engines are contacted by them."""
        state, settings = self._state, self.settings
        warm_up = WarmUp(state, settings.reconciliation, settings.engine, self._stop)
        manager = ReconciliationManager(
            state, settings.reconciliation, self._evictor, warm_up, self._stop
        )
        bodies = [("csr_reconciliation", manager.run)]
        for number in range(len(state.slots)):
            keeper = EngineKeeper(number, state, settings, self.assembler, self._stop)
            bodies.append((f"csr_engine_{number}", keeper.run))
        self._threads = [start_thread(name, body, state) for name, body in bodies]

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until the primary is primed; False when the time is over."""
        with self._state.changed:
            return self._state.changed.wait_for(lambda: self._state.primary_slot.ready, timeout_s)

    def wait_reconciled(self, timeout_s: float) -> bool:
        """Wait until no reconciliation is due or under way; False when the time is over."""
        state = self._state
        tau_mem = self.settings.reconciliation.tau_mem_tokens
        with state.changed:
            return state.changed.wait_for(
                lambda: (
                    state.phase is Phase.IDLE
                    and not state.reconcile_requested
                    and state.context.current.tokens < tau_mem
                ),
                timeout_s,
            )

    def append(
        self,
        text: str,
        source: str,
        *,
        stamp_ns: int | None = None,
        keep: bool = False,
        max_tokens: int = 0,
    ) -> int:
        """Append an observation, thought or result to the log.

        Args:
            text: What was seen; its surrounding space is stripped, too long a text is cut
                with a visible mark.
            source: Where it comes from; stands before the text.
            stamp_ns: When it was seen; None for now.
            keep: Pin it: evictions carry it over in the head.
            max_tokens: Longest chunk; 0 takes `ingest.max_chunk_tokens`.

        Returns:
            Index of the chunk. It is in the journal.

        Raises:
            ChunkRefusedError: It is empty or cannot be journalled; one line.
        """
        stamp = self._now_ns() if stamp_ns is None else stamp_ns
        return self._intake.append(text, source, stamp, keep, max_tokens)

    def set_suffix(self, source: str, text: str) -> None:
        """Set instantaneous information that is worth no chunk; empty removes it."""
        with self._text_lock:
            # A new dict, so that a query may read the old one without the lock.
            suffix = {name: known for name, known in self._suffix.items() if name != source}
            if text.strip():
                suffix[source] = text[: self.settings.ingest.max_text_characters]
            self._suffix = suffix

    def set_task(self, text: str) -> None:
        """Replace the task; the next query uses it."""
        with self._text_lock:
            self._task = text[: self.settings.ingest.max_text_characters]

    def decide(
        self,
        *,
        task: str | None = None,
        actions: Sequence[str] | None = None,
        deadline_s: float | None = None,
        remember: bool = True,
    ) -> Decision:
        """Ask for the next action.

        Args:
            task: Instruction for this decision alone; None takes the current task.
            actions: Action set for this decision alone; None takes the configured one.
            deadline_s: Longest time from now; None takes the configured deadline.
            remember: Let the chosen action become a chunk, as `decision.remember_actions`
                says.

        Returns:
            The decision, by the deadline: the model's choice or a marked fallback.

        Raises:
            ContextError: The own action set cannot be coded; one line.
        """
        decision = self.dispatch(self.freeze(task=task, actions=actions), deadline_s=deadline_s)
        if remember and decision.action and decision.outcome is not Outcome.NOT_READY:
            self.remember_action(decision.action)
        return decision

    def freeze(self, *, task: str | None = None, actions: Sequence[str] | None = None) -> Query:
        """Note the state a decision is to be made on; `dispatch` makes it, now or later.

        Raises:
            ContextError: The own action set cannot be coded; one line.
        """
        current_task = self._task if task is None else task
        return self._asker.freeze(self._suffix, current_task, self.assembler.action_set(actions))

    def dispatch(self, query: Query, *, deadline_s: float | None = None) -> Decision:
        """Make a frozen decision; a query of the previous version is a straggler."""
        return self._asker.dispatch(query, deadline_s=deadline_s)

    def ask(self, question: str, *, max_tokens: int | None = None) -> Answer:
        """Ask for a free-text reply over the same cached state; the reply becomes a chunk.

        Args:
            question: What to ask; takes the place of the task.
            max_tokens: Longest reply; None takes `ask.max_tokens`, which also bounds it.

        Returns:
            The reply, or why there is none.
        """
        answer = self._asker.ask(self._suffix, question, max_tokens)
        remembered = self.settings.decision.remember_actions is not RememberActions.NONE
        if answer.text and remembered:
            self.append(answer.text, "reply")
        return answer

    def remember_action(self, action: str, *, stamp_ns: int | None = None) -> int | None:
        """Let a published action become a chunk, as `decision.remember_actions` says.

        Returns:
            Index of the chunk; None where the setting leaves it out.
        """
        how = self.settings.decision.remember_actions
        with self._text_lock:
            unchanged = action == self._last_action
            self._last_action = action
        if how is RememberActions.NONE or (how is RememberActions.CHANGES and unchanged):
            return None
        return self.append(action, "action", stamp_ns=stamp_ns)

    def reset(self) -> int:
        """Start a new version at the log's end; the journal keeps what was before.

        Returns:
            Number of the version.

        Raises:
            JournalError: The version cannot be journalled; nothing was changed.
        """
        return self._evictor.reset()

    def reconcile(self) -> tuple[bool, str]:
        """Ask for a reconciliation now.

        Returns:
            Whether it was accepted, and why not.
        """
        state = self._state
        with state.lock:
            if state.phase in (Phase.WARMING, Phase.CATCHING_UP) or state.reconcile_requested:
                return False, f"a reconciliation is under way ({state.phase.value})"
            if not state.context.chunks_of_current():
                return False, "there is no chunk to evict"
            if not state.secondary_slot.ready:
                slot = state.secondary_slot
                return False, f"{slot.client.name} is not ready: {slot.error}"
            state.reconcile_requested = True
            state.changed.notify_all()
        return True, ""

    def status(self) -> Status:
        """Everything an operator wants to see, read in one step."""
        return take_status(
            self._state,
            self.settings,
            refused_chunks=self._intake.refused_chunks,
            refused_pins=self._intake.refused_pins,
        )

    def block_tokens(self) -> int:
        """Tokens in a block of the primary's cache; 0 while it is unknown."""
        with self._state.lock:
            return self._state.primary_slot.block_tokens

    def held_tokens(self, version: int) -> int:
        """Static tokens of a version that the primary has computed."""
        with self._state.lock:
            return self._state.primary_slot.held.get(version, 0)

    def prompt_ids(self, query: Query) -> list[int]:
        """Token ids of a query's whole prompt, for records and tests.

        Raises:
            EngineError: Its version is gone, or no engine is ready.
        """
        return prepare(self._state, query.state, query.dynamic).prompt.ids()

    def close(self) -> None:
        """End requests under way and the threads, close the journal; may be called twice."""
        self._stop.set()
        with self._state.changed:
            self._state.changed.notify_all()
        for slot in self._state.slots:
            slot.client.close()
        for thread in self._threads:
            thread.join(_JOIN_S)
            if thread.is_alive():
                LOG.error("thread %s did not end within %g s", thread.name, _JOIN_S)
        self._threads = []
        if self._journal is not None:
            self._journal.close()

    def _recover(self) -> tuple[int | None, VersionedContext]:
        prefix = self.assembler.prefix
        if not self.settings.journal.path:
            return None, VersionedContext(prefix, SequenceVersion(0, 0))
        self._journal = Journal(self.settings.journal, self.assembler.identity)
        found = self._journal.recover()
        log = ChunkLog(found.version.start)
        for chunk in found.chunks:
            log.append(chunk)
        if found.end:
            LOG.info(
                "resumed %d chunks, version %d from chunk %d",
                found.end,
                found.version.number,
                found.version.start,
            )
        return found.epoch_ns, VersionedContext(prefix, found.version, log)
