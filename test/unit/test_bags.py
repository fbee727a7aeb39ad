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
"""Reading recordings: whole, split, packed, cut off, odd. Nothing is dropped in silence."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from recordings import SHARED, shared_bag, string_bytes, texts, write_bag
from rosbags.rosbag2 import CompressionMode, StoragePlugin

from csr_policy.observation import bag_files
from csr_policy.observation.autoconfig import observations_for
from csr_policy.observation.bags import BagReader
from csr_policy.observation.ingest import Ingest
from csr_policy.settings import Settings

DECODED = {
    "cougars_SO_bag": 2671,
    "cougars_cleaned_db3": 3903,
    "husky_gazebo_filtered_db3": 1561,
    "nav2_collision_monitor_mcap_zstd": 693,
    "robot_kf_db3": 3878,
    "rosbag2_services_mcap": 10,
    "rosbag2_wbag_split_mcap": 6074,
    "rosbags_rs_db3": 188,
    "rosbags_rs_mcap": 188,
    "stinger_imu_db3": 104,
}
UNDEFINED_IN_HUSKY = {
    "control_msgs/msg/DynamicJointState",
    "control_msgs/msg/JointTrajectoryControllerState",
    "moveit_msgs/msg/DisplayTrajectory",
    "moveit_msgs/msg/MotionPlanRequest",
    "moveit_msgs/msg/PlanningScene",
}

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason=f"recordings are not at {SHARED}")


def metadata_counts(folder: Path) -> dict[tuple[str, str], int]:
    document = yaml.safe_load((folder / "metadata.yaml").read_text())
    return {
        (item["topic_metadata"]["name"], item["topic_metadata"]["type"]): item["message_count"]
        for item in document["rosbag2_bagfile_information"]["topics_with_message_count"]
    }


@pytest.mark.parametrize("name", DECODED)
def test_every_topic_is_listed_and_counted_as_in_the_metadata(name):
    with BagReader(shared_bag(name)) as reader:
        counts = reader.survey()
    expected = metadata_counts(SHARED / name)
    assert {(item.name, item.type): item.messages for item in counts} == expected
    assert {(item.name, item.type): item.read for item in counts} == expected
    assert sum(item.decoded for item in counts) == DECODED[name]
    assert all(bool(item.reason) == (item.decoded < item.messages) for item in counts
               if item.messages)  # fmt: skip


@pytest.mark.parametrize("name", DECODED)
def test_messages_come_in_the_order_of_their_time(name):
    with BagReader(shared_bag(name)) as reader:
        stamps = [item.stamp_ns for item in reader.messages()]
        assert stamps == sorted(stamps)
        # A sequence's end is not its last decodable message where types are unknown.
        assert reader.start_ns <= stamps[0]
        assert stamps[-1] <= reader.end_ns


@pytest.mark.parametrize("name", DECODED)
def test_every_decoded_message_goes_through_the_one_ingest_path(name):
    with BagReader(shared_bag(name)) as reader:
        topics = [(topic.name, topic.type) for topic in reader.topics]
        observations = observations_for(topics, reader.rates_hz, tokens_per_s=1e9)
        warnings: list[str] = []
        ingest = Ingest(Settings(observations=observations), warn=warnings.append)
        sources = {item.topic: name for name, item in observations.items()}
        offered = 0
        for item in reader.messages(set(sources)):
            stamp_ns = item.stamp_ns
            ingest.offer(
                sources[item.topic], item.message, ros_time_ns=stamp_ns, steady_ns=stamp_ns
            )
            offered += 1
    counts = ingest.all_counts().values()
    assert warnings == []
    assert sum(count.offered for count in counts) == offered
    assert sum(count.taken for count in counts) > 0


@needs_shared
def test_types_without_a_definition_are_named_with_their_topics():
    with BagReader(SHARED / "husky_gazebo_filtered_db3") as reader:
        bad = {topic.name: topic for topic in reader.topics if topic.reason}
        assert {topic.type for topic in bad.values()} == UNDEFINED_IN_HUSKY
        assert all(topic.type in topic.reason for topic in bad.values())
        assert reader.problems == {name: topic.reason for name, topic in bad.items()}


@needs_shared
def test_service_events_are_decoded_from_their_service_file():
    with BagReader(SHARED / "rosbag2_services_mcap") as reader:
        events = [item for item in reader.messages() if item.topic.endswith("_service_event")]
    assert len(events) == 8
    assert events[0].message.info.event_type == 0
    assert len(events[0].message.request) == 1
    assert len(events[0].message.response) == 0
    assert len(events[1].message.response) == 1


@needs_shared
@pytest.mark.parametrize("name", ["rosbags_rs_mcap", "cougars_SO_bag", "rosbag2_services_mcap"])
def test_the_plain_scan_finds_what_rosbags_finds(name, monkeypatch):
    with BagReader(SHARED / name) as reader:
        expected = list(reader.records())
    monkeypatch.setattr(bag_files, "has_index", lambda path: False)
    with BagReader(SHARED / name) as reader:
        assert sorted(reader.records(), key=repr) == sorted(expected, key=repr)


@needs_shared
@pytest.mark.parametrize("name", ["cougars_cleaned_db3", "rosbags_rs_db3"])
def test_the_plain_sqlite_reading_finds_what_rosbags_finds(name, monkeypatch):
    with BagReader(SHARED / name) as reader:
        expected = list(reader.records())
        topics = reader.topics
    monkeypatch.setattr(bag_files, "has_unwritten_log", lambda path: True)
    with BagReader(SHARED / name) as reader:
        assert sorted(reader.records(), key=repr) == sorted(expected, key=repr)
        assert reader.topics == topics


@pytest.mark.parametrize("plugin", list(StoragePlugin))
@pytest.mark.parametrize(
    "mode", [CompressionMode.NONE, CompressionMode.FILE, CompressionMode.MESSAGE]
)
def test_every_storage_and_compression_is_read(tmp_path, plugin, mode):
    folder = write_bag(tmp_path / "bag", [10, 20, 30], plugin=plugin, mode=mode)
    with BagReader(folder) as reader:
        assert texts(reader) == ["0", "1", "2"]
        assert [bytes(item.data) for item in reader.records()] == [
            bytes(string_bytes(text)) for text in "012"
        ]
        assert (reader.start_ns, reader.end_ns, reader.message_count) == (10, 30, 3)
        assert reader.notes == ()


def test_what_was_unpacked_is_removed_when_the_bag_is_closed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "unpacked"))
    (tmp_path / "unpacked").mkdir()
    folder = write_bag(tmp_path / "bag", [1], mode=CompressionMode.FILE)
    with BagReader(folder):
        assert list((tmp_path / "unpacked").iterdir())
    assert not list((tmp_path / "unpacked").iterdir())


def test_one_file_of_a_bag_can_be_read_by_itself(tmp_path):
    folder = write_bag(tmp_path / "bag", [10, 20])
    with BagReader(folder / "bag.mcap") as reader:
        assert texts(reader) == ["0", "1"]
        assert reader.topics[0].messages == 2


def test_topics_can_be_chosen():
    with BagReader(shared_bag("cougars_SO_bag")) as reader:
        chosen = {"/coug2/fix", "/coug2/odom"}
        assert {item.topic for item in reader.messages(chosen)} == chosen


def test_no_topics_are_no_messages(tmp_path):
    with BagReader(write_bag(tmp_path / "bag", [10])) as reader:
        assert list(reader.messages(())) == []


def test_latched_topics_are_known():
    with BagReader(shared_bag("cougars_SO_bag")) as reader:
        latched = {topic.name for topic in reader.topics if topic.latched}
    assert {"/tf_static", "/rosout", "/coug2/desired_depth"} <= latched
    assert "/coug2/odom" not in latched


def test_progress_is_told_while_a_bag_is_surveyed():
    numbers: list[int] = []
    with BagReader(shared_bag("rosbag2_wbag_split_mcap")) as reader:
        reader.survey(numbers.append)
    assert numbers == [1000, 2000, 3000, 4000, 5000, 6000]
