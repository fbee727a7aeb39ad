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
"""A config for topics nobody has described: what is observed, under which name, how often."""

from __future__ import annotations

import pytest

from csr_policy.observation.autoconfig import observations_for, plan_observations
from csr_policy.observation.ingest import Ingest
from csr_policy.settings import Settings

ODOMETRY = "nav_msgs/msg/Odometry"
STRING = "std_msgs/msg/String"


def names(*topics: str) -> list[str]:
    return list(observations_for([(topic, STRING) for topic in topics]))


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        (["/odom"], ["odom"]),
        (["/coug2/battery/data", "/coug2/leak/data"], ["battery_data", "leak_data"]),
        (["/coug2/fix", "/rosout", "/coug2/dvl/data"], ["fix", "rosout", "dvl_data"]),
        (["/a/b", "/c/b"], ["a_b", "c_b"]),
        (["/r/odom", "/odom", "/r/scan"], ["odom", "odom_2", "scan"]),
        (["/a/b_c", "/a/b/c"], ["b_c", "b_c_2"]),
        (["/Robot-1/Scan!"], ["robot_1_scan"]),
        (["/2d/map"], ["topic_2d_map"]),
        (["/"], ["topic"]),
        (["GGG"], ["ggg"]),
        (["/x/a", "/x"], ["x_a", "x"]),
    ],
)
def test_names_are_short_unique_and_made_of_the_topics(topics, expected):
    assert names(*topics) == expected


def test_the_config_is_valid_settings_and_its_templates_compile():
    topics = [("/odom", ODOMETRY), ("/scan", "sensor_msgs/msg/LaserScan"), ("/x", "a/msg/B")]
    Ingest(Settings(observations=observations_for(topics)))


@pytest.mark.parametrize(
    ("topic", "type_"),
    [
        ("/tf", "tf2_msgs/msg/TFMessage"),
        ("/tf_static", "tf2_msgs/msg/TFMessage"),
        ("/clock", "rosgraph_msgs/msg/Clock"),
        ("/parameter_events", "rcl_interfaces/msg/ParameterEvent"),
        ("/events/write_split", "rosbag2_interfaces/msg/WriteSplitEvent"),
        ("/robot_description", STRING),
        ("/policy/decision", "csr_policy/msg/ActionDecision"),
        ("/weird", "nonsense"),
    ],
)
def test_what_is_no_observation_is_left_out_with_its_reason(topic, type_):
    plan = plan_observations([(topic, type_), ("/odom", ODOMETRY)])
    assert list(plan.observations) == ["odom"]
    assert plan.skipped[topic]


def test_a_topic_of_two_types_is_observed_as_its_first_and_told():
    plan = plan_observations([("/a", STRING), ("/a", ODOMETRY)])
    assert plan.observations["a"].type == STRING
    assert "two types" in plan.skipped["/a"]


def test_rosout_is_observed_for_its_warnings():
    settings = observations_for([("/rosout", "rcl_interfaces/msg/Log")])["rosout"]
    assert not settings.template


def test_a_slow_topic_is_taken_whole_and_a_fast_one_is_thinned():
    topics = [("/slow", STRING), ("/fast", ODOMETRY)]
    made = observations_for(topics, {"/slow": 0.05, "/fast": 200.0}, tokens_per_s=20.0)
    assert made["slow"].min_interval_s == 0.0
    assert made["fast"].min_interval_s > 1.0


def test_what_a_slow_topic_does_not_use_is_left_to_the_others():
    alone = observations_for([("/fast", ODOMETRY)], {"/fast": 200.0}, tokens_per_s=20.0)
    topics = [("/fast", ODOMETRY), *((f"/quiet{n}", STRING) for n in range(5))]
    rates = {"/fast": 200.0, **{f"/quiet{n}": 0.0 for n in range(5)}}
    crowded = observations_for(topics, rates, tokens_per_s=20.0)
    assert crowded["fast"].min_interval_s == alone["fast"].min_interval_s


def test_the_estimate_stays_within_the_budget():
    topics = [(f"/t{n}", ODOMETRY) for n in range(30)]
    plan = plan_observations(topics, {topic: 100.0 for topic, _ in topics}, tokens_per_s=15.0)
    assert plan.tokens_per_s == pytest.approx(15.0)


def test_topics_of_unknown_rate_share_the_budget():
    made = observations_for([("/a", ODOMETRY), ("/b", ODOMETRY)], tokens_per_s=20.0)
    assert made["a"].min_interval_s == made["b"].min_interval_s > 0


def test_unchanged_texts_are_not_repeated():
    assert all(item.on_change for item in observations_for([("/a", ODOMETRY)]).values())


def test_no_topics_make_no_observations():
    assert observations_for([]) == {}


def test_a_measured_length_counts_before_the_estimate():
    topics = [("/a", ODOMETRY)]
    short = observations_for(topics, tokens_per_s=20.0, chunk_tokens={"/a": 20.0})
    assert short["a"].min_interval_s == 1.0


def test_only_a_type_without_a_template_has_a_bounded_length():
    made = observations_for([("/a", ODOMETRY), ("/b", "my_msgs/msg/Thing")])
    assert made["a"].max_tokens == 0
    assert made["b"].max_tokens > 0
