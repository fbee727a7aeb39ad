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
"""A bad parameter stops the node's process with one line."""

from __future__ import annotations

import pytest

CASES = {
    "unknown name": ({"decision.rate_hs": 2.0}, "decision.rate_hs", "decision.rate_hz"),
    "out of range": ({"decision.rate_hz": 100.0}, "decision.rate_hz", "[0.05, 50]"),
    "wrong type": ({"decision.rate_hz": "fast"}, "decision.rate_hz", "float"),
    "not a choice": ({"action_coding": "digits"}, "action_coding", "auto | words | letters"),
    "deadline beyond the period": ({"decision.deadline_s": 0.5}, "decision.deadline_s", "period"),
    "autostart": ({"autostart": 3}, "autostart", "bool"),
    "undeclared source": (
        {"observations.odom.topic": "odom"},
        "observations.odom.topic",
        "observation_sources",
    ),
    "source without a topic": (
        {"observation_sources": ["odom"]},
        "observations.odom.topic",
        "missing",
    ),
    "unknown field of a source": (
        {
            "observation_sources": ["odom"],
            "observations.odom.topic": "odom",
            "observations.odom.type": "nav_msgs/msg/Odometry",
            "observations.odom.tempalte": "x",
        },
        "observations.odom.tempalte",
        "observations.odom.template",
    ),
    "unknown message type": (
        {
            "observation_sources": ["odom"],
            "observations.odom.topic": "odom",
            "observations.odom.type": "nav_msgs/msg/Odometer",
        },
        "observations.odom.type",
        "nav_msgs/msg/Odometer",
    ),
    "name of an own topic": (
        {
            "observation_sources": ["task"],
            "observations.task.topic": "task",
            "observations.task.type": "std_msgs/msg/String",
        },
        "observation_sources",
        "task",
    ),
    "template that does not compile": (
        {
            "observation_sources": ["odom"],
            "observations.odom.topic": "odom",
            "observations.odom.type": "nav_msgs/msg/Odometry",
            "observations.odom.template": "{{ msg.pose ",
        },
        "observations.odom.template",
        "",
    ),
    "two actions with the same first token": (
        {"action_coding": "words", "actions": ["stop", "go", "go up"]},
        "'go' and 'go up' start with the same token",
        "letters",
    ),
    "tokenizer that is not there": ({"tokenizer": "/nowhere"}, "tokenizer", "/nowhere"),
}


@pytest.mark.parametrize(("bad", "subject", "expected"), CASES.values(), ids=CASES.keys())
def test_a_bad_parameter_is_one_line_and_exit_1(run_node, unreachable, bad, subject, expected):
    node = run_node(unreachable | bad)

    assert node.wait() == 1
    said = node.log.strip().splitlines()
    assert len(said) == 1, node.log
    assert "[ERROR]" in said[0]
    assert subject in said[0]
    assert expected in said[0]


def test_a_parameter_file_that_is_not_there_is_one_line(run_node, unreachable):
    node = run_node(unreachable, "--params-file", "/nowhere/policy.yaml")

    assert node.wait() == 1
    assert "Traceback" not in node.log
    assert node.lines("csr_policy:", "/nowhere/policy.yaml")


def test_an_argument_that_is_not_ros_is_one_line(run_node, unreachable):
    node = run_node(unreachable, "--", "policy.yaml")

    assert node.wait() == 1
    assert node.log.splitlines() == [
        "csr_policy: unexpected argument 'policy.yaml'; expected --ros-args ..."
    ]


def test_integers_for_floats_and_empty_lists_are_taken(run_node, unreachable, robot):
    parameters = {"decision.rate_hz": 5, "prefix.examples": [], "observation_sources": []}
    node = run_node(unreachable | parameters)

    robot.wait_for_decision(lambda d: True, "a decision")

    assert node.process.poll() is None
