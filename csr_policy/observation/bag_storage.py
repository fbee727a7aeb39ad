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
"""The files of a bag, one at a time: channels, counts and records in the order of time.

rosbags reads what is whole. What it refuses (a recording that was cut off, records out
of order, definitions of a format it does not know) is read by a plain scan of the file
(`mcap_scan.py`, `sqlite_scan.py`), so that one flaw does not hide a whole recording.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rosbags.interfaces import MessageDefinitionFormat, QosDurability
from rosbags.rosbag2 import Reader

from csr_policy.observation.bag_types import Definition


class BagError(ValueError):
    """A bag or one of its files cannot be read: one line."""


@dataclass(frozen=True, slots=True)
class Channel:
    """One stream of one file.

    Attributes:
        topic: Topic name.
        type: Message type, package/msg/Name.
        encoding: Serialisation; only `cdr` can be decoded.
        latched: Recorded from a transient-local publisher.
        messages: Records in this file.
    """

    topic: str
    type: str
    encoding: str
    latched: bool
    messages: int


@dataclass(frozen=True, slots=True)
class Record:
    """One message as it is stored: when it was received, and its bytes."""

    channel: Channel
    stamp_ns: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Content:
    """What is in a file.

    Attributes:
        channels: All channels, also those without messages.
        definitions: Definition by type, where the file embeds one.
        start_ns: Time of the first record; None without records.
        end_ns: Time of the last record; None without records.
        note: Why the content may be incomplete; empty where it is whole.
    """

    channels: tuple[Channel, ...]
    definitions: Mapping[str, Definition] = field(default_factory=dict)
    start_ns: int | None = None
    end_ns: int | None = None
    note: str = ""


class Storage(Protocol):
    """An open file of a bag."""

    content: Content

    def records(self, topics: Collection[str] | None) -> Iterator[Record]:
        """Records of these topics (None for all) in the order of time."""

    def close(self) -> None:
        """Release the file."""


class RosbagsStorage:
    """A file that rosbags can open."""

    def __init__(self, path: Path) -> None:
        self._reader = Reader(path)
        self._reader.open()
        try:
            self._pairs = [(item, _channel(item)) for item in self._reader.connections]
            self._channels = {item.id: channel for item, channel in self._pairs}
            empty = self._reader.message_count == 0
            self.content = Content(
                channels=tuple(self._channels.values()),
                definitions={
                    item.msgtype: _definition(item.msgdef)
                    for item in self._reader.connections
                    if item.msgdef.format != MessageDefinitionFormat.NONE
                },
                start_ns=None if empty else self._reader.start_time,
                end_ns=None if empty else self._reader.end_time - 1,
            )
        except BaseException:
            self._reader.close()
            raise

    def records(self, topics: Collection[str] | None) -> Iterator[Record]:
        """Records of these topics (None for all) in the order of time."""
        wanted = [
            item for item, channel in self._pairs if topics is None or channel.topic in topics
        ]
        if not wanted:
            return
        for connection, stamp_ns, data in self._reader.messages(wanted):
            yield Record(self._channels[connection.id], stamp_ns, bytes(data))

    def close(self) -> None:
        """Release the file."""
        self._reader.close()


def _channel(connection: Any) -> Channel:
    profiles = connection.ext.offered_qos_profiles
    return Channel(
        topic=connection.topic,
        type=connection.msgtype,
        encoding=connection.ext.serialization_format,
        latched=any(qos.durability == QosDurability.TRANSIENT_LOCAL for qos in profiles),
        messages=connection.msgcount,
    )


def _definition(definition: Any) -> Definition:
    idl = definition.format == MessageDefinitionFormat.IDL
    return Definition("idl" if idl else "msg", definition.data)
