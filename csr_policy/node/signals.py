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
"""SIGINT and SIGTERM as an orderly stop.

rclpy's own handlers invalidate the context first; a node then can neither publish
its last status nor a fallback. Python's run between two of the main thread's
instructions, and that thread sits in the middleware's wait. So the signal's number is
taken from the wake-up descriptor, by a thread that does nothing else.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Turns the first stop signal into a call, the second into an exit."""

    def __init__(self) -> None:
        """Take the signals over; from the main thread. One before `watch` is not lost."""
        self._reader, writer = socket.socketpair()
        writer.setblocking(False)
        self._writer = writer
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        for number in _STOP_SIGNALS:
            signal.signal(number, _leave_to_the_thread)

    def watch(self, on_stop: Callable[[str], None]) -> None:
        """Call `on_stop(signal name)` at the first signal, in a thread of its own."""
        threading.Thread(target=self._wait, args=(on_stop,), name="signals", daemon=True).start()

    def _wait(self, on_stop: Callable[[str], None]) -> None:
        on_stop(signal.Signals(self._next()).name)
        second = self._next()
        # Whoever sends a second signal does not want to wait for bounded joins.
        os._exit(128 + second)

    def _next(self) -> int:
        while True:
            number = self._reader.recv(1)[0]
            if number in _STOP_SIGNALS:
                return number


def _leave_to_the_thread(number: int, frame: FrameType | None) -> None:
    """Replace Python's handler, which raises KeyboardInterrupt wherever the thread is."""
