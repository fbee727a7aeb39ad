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

import shutil
import sqlite3
import struct
from pathlib import Path

import pytest
import yaml
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from csr_policy.observation import bag_files
from csr_policy.observation.autoconfig import observations_for
from csr_policy.observation.bags import BagError, BagReader
from csr_policy.observation.ingest import Ingest
from csr_policy.observation.mcap_scan import McapScan, has_index
from csr_policy.observation.sqlite_scan import SqliteScan
from csr_policy.observation.templates import default_text
from csr_policy.settings import Settings

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "bags"
STORE = get_typestore(Stores.ROS2_JAZZY)
STRING = "std_msgs/msg/String"

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


def shared_bag(name: str) -> Path:
    if not SHARED.is_dir():
        pytest.skip(f"recordings are not at {SHARED}")
    return SHARED / name


def string_bytes(text: str) -> memoryview:
    return STORE.serialize_cdr(STORE.types[STRING](data=text), STRING)


def write_bag(
    folder: Path,
    stamps_ns: list[int],
    *,
    plugin: StoragePlugin = StoragePlugin.MCAP,
    mode: CompressionMode = CompressionMode.NONE,
    topic: str = "/talk",
) -> Path:
    """A bag of Strings whose texts are their numbers."""
    writer = Writer(folder, version=9, storage_plugin=plugin)
    writer.set_compression(mode, CompressionFormat.ZSTD)
    with writer:
        connection = writer.add_connection(topic, STRING, typestore=STORE)
        for number, stamp_ns in enumerate(stamps_ns):
            writer.write(connection, stamp_ns, string_bytes(str(number)))
    return folder


def texts(reader: BagReader) -> list[str]:
    return [default_text(item.type, item.message) for item in reader.messages()]


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
def test_a_storage_file_that_was_renamed_is_read_and_noted():
    with BagReader(SHARED / "robot_kf_db3") as reader:
        assert len(reader.notes) == 1
        assert "which is missing; my_bag.db3 is read" in reader.notes[0]


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


def test_a_folder_without_metadata_is_read_and_noted(tmp_path):
    folder = write_bag(tmp_path / "bag", [10, 20])
    (folder / "metadata.yaml").unlink()
    with BagReader(folder) as reader:
        assert texts(reader) == ["0", "1"]
        assert reader.notes == ("metadata.yaml is missing",)


@pytest.mark.parametrize("content", ["", "a: [", "a: 1", "rosbag2_bagfile_information: 3"])
def test_metadata_that_is_none_is_noted_in_one_line(tmp_path, content):
    folder = write_bag(tmp_path / "bag", [10])
    (folder / "metadata.yaml").write_text(content)
    with BagReader(folder) as reader:
        assert texts(reader) == ["0"]
        assert reader.notes[0].startswith("metadata.yaml is not")
        assert "\n" not in reader.notes[0]


def test_a_recording_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path):
    folder = write_bag(tmp_path / "bag", list(range(40_000)))
    file = folder / "bag.mcap"
    file.write_bytes(file.read_bytes()[:2_000_000])
    with BagReader(folder) as reader:
        counts = reader.survey()
        assert 1000 < counts[0].decoded < 40_000
        assert f"of 40000 messages, the files hold {counts[0].read}" in counts[0].reason
        assert reader.notes == (
            "bag.mcap: ends in the middle of a record; what comes before it is read",
        )


def test_a_damaged_chunk_costs_no_other(tmp_path):
    folder = write_bag(tmp_path / "bag", list(range(40_000)), mode=CompressionMode.STORAGE)
    file = folder / "bag.mcap"
    whole = len(McapScan(file).content.channels) and McapScan(file).content.channels[0].messages
    data = bytearray(file.read_bytes())
    start = data.index(b"\x28\xb5\x2f\xfd", data.index(b"\x28\xb5\x2f\xfd") + 1)
    data[start : start + 8] = bytes(8)
    file.write_bytes(data)
    scan = McapScan(file)
    assert scan.content.note == "1 damaged chunks are left out"
    assert 0 < scan.content.channels[0].messages < whole


def test_an_index_without_order_is_put_in_order(tmp_path):
    folder = write_bag(tmp_path / "bag", [30, 10, 20])
    file = folder / "bag.mcap"
    data = bytearray(file.read_bytes())
    data[-28:-20] = struct.pack("<Q", 0)
    file.write_bytes(data)
    assert not has_index(file)
    with BagReader(folder) as reader:
        assert texts(reader) == ["1", "2", "0"]


def test_a_missing_file_of_a_split_bag_is_noted(tmp_path):
    folder = tmp_path / "bag"
    shutil.copytree(shared_bag("rosbag2_wbag_split_mcap"), folder)
    (folder / "wbag_2.mcap").unlink()
    (folder / "extra.mcap").write_bytes(b"")
    with BagReader(folder) as reader:
        counts = reader.survey()
        assert reader.notes == (
            "missing: wbag_2.mcap; their messages are not read",
            "not in the metadata, left out: extra.mcap",
        )
    assert 0 < sum(item.read for item in counts) < sum(item.messages for item in counts)
    assert any("the files hold" in item.reason for item in counts)


def test_a_broken_file_of_a_split_bag_is_noted_and_the_others_are_read(tmp_path):
    folder = tmp_path / "bag"
    shutil.copytree(shared_bag("rosbag2_wbag_split_mcap"), folder)
    (folder / "wbag_2.mcap").chmod(0o644)
    (folder / "wbag_2.mcap").write_bytes(b"nothing of that kind")
    with BagReader(folder) as reader:
        assert "wbag_2.mcap: is not an MCAP file" in reader.notes
        assert sum(item.read for item in reader.survey()) > 0


def test_messages_in_the_write_ahead_log_are_read(tmp_path):
    folder = write_bag(tmp_path / "bag", [10], plugin=StoragePlugin.SQLITE3)
    recorder = sqlite3.connect(folder / "bag.db3")
    try:
        recorder.execute("PRAGMA journal_mode=WAL")
        recorder.execute("INSERT INTO messages VALUES (2, 1, 20, ?)", (string_bytes("late"),))
        recorder.commit()
        with BagReader(folder) as reader:
            assert texts(reader) == ["0", "late"]
    finally:
        recorder.close()


def test_a_definition_of_unknown_format_does_not_hide_the_file(tmp_path):
    folder = write_bag(tmp_path / "bag", [10], plugin=StoragePlugin.SQLITE3)
    with sqlite3.connect(folder / "bag.db3") as file:
        file.execute("UPDATE message_definitions SET encoding = 'unknown'")
        file.execute("UPDATE message_definitions SET encoded_message_definition = ''")
    with BagReader(folder) as reader:
        assert texts(reader) == ["0"]


def test_a_message_that_does_not_fit_its_type_is_counted_and_named(tmp_path):
    with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connection = writer.add_connection("/talk", STRING, typestore=STORE)
        for stamp_ns, data in enumerate(
            [string_bytes("good"), b"", b"\x00\x01\x00\x00\xff\xff\xff\x7f", b"\x00\x09ab"]
        ):
            writer.write(connection, stamp_ns, data)
    with BagReader(tmp_path / "bag") as reader:
        (count,) = reader.survey()
        assert (count.read, count.decoded) == (4, 1)
        assert count.reason.startswith("3 of 4 messages: is not plain CDR")
        assert reader.problems == {"/talk": count.reason}


def test_a_topic_that_is_not_cdr_is_named(tmp_path):
    with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connection = writer.add_connection(
            "/talk", STRING, typestore=STORE, serialization_format="json"
        )
        writer.write(connection, 1, b"{}")
    with BagReader(tmp_path / "bag") as reader:
        (count,) = reader.survey()
    assert (count.read, count.decoded) == (1, 0)
    assert count.reason == "is serialised as 'json'; expected cdr"


def test_topics_can_be_chosen():
    with BagReader(shared_bag("cougars_SO_bag")) as reader:
        chosen = {"/coug2/fix", "/coug2/odom"}
        assert {item.topic for item in reader.messages(chosen)} == chosen


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


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda folder: folder / "none", "does not exist; expected a rosbag2 folder"),
        (lambda folder: folder, "holds no .mcap or .db3 file"),
        (lambda folder: _file(folder / "a.bag"), "is a ROS 1 bag; expected rosbag2"),
        (lambda folder: _file(folder / "a.mcap"), "is not an MCAP file"),
        (lambda folder: _file(folder / "a.db3"), "cannot be read as a bag"),
        (lambda folder: _file(folder / "a.mcap.zstd"), "cannot be unpacked"),
        (lambda folder: _file(folder / "a.txt"), "is no bag; expected .mcap or .db3"),
    ],
    ids=["absent", "empty", "ros1", "mcap", "sqlite", "zstd", "text"],
)
def test_what_is_no_bag_is_refused_in_one_line(tmp_path, make, line):
    with pytest.raises(BagError, match=line) as caught:
        BagReader(make(tmp_path))
    assert "\n" not in str(caught.value)


def _file(path: Path) -> Path:
    path.write_bytes(b"this is something else entirely, of some length")
    return path


def test_a_closed_sqlite_file_says_so(tmp_path):
    scan = SqliteScan(write_bag(tmp_path / "b", [1], plugin=StoragePlugin.SQLITE3) / "b.db3")
    scan.close()
    with pytest.raises(BagError, match="is closed"):
        list(scan.records(()))
