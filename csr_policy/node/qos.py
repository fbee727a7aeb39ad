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
"""Quality of service of the observations' subscriptions."""

from __future__ import annotations

from collections.abc import Iterable

from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

from csr_policy.settings import QosPreset

DEPTH = 10
RELIABLE_DEPTH = 100
"""For observations: what a full history of a reliable subscription loses, nobody counts."""
LATCHED_DEPTH = 1


def own_topic_profile() -> QoSProfile:
    """Profile of the node's own topics."""
    return profile(ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)


def preset_profile(preset: QosPreset) -> QoSProfile:
    """Profile of an observation's preset that does not depend on publishers."""
    if preset is QosPreset.SENSOR_DATA:
        return profile(ReliabilityPolicy.BEST_EFFORT, DurabilityPolicy.VOLATILE)
    assert preset is not QosPreset.MATCH, "it depends on the publishers"
    latched = preset is QosPreset.LATCHED
    durability = DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE
    return profile(ReliabilityPolicy.RELIABLE, durability, RELIABLE_DEPTH)


def matched_profile(offered: Iterable[QoSProfile]) -> QoSProfile | None:
    """The strictest profile that every publisher can serve; None where there is none.

    A reliable subscription gets nothing from a best-effort publisher and a
    transient-local one nothing from a volatile publisher, without an error.
    """
    profiles = list(offered)
    if not profiles:
        return None
    reliable = all(p.reliability is ReliabilityPolicy.RELIABLE for p in profiles)
    latched = all(p.durability is DurabilityPolicy.TRANSIENT_LOCAL for p in profiles)
    return profile(
        ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
        DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
        RELIABLE_DEPTH if reliable else DEPTH,
    )


def profile(
    reliability: ReliabilityPolicy, durability: DurabilityPolicy, depth: int = DEPTH
) -> QoSProfile:
    """A keep-last profile."""
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=reliability,
        durability=durability,
    )


def latched_profile() -> QoSProfile:
    """What `~/status` is published with: a late subscriber gets the newest one."""
    return profile(ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL, LATCHED_DEPTH)


def qos_text(qos: QoSProfile) -> str:
    """The two policies that decide whether messages arrive, in words."""
    return f"{qos.reliability.name} {qos.durability.name}".lower()
