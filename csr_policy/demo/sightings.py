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
"""What was seen when: the newest of some moments past. Safe from any thread."""

from __future__ import annotations

import bisect
import threading
from typing import Generic, TypeVar

T = TypeVar("T")

_KEPT = 100
_GAP_NS = 20_000_000
"""Values closer together are not told apart: a fast topic must not fill the memory."""


class Sightings(Generic[T]):
    """A short memory of stamped values, oldest forgotten."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stamps_ns: list[int] = []
        self._values: list[T] = []

    def add(self, stamp_ns: int, value: T) -> None:
        """Remember a value; stamps come in order."""
        with self._lock:
            if self._stamps_ns and stamp_ns - self._stamps_ns[-1] < _GAP_NS:
                self._values[-1] = value
                return
            self._stamps_ns.append(stamp_ns)
            self._values.append(value)
            if len(self._values) > 2 * _KEPT:
                del self._stamps_ns[:_KEPT], self._values[:_KEPT]

    def at(self, stamp_ns: int) -> T | None:
        """The newest value from a time or before it; None where there is none."""
        with self._lock:
            index = bisect.bisect_right(self._stamps_ns, stamp_ns)
            return self._values[index - 1] if index else None
