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
"""The parts of a configured node and their order of starting and stopping.

Made, started, stopped and closed by the executor's thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rclpy.node import Node
from std_srvs.srv import SetBool, Trigger

from csr_policy.decision import Decision
from csr_policy.journal import JournalError
from csr_policy.node.complaints import Complaints
from csr_policy.node.decision_loop import DecisionLoop
from csr_policy.node.decision_window import DecisionWindow
from csr_policy.node.diagnostics import diagnostics_message
from csr_policy.node.ingest_queue import IngestQueue, Received
from csr_policy.node.ingest_thread import OWN_TOPICS, IngestWorker
from csr_policy.node.messages import time_message
from csr_policy.node.plumbing import Controls, Plumbing
from csr_policy.node.questions import QuestionPool, Questions
from csr_policy.node.status import (
    LOOK_PERIOD_S,
    PUBLISH_PERIOD_S,
    Faults,
    StatusPace,
    StatusSource,
)
from csr_policy.node.subscriptions import MATCH_PERIOD_S, Subscriptions
from csr_policy.node.threads import OwnedThread
from csr_policy.policy import Policy
from csr_policy.settings import Settings

_JOIN_ROOM_S = 1.0
"""Beyond its own bounds, how long a thread may take to return."""
_FLUSH_S = 0.2
"""How long subscribers may take to acknowledge the last messages."""
_NOT_ACTIVE = "the node is not active"


class Runtime:
    """A policy with its threads and its plumbing, from `configure` to `cleanup`."""

    def __init__(self, node: Node, settings: Settings) -> None:
        """Open the journal and the tokenizer, and appear in the graph. No network.

        Raises:
            PolicyError, ValueError: The settings cannot work; one line.
        """
        self._node = node
        self._settings = settings
        self._logger = node.get_logger()
        self._faults = Faults()
        self._complaints = Complaints(self._warn, self._logger.info)
        self._queue = IngestQueue(
            (*settings.observations, *OWN_TOPICS), settings.ingest.queue_messages
        )
        self._window = DecisionWindow()
        self._pace = StatusPace()
        self._pool = QuestionPool(settings.ask.workers, lambda: node.executor, self._logger.error)
        self._threads: list[OwnedThread] = []
        self._active = False
        self._paused = False
        self._started = False
        self._policy = Policy(settings, now_ns=self._ros_time_ns)
        self._plumbing: Plumbing | None = None
        self._subscriptions: Subscriptions | None = None
        try:
            self._connect()
        except Exception:
            self.close()
            raise

    @property
    def open_calls(self) -> int:
        """Calls of `~/decide` and `~/ask` without a response yet."""
        return self._questions.open_calls

    def start(self) -> None:
        """Start the threads and return; engines are contacted in the background.

        The policy's own threads run from the first start until `close`: an inactive node
        keeps its engines warm.
        """
        if not self._started:
            self._policy.start()
            self._started = True
        self._active = True
        self._pool.open()
        self._threads = [
            OwnedThread("ingest", self._worker.run, self._thread_died),
            OwnedThread("decision", self._loop.run, self._thread_died),
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Publish a fallback, stop the threads in bounded time, publish the status."""
        self._active = False
        self._pool.close()
        for thread in reversed(self._threads):
            if not thread.stop(self._settings.deadline_s + _JOIN_ROOM_S):
                self._warn(f"thread {thread.name}: did not stop in time and is left behind")
        self._threads = []
        self._queue.clear()
        self._look(force=True)
        self._plumbing.flush(_FLUSH_S)

    def close(self) -> None:
        """Leave the graph and close the journal."""
        if self._subscriptions is not None:
            self._subscriptions.destroy()
        if self._plumbing is not None:
            self._plumbing.destroy()
        self._policy.close()

    def _connect(self) -> None:
        self._worker = IngestWorker(
            self._settings, self._policy, self._queue, self._complaints, self._ros_time_ns
        )
        self._loop = DecisionLoop(
            self._settings, self._policy, self._window, self._publish, self._complaints
        )
        self._subscriptions = Subscriptions(
            self._node, self._settings, self._ros_time_ns, self._receive
        )
        self._status = StatusSource(
            self._policy,
            self._window,
            self._queue,
            self._worker,
            self._pool,
            self._faults,
            self._subscriptions.subscribed,
        )
        self._questions = Questions(
            self._policy, self._pool, self._settings.ask, self._question_obstacle
        )
        self._plumbing = Plumbing(
            self._node,
            self._questions,
            Controls(pause=self._on_pause, reset=self._on_reset, reconcile=self._on_reconcile),
        )
        self._plumbing.every(LOOK_PERIOD_S, self._look)
        self._plumbing.every(MATCH_PERIOD_S, self._guarded("match", self._subscriptions.match))
        self._plumbing.every(PUBLISH_PERIOD_S, self._guarded("diagnostics", self._diagnose))

    def _guarded(self, name: str, callback: Callable[[], None]) -> Callable[[], None]:
        """A callback that never raises: an exception would end the executor's spin."""

        def guarded() -> None:
            try:
                callback()
            except Exception as error:
                self._complaints.raised(f"timer {name}", f"{type(error).__name__}: {error}")
            else:
                self._complaints.over(f"timer {name}")

        return guarded

    def _receive(self, received: Received) -> None:
        if self._active:
            self._queue.put(received)

    def _publish(self, decision: Decision) -> None:
        self._plumbing.publish_decision(decision)

    def _look(self, *, force: bool = False) -> None:
        self._guarded("status", lambda: self._publish_status(force))()

    def _publish_status(self, force: bool) -> None:
        message = self._status.message(paused=self._paused)
        if self._pace.is_due(message, time.monotonic()) or force:
            message.header.stamp = time_message(self._ros_time_ns())
            self._plumbing.publish_status(message)

    def _diagnose(self) -> None:
        message = self._status.message(paused=self._paused)
        message.header.stamp = time_message(self._ros_time_ns())
        name = self._node.get_fully_qualified_name()
        self._plumbing.publish_diagnostics(diagnostics_message(message, name))

    def _on_pause(self, request: SetBool.Request, response: SetBool.Response) -> SetBool.Response:
        self._paused = self._loop.paused = request.data
        response.success = True
        response.message = "paused: ingest goes on" if request.data else "deciding"
        self._look()
        return response

    def _on_reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        if not self._active:
            response.message = _NOT_ACTIVE
            return response
        try:
            version = self._policy.reset()
        except (JournalError, ValueError) as error:
            response.message = str(error)
        else:
            response.success = True
            response.message = f"version {version} starts at the log's end"
        self._look()
        return response

    def _on_reconcile(
        self, request: Trigger.Request, response: Trigger.Response
    ) -> Trigger.Response:
        if not self._active:
            response.message = _NOT_ACTIVE
            return response
        response.success, reason = self._policy.reconcile()
        response.message = reason or "accepted"
        self._look()
        return response

    def _question_obstacle(self) -> str:
        # A reply becomes a chunk, and a chunk from before simulated time begins would spoil
        # every time after it.
        return "" if self._ros_time_ns() else "use_sim_time is true, but no /clock arrives"

    def _thread_died(self, name: str, trace: str) -> None:
        self._faults.thread_died(name, trace.strip().splitlines()[-1])
        self._logger.error(f"thread {name} died:\n{trace}")

    def _warn(self, line: str) -> None:
        self._faults.report(line)
        self._logger.warning(line)

    def _ros_time_ns(self) -> int:
        return self._node.get_clock().now().nanoseconds
