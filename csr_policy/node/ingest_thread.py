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
"""The ingest thread: messages become chunks, suffixes and tasks, one after the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from csr_policy.context.errors import ChunkRefusedError
from csr_policy.node.complaints import Complaints
from csr_policy.node.ingest_queue import IngestQueue, Received
from csr_policy.observation.ingest import Ingest
from csr_policy.policy import Policy
from csr_policy.settings import NAME_PATTERN, Placement, Settings

TASK = "task"
CHUNK = "chunk"
ACTION_RESULT = "action_result"
OWN_TOPICS = (TASK, CHUNK, ACTION_RESULT)
"""The node's own topics; a configured observation cannot have one of these names."""

_POLL_S = 0.2
"""How often the ages of the suffixes are looked at, and the stop event."""


@dataclass(slots=True)
class Counts:
    """What became of the messages of one source; written by the ingest thread alone."""

    taken: int = 0
    skipped: int = 0
    failed: int = 0


class IngestWorker:
    """Takes messages from the queue and gives them to the policy.

    `run` is the body of the ingest thread; `counts` may be read by any thread.
    """

    def __init__(
        self,
        settings: Settings,
        policy: Policy,
        queue: IngestQueue,
        complaints: Complaints,
        ros_time_ns: Callable[[], int],
    ) -> None:
        """Work for `policy`; `ros_time_ns` reads the node's clock, 0 before it runs."""
        self._policy = policy
        self._queue = queue
        self._complaints = complaints
        self._ros_time_ns = ros_time_ns
        self._max_characters = settings.ingest.max_text_characters
        self._ingest = Ingest(settings, warn=complaints.say)
        self._observed = tuple(settings.observations)
        self._counts = {name: Counts() for name in (*self._observed, *OWN_TOPICS)}
        self._dropped = 0

    @property
    def counts(self) -> Mapping[str, Counts]:
        """Counts by source."""
        return {name: self._of(name) for name in self._counts}

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set."""
        while not stop.is_set():
            item = self._queue.take(_POLL_S)
            for source in self._ingest.expired(time.monotonic_ns()):
                self._policy.set_suffix(source, "")
            self._watch_overflow()
            if item is not None and self._clock_runs(stop):
                self._handle(item)

    def _handle(self, item: Received) -> None:
        counts = self._counts[item.source]
        subject = f"~/{item.source}" if item.source in OWN_TOPICS else item.source
        try:
            taken = self._take(item)
        except ChunkRefusedError as refused:
            counts.failed += 1
            self._complaints.raised(subject, str(refused))
            return
        if taken:
            counts.taken += 1
            self._complaints.over(subject)

    def _take(self, item: Received) -> bool:
        """Give a message to the policy.

        Returns:
            False where `Ingest` left it out, and counted it.

        Raises:
            ChunkRefusedError: It cannot be used; one line.
        """
        stamp_ns = item.ros_time_ns or self._ros_time_ns()
        if item.source == TASK:
            self._set_task(item.message.data)
        elif item.source == ACTION_RESULT:
            self._policy.append(item.message.data, ACTION_RESULT, stamp_ns=stamp_ns)
        elif item.source == CHUNK:
            source = item.message.source or CHUNK
            if not NAME_PATTERN.match(source):
                raise ChunkRefusedError(
                    f"source: is {source[:80]!r}; expected lower case letters, digits, _"
                )
            keep = item.message.keep
            self._policy.append(item.message.text, source, stamp_ns=stamp_ns, keep=keep)
        else:
            return self._observe(item, stamp_ns)
        return True

    def _set_task(self, text: str) -> None:
        if not text.strip():
            raise ChunkRefusedError("is empty; expected text")
        if len(text) > self._max_characters:
            self._complaints.say(
                f"~/task: has {len(text)} characters; the first {self._max_characters} are used "
                "(ingest.max_text_characters)"
            )
        self._policy.set_task(text)

    def _observe(self, item: Received, stamp_ns: int) -> bool:
        observation = self._ingest.offer(
            item.source, item.message, ros_time_ns=stamp_ns, steady_ns=item.steady_ns
        )
        if observation is None:
            return False
        if observation.placement is Placement.SUFFIX:
            self._policy.set_suffix(observation.source, observation.text)
        else:
            self._policy.append(
                observation.text,
                observation.source,
                stamp_ns=observation.stamp_ns,
                keep=observation.keep,
                max_tokens=observation.max_tokens,
            )
        return True

    def _clock_runs(self, stop: threading.Event) -> bool:
        """Wait for simulated time: a chunk from before it would spoil every time after it."""
        while self._ros_time_ns() == 0:
            self._complaints.raised("use_sim_time", "is true, but no /clock arrives; waiting")
            if stop.wait(_POLL_S):
                return False
        self._complaints.over("use_sim_time")
        return True

    def _watch_overflow(self) -> None:
        dropped = sum(self._queue.dropped.values())
        if dropped > self._dropped:
            self._dropped = dropped
            self._complaints.raised("ingest", "the queue is full, messages are dropped")
        elif not self._queue.waiting:
            self._complaints.over("ingest")

    def _of(self, name: str) -> Counts:
        own = self._counts[name]
        if name not in self._observed:
            return own
        seen = self._ingest.counts(name)
        return Counts(
            taken=own.taken,
            skipped=seen.skipped,
            failed=own.failed + seen.failed,
        )
