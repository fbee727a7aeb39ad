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
"""The bounded queue between the callbacks and the ingest thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Received:
    """A message as it came in.

    Attributes:
        source: Name of the source.
        message: The message, not looked at yet.
        ros_time_ns: When it came in, ROS time.
        steady_ns: When it came in, steady clock.
    """

    source: str
    message: object
    ros_time_ns: int
    steady_ns: int


class IngestQueue:
    """Messages waiting to be formatted, in one line for each source.

    Sources are served in turn, and a full queue drops the oldest message of the
    longest line: a topic that floods the node loses its own messages and delays
    nobody else's. Any thread may call anything.
    """

    def __init__(self, sources: tuple[str, ...], limit: int) -> None:
        """Make one line for each source; `limit` bounds the messages of all of them."""
        self._limit = limit
        self._lines: dict[str, deque[Received]] = {source: deque() for source in sources}
        self._turns: deque[str] = deque()
        """Sources with a waiting message, the next to be served first."""
        self._waiting = 0
        self._received = dict.fromkeys(sources, 0)
        self._dropped = dict.fromkeys(sources, 0)
        self._condition = threading.Condition()

    def put(self, item: Received) -> None:
        """Add a message; never blocks for long and never refuses."""
        with self._condition:
            line = self._lines[item.source]
            self._received[item.source] += 1
            if self._waiting >= self._limit:
                self._drop_for(line)
            if not line:
                self._turns.append(item.source)
            line.append(item)
            self._waiting += 1
            self._condition.notify()

    def take(self, timeout_s: float) -> Received | None:
        """Take the next message, or None where none came in time."""
        with self._condition:
            if not self._turns:
                self._condition.wait(timeout_s)
            if not self._turns:
                return None
            source = self._turns.popleft()
            line = self._lines[source]
            item = line.popleft()
            self._waiting -= 1
            if line:
                self._turns.append(source)
            return item

    def clear(self) -> None:
        """Let go of everything that waits; it is counted as dropped."""
        with self._condition:
            for source, line in self._lines.items():
                self._dropped[source] += len(line)
                line.clear()
            self._turns.clear()
            self._waiting = 0

    @property
    def waiting(self) -> int:
        """Messages in the queue."""
        return self._waiting

    @property
    def received(self) -> Mapping[str, int]:
        """Messages put in, by source."""
        with self._condition:
            return dict(self._received)

    @property
    def dropped(self) -> Mapping[str, int]:
        """Messages lost to a full queue, by source."""
        with self._condition:
            return dict(self._dropped)

    def _drop_for(self, own: deque[Received]) -> None:
        longest = max(self._lines.values(), key=len)
        victim = own if len(own) == len(longest) else longest
        lost = victim.popleft()
        self._dropped[lost.source] += 1
        self._waiting -= 1
        if not victim:
            self._turns.remove(lost.source)
