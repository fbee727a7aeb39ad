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
"""Bags for tests: those that are shared with the project, and small ones made on the spot."""

from __future__ import annotations

from pathlib import Path

import pytest
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from csr_policy.observation.bags import BagReader
from csr_policy.observation.templates import default_text

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "bags"
STORE = get_typestore(Stores.ROS2_JAZZY)
STRING = "std_msgs/msg/String"


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
