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
"""A sensible observation config for a graph or a bag that nobody has described.

What is no observation (transforms, clocks, parameter events, the robot's own
description) is left out and named. The rest shares a budget of tokens a second, so that
a fast sensor cannot crowd out the slow ones. Pure; any thread may call it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from csr_policy.observation.defaults import GENERIC_TEMPLATE
from csr_policy.observation.templates import default_source, message_type
from csr_policy.settings import ObservationSettings

DEFAULT_TOKENS_PER_S = 20.0
CHUNK_OVERHEAD_TOKENS = 12
"""Time, name and newline of a chunk, about."""

_SKIPPED_TYPES = {
    "rcl_interfaces/msg/ParameterEvent": "parameter events",
    "rosbag2_interfaces/msg/ReadSplitEvent": "the recorder's own events",
    "rosbag2_interfaces/msg/WriteSplitEvent": "the recorder's own events",
    "rosgraph_msgs/msg/Clock": "a clock; every chunk has its time",
    "statistics_msgs/msg/MetricsMessage": "statistics of the middleware",
    "tf2_msgs/msg/TFMessage": "transforms; Odometry and Pose say where the robot is",
    "csr_policy/msg/PolicyStatus": "the policy's own status",
    "csr_policy/msg/ActionDecision": "the policy's own decisions, which it remembers",
}
_SKIPPED_NAMES = {
    "robot_description": "the robot's description, too long to be an observation",
    "robot_description_semantic": "the robot's description, too long to be an observation",
}
_TOKENS_BY_TYPE = {
    "diagnostic_msgs/msg/DiagnosticArray": 30,
    "nav_msgs/msg/Odometry": 35,
    "rcl_interfaces/msg/Log": 40,
    "sensor_msgs/msg/FluidPressure": 8,
    "sensor_msgs/msg/Imu": 55,
    "sensor_msgs/msg/JointState": 120,
    "sensor_msgs/msg/NavSatFix": 35,
    "std_msgs/msg/Bool": 2,
}
_TOKENS_STANDARD = 25
_MAX_TOKENS_CUSTOM = 128
"""An undescribed message can be hundreds of tokens long, of which few matter."""


@dataclass(frozen=True, slots=True)
class ObservationPlan:
    """What to observe.

    Attributes:
        observations: Settings by observation name, in the order of the topics.
        skipped: Topic to the reason why it is not observed.
        tokens_per_s: Estimated tokens a second of all observations together; a topic of
            unknown rate counts with its whole share of the budget.
    """

    observations: Mapping[str, ObservationSettings]
    skipped: Mapping[str, str]
    tokens_per_s: float


def observations_for(
    topics: Iterable[tuple[str, str]],
    rates: Mapping[str, float] | None = None,
    *,
    tokens_per_s: float = DEFAULT_TOKENS_PER_S,
    chunk_tokens: Mapping[str, float] | None = None,
) -> dict[str, ObservationSettings]:
    """A ready observation config; see `plan_observations`."""
    plan = plan_observations(topics, rates, tokens_per_s=tokens_per_s, chunk_tokens=chunk_tokens)
    return dict(plan.observations)


def plan_observations(
    topics: Iterable[tuple[str, str]],
    rates: Mapping[str, float] | None = None,
    *,
    tokens_per_s: float = DEFAULT_TOKENS_PER_S,
    chunk_tokens: Mapping[str, float] | None = None,
) -> ObservationPlan:
    """Choose observations for topics.

    Args:
        topics: Topic name and message type; a topic that comes twice is taken once.
        rates: Messages a second by topic, where known; a topic without is assumed fast.
        tokens_per_s: Budget of all observations together.
        chunk_tokens: Mean length of a chunk by topic, where it was measured; a topic
            without is estimated by its type.

    Returns:
        Names made of the topics, minimum intervals by rate, and what is left out.
    """
    chosen: dict[str, str] = {}
    skipped: dict[str, str] = {}
    for topic, type_ in topics:
        reason = _skip_reason(topic, message_type(type_))
        if reason:
            skipped[topic] = reason
        elif chosen.setdefault(topic, message_type(type_)) != message_type(type_):
            skipped[topic] = f"has two types; {chosen[topic]} is observed"
    tokens = {
        topic: (chunk_tokens or {}).get(topic) or _estimated_tokens(type_)
        for topic, type_ in chosen.items()
    }
    demands = {topic: (rates or {}).get(topic, math.inf) * tokens[topic] for topic in chosen}
    shares = _fair_shares(demands, tokens_per_s)
    observations = {
        name: ObservationSettings(
            topic=topic,
            type=type_,
            on_change=True,
            min_interval_s=_interval_s(demands[topic], shares[topic], tokens[topic]),
            max_tokens=0 if _is_described(type_) else _MAX_TOKENS_CUSTOM,
        )
        for (topic, type_), name in zip(chosen.items(), _names(list(chosen)), strict=True)
    }
    return ObservationPlan(observations, skipped, sum(shares.values()))


def _skip_reason(topic: str, type_: str) -> str:
    leaf = topic.rstrip("/").rpartition("/")[2]
    if type_ in _SKIPPED_TYPES:
        return _SKIPPED_TYPES[type_]
    if leaf in _SKIPPED_NAMES:
        return _SKIPPED_NAMES[leaf]
    if type_.count("/") != 2 or not all(type_.split("/")):
        return f"type {type_!r}; expected package/msg/Name"
    return ""


def _is_described(type_: str) -> bool:
    return default_source(type_) != GENERIC_TEMPLATE


def _estimated_tokens(type_: str) -> int:
    usual = _TOKENS_STANDARD if _is_described(type_) else _MAX_TOKENS_CUSTOM
    return CHUNK_OVERHEAD_TOKENS + _TOKENS_BY_TYPE.get(type_, usual)


def _fair_shares(demands: Mapping[str, float], budget: float) -> dict[str, float]:
    """Max-min fair division: who needs less than an equal share leaves the rest to others."""
    shares: dict[str, float] = {}
    left = budget
    for position, topic in enumerate(sorted(demands, key=lambda name: (demands[name], name))):
        shares[topic] = min(demands[topic], left / (len(demands) - position))
        left -= shares[topic]
    return shares


def _interval_s(demand: float, share: float, tokens: float) -> float:
    if demand <= share:
        return 0.0
    interval = tokens / share
    return round(interval, 1) if interval >= 1 else round(interval, 2)


def _names(topics: Sequence[str]) -> list[str]:
    """Short, unique names: a namespace that all topics share costs tokens and says nothing.

    Topics without a namespace, such as /rosout, share none with anyone and do not count.
    """
    parts = [[part for part in topic.split("/") if part] for topic in topics]
    spaced = [part for part in parts if len(part) > 1]
    shared = 0
    while len(spaced) > 1 and all(
        len(part) > shared + 1 and part[shared] == spaced[0][shared] for part in spaced
    ):
        shared += 1
    names: list[str] = []
    for part in parts:
        base = re.sub(r"[^a-z0-9]+", "_", "_".join(part[shared:] or part).lower()).strip("_")
        if not base or not base[0].isalpha():
            base = f"topic_{base}".rstrip("_")
        name, number = base, 2
        while name in names:
            name, number = f"{base}_{number}", number + 1
        names.append(name)
    return names
