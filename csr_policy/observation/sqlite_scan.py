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
"""A plain reading of a rosbag2 SQLite file, for files that rosbags refuses.

Reads what the recorder's write-ahead log still holds where there is one, and takes
definitions of any format. One thread at a time.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from csr_policy.observation.bag_storage import BagError, Channel, Content, Record
from csr_policy.observation.bag_types import Definition

_FORMATS = {"ros2msg": "msg", "ros2idl": "idl"}
_LATCHED = ("durability: 1\n", "durability: transient_local\n")


def has_unwritten_log(path: Path) -> bool:
    """True where messages may be in the write-ahead log beside the file."""
    log = path.with_name(path.name + "-wal")
    return log.exists() and log.stat().st_size > 0


class SqliteScan:
    """A rosbag2 SQLite file read without rosbags."""

    def __init__(self, path: Path) -> None:
        """Open the file read-only.

        Raises:
            BagError: It is not SQLite, or not a rosbag2 file.
        """
        self._path = path
        self._file: sqlite3.Connection | None = None
        try:
            self._file = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
            self._channels: Mapping[int, Channel] = dict(self._read_channels(self._file))
            first, last = self._file.execute(
                "SELECT min(timestamp), max(timestamp) FROM messages"
            ).fetchone()
            self.content = Content(
                channels=tuple(self._channels.values()),
                definitions=dict(self._read_definitions(self._file)),
                start_ns=first,
                end_ns=last,
            )
        except sqlite3.Error as error:
            self.close()
            raise BagError(f"{path.name}: cannot be read as a bag ({error})") from error

    def records(self, topics: Collection[str] | None) -> Iterator[Record]:
        """Records of these topics (None for all) in the order of time."""
        if self._file is None:
            raise BagError(f"{self._path.name}: is closed")
        rows = self._file.execute(
            "SELECT topic_id, timestamp, data FROM messages ORDER BY timestamp, id"
        )
        for number, stamp_ns, data in rows:
            channel = self._channels.get(number)
            if channel is not None and (topics is None or channel.topic in topics):
                yield Record(channel, stamp_ns, data)

    def close(self) -> None:
        """Release the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @staticmethod
    def _read_channels(file: sqlite3.Connection) -> Iterator[tuple[int, Channel]]:
        columns = {row[1] for row in file.execute("PRAGMA table_info(topics)")}
        qos = "offered_qos_profiles" if "offered_qos_profiles" in columns else "''"
        counts = dict(file.execute("SELECT topic_id, count(*) FROM messages GROUP BY topic_id"))
        rows = file.execute(f"SELECT id, name, type, serialization_format, {qos} FROM topics")
        for number, topic, type_, encoding, profiles in rows:
            latched = any(mark in str(profiles) for mark in _LATCHED)
            yield number, Channel(topic, type_, encoding, latched, counts.get(number, 0))

    @staticmethod
    def _read_definitions(file: sqlite3.Connection) -> Iterator[tuple[str, Definition]]:
        with contextlib.suppress(sqlite3.OperationalError):
            # Files from before ROS 2 Iron have no such table.
            for type_, encoding, text in file.execute(
                "SELECT topic_type, encoding, encoded_message_definition FROM message_definitions"
            ):
                if text:
                    yield type_, Definition(_FORMATS.get(encoding, encoding), text)
