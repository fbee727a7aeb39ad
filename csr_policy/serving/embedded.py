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
"""The embedded engine pair of `csr-policy engines`: start, prime, status, stop.

`start` leaves the pair running in the background; `run` keeps it in the foreground and ends with
it. What a later command needs is in the runtime folder, which only the user can read:
`engines.json` (what runs), `api_key` (for the parameter `engine.api_key_file`) and the logs. A
lock keeps two commands from starting two pairs.
"""

import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from csr_policy.serving.models import demo_model
from csr_policy.serving.pair import START_TIMEOUT_S, EnginePair
from csr_policy.serving.priming import Priming, healthy, prime
from csr_policy.serving.processes import ProcessId, alive, group_members, stop_group
from csr_policy.serving.server import STOP_TIMEOUT_S, Progress, ServerError

RUNTIME_VARIABLE = "CSR_POLICY_RUNTIME"
_STATE_FILE = "engines.json"
_KEY_FILE = "api_key"
_CHECK_PERIOD_S = 0.5


@dataclass(frozen=True, slots=True)
class EmbeddedOptions:
    """What the embedded pair serves.

    Attributes:
        model_folder: Model to serve; None takes the demo model and makes it if need be.
        max_model_len: Longest prompt plus reply in tokens; 0 takes the model's.
        kv_tokens: Tokens that each server's KV pool holds; 0 takes twice `max_model_len`.
        gpus: One GPU for each server; empty serves on the CPU.
        ports: One port for each server; empty takes free ones.
        start_timeout_s: Longest time until both are ready.
    """

    model_folder: Path | None = None
    max_model_len: int = 0
    kv_tokens: int = 0
    gpus: tuple[int, ...] = ()
    ports: tuple[int, ...] = ()
    start_timeout_s: float = START_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class EmbeddedEngine:
    """One server of the embedded pair.

    Attributes:
        name: `engine_0` or `engine_1`.
        url: Base URL.
        process: The server's process.
        log_path: Its log.
    """

    name: str
    url: str
    process: ProcessId
    log_path: Path

    @property
    def running(self) -> bool:
        """True while the process lives."""
        return alive(self.process)

    @property
    def healthy(self) -> bool:
        """True where the server answers; asks it."""
        return self.running and healthy(self.url)


@dataclass(frozen=True, slots=True)
class EmbeddedPair:
    """The embedded pair as the runtime folder describes it.

    Attributes:
        engines: Its servers, primary first.
        model_folder: Model that they serve.
        max_model_len: Longest prompt plus reply in tokens.
        api_key_file: File with their API key.
    """

    engines: tuple[EmbeddedEngine, ...]
    model_folder: Path
    max_model_len: int
    api_key_file: Path

    @property
    def running(self) -> bool:
        """True while a process of the pair lives."""
        return any(group_members(engine.process) for engine in self.engines)

    @property
    def urls(self) -> tuple[str, ...]:
        """Base URLs, for the parameter `engines`."""
        return tuple(engine.url for engine in self.engines)


def runtime_folder() -> Path:
    """Find, and make, the folder of the running pair; only the user can enter it.

    Returns:
        `$CSR_POLICY_RUNTIME`, else `csr_policy` in `$XDG_RUNTIME_DIR`, else
        `~/.cache/csr_policy/run`.

    Raises:
        ServerError: It cannot be made, or belongs to somebody else.
    """
    chosen = os.environ.get(RUNTIME_VARIABLE, "")
    session = os.environ.get("XDG_RUNTIME_DIR", "")
    if chosen:
        folder = Path(chosen).expanduser()
    elif session and os.access(session, os.W_OK):
        folder = Path(session) / "csr_policy"
    else:
        folder = Path.home() / ".cache" / "csr_policy" / "run"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = folder.stat().st_uid
        if owner != os.getuid():
            raise ServerError(f"{folder} belongs to user {owner}; set {RUNTIME_VARIABLE}")
        folder.chmod(0o700)
    except OSError as error:
        raise ServerError(f"cannot use {folder} ({error.strerror})") from error
    return folder


def status() -> EmbeddedPair | None:
    """Describe the pair that was started last; None where there is none.

    Raises:
        ServerError: The runtime folder cannot be used.
    """
    folder = runtime_folder()
    try:
        state: dict[str, Any] = json.loads((folder / _STATE_FILE).read_text(encoding="utf-8"))
        engines = tuple(
            EmbeddedEngine(
                name=entry["name"],
                url=entry["url"],
                process=ProcessId(**entry["process"]),
                log_path=Path(entry["log_path"]),
            )
            for entry in state["engines"]
        )
        return EmbeddedPair(
            engines, Path(state["model_folder"]), state["max_model_len"], folder / _KEY_FILE
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None  # nothing was started, or what describes it is of another version


def start(options: EmbeddedOptions, progress: Progress | None = None) -> EmbeddedPair:
    """Start the pair in the background, primed.

    Args:
        options: What to serve.
        progress: Told in one line what is being done.

    Raises:
        ServerError: A pair runs already, or this one does not come up.
        ModelError: The demo model cannot be made.
    """
    with _lock():
        pair = _launch(options, progress, detached=True)
        try:
            pair.wait_ready(options.start_timeout_s, progress)
        except BaseException:
            _forget()
            raise
        found = status()
    assert found is not None, "the state was written by _launch"
    return found


def run(options: EmbeddedOptions, progress: Progress | None = None) -> None:
    """Run the pair in the foreground until SIGINT or SIGTERM; main thread only.

    Raises:
        ServerError: A pair runs already, this one does not come up, or a server ends.
        ModelError: The demo model cannot be made.
    """
    with _terminate_interrupts(), suppress(KeyboardInterrupt):
        with _lock():
            pair = _launch(options, progress, detached=False)
        try:
            pair.wait_ready(options.start_timeout_s, progress)
            if progress:
                progress(f"serving; the API key is in {runtime_folder() / _KEY_FILE}")
            while True:
                time.sleep(_CHECK_PERIOD_S)
                pair.check()
        finally:
            pair.stop(keep_logs=True)
            _forget()


def prime_pair(timeout_s: float = 60.0) -> tuple[Priming, ...]:
    """Ask each server of the running pair one decision twice.

    Raises:
        ServerError: No pair runs, or a server refuses or does not cache.
    """
    pair = status()
    if pair is None or not pair.running:
        raise ServerError("no embedded engines are running; start them first")
    key = pair.api_key_file.read_text(encoding="utf-8").strip()
    return tuple(prime(engine.url, api_key=key, timeout_s=timeout_s) for engine in pair.engines)


def stop(timeout_s: float = STOP_TIMEOUT_S) -> bool:
    """Stop the pair and all of its processes.

    Returns:
        True where there was one to stop.
    """
    with _lock():
        pair = status()
        was_running = pair is not None and pair.running
        if pair is not None:
            for engine in pair.engines:
                stop_group(engine.process, timeout_s)
        _forget()
    return was_running


def _launch(options: EmbeddedOptions, progress: Progress | None, *, detached: bool) -> EnginePair:
    running = status()
    if running is not None and running.running:
        raise ServerError(f"the embedded engines are running already: {', '.join(running.urls)}")
    folder = runtime_folder()
    pair = EnginePair(
        options.model_folder or demo_model(progress=progress),
        max_model_len=options.max_model_len,
        kv_tokens=options.kv_tokens,
        gpus=options.gpus,
        ports=options.ports,
        log_folder=folder,
        detached=detached,
    )
    pair.launch()
    try:
        # Before the wait for readiness: a start that is killed leaves servers that `stop` finds.
        _write_private(folder / _KEY_FILE, pair.api_key)
        _write_private(folder / _STATE_FILE, json.dumps(_state(pair), indent=2))
    except BaseException:
        pair.stop()
        raise
    return pair


def _state(pair: EnginePair) -> dict[str, Any]:
    engines = []
    for server in pair.servers:
        assert server.identity is not None, "launch started it"
        process = asdict(server.identity)
        engines.append(
            {"name": server.name, "url": server.url, "process": process}
            | {"log_path": str(server.log_path)}
        )
    return {
        "engines": engines,
        "model_folder": str(pair.model_folder),
        "max_model_len": pair.max_model_len,
    }


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text + "\n")


def _forget() -> None:
    folder = runtime_folder()
    for name in (_STATE_FILE, _KEY_FILE):
        (folder / name).unlink(missing_ok=True)


@contextmanager
def _lock() -> Iterator[None]:
    with (runtime_folder() / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ServerError("the embedded engines are being started or stopped") from error
        yield


@contextmanager
def _terminate_interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
