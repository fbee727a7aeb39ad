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
"""Algorithm 1's `Reconcile()`, in its own thread.

Trigger, warm-up, catch-up, swap; retry with backoff when the secondary fails,
while the primary goes on serving. The same thread moves the robot to the
secondary when the primary is lost (a swap of engines without a new version).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from enum import Enum, auto

from csr_policy.context.versions import LiveVersion
from csr_policy.engine.errors import EngineError, EngineProtocolError, EngineUnreachableError
from csr_policy.journal import JournalError
from csr_policy.reconciliation.evictor import Evictor
from csr_policy.reconciliation.state import EngineSlot, Phase, SharedState
from csr_policy.reconciliation.warm_up import WarmUp, WarmUpAbortedError
from csr_policy.settings import ReconciliationSettings

LOG = logging.getLogger(__name__)
_IDLE_WAIT_S = 1.0


class _Job(Enum):
    RECONCILE = auto()
    FAILOVER = auto()


class ReconciliationManager:
    """Keeps the prompt below its limit for ever; `run` is the body of its thread."""

    def __init__(
        self,
        state: SharedState,
        settings: ReconciliationSettings,
        evictor: Evictor,
        warm_up: WarmUp,
        stop: threading.Event,
    ) -> None:
        """Nothing starts before `run`."""
        self._state = state
        self._settings = settings
        self._evictor = evictor
        self._warm_up = warm_up
        self._stop = stop
        self._backoff_s = settings.backoff_initial_s
        self._not_before_s = 0.0

    def run(self) -> None:
        """Until the stop: do what is due."""
        while not self._stop.is_set():
            with self._state.changed:
                job = self._due()
                if job is None:
                    self._state.changed.wait(self._wait_s())
                    continue
            try:
                if job is _Job.RECONCILE:
                    self._reconcile()
                else:
                    self._fail_over()
            except WarmUpAbortedError:
                self._settle(Phase.IDLE)
            except (EngineError, JournalError) as error:
                self._failed(job, error)
            else:
                self._backoff_s = self._settings.backoff_initial_s

    def _due(self) -> _Job | None:
        """What to do now; called under the state lock."""
        state = self._state
        if self._stop.is_set() or time.monotonic() < self._not_before_s:
            return None
        primary, secondary = state.primary_slot, state.secondary_slot
        if not secondary.ready:
            return None
        if primary.lost and not primary.ready:
            return _Job.FAILOVER
        full = state.context.current.tokens >= self._settings.tau_mem_tokens
        if primary.ready and (full or state.reconcile_requested):
            return _Job.RECONCILE
        return None

    def _reconcile(self) -> None:
        state = self._state
        with state.lock:
            state.reconcile_requested = False
            secondary = state.secondary_slot
            if secondary is not state.primary_slot:
                secondary.held.clear()  # from here on, stragglers of k-1 are restitched
            state.phase = Phase.WARMING
        live = self._evictor.begin_next()
        if live is None:
            raise WarmUpAbortedError("nothing to evict")
        LOG.info(
            "evicting: version %d starts at chunk %d with %d tokens, warming %s",
            live.version.number,
            live.version.start,
            live.tokens,
            secondary.client.name,
        )

        def swap() -> None:
            state.context.promote()
            self._promote(secondary)
            state.counters.swaps += 1

        self._bring_up(secondary, live, lambda: state.context.next is live, swap)
        LOG.info("swapped: version %d on %s", live.version.number, secondary.client.name)

    def _fail_over(self) -> None:
        state = self._state
        with state.lock:
            secondary, live = state.secondary_slot, state.context.current
            state.phase = Phase.WARMING
        LOG.warning("primary lost: moving to %s", secondary.client.name)

        def take_over() -> None:
            self._promote(secondary)
            state.counters.failovers += 1

        self._bring_up(secondary, live, lambda: state.context.current is live, take_over)
        LOG.warning("moved to %s after the primary was lost", secondary.client.name)

    def _bring_up(
        self,
        slot: EngineSlot,
        live: LiveVersion,
        wanted: Callable[[], bool],
        finish: Callable[[], None],
    ) -> None:
        """Warm up, catch up, and finish in the step that saw at most `N_catchup` missing."""
        self._warm_up.run(slot, live, wanted)
        while True:
            with self._state.lock:
                if not wanted():
                    raise WarmUpAbortedError("another version came first")
                missing = live.tokens - slot.held.get(live.version.number, 0)
                if missing <= self._settings.n_catchup_tokens:
                    self._state.swap_missing_tokens = missing
                    finish()
                    return
                self._state.phase = Phase.CATCHING_UP
            self._warm_up.run(slot, live, wanted)

    def _promote(self, slot: EngineSlot) -> None:
        """The swap of roles; called under the state lock."""
        self._state.primary = self._state.slots.index(slot)
        self._state.phase = Phase.IDLE
        self._state.prune_held()
        self._state.changed.notify_all()

    def _failed(self, job: _Job, error: EngineError | JournalError) -> None:
        state = self._state
        lost = isinstance(error, EngineUnreachableError | EngineProtocolError)
        with state.lock:
            slot = state.secondary_slot
            line = f"reconciliation on {slot.client.name} failed: {error}"
            state.context.drop_next()
            state.phase = Phase.FAILED
            state.reconcile_requested |= job is _Job.RECONCILE
            state.counters.reconciliation_failures += 1
            state.last_error = line
            if lost or getattr(error, "status", 0) >= 500:
                slot.fail(str(error))
            state.changed.notify_all()
        LOG.warning("%s; next try in %.1f s", line, self._backoff_s)
        self._not_before_s = time.monotonic() + self._backoff_s
        self._backoff_s = min(2 * self._backoff_s, self._settings.backoff_max_s)

    def _settle(self, phase: Phase) -> None:
        with self._state.lock:
            self._state.phase = phase
            self._state.changed.notify_all()

    def _wait_s(self) -> float:
        left = self._not_before_s - time.monotonic()
        return left if 0 < left < _IDLE_WAIT_S else _IDLE_WAIT_S
