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
"""One line when something goes wrong, one when it is well again, a count in between."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Complaints:
    """Keeps a repeated problem from filling the log.

    Any thread may call anything.
    """

    def __init__(self, warn: Callable[[str], None], inform: Callable[[str], None]) -> None:
        """Write through `warn` and, when a problem ends, through `inform`."""
        self._warn = warn
        self._inform = inform
        self._open: dict[str, int] = {}
        self._lock = threading.Lock()

    def say(self, line: str) -> None:
        """Write a line whose teller keeps count itself."""
        self._warn(line)

    def raised(self, subject: str, problem: str) -> None:
        """Count a problem of `subject`; only the first since it was well is written."""
        with self._lock:
            count = self._open.get(subject, 0) + 1
            self._open[subject] = count
        if count == 1:
            self._warn(f"{subject}: {problem} (warned once, counted in ~/status)")

    def over(self, subject: str) -> None:
        """Say that `subject` is well again; nothing where it was."""
        if subject not in self._open:
            return
        with self._lock:
            count = self._open.pop(subject, 0)
        if count:
            self._inform(f"{subject}: well again after {count} refused")
