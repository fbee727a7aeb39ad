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
"""Launches the policy and, once it is ready, plays a recording to it on the recording's clock.

    ros2 launch csr_policy replay.launch.py bag:=rosbag2_2026_01_01 tokenizer:=/models/m

Where params_file names no observations, they are made from the recording's topics. All the
arguments of policy.launch.py are taken too. Everything ends with the recording.
"""

import importlib.util
import subprocess
from pathlib import Path

from ament_index_python.packages import get_package_prefix, get_package_share_directory
from launch import LaunchContext, LaunchDescription
from launch.actions import (
    DeclareLaunchArgument,
    ExecuteProcess,
    IncludeLaunchDescription,
    LogInfo,
    OpaqueFunction,
    RegisterEventHandler,
    Shutdown,
)
from launch.event_handlers import OnProcessExit
from launch.events.process import ProcessExited
from launch.launch_description_entity import LaunchDescriptionEntity
from launch.logging import launch_config
from launch_ros.actions import Node

SHARE = Path(get_package_share_directory("csr_policy"))
COMMANDS = Path(get_package_prefix("csr_policy"), "lib", "csr_policy")
READING_S = 120
"""How long the look at the recording's topics may take."""


def arguments() -> list[DeclareLaunchArgument]:
    """What can be given as name:=value besides policy.launch.py's own."""
    return [
        DeclareLaunchArgument("bag", description="rosbag2 folder, or one .mcap or .db3 file"),
        DeclareLaunchArgument(
            "rate", default_value="1.0", description="seconds of the recording in one second"
        ),
        DeclareLaunchArgument(
            "player",
            default_value="auto",
            choices=["auto", "rosbag2", "csr_policy"],
            description="rosbag2 is 'ros2 bag play --clock'; csr_policy is this package's own, "
            "for where rosbag2 is not installed; auto takes rosbag2 where it is",
        ),
        DeclareLaunchArgument(
            "ready_timeout_s",
            default_value="300",
            description="longest time until the policy is ready",
        ),
        DeclareLaunchArgument(
            "params_file",
            default_value=str(SHARE / "config" / "demo_bag.yaml"),
            description="parameter file of the node",
        ),
    ]


def add_observations(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    """Write what is to be observed, for the node to read beside its parameter file."""
    given = context.launch_configurations
    file = Path(launch_config.log_dir, "observations.yaml")
    # In a process of its own: `ros2 launch` runs in the system's Python, which need not have
    # what the node's environment has.
    command = [str(COMMANDS / "bag_parameters"), given["bag"], str(file)]
    command += ["--params-file", given["params_file"], "--rate", given["rate"]]
    run = subprocess.run(
        command, stderr=subprocess.PIPE, text=True, timeout=READING_S, check=False
    )
    if run.returncode:
        lines = run.stderr.strip().splitlines() or ["bag_parameters failed"]
        raise RuntimeError(lines[-1])
    given["extra_params_file"] = str(file)
    return [LogInfo(msg=line) for line in run.stderr.splitlines()]


def player(context: LaunchContext) -> ExecuteProcess:
    """The process that plays the recording."""
    given = context.launch_configurations
    rosbag2 = importlib.util.find_spec("ros2bag") is not None
    if given["player"] == "rosbag2" or (given["player"] == "auto" and rosbag2):
        command = ["ros2", "bag", "play", "--clock", "40", "--rate", given["rate"], given["bag"]]
    else:
        command = [str(COMMANDS / "play_bag"), given["bag"], "--rate", given["rate"]]
    return ExecuteProcess(cmd=command, name="player", output="screen")


def sequence(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    """Wait for the policy, play, end."""
    given = context.launch_configurations
    if given["player"] == "rosbag2" and importlib.util.find_spec("ros2bag") is None:
        raise RuntimeError(
            "player: is rosbag2, which is not installed; expected ros2bag and a storage plugin, "
            "or player:=csr_policy"
        )
    waiting = Node(
        package="csr_policy",
        executable="wait_ready",
        namespace=given["namespace"],
        arguments=["--timeout-s", given["ready_timeout_s"]],
        output="screen",
    )
    playing = player(context)

    def after_waiting(event: ProcessExited, _: LaunchContext) -> list[LaunchDescriptionEntity]:
        if event.returncode:
            return [Shutdown(reason="the policy did not become ready")]
        return [playing]

    def is_node(action: ExecuteProcess) -> bool:
        return isinstance(action, Node) and action.node_executable == "policy_node"

    ended = Shutdown(reason="the recording has ended")
    failed = Shutdown(reason="the policy's node has ended")
    return [
        RegisterEventHandler(OnProcessExit(target_action=waiting, on_exit=after_waiting)),
        RegisterEventHandler(OnProcessExit(target_action=playing, on_exit=[ended])),
        RegisterEventHandler(OnProcessExit(target_action=is_node, on_exit=[failed])),
        waiting,
    ]


def generate_launch_description() -> LaunchDescription:
    """Describe the launch."""
    policy = IncludeLaunchDescription(
        str(SHARE / "launch" / "policy.launch.py"),
        launch_arguments=[("use_sim_time", "true")],
    )
    return LaunchDescription(
        [
            *arguments(),
            OpaqueFunction(function=add_observations),
            policy,
            OpaqueFunction(function=sequence),
        ]
    )
