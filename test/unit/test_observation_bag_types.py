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
"""Message types of a bag: where a definition comes from, and what cannot be decoded."""

from __future__ import annotations

import struct

import pytest
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from csr_policy.observation.bag_types import Definition, TypeCatalogue, TypeUnknownError
from csr_policy.observation.bags import BagReader
from csr_policy.observation.templates import default_text

STORE = get_typestore(Stores.ROS2_JAZZY)
STRING = "std_msgs/msg/String"


def test_the_bags_own_definition_counts_before_the_installed_one():
    definition = Definition("msg", "int32 a\n")
    decode = TypeCatalogue({STRING: definition}).decoder(STRING)
    assert decode(b"\x00\x01\x00\x00\x05\x00\x00\x00").a == 5


def test_what_a_definition_uses_is_taken_from_jazzy():
    definition = Definition("msg", "geometry_msgs/Point where\n")
    decode = TypeCatalogue({"a/msg/B": definition}).decoder("a/msg/B")
    assert decode(b"\x00\x01\x00\x00" + struct.pack("<3d", 1, 2, 3)).where.z == 3.0


def test_an_idl_definition_is_read():
    idl = "module a { module msg { struct B { int32 n; }; }; };"
    decode = TypeCatalogue({"a/msg/B": Definition("idl", idl)}).decoder("a/msg/B")
    assert decode(b"\x00\x01\x00\x00\x07\x00\x00\x00").n == 7


def test_action_feedback_is_decoded_from_its_action_file():
    text = "int32 order\n---\nint32[] sequence\n---\nfloat32 progress\n"
    name = "a/action/Go_FeedbackMessage"
    decode = TypeCatalogue({name: Definition("msg", text)}).decoder(name)
    data = b"\x00\x01\x00\x00" + bytes(range(16)) + struct.pack("<f", 0.5)
    assert decode(data).feedback.progress == 0.5


def test_big_endian_messages_are_decoded():
    decode = TypeCatalogue({}).decoder("std_msgs/msg/Int32")
    assert decode(b"\x00\x00\x00\x00\x00\x00\x00\x05").data == 5


def test_a_byte_is_unsigned_as_in_rclpy():
    decode = TypeCatalogue({}).decoder("std_msgs/msg/Byte")
    assert decode(b"\x00\x01\x00\x00\xff").data == 255


def test_definitions_of_the_ros_installation_are_found(tmp_path, monkeypatch):
    share = tmp_path / "share"
    for package, name, text in [
        ("my_msgs", "Arm", "my_parts/Joint[] joints\n"),
        ("my_parts", "Joint", "float64 angle\n"),
    ]:
        (share / package / "msg").mkdir(parents=True)
        (share / package / "msg" / f"{name}.msg").write_text(text)
    with pytest.raises(TypeUnknownError):
        TypeCatalogue({}).decoder("my_msgs/msg/Arm")
    monkeypatch.setenv("AMENT_PREFIX_PATH", f"/nowhere:{tmp_path}")
    decode = TypeCatalogue({}).decoder("my_msgs/msg/Arm")
    data = b"\x00\x01\x00\x00" + struct.pack("<IId", 1, 0, 0.25)
    assert decode(data).joints[0].angle == 0.25


@pytest.mark.parametrize(
    ("type_", "definition", "line"),
    [
        ("a/msg/B", Definition("msg", "int32 !!\n"), "type a/msg/B: its definition is unusable"),
        ("a/msg/B", Definition("msg", "c/D d\n"), "definition of c/msg/D, which it uses"),
        ("a/msg/B", Definition("protobuf", "x"), "defined in the format 'protobuf'"),
        ("a/srv/B_Event", Definition("msg", "\n---\n---\n---\n"), "has 4 parts"),
        ("", Definition("msg", "int32 a\n"), "unusable"),
    ],
)
def test_a_definition_that_cannot_be_used_is_refused_in_one_line(type_, definition, line):
    with pytest.raises(TypeUnknownError, match=line) as caught:
        TypeCatalogue({type_: definition}).decoder(type_)
    assert "\n" not in str(caught.value)


def test_what_a_publisherless_serialisation_leaves_at_the_end_is_taken():
    name = "std_msgs/msg/Float64MultiArray"
    empty = b"\x00\x01\x00\x00" + bytes(12)
    assert len(TypeCatalogue({}).decoder(name)(empty + b"y\x00\x00\x00").data) == 0


def test_bytes_that_no_alignment_explains_are_an_error():
    decode = TypeCatalogue({}).decoder("std_msgs/msg/Int32")
    with pytest.raises(ValueError, match="4 bytes are left over"):
        decode(b"\x00\x01\x00\x00" + bytes(8))


def test_one_unusable_definition_spoils_no_other(tmp_path):
    with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        bad = writer.add_connection("/bad", "a/msg/B", msgdef="int32 !!\n", rihs01="x")
        good = writer.add_connection("/good", STRING, typestore=STORE)
        writer.write(bad, 1, b"\x00\x01\x00\x00\x00\x00\x00\x00")
        writer.write(good, 2, STORE.serialize_cdr(STORE.types[STRING](data="hello"), STRING))
    with BagReader(tmp_path / "bag") as reader:
        bad_count, good_count = reader.survey()
    assert (bad_count.read, bad_count.decoded) == (1, 0)
    assert "unusable" in bad_count.reason
    assert good_count.decoded == 1


def test_a_custom_type_of_a_bag_is_described(tmp_path):
    store = get_typestore(Stores.ROS2_JAZZY)
    store.register(get_types_from_msg("float32 level\nstring tank\n", "my_msgs/msg/Fuel"))
    with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connection = writer.add_connection("/fuel", "my_msgs/msg/Fuel", typestore=store)
        message = store.types["my_msgs/msg/Fuel"](level=0.5, tank="left")
        writer.write(connection, 1, store.serialize_cdr(message, "my_msgs/msg/Fuel"))
    with BagReader(tmp_path / "bag") as reader:
        (item,) = reader.messages()
    assert default_text(item.type, item.message) == "level 0.5, tank left"
