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
"""One vLLM server as a process of its own: start, readiness, the reason of a failure, stop.

Not thread-safe: one thread at a time owns a `VllmServer`. The server ends with the process that
started it, however that one dies, unless it is `detached` (see `vllm_main`).
"""

import contextlib
import os
import re
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from csr_policy.serving.command import ServerError, ServerOptions, server_command
from csr_policy.serving.priming import Priming, healthy, prime
from csr_policy.serving.processes import ProcessId, alive, identify, stop_group

__all__ = ["ServerError", "ServerOptions", "VllmServer", "server_command", "wait_all_ready"]

Progress = Callable[[str], None]
STOP_TIMEOUT_S = 10.0
_POLL_S = 0.1
_PROGRESS_PERIOD_S = 5.0
_LOG_TAIL_BYTES = 200_000
_ERROR_CHARACTERS = 400
_ERROR_LINE = re.compile(r"(?:[\w./]+: error: .+|[A-Za-z_][\w.]*(?:Error|Exception)(?:: .*)?)\Z")
_LOG_PREFIX = re.compile(r"(?:\(\w+ pid=\d+\) )?(?:ERROR [\d-]+ [\d:]+ \[[^\]]*\] )?")
_PYDANTIC = re.compile(r"\d+ validation errors? for \w+\Z")
_NOT_THE_CAUSE = (
    "Engine core initialization failed",
    "Engine core proc",
    "EngineDeadError",
    "WorkerProc initialization failed",
)


class VllmServer:
    """One vLLM server process.

    Args:
        options: What to serve, where and how.
        log_path: File that takes the server's output.
        detached: Let the server outlive this process.
    """

    def __init__(self, options: ServerOptions, log_path: Path, *, detached: bool = False) -> None:
        owner = None if detached else os.getpid()
        self.options = replace(options, owner_pid=owner)
        self.log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None
        self._identity: ProcessId | None = None

    @property
    def name(self) -> str:
        """What messages call the server."""
        return self.options.name

    @property
    def url(self) -> str:
        """Base URL."""
        return self.options.url

    @property
    def identity(self) -> ProcessId | None:
        """The server's process, leader of its process group; None before `start`."""
        return self._identity

    @property
    def running(self) -> bool:
        """True while the server's process lives."""
        return self._identity is not None and alive(self._identity)

    def start(self) -> None:
        """Start the process and return at once.

        Raises:
            ServerError: The port is taken, the program is missing or the options cannot work.
        """
        if self.running:
            raise ServerError(f"{self.name}: is running already")
        try:
            arguments, environment = server_command(self.options)
        except ServerError as error:
            raise ServerError(f"{self.name}: {error}") from error
        if not _port_is_free(self.options.host, self.options.port):
            raise ServerError(
                f"{self.name}: port {self.options.port} of {self.options.host} is in use"
            )
        try:
            with self.log_path.open("wb") as log:
                self._process = subprocess.Popen(
                    arguments,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=os.environ | environment,
                    # Ctrl-C in a terminal goes to the owner, which stops its servers in order.
                    start_new_session=True,
                )
        except OSError as error:
            where = error.filename or arguments[0]
            raise ServerError(f"{self.name}: cannot start {where} ({error.strerror})") from error
        self._identity = identify(self._process.pid)

    def check(self) -> None:
        """Raise if the server has ended.

        Raises:
            ServerError: It has; with the last error of its log.
        """
        if self._process is None:
            raise ServerError(f"{self.name}: has not been started")
        status = self._process.poll()
        if status is not None:
            raise ServerError(
                f"{self.name}: vLLM ended with status {status}{self._reason()} "
                f"(log: {self.log_path})"
            )

    def prime(self, timeout_s: float) -> Priming:
        """Ask one decision twice; see `priming.prime`.

        Raises:
            ServerError: It refused, it ended, or its cache does not work.
        """
        try:
            return prime(self.url, api_key=self.options.api_key, timeout_s=timeout_s)
        except ServerError as error:
            raise ServerError(f"{self.name}: {error}{self._reason()}") from error

    def wait_ready(self, timeout_s: float, progress: Progress | None = None) -> Priming:
        """Wait until the server is in good health and primed.

        Raises:
            ServerError: It ended, it refused, or the time is over.
        """
        return wait_all_ready([self], timeout_s, progress)[0]

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End the server and all of its processes; does nothing where there are none.

        vLLM waits without end for a request in flight when it is asked to stop, so it is killed
        after `timeout_s`.
        """
        if self._identity is not None:
            stop_group(self._identity, timeout_s)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=1.0)

    def _reason(self) -> str:
        found = last_error(self.log_path)
        return f": {found}" if found else ""


def wait_all_ready(
    servers: list[VllmServer], timeout_s: float, progress: Progress | None = None
) -> list[Priming]:
    """Wait until all servers are in good health and primed.

    Args:
        servers: Servers that have been started.
        timeout_s: Longest time for all of them together.
        progress: Told every few seconds what is awaited.

    Raises:
        ServerError: One ended or refused, or the time is over.
    """
    say = progress or _silent
    started_s = time.monotonic()
    waiting, next_line_s = list(servers), _PROGRESS_PERIOD_S
    while waiting:
        for server in waiting:
            server.check()
        waiting = [server for server in waiting if not healthy(server.url)]
        elapsed_s = time.monotonic() - started_s
        names = ", ".join(server.name for server in waiting)
        if waiting and elapsed_s >= timeout_s:
            raise ServerError(f"{names}: not ready after {timeout_s:.0f} s")
        if waiting and elapsed_s >= next_line_s:
            say(f"{names}: vLLM is starting, {elapsed_s:.0f} s (20 to 60 s is usual)")
            next_line_s += _PROGRESS_PERIOD_S
        time.sleep(_POLL_S if waiting else 0.0)
    primings = []
    for server in servers:
        left_s = max(1.0, timeout_s - (time.monotonic() - started_s))
        primings.append(server.prime(left_s))
        elapsed_s = time.monotonic() - started_s
        say(f"{server.name}: ready at {server.url} after {elapsed_s:.0f} s")
    return primings


def last_error(log_path: Path) -> str:
    """Find the line of a server's log that says why it failed; empty where none does.

    vLLM reports a failure of its engine process once more, without the cause, from the API
    server; those lines serve only where nothing better is there.
    """
    try:
        with log_path.open("rb") as log:
            log.seek(max(0, log_path.stat().st_size - _LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    lines = [_LOG_PREFIX.sub("", line, count=1).rstrip() for line in lines]
    fallback = ""
    for number in range(len(lines) - 1, -1, -1):
        if not _ERROR_LINE.match(lines[number]):
            continue
        found = lines[number]
        if _PYDANTIC.search(found):
            found = " ".join(" ".join(lines[number : number + 2]).split())
        if not any(part in found for part in _NOT_THE_CAUSE):
            return found[:_ERROR_CHARACTERS]
        fallback = fallback or found[:_ERROR_CHARACTERS]
    return fallback


def _port_is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _silent(_line: str) -> None:
    pass
