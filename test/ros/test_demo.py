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
"""The demo in a real graph: its robot, its player, and whole runs that leave nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from nav_msgs.msg import Odometry
from recordings import shared_bag, write_bag
from scripted_engine import ScriptedEngine, serving
from sensor_msgs.msg import BatteryState
from std_msgs.msg import String

pytest.importorskip("minigrid", reason="MiniGrid is not installed; see requirements/demo.txt")

from csr_policy.demo.bag_player import BagPlayer, playable_topics
from csr_policy.demo.robot import RobotNode
from csr_policy.demo.world import World
from csr_policy.observation.bags import BagReader
from csr_policy.serving.processes import ProcessId, group_members, identify

REPOSITORY = Path(__file__).parents[2]
PATIENCE_S = 120.0
ENGINES_PATIENCE_S = 300.0


@pytest.fixture
def demo_robot(robot, graph) -> Iterator[RobotNode]:
    node = RobotNode(World("MiniGrid-Empty-5x5-v0", seed=0), policy="/csr_policy", context=graph)
    robot.executor.add_node(node)
    yield node
    robot.executor.remove_node(node)
    node.destroy_node()


def listen(robot, message_class: type, topic: str) -> list[Any]:
    heard: list[Any] = []
    robot.node.create_subscription(message_class, topic, heard.append, 10)
    return heard


def test_the_robot_drives_where_the_action_says_and_tells_the_result(robot, demo_robot):
    results = listen(robot, String, "/csr_policy/action_result")
    odometry = listen(robot, Odometry, "/robot/odom")
    actions = robot.publisher(String, "/csr_policy/action")
    robot.wait_for(lambda: odometry, "odometry before any action")
    before = odometry[-1].pose.pose.position.x

    actions.publish(String(data="E"))

    robot.wait_for(lambda: results, "a result")
    robot.wait_for(lambda: odometry[-1].pose.pose.position.x > before, "odometry of the move")
    assert results[0].data == "drove E"
    assert odometry[-1].pose.pose.position.x == pytest.approx(before + 0.5)


def test_the_robot_refuses_what_it_cannot_do_and_goes_on(robot, demo_robot):
    results = listen(robot, String, "/csr_policy/action_result")
    actions = robot.publisher(String, "/csr_policy/action")

    actions.publish(String(data="fly"))
    actions.publish(String(data="S"))

    robot.wait_for(lambda: len(results) == 2, "two results")
    assert results[0].data.startswith("refused: action: 'fly'; expected one of N, E, S, W")
    assert results[1].data == "drove S"


def test_the_robot_tells_what_it_sees_without_being_asked(robot, demo_robot):
    views = listen(robot, String, "/robot/view")
    batteries = listen(robot, BatteryState, "/robot/battery")

    robot.wait_for(lambda: views and batteries, "a view and a battery state")

    assert views[0].data == demo_robot.world.view()
    assert 0.9 < batteries[0].percentage <= 1.0


def test_the_player_publishes_every_message_in_order(robot, tmp_path):
    bag = write_bag(tmp_path / "bag", [number * 10_000_000 for number in range(30)])
    heard = listen(robot, String, "/talk")
    with BagReader(bag) as reader:
        player = BagPlayer(robot.node, reader, playable_topics(reader), {}, rate=1.0)
        robot.wait_for(lambda: robot.node.count_subscribers("/talk"), "the subscription")

        player.start()

        robot.wait_for(lambda: player.finished and len(heard) == 30, "all messages")
        player.stop()
    assert [message.data for message in heard] == [str(number) for number in range(30)]
    assert (player.published, player.failure) == (30, "")


def test_a_stopped_player_publishes_no_more(robot, tmp_path):
    bag = write_bag(tmp_path / "bag", [0, 3_600_000_000_000])
    with BagReader(bag) as reader:
        player = BagPlayer(robot.node, reader, playable_topics(reader), {}, rate=1.0)
        player.start()
        robot.wait_for(lambda: player.published == 1, "the first message")

        player.stop()

        assert player.finished
        assert player.published == 1


def test_types_without_python_support_are_named_with_the_reason():
    with BagReader(shared_bag("cougars_SO_bag")) as reader:
        playable = playable_topics(reader)

    assert playable.types["/coug2/odom"] == "nav_msgs/msg/Odometry"
    assert "no Python support" in playable.refused["/coug2/dvl/data"]
    assert "the policy writes to as well" in playable.refused["/rosout"]


@pytest.fixture
def scripted_parameters(tiny_folder, tmp_path) -> Iterator[dict[str, object]]:
    """A parameter file's content with engines that answer at once."""
    with serving(ScriptedEngine(str(tiny_folder / "tokenizer.json"))) as engine:
        yield {
            "engines": [engine.url],
            "tokenizer": str(tiny_folder),
            "actions": ["go", "stop"],
            "decision.rate_hz": 4.0,
        }


class Run:
    """A run of the demo in a process of its own, in the session of its own."""

    def __init__(self, statements: str, log_path: Path) -> None:
        self.log_path = log_path
        with log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", statements],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=REPOSITORY,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, condition: Callable[[], Any], what: str, limit_s: float) -> Any:
        until_s = time.monotonic() + limit_s
        while not (found := condition()):
            assert self.process.poll() is None, f"ended before {what}:\n{self.log}"
            assert time.monotonic() < until_s, f"never came: {what}\n{self.log}"
            time.sleep(0.1)
        return found


@pytest.fixture
def run(tmp_path) -> Iterator[Callable[[str], Run]]:
    runs: list[Run] = []

    def start(statements: str) -> Run:
        runs.append(Run(statements, tmp_path / f"run_{len(runs)}.log"))
        return runs[-1]

    yield start
    for one in runs:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def children(pid: int) -> list[ProcessId]:
    """Processes that a process has started; each leads a group of its own here."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "status").read_text(encoding="utf-8")
            except OSError:
                continue
            if f"\nPPid:\t{pid}\n" in status and (child := identify(int(entry.name))):
                found.append(child)
    return found


def replay_statements(bag: Path, parameters: Path, output: Path, rate: float) -> str:
    return (
        "import sys\nfrom pathlib import Path\n"
        "from csr_policy.demo.run import run_replay_live\n"
        f"sys.exit(run_replay_live(Path({str(bag)!r}), Path({str(parameters)!r}), "
        f"Path({str(output)!r}), rate={rate}))"
    )


def written(values: dict[str, object], file: Path) -> Path:
    file.write_text(yaml.safe_dump({"/**": {"ros__parameters": values}}), encoding="utf-8")
    return file


def test_a_recording_is_read_through_topics_and_leaves_its_files(
    run, scripted_parameters, tmp_path
):
    file = written(scripted_parameters, tmp_path / "given.yaml")
    output = tmp_path / "out"
    started = run(replay_statements(shared_bag("cougars_SO_bag"), file, output, rate=4.0))

    status = started.process.wait(PATIENCE_S)

    assert status == 0, started.log
    summary = json.loads((output / "summary.json").read_text(encoding="utf-8"))
    assert sum(summary["outcomes"].values()) == summary["ticks"]
    assert summary["outcomes"]["OK"] >= 10
    assert len(summary["topics_in_prompt"]) >= 8
    assert "no Python support" in summary["topics_not_played"]["/coug2/dvl/data"]
    assert len((output / "decisions.csv").read_text().splitlines()) == summary["ticks"] + 1
    assert (output / "ttft.png").stat().st_size > 0


def test_a_killed_run_leaves_no_node(run, scripted_parameters, tmp_path):
    bag = write_bag(tmp_path / "bag", [0, 3_600_000_000_000])
    file = written(scripted_parameters, tmp_path / "given.yaml")
    output = tmp_path / "out"
    started = run(replay_statements(bag, file, output, rate=1.0))
    started.wait_for(lambda: "observation" in started.log, "the table", PATIENCE_S)
    (node,) = children(started.process.pid)

    started.process.send_signal(signal.SIGKILL)
    started.process.wait()

    until_s = time.monotonic() + PATIENCE_S
    while group_members(node):
        assert time.monotonic() < until_s, "the node outlives the demo"
        time.sleep(0.1)


def test_a_recording_that_is_not_there_is_one_line(run, scripted_parameters, tmp_path):
    file = written(scripted_parameters, tmp_path / "given.yaml")
    started = run(replay_statements(tmp_path / "nowhere", file, tmp_path / "out", rate=1.0))

    assert started.process.wait(PATIENCE_S) == 1
    assert "nowhere" in started.log
    assert len(started.log.splitlines()) == 1


def test_parameters_that_the_node_would_refuse_are_one_line(run, scripted_parameters, tmp_path):
    bag = write_bag(tmp_path / "bag", [0, 1_000_000_000])
    file = written(scripted_parameters | {"decision.rate_hz": -1.0}, tmp_path / "given.yaml")
    started = run(replay_statements(bag, file, tmp_path / "out", rate=1.0))

    assert started.process.wait(PATIENCE_S) == 1
    assert started.log.strip().startswith("csr-policy replay: parameter 'decision.rate_hz'")
    assert len(started.log.splitlines()) == 1


def test_the_demo_decides_on_real_engines_and_an_interrupt_leaves_nothing(run, tmp_path):
    pytest.importorskip("vllm", reason="vLLM is not installed here")
    output = tmp_path / "out"
    started = run(
        "import sys\nfrom pathlib import Path\nfrom csr_policy.demo.run import run_demo\n"
        f"sys.exit(run_demo(Path({str(output)!r})))"
    )
    reply = re.compile(r"[NESW] +\d\.\d\d +\d+\.\d\d s +\d+ %")
    started.wait_for(lambda: reply.search(started.log), "a decision", ENGINES_PATIENCE_S)
    owned = children(started.process.pid)
    assert len(owned) == 3, "two servers and the node"

    started.process.send_signal(signal.SIGINT)
    status = started.process.wait(PATIENCE_S)

    assert status == 130, started.log
    assert [group_members(child) for child in owned] == [(), (), ()]
    summary = json.loads((output / "summary.json").read_text(encoding="utf-8"))
    assert sum(summary["outcomes"].values()) == summary["ticks"]
    assert summary["outcomes"]["OK"] >= 1
    assert "/robot/beacon" in summary["topics_in_prompt"]
