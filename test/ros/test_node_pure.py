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
"""Conversions and choices of the ROS layer that need no graph."""

from __future__ import annotations

import math

import pytest
from csr_policy.msg import ActionDecision, EngineStatus, PolicyStatus
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

from csr_policy.decision import Decision, Outcome
from csr_policy.node.diagnostics import ERROR, OK, WARN, diagnostics_message
from csr_policy.node.message_types import message_class
from csr_policy.node.messages import decision_message, time_message
from csr_policy.node.qos import matched_profile, qos_text
from csr_policy.node.status import StatusPace

RELIABLE, BEST_EFFORT = ReliabilityPolicy.RELIABLE, ReliabilityPolicy.BEST_EFFORT
VOLATILE, LATCHED = DurabilityPolicy.VOLATILE, DurabilityPolicy.TRANSIENT_LOCAL


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        ([(RELIABLE, VOLATILE)], "reliable volatile"),
        ([(BEST_EFFORT, VOLATILE)], "best_effort volatile"),
        ([(RELIABLE, LATCHED)], "reliable transient_local"),
        ([(RELIABLE, LATCHED), (RELIABLE, VOLATILE)], "reliable volatile"),
        ([(RELIABLE, LATCHED), (BEST_EFFORT, LATCHED)], "best_effort transient_local"),
    ],
)
def test_a_matched_subscription_hears_every_publisher(offered, expected):
    profiles = [QoSProfile(depth=1, reliability=r, durability=d) for r, d in offered]

    assert qos_text(matched_profile(profiles)) == expected


def test_without_a_publisher_there_is_nothing_to_match():
    assert matched_profile([]) is None


@pytest.mark.parametrize("name", ["std_msgs/msg/String", "std_msgs/String"])
def test_a_message_class_is_found_by_its_name(name):
    from std_msgs.msg import String

    assert message_class(name) is String


@pytest.mark.parametrize(
    "name", ["std_msgs/msg/Strings", "no_such_msgs/msg/String", "std_srvs/srv/Empty", "os/path"]
)
def test_an_unknown_message_type_is_one_line(name):
    with pytest.raises(ValueError, match=name) as refused:
        message_class(name)

    assert "\n" not in str(refused.value)


def test_outcomes_have_the_same_numbers_in_the_message_and_the_policy():
    for outcome in Outcome:
        assert getattr(ActionDecision, outcome.name) == outcome


def test_every_field_of_a_decision_is_in_its_message():
    decision = Decision(
        id=7,
        stamp_ns=1_500_000_000,
        action="go",
        outcome=Outcome.OK,
        actions=("go", "stop"),
        probabilities=(0.75, 0.25),
        label_mass=0.5,
        ttft_s=0.1,
        prompt_tokens=100,
        cached_tokens=90,
        must_be_cached=80,
        version=3,
        last_chunk_index=41,
        engine="engine_1",
        route="bridging",
        phase="warming",
        after_swap=True,
    )

    message = decision_message(decision)

    assert (message.header.stamp.sec, message.header.stamp.nanosec) == (1, 500_000_000)
    for name in Decision.__dataclass_fields__:
        if name != "stamp_ns":
            value, expected = getattr(message, name), getattr(decision, name)
            same = tuple(value) == expected if isinstance(expected, tuple) else value == expected
            assert same, name


def test_a_decision_without_a_reply_has_nan_and_no_probabilities():
    message = decision_message(Decision(1, 0, "", Outcome.NOT_READY, "being primed"))

    assert math.isnan(message.ttft_s)
    assert math.isnan(message.label_mass)
    assert list(message.probabilities) == []
    assert message.last_chunk_index == -1


def test_a_time_before_the_epoch_does_not_raise():
    assert time_message(-1).sec == 0


def status(**fields) -> PolicyStatus:
    engine = EngineStatus(name="engine_0", role="primary", ready=True)
    defaults = {"ready": True, "engines": [engine], "ttft_median_s": math.nan}
    return PolicyStatus(**(defaults | fields))


def test_news_are_published_at_once_and_the_rest_once_a_second():
    pace = StatusPace()

    assert pace.is_due(status(), now_s=10.0)
    assert not pace.is_due(status(chunks=5), now_s=10.1)
    assert pace.is_due(status(phase="warming"), now_s=10.2)
    assert not pace.is_due(status(phase="warming"), now_s=11.1)
    assert pace.is_due(status(phase="warming"), now_s=11.2)


@pytest.mark.parametrize(
    ("fields", "level"),
    [
        ({}, OK),
        ({"paused": True}, WARN),
        ({"degraded": "one engine"}, WARN),
        ({"ready": False}, ERROR),
        ({"dead_thread": "ingest"}, ERROR),
    ],
)
def test_diagnostics_have_the_level_of_the_status(fields, level):
    diagnostics = diagnostics_message(status(**fields), "/robot/csr_policy")

    policy = diagnostics.status[0]
    assert policy.name == "/robot/csr_policy: policy"
    assert policy.level == level
    assert policy.message


def test_a_secondary_that_is_down_is_a_warning_and_a_primary_an_error():
    def level(role: str) -> bytes:
        engine = EngineStatus(name="engine_0", role=role, ready=False, error="refused")
        return diagnostics_message(status(engines=[engine]), "/r").status[1].level

    assert level("secondary") == WARN
    assert level("primary") == ERROR
