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
"""Launches the policy's node and, where asked, the two engines it needs.

    ros2 launch csr_policy policy.launch.py params_file:=robot.yaml
    ros2 launch csr_policy policy.launch.py params_file:=robot.yaml engines:=true model:=/models/m

The node starts without waiting for the engines: it is NOT_READY until one is primed.
"""

from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription, OpaqueFunction
from launch.conditions import IfCondition
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from csr_policy.serving.launch_options import tokenizer_of_model

SHARE = Path(get_package_share_directory("csr_policy"))


def arguments() -> list[DeclareLaunchArgument]:
    """What can be given as name:=value."""
    return [
        DeclareLaunchArgument(
            "params_file",
            default_value=str(SHARE / "config" / "policy.yaml"),
            description="parameter file of the node",
        ),
        DeclareLaunchArgument(
            "extra_params_file",
            default_value="",
            description="parameter file that wins over params_file; empty: none",
        ),
        DeclareLaunchArgument("namespace", default_value="", description="namespace of the node"),
        DeclareLaunchArgument(
            "use_sim_time",
            default_value="false",
            choices=["true", "false"],
            description="take ROS time from /clock",
        ),
        DeclareLaunchArgument(
            "log_level",
            default_value="info",
            choices=["debug", "info", "warn", "error", "fatal"],
            description="lowest level that the node logs",
        ),
        DeclareLaunchArgument(
            "respawn",
            default_value="false",
            choices=["true", "false"],
            description="start again what ended by itself; with journal.resume the node goes on "
            "where it was",
        ),
        DeclareLaunchArgument(
            "tokenizer",
            default_value="",
            description="folder with the model's tokenizer; empty: as in params_file, or the "
            "folder given as model",
        ),
        DeclareLaunchArgument(
            "engines",
            default_value="false",
            choices=["true", "false"],
            description="start the two engines too, with the arguments of engines.launch.py",
        ),
        DeclareLaunchArgument(
            "model", default_value="", description="folder or name of the engines' model"
        ),
    ]


def node(context: LaunchContext) -> list[Node]:
    """The node, with what the arguments say over what the parameter file says."""

    def given(name: str) -> str:
        return context.launch_configurations.get(name, "")

    overrides: dict[str, object] = {"use_sim_time": given("use_sim_time") == "true"}
    tokenizer = given("tokenizer")
    if given("engines") == "true":
        ports = given("ports").split()
        overrides["engines"] = [f"http://127.0.0.1:{port}" for port in ports]
        overrides["engine.api_key_env"] = given("api_key_env")
        tokenizer = tokenizer or tokenizer_of_model(given("model"))
    if tokenizer:
        overrides["tokenizer"] = tokenizer
    files = [file for file in (given("params_file"), given("extra_params_file")) if file]
    return [
        Node(
            package="csr_policy",
            executable="policy_node",
            name="csr_policy",
            namespace=given("namespace"),
            parameters=[*files, overrides],
            arguments=["--ros-args", "--log-level", given("log_level")],
            output="screen",
            emulate_tty=True,
            respawn=given("respawn") == "true",
            respawn_delay=2.0,
        )
    ]


def generate_launch_description() -> LaunchDescription:
    """Describe the launch."""
    engines = IncludeLaunchDescription(
        str(SHARE / "launch" / "engines.launch.py"),
        # The other arguments of engines.launch.py have defaults and pass through as they are.
        launch_arguments=[("model", LaunchConfiguration("model"))],
        condition=IfCondition(LaunchConfiguration("engines")),
    )
    return LaunchDescription([*arguments(), engines, OpaqueFunction(function=node)])
