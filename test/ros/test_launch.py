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
"""The launch files, with the real `ros2 launch` and `ros2 topic pub`, on real engines.

There are no wheels of launch_ros and ros2cli: this runs where ROS 2 is installed.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
BAG = ROOT.parent / "shared" / "data" / "bags" / "cougars_SO_bag"
MARK = "CSR_POLICY_LAUNCH_TEST"
STOP_S = 60.0
ENGINES_START_S = 400.0
POLL_S = 0.2

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        importlib.util.find_spec("launch_ros") is None or shutil.which("ros2") is None,
        reason="launch_ros and ros2cli are not installed (ROS 2 has no wheels of them)",
    ),
]


@dataclass
class Launched:
    """One `ros2` command and all that it started."""

    process: subprocess.Popen[bytes]
    mark: str
    log_path: Path

    @property
    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def left(self) -> list[str]:
        """Command lines of the processes that carry its mark, orphans included."""
        found = []
        for folder in Path("/proc").iterdir():
            try:
                if f"{MARK}={self.mark}".encode() in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue  # not a process, or it has just ended
        return [line for line in found if line]

    def interrupt(self) -> int:
        """SIGINT to it alone, as a supervisor does."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(STOP_S)


@contextmanager
def ros2(log_path: Path, *arguments: str, **environment: str) -> Iterator[Launched]:
    mark = uuid.uuid4().hex
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            ["ros2", *arguments],
            cwd=log_path.parent,
            env={**os.environ, **environment, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    launched = Launched(process, mark, log_path)
    try:
        yield launched
    finally:
        if process.poll() is None:
            launched.interrupt()


def wait_until(condition: Callable[[], Any], limit_s: float, launched: Launched) -> None:
    until = time.monotonic() + limit_s
    while not condition():
        assert launched.process.poll() is None, launched.log
        assert time.monotonic() < until, launched.log
        time.sleep(POLL_S)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def answers(port: int, key: str) -> bool:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/models", headers={"Authorization": f"Bearer {key}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=2) as reply:
            return reply.status == 200
    except (urllib.error.URLError, OSError):
        return False


@dataclass(frozen=True)
class Engines:
    """What engines.launch.py serves."""

    ports: tuple[int, int]
    key: str
    launched: Launched


@pytest.fixture(scope="module")
def engines(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    ports = (free_port(), free_port())
    key = uuid.uuid4().hex
    arguments = [f"model:={tiny_folder}", "device:=cpu", "max_model_len:=16384"]
    with ros2(
        tmp_path_factory.mktemp("engines") / "log",
        *("launch", "csr_policy", "engines.launch.py", *arguments),
        f"ports:={ports[0]} {ports[1]}",
        CSR_POLICY_API_KEY=key,
    ) as launched:
        wait_until(lambda: all(answers(port, key) for port in ports), ENGINES_START_S, launched)
        yield Engines(ports, key, launched)
    assert launched.left() == []


@pytest.fixture
def params_file(engines: Engines, tiny_folder: Path, tmp_path: Path) -> Path:
    file = tmp_path / "params.yaml"
    parameters = {
        "engines": [f"http://127.0.0.1:{port}" for port in engines.ports],
        "tokenizer": str(tiny_folder),
        "actions": ["wait", "go", "turn"],
        "decision": {"rate_hz": 2.0},
        "observation_sources": ["odom"],
        "observations": {"odom": {"topic": "odom", "type": "nav_msgs/msg/Odometry"}},
    }
    file.write_text(yaml.safe_dump({"/**": {"ros__parameters": parameters}}))
    return file


def test_decides_on_what_topic_pub_publishes_and_leaves_no_process(
    engines: Engines, params_file: Path, make_robot: Callable[..., Any], tmp_path: Path
) -> None:
    robot = make_robot("/lab/csr_policy")
    odometry = "{pose: {pose: {position: {x: 1.5}}}, twist: {twist: {linear: {x: 0.3}}}}"
    with (
        ros2(
            tmp_path / "policy.log",
            *("launch", "csr_policy", "policy.launch.py", "namespace:=lab"),
            f"params_file:={params_file}",
            CSR_POLICY_API_KEY=engines.key,
        ) as policy,
        ros2(
            tmp_path / "pub.log",
            *("topic", "pub", "-r", "2", "/lab/odom", "nav_msgs/msg/Odometry", odometry),
        ) as publisher,
    ):
        robot.wait_until_ready()
        robot.wait_for(
            lambda: (
                sum(d.outcome == d.OK and d.last_chunk_index >= 0 for d in robot.decisions) >= 20
            ),
            "20 OK decisions on observations",
        )
        publisher.interrupt()
        policy.interrupt()
    assert policy.left() == [], policy.log
    assert publisher.left() == []
    assert "process has finished cleanly" in policy.log
    assert robot.decisions[-1].header.stamp.sec > 0


def test_replays_a_recording_on_its_clock_and_ends_with_it(
    engines: Engines, params_file: Path, make_robot: Callable[..., Any], tmp_path: Path
) -> None:
    if not BAG.is_dir():
        pytest.skip(f"needs the recording {BAG}")
    text = yaml.safe_load(params_file.read_text())
    for name in ("observation_sources", "observations"):
        del text["/**"]["ros__parameters"][name]
    params_file.write_text(yaml.safe_dump(text))
    robot = make_robot()
    with ros2(
        tmp_path / "replay.log",
        *("launch", "csr_policy", "replay.launch.py", f"bag:={BAG}"),
        f"params_file:={params_file}",
        CSR_POLICY_API_KEY=engines.key,
    ) as replay:
        robot.wait_until_ready()
        robot.wait_for(lambda: replay.process.poll() is not None, "the recording's end")
    on_recording = [
        d for d in robot.decisions if d.outcome == d.OK and d.header.stamp.sec // 10**6 == 1744
    ]
    assert len(on_recording) >= 15, replay.log
    assert on_recording[-1].last_chunk_index > on_recording[0].last_chunk_index
    assert replay.left() == [], replay.log


def test_a_recording_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with ros2(
        tmp_path / "replay.log", "launch", "csr_policy", "replay.launch.py", "bag:=/nowhere"
    ) as replay:
        assert replay.process.wait(STOP_S) == 1
    (line,) = [line for line in replay.log.splitlines() if "[ERROR]" in line]
    assert "/nowhere" in line
    assert replay.left() == []


def test_the_launch_gives_the_two_servers_a_gpu_each() -> None:
    from launch import LaunchContext
    from launch.utilities import perform_substitutions

    launch_file = runpy.run_path(str(ROOT / "launch" / "engines.launch.py"))
    context = LaunchContext()
    context.launch_configurations["model"] = "some/model"
    for name, (default, _) in launch_file["ARGUMENTS"].items():
        context.launch_configurations[name] = default
    variables = [
        {
            perform_substitutions(context, name): perform_substitutions(context, value)
            for name, value in action.additional_env
        }
        for action in launch_file["servers"](context)
    ]
    assert [item["CUDA_VISIBLE_DEVICES"] for item in variables] == ["0", "1"]
