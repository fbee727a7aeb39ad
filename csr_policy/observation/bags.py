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
"""Reading a recording: a rosbag2 folder, or one of its files, without ROS.

SQLite and MCAP, split, compressed, without index, without metadata. Nothing is dropped
in silence: every topic is listed, what cannot be decoded has its reason and is counted,
and what is missing from the files is noted. One thread at a time.
"""

from __future__ import annotations

import contextlib
import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from csr_policy.observation.bag_files import open_files
from csr_policy.observation.bag_storage import BagError, Record, Storage
from csr_policy.observation.bag_types import Decode, Definition, TypeCatalogue, TypeUnknownError

__all__ = ["BagError", "BagMessage", "BagReader", "BagRecord", "BagTopic", "TopicCount"]

_Key = tuple[str, str]
_PROGRESS_MESSAGES = 1000


@dataclass(frozen=True, slots=True)
class BagTopic:
    """One topic of a bag.

    Attributes:
        name: Topic name.
        type: Message type, package/msg/Name.
        messages: Messages by the bag's metadata; by its files where it has none.
        latched: Recorded from a transient-local publisher.
        reason: Why its messages cannot be decoded; empty where they can.
    """

    name: str
    type: str
    messages: int
    latched: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class BagRecord:
    """One message as it is recorded: CDR bytes, and the time it was received."""

    topic: str
    type: str
    stamp_ns: int
    data: bytes


@dataclass(frozen=True, slots=True)
class BagMessage:
    """One decoded message, its bytes, and the time it was received."""

    topic: str
    type: str
    stamp_ns: int
    message: object
    data: bytes


@dataclass(frozen=True, slots=True)
class TopicCount:
    """What reading a bag found of one topic.

    Attributes:
        name: Topic name.
        type: Message type.
        messages: Messages by the bag's metadata.
        read: Messages found in its files.
        decoded: Messages decoded.
        reason: Why fewer were read or decoded than there should be; empty where all were.
    """

    name: str
    type: str
    messages: int
    read: int
    decoded: int
    reason: str = ""


class BagReader:
    """A recording, opened.

    Use as a context manager, or close it: a compressed bag is unpacked to a temporary
    folder meanwhile.
    """

    def __init__(self, path: Path | str) -> None:
        """Open a rosbag2 folder, or a single .mcap or .db3 file.

        Raises:
            BagError: There is no bag, or none of its files can be read; one line.
        """
        with contextlib.ExitStack() as stack:
            opened = open_files(Path(path), stack)
            self._stack = stack.pop_all()
        self._storages = opened.storages
        self._unpack = opened.unpack
        self._notes = list(opened.notes)
        self._declared = opened.counts
        definitions: dict[str, Definition] = {}
        for storage in self._storages:
            for type_, definition in storage.content.definitions.items():
                definitions.setdefault(type_, definition)
        self._catalogue = TypeCatalogue(definitions)
        self.topics = self._list_topics()
        self._reset_counts()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files and remove what was unpacked."""
        self._stack.close()

    @property
    def notes(self) -> tuple[str, ...]:
        """What is wrong with the bag as a whole, one line each; it grows while reading."""
        return tuple(self._notes)

    @property
    def message_count(self) -> int:
        """Messages of all topics."""
        return sum(topic.messages for topic in self.topics)

    @property
    def start_ns(self) -> int:
        """Time of the first message; 0 in an empty bag."""
        starts = (storage.content.start_ns for storage in self._storages)
        return min((start for start in starts if start is not None), default=0)

    @property
    def end_ns(self) -> int:
        """Time of the last message; 0 in an empty bag."""
        ends = (storage.content.end_ns for storage in self._storages)
        return max((end for end in ends if end is not None), default=0)

    @property
    def duration_s(self) -> float:
        """Time from the first message to the last."""
        return (self.end_ns - self.start_ns) / 1e9

    @property
    def rates_hz(self) -> Mapping[str, float]:
        """Mean rate by topic; a bag shorter than a second counts as one second."""
        counts: Counter[str] = Counter()
        for topic in self.topics:
            counts[topic.name] += topic.messages
        return {name: count / max(self.duration_s, 1.0) for name, count in counts.items()}

    @property
    def problems(self) -> Mapping[str, str]:
        """Topic to the reason why not all of it can be had; after reading, of what was read."""
        failed = {key[0]: self._failures_text(*key) for key in self._failures}
        return failed | {topic.name: topic.reason for topic in self.topics if topic.reason}

    def records(self, topics: Collection[str] | None = None) -> Iterator[BagRecord]:
        """All messages as they are recorded, in the order of their time, not decoded.

        Args:
            topics: Only these topics; None for all.
        """
        streams = [self._guarded(storage, topics) for storage in self._storages]
        for record in heapq.merge(*streams, key=lambda item: item.stamp_ns):
            channel = record.channel
            try:
                data = self._unpack(record.data)
            except Exception as error:
                # It is missing from the count of what was read, which tells how many.
                self._note(f"{channel.topic}: a message cannot be unpacked ({error})")
                continue
            yield BagRecord(channel.topic, channel.type, record.stamp_ns, data)

    def messages(self, topics: Collection[str] | None = None) -> Iterator[BagMessage]:
        """Decoded messages in the order of their time; the others are counted.

        Args:
            topics: Only these topics; None for all.
        """
        self._reset_counts()
        decoders: dict[_Key, Decode | None] = {
            (topic.name, topic.type): None if topic.reason else self._catalogue.decoder(topic.type)
            for topic in self.topics
        }
        for record in self.records(topics):
            key = (record.topic, record.type)
            self._read[key] += 1
            decode = decoders.get(key)
            if decode is None:
                continue
            try:
                message = decode(record.data)
            except Exception as error:
                # Bytes from outside: rosbags reports what does not fit in several ways.
                reason = " ".join(str(error).split()) or type(error).__name__
                self._failures.setdefault(key, reason[:160])
                continue
            self._decoded[key] += 1
            yield BagMessage(record.topic, record.type, record.stamp_ns, message, record.data)

    def survey(self, progress: Callable[[int], None] | None = None) -> tuple[TopicCount, ...]:
        """Read and decode the whole bag, and tell what was found.

        Args:
            progress: Is called with the number of messages read so far, now and then.
        """
        for number, _ in enumerate(self.messages(), start=1):
            if progress and number % _PROGRESS_MESSAGES == 0:
                progress(self._read.total())
        return self.counts()

    def counts(self) -> tuple[TopicCount, ...]:
        """What the last complete pass of `messages()` found, for every topic of the bag."""
        return tuple(
            TopicCount(
                name=topic.name,
                type=topic.type,
                messages=topic.messages,
                read=self._read[topic.name, topic.type],
                decoded=self._decoded[topic.name, topic.type],
                reason="; ".join(self._reasons(topic)),
            )
            for topic in self.topics
        )

    def _list_topics(self) -> tuple[BagTopic, ...]:
        found: Counter[_Key] = Counter()
        latched: dict[_Key, bool] = {}
        encodings: dict[_Key, str] = {}
        for channel in (item for storage in self._storages for item in storage.content.channels):
            key = (channel.topic, channel.type)
            found[key] += channel.messages
            latched[key] = latched.get(key, False) or channel.latched
            encodings[key] = channel.encoding
        declared = self._declared if self._declared is not None else {}
        return tuple(
            BagTopic(
                name=topic,
                type=type_,
                messages=declared.get((topic, type_), found[topic, type_]),
                latched=latched.get((topic, type_), False),
                reason=self._type_reason(type_, encodings.get((topic, type_), "cdr")),
            )
            for topic, type_ in dict.fromkeys([*declared, *found])
        )

    def _type_reason(self, type_: str, encoding: str) -> str:
        if encoding != "cdr":
            return f"is serialised as {encoding!r}; expected cdr"
        try:
            self._catalogue.decoder(type_)
        except TypeUnknownError as error:
            return str(error)
        return ""

    def _reset_counts(self) -> None:
        self._read: Counter[_Key] = Counter()
        self._decoded: Counter[_Key] = Counter()
        self._failures: dict[_Key, str] = {}

    def _guarded(self, storage: Storage, topics: Collection[str] | None) -> Iterator[Record]:
        try:
            yield from storage.records(topics)
        except Exception as error:
            # A file that is damaged further back; what was read before stays valid.
            detail = " ".join(str(error).split())[:160]
            self._note(f"reading stopped early: {detail or type(error).__name__}")

    def _note(self, line: str) -> None:
        if line not in self._notes:
            self._notes.append(line)

    def _reasons(self, topic: BagTopic) -> Iterator[str]:
        key = (topic.name, topic.type)
        if topic.reason:
            yield topic.reason
        elif key in self._failures:
            yield self._failures_text(*key)
        if self._read[key] != topic.messages:
            found = self._read[key]
            yield f"the metadata tells of {topic.messages} messages, the files hold {found}"

    def _failures_text(self, topic: str, type_: str) -> str:
        read, decoded = self._read[topic, type_], self._decoded[topic, type_]
        return f"{read - decoded} of {read} messages: {self._failures[topic, type_]}"
