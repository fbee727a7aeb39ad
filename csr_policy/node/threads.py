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
"""A worker thread with an owner: bounded to stop, and its death is a reported state."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable


class OwnedThread:
    """Runs one body until it is told to stop.

    The owner calls `start` and `stop`, from one thread. The body receives the event
    that asks it to return and must look at it often. An exception that leaves the body
    ends the thread; it is handed to `on_death` with its traceback and stays visible
    in `dead`.
    """

    def __init__(
        self,
        name: str,
        body: Callable[[threading.Event], None],
        on_death: Callable[[str, str], None],
    ) -> None:
        """Prepare the thread; `on_death(name, traceback)` is called in the dying thread."""
        self._name = name
        self._body = body
        self._on_death = on_death
        self._stop = threading.Event()
        self._dead = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def name(self) -> str:
        """Name in logs and in the status."""
        return self._name

    @property
    def dead(self) -> bool:
        """True once an exception has ended the thread."""
        return self._dead

    def start(self) -> None:
        """Start the body."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Ask the body to return and wait for it.

        Returns:
            False where it did not return in time; it is a daemon and holds up no exit.
        """
        self._stop.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._body(self._stop)
        except Exception:
            self._dead = True
            self._on_death(self._name, traceback.format_exc())
