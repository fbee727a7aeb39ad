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
"""config/policy.yaml documents every parameter with its default."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from csr_policy.parameters import (
    Parameter,
    load_parameter_file,
    observation_table,
    parameter_table,
    settings_from_parameters,
)
from csr_policy.settings import Settings

PATH = Path(__file__).parents[2] / "config" / "policy.yaml"
GIVEN_IN_THE_EXAMPLE = {"topic": "odom", "type": "nav_msgs/msg/Odometry"}


def as_parameter(row: Parameter) -> object:
    return list(row.default) if isinstance(row.default, tuple) else row.default


def lines() -> list[str]:
    """Lines of the file, the commented block of one observation uncommented."""
    text = PATH.read_text(encoding="utf-8")
    head, mark, block = text.partition("    # observations:")
    uncommented = (line.removeprefix("    # ") for line in (mark + block).splitlines())
    return [*head.splitlines(), *uncommented]


def test_every_parameter_stands_there_with_its_default() -> None:
    expected = {row.name: as_parameter(row) for row in parameter_table()}

    assert load_parameter_file(PATH) == expected
    assert "autostart: true" in [line.strip() for line in lines()]


def test_every_parameter_of_an_observation_stands_in_the_example() -> None:
    expected = {row.name: as_parameter(row) for row in observation_table()}

    example = lines()
    document = yaml.safe_load("\n".join(example[example.index("observations:") :]))

    assert document["observations"]["odom"] == expected | GIVEN_IN_THE_EXAMPLE


@pytest.mark.parametrize("row", [*parameter_table(), *observation_table()], ids=lambda r: r.name)
def test_every_parameter_is_described_above_its_line(row: Parameter) -> None:
    leaf = row.name.rpartition(".")[2]
    stripped = [line.strip() for line in lines()]
    places = [number for number, line in enumerate(stripped) if line.startswith(f"{leaf}: ")]

    assert places
    assert all(stripped[number - 1].startswith("# ") for number in places)


def test_the_file_is_valid() -> None:
    assert settings_from_parameters(load_parameter_file(PATH)) == Settings()
