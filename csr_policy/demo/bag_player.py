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
"""Plays a recording into a ROS graph: every message on its own topic, at its own pace.

A message goes out as the bytes it was recorded in. What this ROS installation has no Python
support for is named, with the reason. `start`, `stop` and the properties may be called from any
thread; one thread of the player's own publishes.
"""

from __future__ import annotations

import importlib
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass

from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message

from csr_policy.demo.sightings import Sightings
from csr_policy.observation.bags import BagMessage, BagReader
from csr_policy.observation.source import ObservationSource
from csr_policy.observation.templates import TemplateError
from csr_policy.settings import ObservationSettings

_DEPTH = 100
_JOIN_S = 5.0
_GRAPH_TOPICS = {
    "/rosout": "the graph's own log, which the policy writes to as well",
    "/clock": "the recording's clock; every message has its time",
    "/parameter_events": "the graph's own events",
}


@dataclass(frozen=True, slots=True)
class Playable:
    """What of a bag can be played here.

    Attributes:
        types: Topic to message type.
        refused: Topic to the reason why it is not played; topics without messages are left out.
    """

    types: Mapping[str, str]
    refused: Mapping[str, str]


def playable_topics(reader: BagReader) -> Playable:
    """Sort a bag's topics into those that can be played and those that cannot, with the reason."""
    types: dict[str, str] = {}
    refused: dict[str, str] = {}
    for topic in reader.topics:
        if topic.messages == 0:
            continue
        reason = topic.reason or _GRAPH_TOPICS.get(topic.name, "") or _support_problem(topic.type)
        if reason:
            refused[topic.name] = reason
        else:
            types[topic.name] = topic.type
    return Playable(types, refused)


class BagPlayer:
    """Publishes a bag's messages through one node."""

    def __init__(
        self,
        node: Node,
        reader: BagReader,
        playable: Playable,
        observations: Mapping[str, ObservationSettings],
        *,
        rate: float,
    ) -> None:
        """Create the publishers; nothing is published before `start`.

        Args:
            node: Where the publishers live.
            reader: The opened bag; the player's thread reads it from `start` on.
            playable: What to play of it.
            observations: What the policy observes, to show it in the same words.
            rate: Seconds of the recording in one second.
        """
        self._reader = reader
        self._rate = rate
        self._refused = dict(playable.refused)
        latched = {topic.name for topic in reader.topics if topic.latched}
        self._classes = {name: message_class(type_) for name, type_ in playable.types.items()}
        self._publishers: dict[str, Publisher] = {
            name: node.create_publisher(class_, name, _profile(latched=name in latched))
            for name, class_ in self._classes.items()
        }
        self._sources = {
            settings.topic: ObservationSource(settings, name)
            for name, settings in observations.items()
        }
        self._checked: set[str] = set()
        self._observed: Sightings[BagMessage] = Sightings()
        self._newest_ns = reader.start_ns
        self._published = 0
        self._stop = threading.Event()
        self._finished = threading.Event()
        self._failure = ""
        self._thread = threading.Thread(target=self._run, name="bag_player", daemon=True)

    @property
    def refused(self) -> Mapping[str, str]:
        """Topic to the reason why it is not played."""
        return dict(self._refused)

    @property
    def without_subscriber(self) -> tuple[str, ...]:
        """Observed topics that are played and that nobody subscribes yet."""
        observed = [name for name in self._sources if name in self._publishers]
        return tuple(n for n in observed if not self._publishers[n].get_subscription_count())

    @property
    def finished(self) -> bool:
        """True once the last message is out, or the player has failed."""
        return self._finished.is_set()

    @property
    def failure(self) -> str:
        """Why playing ended early; empty where it did not."""
        return self._failure

    @property
    def published(self) -> int:
        """Messages published so far."""
        return self._published

    @property
    def position_s(self) -> float:
        """Seconds of the recording that are played."""
        return (self._newest_ns - self._reader.start_ns) / 1e9

    def observation_at(self, stamp_ns: int) -> str:
        """The newest observed message that was out at a time, in the policy's words."""
        item = self._observed.at(stamp_ns)
        if item is None:
            return ""
        source = self._sources[item.topic]
        try:
            return f"{source.name}: {' '.join(source.text(item.message).split())}"
        except TemplateError as error:
            return f"{source.name}: {error}"

    def start(self) -> None:
        """Begin to publish."""
        self._thread.start()

    def stop(self) -> None:
        """Stop publishing; bounded."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)

    def _run(self) -> None:
        try:
            self._play()
        except Exception as error:
            detail = " ".join(str(error).split()) or type(error).__name__
            self._failure = f"the bag player failed: {detail}"
            traceback.print_exc()
        finally:
            self._finished.set()

    def _play(self) -> None:
        started_s = time.monotonic()
        for item in self._reader.messages(set(self._publishers)):
            recorded_s = (item.stamp_ns - self._reader.start_ns) / 1e9
            wait_s = started_s + recorded_s / self._rate - time.monotonic()
            if self._stop.wait(max(0.0, wait_s)):
                return
            if self._fits(item):
                self._publishers[item.topic].publish(item.data)
                self._published += 1
                self._newest_ns = item.stamp_ns
                if item.topic in self._sources:
                    self._observed.add(time.time_ns(), item)

    def _fits(self, item: BagMessage) -> bool:
        """Whether a topic's bytes can be read as the type installed here.

        A type's definition may have changed since it was recorded; one look at the first
        message of a topic keeps bytes away from subscribers that they would crash.
        """
        if item.topic in self._refused:
            return False
        if item.topic not in self._checked:
            self._checked.add(item.topic)
            try:
                deserialize_message(item.data, self._classes[item.topic])
            except Exception as error:
                detail = " ".join(str(error).split())[:120]
                self._refused[item.topic] = f"{item.type} is another one here ({detail})"
                return False
        return True


def message_class(type_: str) -> type:
    """Import the class of `package/msg/Name`.

    Raises:
        ImportError: It is not installed.
    """
    package, _, rest = type_.partition("/")
    module = importlib.import_module(f"{package}.msg")
    found = getattr(module, rest.rpartition("/")[2], None)
    if not isinstance(found, type):
        raise ImportError(f"{type_} is not in the installed package {package}")
    return found


def _support_problem(type_: str) -> str:
    try:
        message_class(type_)
    except ImportError:
        return f"type {type_} has no Python support in this ROS installation"
    return ""


def _profile(*, latched: bool) -> QoSProfile:
    durability = DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE
    return QoSProfile(depth=_DEPTH, reliability=ReliabilityPolicy.RELIABLE, durability=durability)
