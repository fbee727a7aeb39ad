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
"""Settings from flat parameters: one line for everything that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from csr_policy.parameters import (
    SettingsError,
    flat_parameters,
    load_parameter_file,
    observation_table,
    parameter_table,
    settings_from_parameters,
)
from csr_policy.settings import Settings

ODOM = {
    "observation_sources": ["odom"],
    "observations.odom.topic": "odom",
    "observations.odom.type": "nav_msgs/msg/Odometry",
}


def test_no_parameters_are_the_defaults() -> None:
    assert settings_from_parameters({}) == Settings()


def test_flat_parameters_are_the_inverse() -> None:
    settings = settings_from_parameters({**ODOM, "decision.rate_hz": 4, "actions": ["a", "b"]})
    assert settings_from_parameters(flat_parameters(settings)) == settings


def test_an_integer_is_taken_for_a_float() -> None:
    assert settings_from_parameters({"decision.rate_hz": 4}).decision.rate_hz == 4.0


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (
            {"decision.rate": 1},
            "parameter 'decision.rate': is unknown; the nearest is 'decision.rate_hz'",
        ),
        (
            {"decision.rate_hz": 99},
            "parameter 'decision.rate_hz': is 99.0; expected float [0.05, 50]",
        ),
        (
            {"decision.rate_hz": "fast"},
            "parameter 'decision.rate_hz': is 'fast'; expected float [0.05, 50]",
        ),
        (
            {"decision.min_probability": float("nan")},
            "parameter 'decision.min_probability': is nan; expected float [0, 1]",
        ),
        (
            {"reconciliation.tau_mem_tokens": 3},
            "parameter 'reconciliation.tau_mem_tokens': is 3; expected int >= 64",
        ),
        (
            {"engine.endpoint": "chat"},
            "parameter 'engine.endpoint': is 'chat'; "
            "expected string auto | generate | completions",
        ),
        (
            {"journal.resume": 1},
            "parameter 'journal.resume': is 1; expected bool",
        ),
        (
            {"engines": ["gpu:8000"]},
            "parameter 'engines[0]': is 'gpu:8000'; expected http://host:port",
        ),
        (
            {"actions": ["go", "go"]},
            "parameter 'actions': 'go' stands twice; expected distinct labels",
        ),
        (
            {"decision.fallback_action": "stop"},
            "parameter 'decision.fallback_action': is 'stop'; expected one of ['wait', 'go']",
        ),
        (
            {"decision.rate_hz": 2.0, "decision.deadline_s": 0.7},
            "parameter 'decision.deadline_s': is 0.7; expected at most the period, 0.500",
        ),
        (
            {"observations.odom.topic": "odom"},
            "parameter 'observations.odom.topic': 'odom' is not in observation_sources []",
        ),
        (
            {**ODOM, "observations.odom.tpic": "odom"},
            "parameter 'observations.odom.tpic': is unknown; "
            "the nearest is 'observations.odom.topic'",
        ),
        (
            {**ODOM, "observations.odom.type": "Odometry"},
            "parameter 'observations.odom.type': is 'Odometry'; expected package/msg/Name",
        ),
        (
            {"observation_sources": ["odom"]},
            "parameter 'observations.odom.topic': is missing; "
            "expected Topic, relative to the node's namespace.",
        ),
    ],
)
def test_a_bad_parameter_is_one_line(values: dict[str, object], line: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings_from_parameters(values)
    assert str(caught.value) == line


def test_every_parameter_has_a_description_and_a_default_of_its_type() -> None:
    kinds = {"bool": bool, "int": int, "float": float, "string": str, "string[]": tuple}
    for row in parameter_table():
        assert row.description.endswith(".") and isinstance(row.default, kinds[row.type]), row
    assert {"topic", "type"} == {row.name for row in observation_table() if row.default is None}


def test_a_parameter_file_is_read_flat(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("/**:\n  ros__parameters:\n    decision:\n      rate_hz: 3.0\n    task: go\n")
    assert load_parameter_file(path) == {"decision.rate_hz": 3.0, "task": "go"}


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: [", "is not YAML"), ("a: 1\n", "has no 'ros__parameters' block")],
)
def test_a_bad_parameter_file_is_one_line(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=line) as caught:
        load_parameter_file(path)
    assert "\n" not in str(caught.value)


def test_a_missing_parameter_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        load_parameter_file(tmp_path / "none.yaml")


@pytest.mark.parametrize("name", ["policy.yaml", "demo.yaml", "demo_bag.yaml"])
def test_the_shipped_parameter_files_are_valid_outside_the_node(name: str) -> None:
    path = Path(__file__).resolve().parents[2] / "config" / name
    values = load_parameter_file(path)
    assert "autostart" not in values
    settings_from_parameters(values)
