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
"""The subscriptions of the observations and of the node's own topics.

Everything here runs in the executor's thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.subscription import Subscription
from std_msgs.msg import String

from csr_policy.msg import StateChunk
from csr_policy.node.ingest_queue import Received
from csr_policy.node.ingest_thread import ACTION_RESULT, CHUNK, OWN_TOPICS, TASK
from csr_policy.node.message_types import message_class
from csr_policy.node.qos import matched_profile, own_topic_profile, preset_profile, qos_text
from csr_policy.node.status import Subscribed
from csr_policy.settings import ObservationSettings, QosPreset, Settings

MATCH_PERIOD_S = 0.2
"""How often the publishers of the `match` sources are looked at."""

_OWN_TYPES: Mapping[str, type] = {TASK: String, CHUNK: StateChunk, ACTION_RESULT: String}


@dataclass(slots=True)
class _Source:
    topic: str
    message_class: type
    match: bool
    profile: QoSProfile | None = None
    subscription: Subscription | None = None


class Subscriptions:
    """Subscribes every source and keeps the `match` ones in step with their publishers.

    A callback stamps its message, hands it on and returns.
    """

    def __init__(
        self,
        node: Node,
        settings: Settings,
        ros_time_ns: Callable[[], int],
        receive: Callable[[Received], None],
    ) -> None:
        """Subscribe; a `match` source waits for its first publisher.

        Raises:
            ValueError: A source has the name of an own topic or an unknown type.
        """
        self._node = node
        self._ros_time_ns = ros_time_ns
        self._receive = receive
        self._sources: dict[str, _Source] = {}
        classes = {name: _class_of(name, o) for name, o in settings.observations.items()}
        own_profile = own_topic_profile()
        for name, observation in settings.observations.items():
            match = observation.qos is QosPreset.MATCH
            self._sources[name] = _Source(observation.topic, classes[name], match)
            if not match:
                self._subscribe(name, preset_profile(observation.qos))
        for name, own_class in _OWN_TYPES.items():
            self._sources[name] = _Source(f"~/{name}", own_class, match=False)
            self._subscribe(name, own_profile)

    def match(self) -> None:
        """Subscribe the `match` sources as their publishers offer."""
        for name, source in self._sources.items():
            if not source.match:
                continue
            publishers = self._node.get_publishers_info_by_topic(source.topic)
            wanted = matched_profile(info.qos_profile for info in publishers)
            # Without a publisher the last subscription stays: it may come back.
            if wanted is not None and wanted != source.profile:
                self._subscribe(name, wanted)

    def subscribed(self) -> Mapping[str, Subscribed]:
        """How each source is subscribed."""
        return {
            name: Subscribed(
                self._node.resolve_topic_name(source.topic),
                qos_text(source.profile) if source.profile else "",
            )
            for name, source in self._sources.items()
        }

    def destroy(self) -> None:
        """Destroy every subscription."""
        for source in self._sources.values():
            if source.subscription is not None:
                self._node.destroy_subscription(source.subscription)
                source.subscription = None

    def _subscribe(self, name: str, profile: QoSProfile) -> None:
        source = self._sources[name]
        if source.subscription is not None:
            self._node.destroy_subscription(source.subscription)
        source.profile = profile
        source.subscription = self._node.create_subscription(
            source.message_class, source.topic, self._callback(name), profile
        )

    def _callback(self, name: str) -> Callable[[object], None]:
        def receive(message: object) -> None:
            self._receive(Received(name, message, self._ros_time_ns(), time.monotonic_ns()))

        return receive


def _class_of(name: str, observation: ObservationSettings) -> type:
    if name in OWN_TOPICS:
        raise ValueError(
            f"parameter 'observation_sources': {name!r} is a topic of the node itself; "
            f"expected another name than {', '.join(OWN_TOPICS)}"
        )
    try:
        return message_class(observation.type)
    except ValueError as error:
        raise ValueError(f"parameter 'observations.{name}.type': {error}") from error
