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
"""Entry points of the demo and of a live replay, for the command line.

Both start what they need, show a live table, stop by themselves, and leave `decisions.csv`,
`summary.json` and `ttft.png`. To be called from the main thread. ROS is imported when a run
begins, so that the command line works without it.
"""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from csr_policy.demo.configuration import demo_configuration, replay_configuration
from csr_policy.parameters import SettingsError

ENVIRONMENT = "MiniGrid-SimpleCrossingS9N2-v0"
OK_DECISIONS = 120
SWAPS = 2
TIME_LIMIT_S = 300.0
BAG_MIN_DURATION_S = 60.0
BAG_TIME_LIMIT_S = 600.0
_FILES = ("decisions.csv", "summary.json", "ttft.png")
_ROS_MODULES = ("rclpy", "nav_msgs.msg", "sensor_msgs.msg", "csr_policy.msg")


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What a user may change of the demo.

    Attributes:
        environment: MiniGrid environment with a goal square.
        seed: Seed of the first room.
        ok_decisions: OK decisions after which it stops, once there were the swaps.
        swaps: Swaps after which it stops, once there were the decisions.
        time_limit_s: Longest time of the decisions, engines' start not counted.
    """

    environment: str = ENVIRONMENT
    seed: int = 1
    ok_decisions: int = OK_DECISIONS
    swaps: int = SWAPS
    time_limit_s: float = TIME_LIMIT_S


def run_demo(
    output: Path,
    bag: Path | None = None,
    options: DemoOptions | None = None,
    console: Console | None = None,
) -> int:
    """Run the demo: the robot in its world, or a recording.

    Args:
        output: Folder for the files; made where it is missing, older files are replaced.
        bag: A recording to play instead of the robot.
        options: What to change.
        console: Where to draw; None takes the terminal.

    Returns:
        Exit status: 0 with enough decisions, 1 without (the reason is printed), 130 after
        Ctrl-C.
    """
    if bag is not None:
        return run_replay_live(bag, None, output, console=console)
    chosen = options or DemoOptions()

    def run(screen: Console) -> int:
        from csr_policy.demo.scenes import RobotScene
        from csr_policy.demo.session import POLICY, Session, Target

        configuration = demo_configuration(_clean(output) / "journal.sqlite3")
        scene = RobotScene(chosen.environment, chosen.seed, POLICY)
        target = Target(chosen.ok_decisions, chosen.swaps, chosen.time_limit_s)
        explanation = (
            f"A robot in {chosen.environment} tells on ROS topics what it sees and drives where "
            "the model says. Its growing memory stays cached; when it is full, the oldest half "
            "goes while the other engine warms up, and the engines swap."
        )
        return Session(screen, output, scene, configuration, target, explanation).run()

    return _guarded("demo", console, run)


def run_replay_live(
    bag: Path,
    params_file: Path | None,
    output: Path,
    *,
    rate: float | None = None,
    console: Console | None = None,
) -> int:
    """Play a recording through ROS topics in front of the node.

    Args:
        bag: rosbag2 folder or file.
        params_file: The node's parameters; where it names no engines a pair is started, and
            where it names no observations they are made of the recording's topics.
        output: As for `run_demo`.
        rate: Seconds of the recording in one second; None takes 1, or less for a recording of
            under a minute.
        console: Where to draw; None takes the terminal.

    Returns:
        Exit status: 0 with at least one OK decision, 1 without (the reason is printed), 130
        after Ctrl-C.
    """

    def run(screen: Console) -> int:
        from csr_policy.demo.scenes import BagScene
        from csr_policy.demo.session import Session, Target

        scene = BagScene(bag, rate=rate, min_duration_s=BAG_MIN_DURATION_S)
        journal = _clean(output) / "journal.sqlite3"
        configuration = replay_configuration(params_file, scene.plan, journal)
        scene.observe(configuration.settings.observations)
        for line in _about_bag(scene):
            screen.print(line, highlight=False, markup=False, soft_wrap=True)
        target = Target(1, 0, BAG_TIME_LIMIT_S, until_finished=True)
        explanation = (
            f"The messages of {bag.name} are published on their topics; the policy reads them "
            "as text and decides once a second what the vehicle should do. Nobody obeys it here."
        )
        return Session(screen, output, scene, configuration, target, explanation).run()

    return _guarded("replay", console, run)


def _about_bag(scene: object) -> list[str]:
    from csr_policy.demo.scenes import BagScene

    assert isinstance(scene, BagScene)
    speed = f" at {scene.rate:g} times its speed" if scene.rate != 1.0 else ""
    if scene.slowed:
        speed += ", to give time for about one decision a second"
    lines = [
        f"recording of {scene.reader.duration_s:.1f} s, played in {scene.duration_s:.0f} s{speed};"
        f" {len(scene.plan.observations)} topics are observed"
    ]
    left_out = {**scene.playable.refused, **scene.plan.skipped}
    lines += [f"  not observed: {topic}: {reason}" for topic, reason in left_out.items()]
    return lines


def _guarded(name: str, console: Console | None, run: Callable[[Console], int]) -> int:
    """Turn what can go wrong into one line and an exit status."""
    screen = console or Console(highlight=False)
    for module in _ROS_MODULES:
        try:
            importlib.import_module(module)
        except ImportError as error:
            return _refuse(name, f"{error}; ROS 2 and the built package are needed: 'make build'")
    from csr_policy.demo.graph import GraphError
    from csr_policy.demo.node_process import NodeError
    from csr_policy.demo.session import SessionError
    from csr_policy.demo.world import WorldError
    from csr_policy.observation.bags import BagError
    from csr_policy.observation.templates import TemplateError
    from csr_policy.serving.command import ServerError
    from csr_policy.serving.models import ModelError

    try:
        return run(screen)
    except (
        BagError,
        GraphError,
        ModelError,
        NodeError,
        ServerError,
        SessionError,
        SettingsError,
        TemplateError,
        WorldError,
    ) as error:
        return _refuse(name, str(error))
    except OSError as error:
        return _refuse(name, f"{error.filename or 'a file'}: {error.strerror or error}")
    except KeyboardInterrupt:
        return 130


def _refuse(name: str, reason: str) -> int:
    print(f"csr-policy {name}: {reason}", file=sys.stderr)
    return 1


def _clean(output: Path) -> Path:
    """Make the folder, and remove what an earlier run left, so that nothing old is shown."""
    output.mkdir(parents=True, exist_ok=True)
    for name in _FILES:
        (output / name).unlink(missing_ok=True)
    for path in output.glob("journal.sqlite3*"):
        path.unlink()
    shutil.rmtree(output / "logs", ignore_errors=True)
    return output
