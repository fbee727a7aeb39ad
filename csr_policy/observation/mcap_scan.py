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
"""A plain scan of an MCAP file from front to back, for files without a usable index.

A recorder that was killed leaves a file without footer, index and counts; other writers
leave the index out or write records out of order. The records are all there all the
same. The format is specified at https://mcap.dev/spec. One thread at a time.
"""

from __future__ import annotations

import io
import struct
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from lz4.frame import decompress as lz4_decompress

from csr_policy.observation.bag_storage import BagError, Channel, Content, Record
from csr_policy.observation.bag_types import Definition

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGIC = b"\x89MCAP0\r\n"
_FOOTER_AND_MAGIC_BYTES = 37
_RECORD_HEAD_BYTES = 9
_FOOTER, _SCHEMA, _CHANNEL, _MESSAGE, _CHUNK, _DATA_END = 0x02, 0x03, 0x04, 0x05, 0x06, 0x0F
_WANTED = (_SCHEMA, _CHANNEL, _MESSAGE, _CHUNK)
_MESSAGE_HEAD = struct.Struct("<HIQQ")
_CHUNK_HEAD_BYTES = 28
_FORMATS = {"ros2msg": "msg", "ros2idl": "idl", "omgidl": "idl"}
_LATCHED = ("durability: 1\n", "durability: transient_local\n")


def has_index(path: Path) -> bool:
    """True where an MCAP file is whole and ends with a summary section."""
    with path.open("rb") as file:
        if file.seek(0, io.SEEK_END) < len(MAGIC) + _FOOTER_AND_MAGIC_BYTES:
            return False
        file.seek(-_FOOTER_AND_MAGIC_BYTES, io.SEEK_END)
        footer = file.read()
    summary_start = int.from_bytes(footer[9:17], "little")
    return footer[0] == _FOOTER and footer.endswith(MAGIC) and summary_start > 0


@dataclass(slots=True)
class _Tally:
    """What the first pass over a file finds."""

    schemas: dict[int, tuple[str, Definition]] = field(default_factory=dict)
    channels: dict[int, tuple[int, str, str, bool]] = field(default_factory=dict)
    counts: Counter[int] = field(default_factory=Counter)
    first_ns: int | None = None
    last_ns: int | None = None
    ordered: bool = True

    def add_message(self, body: bytes) -> None:
        number, _, stamp_ns, _ = _MESSAGE_HEAD.unpack_from(body)
        self.counts[number] += 1
        if self.last_ns is not None and stamp_ns < self.last_ns:
            self.ordered = False
        self.first_ns = stamp_ns if self.first_ns is None else min(self.first_ns, stamp_ns)
        self.last_ns = stamp_ns if self.last_ns is None else max(self.last_ns, stamp_ns)

    def channel_views(self) -> dict[int, Channel]:
        views = {}
        for number, (schema, topic, encoding, latched) in self.channels.items():
            type_ = self.schemas[schema][0] if schema in self.schemas else ""
            views[number] = Channel(topic, type_, encoding, latched, self.counts[number])
        return views


class McapScan:
    """An MCAP file read without its index."""

    def __init__(self, path: Path) -> None:
        """Scan the file once for its channels, counts and times.

        Raises:
            BagError: It is not an MCAP file.
        """
        self._path = path
        self._note = ""
        tally = _Tally()
        for opcode, body in self._records():
            if opcode == _SCHEMA:
                number, name, definition = _parse_schema(body)
                tally.schemas[number] = (name, definition)
            elif opcode == _CHANNEL:
                number, channel = _parse_channel(body)
                tally.channels[number] = channel
            else:
                tally.add_message(body)
        self._ordered = tally.ordered
        self._channels: Mapping[int, Channel] = tally.channel_views()
        self.content = Content(
            channels=tuple(self._channels.values()),
            definitions=dict(tally.schemas.values()),
            start_ns=tally.first_ns,
            end_ns=tally.last_ns,
            note=self._note,
        )

    def records(self, topics: Collection[str] | None) -> Iterator[Record]:
        """Records of these topics (None for all) in the order of time."""
        found = self._messages(topics)
        # Records out of order are rare and sorting needs them all in memory.
        return found if self._ordered else iter(sorted(found, key=lambda item: item.stamp_ns))

    def close(self) -> None:
        """Nothing is held open between two scans."""

    def _messages(self, topics: Collection[str] | None) -> Iterator[Record]:
        for opcode, body in self._records():
            if opcode != _MESSAGE:
                continue
            number, _, stamp_ns, _ = _MESSAGE_HEAD.unpack_from(body)
            channel = self._channels.get(number)
            if channel is not None and (topics is None or channel.topic in topics):
                yield Record(channel, stamp_ns, body[_MESSAGE_HEAD.size :])

    def _records(self) -> Iterator[tuple[int, bytes]]:
        """Schemas, channels and messages; chunks are opened, flaws are noted."""
        damaged = 0
        with self._path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise BagError(f"{self._path.name}: is not an MCAP file")
            try:
                for opcode, body in _split(file):
                    if opcode != _CHUNK:
                        yield opcode, body
                        continue
                    try:
                        inner = list(_split(io.BytesIO(_open_chunk(body))))
                    except Exception:
                        # The decompressors have an exception class each; whatever it
                        # is, this chunk is lost and the next one is not.
                        damaged += 1
                        continue
                    yield from inner
            except EOFError:
                self._note = "ends in the middle of a record; what comes before it is read"
        if damaged:
            self._note = f"{damaged} damaged chunks are left out"


def _split(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Records of a stream up to the end of its data section.

    Raises:
        EOFError: The stream ends in the middle of a record.
    """
    start = file.tell()
    size = file.seek(0, io.SEEK_END)
    file.seek(start)
    while head := file.read(_RECORD_HEAD_BYTES):
        length = int.from_bytes(head[1:], "little")
        if head[0] in (_DATA_END, _FOOTER):
            return
        if len(head) < _RECORD_HEAD_BYTES or file.tell() + length > size:
            raise EOFError
        if head[0] in _WANTED:
            yield head[0], file.read(length)
        else:
            file.seek(length, io.SEEK_CUR)


def _open_chunk(body: bytes) -> bytes:
    compression, position = _text(body, _CHUNK_HEAD_BYTES)
    data = body[position + 8 :]
    if compression == "zstd":
        return zstd.decompress(data)
    if compression == "lz4":
        return bytes(lz4_decompress(data))
    if compression:
        raise BagError(f"compression {compression!r}; expected zstd or lz4")
    return data


def _parse_schema(body: bytes) -> tuple[int, str, Definition]:
    name, position = _text(body, 2)
    encoding, position = _text(body, position)
    text, _ = _text(body, position)
    definition = Definition(_FORMATS.get(encoding, encoding), text)
    return int.from_bytes(body[:2], "little"), name, definition


def _parse_channel(body: bytes) -> tuple[int, tuple[int, str, str, bool]]:
    topic, position = _text(body, 4)
    encoding, position = _text(body, position)
    profiles = body[position:].decode(errors="replace")
    latched = any(mark in profiles for mark in _LATCHED)
    number, schema = struct.unpack_from("<HH", body)
    return number, (schema, topic, encoding, latched)


def _text(body: bytes, position: int) -> tuple[str, int]:
    """A length-prefixed text, and where it ends."""
    end = position + 4 + int.from_bytes(body[position : position + 4], "little")
    return body[position + 4 : end].decode(errors="replace"), end
