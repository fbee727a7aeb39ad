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
"""From the words of engines.launch.py's arguments to the options of its servers.

It stands here and not in the launch file so that it can be used and tested where ROS 2's launch
is not installed. Only the standard library and this folder are imported: `ros2 launch` runs in
the system's Python.
"""

import os
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from csr_policy.serving.command import ServerError, ServerOptions, default_executable

MAX_ENGINES = 2


def servers_of_launch(
    arguments: Mapping[str, str], *, owner_pid: int | None = None
) -> tuple[ServerOptions, ...]:
    """Read the arguments of engines.launch.py.

    Args:
        arguments: All its arguments by name, as text. `ports` has one port for each engine;
            `gpus` (or `cores`, where `device` is cpu) has as many entries.
        owner_pid: Process that the servers end with.

    Returns:
        One server for each port, the primary at start first.

    Raises:
        ServerError: An argument cannot be used; one line that names it.
    """
    if not arguments["model"]:
        raise ServerError("model: is empty; expected the folder or name of a model")
    ports = [_number(port, "ports") for port in arguments["ports"].split()]
    if not 1 <= len(ports) <= MAX_ENGINES or len(set(ports)) != len(ports):
        raise ServerError(f"ports: is {arguments['ports']!r}; expected two different ports")
    on_gpus = arguments["device"] == "gpu"
    places = _places(arguments, "gpus" if on_gpus else "cores", len(ports))
    executable = _executable(arguments["executable"])
    api_key = os.environ.get(arguments["api_key_env"], "").strip() or None
    return tuple(
        ServerOptions(
            model=arguments["model"],
            port=port,
            name=f"engine_{number}",
            host=arguments["host"],
            api_key=api_key,
            max_model_len=_number(arguments["max_model_len"], "max_model_len"),
            gpus=place if on_gpus else (),
            gpu_memory_utilization=_share(arguments["gpu_memory_utilization"]),
            cores=() if on_gpus else place,
            executable=executable,
            owner_pid=owner_pid,
            extra_arguments=tuple(shlex.split(arguments["extra_arguments"])),
        )
        for number, (port, place) in enumerate(zip(ports, places, strict=True))
    )


def tokenizer_of_model(model: str) -> str:
    """Take the model's own tokenizer where the model is a folder here; empty otherwise."""
    folder = Path(model).expanduser()
    return str(folder) if model and folder.is_dir() else ""


def _places(arguments: Mapping[str, str], name: str, count: int) -> list[tuple[int, ...]]:
    """Split "0 1" or, several to an engine, "0,1 2,3"."""
    places = [
        tuple(_number(index, name) for index in place.split(","))
        for place in arguments[name].split()
    ]
    if len(places) != count:
        raise ServerError(
            f"{name}: is {arguments[name]!r}; expected {count} entries, one for each of ports"
        )
    return places


def _executable(name: str) -> str:
    executable = name or default_executable()
    if shutil.which(Path(executable).expanduser()) is None:
        raise ServerError(
            f"executable: there is no program {executable!r}; expected the Python that has vLLM"
        )
    return str(Path(executable).expanduser()) if os.sep in executable else executable


def _number(text: str, name: str) -> int:
    if not text.isdecimal():
        raise ServerError(f"{name}: {text!r} is not a number; expected digits")
    return int(text)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ServerError(f"gpu_memory_utilization: is {text!r}; expected more than 0, at most 1")
    return share
