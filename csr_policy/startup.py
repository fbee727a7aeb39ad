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
"""Looks for the Python requirements before anything imports them.

A ROS 2 installation does not bring them (Ubuntu 24.04's own pydantic is version 1), and
`ros2 launch` would end in a traceback. Only the standard library is imported here, so that
the look itself cannot fail for the same reason.
"""

import re
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import NamedTuple


class Requirement(NamedTuple):
    """A distribution and the oldest version, as numbers, that will do."""

    name: str
    oldest: tuple[int, ...]

    def __str__(self) -> str:
        """Write it as pip does."""
        return f"{self.name}>={'.'.join(map(str, self.oldest))}"


ROBOT = (
    Requirement("jinja2", (3, 1)),
    Requirement("numpy", (1, 26)),
    Requirement("pydantic", (2, 7)),
    Requirement("pyyaml", (6, 0)),
    Requirement("tokenizers", (0, 20)),
    Requirement("transformers", (5, 0)),
    Requirement("urllib3", (2, 0)),
)
"""What the node needs."""

COMMAND = (
    *ROBOT,
    Requirement("backports.zstd", (1, 0)),
    Requirement("lz4", (4, 0)),
    Requirement("matplotlib", (3, 6)),
    Requirement("rich", (13, 0)),
    Requirement("rosbags", (0, 11)),
    Requirement("scipy", (1, 11)),
    Requirement("typer", (0, 15)),
)
"""What the command line needs."""


def robot_requirements_problem() -> str:
    """Say in one line which requirement of the node is missing; empty where none is."""
    return _problem(ROBOT)


def command_requirements_problem() -> str:
    """Say in one line which requirement of the command line is missing; empty where none is."""
    return _problem(COMMAND)


def _problem(requirements: tuple[Requirement, ...]) -> str:
    for requirement in requirements:
        found = _installed_version(requirement.name)
        if found is None or _numbers(found) < requirement.oldest:
            state = "none is installed" if found is None else f"{found} is installed"
            return (
                f"missing Python requirement '{requirement}' ({state}): run "
                f"pip install -r {requirements_file()} in the node's environment, "
                "as README says"
            )
    return ""


def _installed_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    release = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, release.group().split("."))) if release else ()


def requirements_file() -> Path:
    """Find `requirements/robot.txt`: in the package's share folder, else in the source."""
    relative = Path("requirements", "robot.txt")
    here = Path(__file__).resolve()
    candidates = [
        *(parent / "share" / "csr_policy" / relative for parent in here.parents),
        here.parent.parent / relative,
        Path(sysconfig.get_path("data"), "share", "csr_policy", relative),
    ]
    return next((path for path in candidates if path.is_file()), relative)
