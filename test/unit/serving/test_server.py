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
"""A server from start to stop, and what each failure is called."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from csr_policy.serving.command import ServerError, ServerOptions
from csr_policy.serving.pair import free_ports
from csr_policy.serving.processes import ProcessId, alive, group_members, identify, stop_group
from csr_policy.serving.server import VllmServer, last_error

WAIT_S = 60.0


def wait_until(condition: Callable[[], object], what: str) -> None:
    until_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until_s, f"waited {WAIT_S:.0f} s for: {what}"
        time.sleep(0.02)


# Why a server failed


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (
            "(EngineCore pid=7) ERROR 11-30 22:00:00 [core.py:1] ValueError: no room\n"
            "  File x.py, line 1\n"
            "RuntimeError: Engine core initialization failed. See root cause above.\n",
            "ValueError: no room",
        ),
        (
            "(APIServer pid=7) WARNING 11-30 22:00:00 [s.py:2] Errors like `OSError: x`.\n"
            "MemoryError\n",
            "MemoryError",
        ),
        (
            "pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
            "  Value error, too long\n    For further information visit x\n",
            "pydantic_core.ValidationError: 1 validation error for ModelConfig "
            "Value error, too long",
        ),
        (
            "usage: vllm_main.py [-h]\nvllm_main.py: error: unrecognized arguments: --x\n",
            "vllm_main.py: error: unrecognized arguments: --x",
        ),
        (
            "RuntimeError: Engine core initialization failed. See root cause above.\n",
            "RuntimeError: Engine core initialization failed. See root cause above.",
        ),
        ("INFO all is well\n", ""),
    ],
)
def test_the_cause_is_found_in_the_log(tmp_path: Path, log: str, expected: str) -> None:
    path = tmp_path / "server.log"
    path.write_text(log)
    assert last_error(path) == expected


def test_a_server_that_ends_says_why_in_one_line(
    server: VllmServer, scripted: Callable[[str], None]
) -> None:
    scripted("crash")
    server.start()
    with pytest.raises(ServerError) as error:
        server.wait_ready(WAIT_S)
    assert str(error.value) == (
        f"engine_0: vLLM ended with status 1: ValueError: no room (log: {server.log_path})"
    )


def test_a_port_in_use_is_named(server: VllmServer) -> None:
    address = (server.options.host, server.options.port)
    expected = rf"\Aengine_0: port {address[1]} of 127\.0\.0\.1 is in use\Z"
    with socket.create_server(address), pytest.raises(ServerError, match=expected):
        server.start()


def test_a_program_that_is_not_there_is_named(model: Path, tmp_path: Path) -> None:
    options = ServerOptions(model=str(model), port=free_ports(1)[0], executable="/none/python3")
    with pytest.raises(ServerError, match="cannot start /none/python3"):
        VllmServer(options, tmp_path / "log").start()


def test_the_wait_for_a_server_is_bounded(server: VllmServer) -> None:
    server.start()
    with pytest.raises(ServerError, match="not ready after 0 s"):
        server.wait_ready(0.0)


# Priming


def test_a_primed_server_has_answered_from_its_cache(server: VllmServer) -> None:
    server.start()
    priming = server.wait_ready(WAIT_S)
    assert (priming.path, priming.cached_tokens) == ("/inference/v1/generate", 256)


def test_a_server_without_the_generate_endpoint_is_primed_by_completions(
    server: VllmServer, scripted: Callable[[str], None]
) -> None:
    scripted("no_generate")
    server.start()
    assert server.wait_ready(WAIT_S).path == "/v1/completions"


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("uncached", "does not report cached tokens"),
        ("refuse", r"refuses a decision \(400: max_tokens must be at least 1\)"),
    ],
)
def test_a_server_that_cannot_decide_from_its_cache_is_not_ready(
    server: VllmServer, scripted: Callable[[str], None], mode: str, expected: str
) -> None:
    scripted(mode)
    server.start()
    with pytest.raises(ServerError, match=rf"\Aengine_0: http://127\.0\.0\.1:\d+ {expected}"):
        server.wait_ready(WAIT_S)


# Who ends when


def test_stop_ends_the_server_and_its_engine_process(server: VllmServer) -> None:
    server.start()
    server.wait_ready(WAIT_S)
    assert server.identity is not None
    assert len(group_members(server.identity)) > 1
    server.stop()
    assert group_members(server.identity) == ()


def test_a_server_that_does_not_listen_is_killed(
    server: VllmServer, scripted: Callable[[str], None]
) -> None:
    scripted("deaf")
    server.start()
    server.wait_ready(WAIT_S)
    assert server.identity is not None
    server.stop(timeout_s=0.2)
    assert group_members(server.identity) == ()


def test_the_engine_process_ends_with_a_killed_server(server: VllmServer) -> None:
    server.start()
    server.wait_ready(WAIT_S)
    assert server.identity is not None
    assert len(group_members(server.identity)) > 1
    os.kill(server.identity.pid, signal.SIGKILL)
    leader = server.identity
    wait_until(lambda: not group_members(leader), "the end of the engine process")


OWNER = """
import sys, time
from pathlib import Path
from csr_policy.serving.server import ServerOptions, VllmServer
server = VllmServer(
    ServerOptions(model=sys.argv[1], port=int(sys.argv[2])),
    Path(sys.argv[1], "log"),
    detached=sys.argv[3] == "detached",
)
server.start()
server.wait_ready(60.0)
print(server.identity.pid, flush=True)
time.sleep(600)
"""


def killed_owner(model: Path, kind: str) -> ProcessId:
    """A server whose owner was killed with no chance to stop it."""
    arguments = [sys.executable, "-c", OWNER, str(model), str(free_ports(1)[0]), kind]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        leader = identify(int(owner.stdout.readline()))
        owner.kill()
    assert leader is not None
    return leader


@pytest.mark.usefixtures("scripted")
def test_a_server_ends_with_a_killed_owner(model: Path) -> None:
    leader = killed_owner(model, "owned")
    wait_until(lambda: not group_members(leader), "the end of the server")


@pytest.mark.usefixtures("scripted")
def test_a_detached_server_outlives_its_owner(model: Path) -> None:
    leader = killed_owner(model, "detached")
    try:
        # An owned server would have ended by now: its own watch is four times as quick.
        owned = killed_owner(model, "owned")
        wait_until(lambda: not group_members(owned), "the end of the owned server")
        assert alive(leader)
    finally:
        stop_group(leader, 5.0)


def test_a_recycled_process_id_is_not_signalled() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        found = identify(process.pid)
        assert found is not None
        earlier = ProcessId(process.pid, found.started_ticks - 1)
        assert stop_group(earlier, 0.0)
        assert process.poll() is None
        assert alive(found)
        assert not alive(earlier)
