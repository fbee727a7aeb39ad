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
"""Recordings with a flaw: what can be read is read, what is missing is told in one line."""

from __future__ import annotations

import shutil
import sqlite3
import struct
from pathlib import Path

import pytest
from recordings import STORE, STRING, shared_bag, string_bytes, texts, write_bag
from rosbags.rosbag2 import CompressionMode, StoragePlugin, Writer

from csr_policy.observation.bags import BagError, BagReader
from csr_policy.observation.mcap_scan import McapScan, has_index
from csr_policy.observation.sqlite_scan import SqliteScan


def test_a_storage_file_that_was_renamed_is_read_and_noted():
    with BagReader(shared_bag("robot_kf_db3")) as reader:
        assert len(reader.notes) == 1
        assert "which is missing; my_bag.db3 is read" in reader.notes[0]


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
