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
"""`~/status`: one message that says how the policy is, on change and at 1 Hz."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from csr_policy.msg import EngineStatus, ObservationStatus, PolicyStatus
from csr_policy.node.decision_window import DecisionWindow
from csr_policy.node.ingest_queue import IngestQueue
from csr_policy.node.ingest_thread import IngestWorker
from csr_policy.node.questions import QuestionPool
from csr_policy.policy import Policy

LOOK_PERIOD_S = 0.1
"""How often the state is compared with what was published last."""
PUBLISH_PERIOD_S = 1.0

_EVENTS = (
    "ready",
    "paused",
    "degraded",
    "last_error",
    "dead_thread",
    "phase",
    "version",
    "swaps",
    "failovers",
    "in_place_evictions",
    "cache_losses",
)
"""Fields whose change is news; counters that rise all the time are not."""


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A source's topic as it is subscribed.

    Attributes:
        topic: Resolved name.
        qos: Quality of service in words; empty while it waits for a publisher.
    """

    topic: str
    qos: str


class Faults:
    """The newest fault and the thread that died; any thread may call anything."""

    def __init__(self) -> None:
        """Start without a fault."""
        self._lock = threading.Lock()
        self._line = ""
        self._since_s = math.nan
        self._dead_thread = ""

    def report(self, line: str) -> None:
        """Remember the newest fault."""
        with self._lock:
            self._line = line
            self._since_s = time.monotonic()

    def thread_died(self, name: str, last_line: str) -> None:
        """Remember the first thread that died."""
        self.report(f"thread {name} died: {last_line}")
        with self._lock:
            self._dead_thread = self._dead_thread or name

    @property
    def dead_thread(self) -> str:
        """Name of the first thread that died; empty for none."""
        return self._dead_thread

    def newest(self) -> tuple[str, float]:
        """The newest fault and its age in seconds; empty and NaN for none."""
        with self._lock:
            return self._line, time.monotonic() - self._since_s


class StatusSource:
    """Gathers the status; used by the executor's thread."""

    def __init__(
        self,
        policy: Policy,
        window: DecisionWindow,
        queue: IngestQueue,
        worker: IngestWorker,
        pool: QuestionPool,
        faults: Faults,
        subscribed: Callable[[], Mapping[str, Subscribed]],
    ) -> None:
        """Read from the parts of a running node."""
        self._policy = policy
        self._window = window
        self._queue = queue
        self._worker = worker
        self._pool = pool
        self._faults = faults
        self._subscribed = subscribed
        self._policy_error = ""

    def message(self, *, paused: bool) -> PolicyStatus:
        """The status now, without a stamp."""
        status = self._policy.status()
        message = PolicyStatus(paused=paused)
        for name in (
            "ready",
            "degraded",
            "phase",
            "version",
            "static_tokens",
            "prefix_tokens",
            "head_tokens",
            "tau_mem_tokens",
            "limit_tokens",
            "swaps",
            "failovers",
            "in_place_evictions",
            "cache_losses",
            "stragglers",
            "restitched",
            "reconciliation_failures",
            "chunks",
            "first_chunk_index",
            "last_chunk_index",
            "refused_chunks",
            "refused_pins",
        ):
            setattr(message, name, getattr(status, name))
        message.engines = [
            EngineStatus(
                name=engine.name,
                url=engine.url,
                role=engine.role,
                ready=engine.ready,
                version=engine.version,
                warmed_tokens=engine.warmed_tokens,
                error=engine.error,
            )
            for engine in status.engines
        ]
        self._put_faults(message, status.last_error)
        self._put_ingest(message)
        self._put_loop(message)
        return message

    def _put_faults(self, message: PolicyStatus, policy_error: str) -> None:
        if policy_error != self._policy_error:
            self._policy_error = policy_error
            if policy_error:
                self._faults.report(policy_error)
        message.last_error, message.last_error_age_s = self._faults.newest()
        message.dead_thread = self._faults.dead_thread

    def _put_ingest(self, message: PolicyStatus) -> None:
        received, dropped = self._queue.received, self._queue.dropped
        subscribed = self._subscribed()
        for name, counts in self._worker.counts.items():
            topic = subscribed[name]
            message.observations.append(
                ObservationStatus(
                    name=name,
                    topic=topic.topic,
                    qos=topic.qos,
                    received=received[name],
                    taken=counts.taken,
                    skipped=counts.skipped,
                    failed=counts.failed,
                    dropped=dropped[name],
                )
            )
        message.queued_messages = self._queue.waiting
        message.dropped_messages = sum(dropped.values())

    def _put_loop(self, message: PolicyStatus) -> None:
        summary = self._window.summary()
        message.ticks_started = summary.started
        message.ticks_skipped = summary.skipped
        message.outcome_names = [outcome.name for outcome in summary.outcomes]
        message.outcome_counts = list(summary.outcomes.values())
        message.last_decision_id = summary.last_id
        message.ttft_median_s = summary.ttft_median_s
        message.ttft_p99_s = summary.ttft_p99_s
        message.cached_share = summary.cached_share
        message.window_decisions = summary.replies
        message.questions_refused = self._pool.refused


class StatusPace:
    """Decides when a status is published: at once on news, else once a period."""

    def __init__(self) -> None:
        """The first status is news."""
        self._last: tuple[object, ...] = ()
        self._published_s = -math.inf

    def is_due(self, message: PolicyStatus, now_s: float) -> bool:
        """Whether `message` is to be published now; assumes that it then is."""
        events = tuple(getattr(message, name) for name in _EVENTS) + tuple(
            (engine.role, engine.ready, engine.error) for engine in message.engines
        )
        due = events != self._last or now_s - self._published_s >= PUBLISH_PERIOD_S
        if due:
            self._last = events
            self._published_s = now_s
        return due
