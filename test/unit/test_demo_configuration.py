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
"""Parameters of the demo's node."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

pytest.importorskip("minigrid", reason="MiniGrid is not installed; see requirements/demo.txt")

from csr_policy.demo.configuration import (
    config_file,
    demo_configuration,
    observation_parameters,
    plan_of,
    replay_configuration,
)
from csr_policy.demo.node_process import parameter_file_text
from csr_policy.parameters import SettingsError, load_parameter_file, settings_from_parameters

TYPES = {"/sub/odom": "nav_msgs/msg/Odometry", "/sub/depth": "std_msgs/msg/Float32"}
PLAN = plan_of(TYPES, {"/sub/odom": 50.0, "/sub/depth": 1.0}, rate=1.0, tokens_per_s=45.0)


def parameter_file(tmp_path: Path, **values: object) -> Path:
    file = tmp_path / "given.yaml"
    file.write_text(yaml.safe_dump({"/**": {"ros__parameters": values}}), encoding="utf-8")
    return file


def test_the_demo_starts_its_own_engines_and_keeps_a_journal(tmp_path: Path) -> None:
    configuration = demo_configuration(tmp_path / "journal.sqlite3")

    assert configuration.own_engines
    assert configuration.settings.journal.path == str(tmp_path / "journal.sqlite3")
    assert list(configuration.settings.observations)[-1] == "beacon"


def test_started_engines_are_put_into_the_parameters(tmp_path: Path) -> None:
    configuration = demo_configuration(tmp_path / "j").on_engines(["http://a:1"], tmp_path)

    assert configuration.settings.engines == ("http://a:1",)
    assert configuration.settings.tokenizer == str(tmp_path)
    assert not configuration.own_engines


def test_a_recording_is_observed_as_planned_where_the_file_names_nothing(tmp_path: Path) -> None:
    settings = replay_configuration(None, PLAN, tmp_path / "j").settings

    assert {o.topic for o in settings.observations.values()} == set(TYPES)


def test_a_file_that_names_observations_is_left_alone(tmp_path: Path) -> None:
    file = parameter_file(
        tmp_path,
        observation_sources=["mine"],
        observations={"mine": {"topic": "/sub/depth", "type": "std_msgs/msg/Float32"}},
    )

    settings = replay_configuration(file, PLAN, tmp_path / "j").settings

    assert list(settings.observations) == ["mine"]


def test_a_file_that_names_engines_needs_their_tokenizer(tmp_path: Path) -> None:
    file = parameter_file(tmp_path, engines=["http://gpu:8001"])

    with pytest.raises(SettingsError, match="'tokenizer': is missing"):
        replay_configuration(file, PLAN, tmp_path / "j")


def test_a_plan_survives_the_way_through_parameters() -> None:
    settings = settings_from_parameters(observation_parameters(PLAN))

    assert settings.observations == dict(PLAN.observations)


def test_a_slower_play_needs_longer_intervals_on_no_topic() -> None:
    slow = plan_of(TYPES, {"/sub/odom": 50.0, "/sub/depth": 1.0}, rate=0.01, tokens_per_s=45.0)

    for name, observation in slow.observations.items():
        assert observation.min_interval_s <= PLAN.observations[name].min_interval_s


def test_strings_that_yaml_takes_for_something_else_stay_strings(tmp_path: Path) -> None:
    # To ROS's parser a bare N is a boolean.
    text = parameter_file_text({"actions": ["N", "yes", "1"], "decision.rate_hz": 1.0})
    file = tmp_path / "written.yaml"
    file.write_text(text, encoding="utf-8")

    assert '"N"' in text
    assert load_parameter_file(file) == {
        "actions": ["N", "yes", "1"],
        "decision.rate_hz": 1.0,
    }


def test_a_file_that_is_not_installed_is_one_line() -> None:
    with pytest.raises(SettingsError, match=r"nothing\.yaml: is not among the installed files"):
        config_file("nothing.yaml")
