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
"""Launches the two vLLM servers of a policy: one a GPU, or one a processor core.

    ros2 launch csr_policy engines.launch.py model:=Qwen/Qwen3-8B executable:=/opt/vllm/bin/python
    ros2 launch csr_policy engines.launch.py model:=models/smollm2-135m-instruct device:=cpu

The API key, if any, is taken from the environment variable that api_key_env names.
"""

import os

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, ExecuteProcess, LogInfo, OpaqueFunction
from launch.launch_description_entity import LaunchDescriptionEntity

from csr_policy.serving.command import server_command
from csr_policy.serving.launch_options import servers_of_launch

ARGUMENTS = {
    "device": ("gpu", "where the engines run: gpu or cpu"),
    "gpus": ("0 1", "GPUs of the engines; '0,1 2,3' gives each engine two"),
    "cores": ("0 1", "processor cores of the engines, where device is cpu"),
    "host": ("127.0.0.1", "address the engines listen on"),
    "ports": ("8001 8002", "ports of the engines; one port alone makes a degraded policy"),
    "max_model_len": ("0", "longest prompt in tokens; 0 takes the model's"),
    "gpu_memory_utilization": ("0.9", "share of each GPU's memory that vLLM takes"),
    "api_key_env": ("CSR_POLICY_API_KEY", "environment variable with the API key"),
    "executable": (
        "",
        "Python that has vLLM, or the vllm command; empty takes $CSR_POLICY_VLLM_PYTHON, else "
        "the Python of this launch",
    ),
    "extra_arguments": ("", "more arguments for both servers, as on a command line"),
    "respawn": ("false", "start again what ended by itself: true or false"),
}
"""Default and description by name."""

CHOICES = {"device": ["gpu", "cpu"], "respawn": ["true", "false"]}

STOP_S = "5"
"""How long a server may take to end before it gets the next, harder signal."""


def servers(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    """One process for each engine."""
    arguments = context.launch_configurations
    options = servers_of_launch(arguments, owner_pid=os.getpid())
    actions: list[LaunchDescriptionEntity] = []
    if options[0].api_key is None and options[0].host != "127.0.0.1":
        actions.append(
            LogInfo(
                msg=f"engines: no API key in ${arguments['api_key_env']}: whoever reaches "
                f"{options[0].host} can use them"
            )
        )
    for server in options:
        command, environment = server_command(server)
        actions.append(
            ExecuteProcess(
                cmd=command,
                # vLLM's environment is its own: what ROS 2 put on this one's path stays out.
                additional_env=environment | {"PYTHONPATH": ""},
                name=server.name,
                output="screen",
                respawn=arguments["respawn"] == "true",
                respawn_delay=2.0,
                sigterm_timeout=STOP_S,
                sigkill_timeout=STOP_S,
            )
        )
    return actions


def generate_launch_description() -> LaunchDescription:
    """Describe the launch."""
    model = DeclareLaunchArgument("model", description="folder or name of the model")
    arguments = [
        DeclareLaunchArgument(
            name, default_value=default, description=description, choices=CHOICES.get(name)
        )
        for name, (default, description) in ARGUMENTS.items()
    ]
    return LaunchDescription([model, *arguments, OpaqueFunction(function=servers)])
