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
"""Phrases for geometry: poses, twists, orientations, with units.

Axes follow REP-103 (x forward, y left, z up; metres, radians). Heights, side motion and
tilt are left out where they are zero, as they are on most wheeled robots. The functions
take a normalised view (`view.py`) of the type they are named after; NaN and infinity
come out as `nan` and `inf`. Pure; any thread may call it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from csr_policy.observation.text import number
from csr_policy.observation.view import ArrayView, numbers

_SHOWN_TILT_DEG = 5.0
_SHOWN_HEIGHT_M = 0.005
_SHOWN_SPEED = 0.005

Message = Any
"""A MessageView; its fields are known by name only."""


def axes(vector: Message, decimals: int | None = 2) -> str:
    """The components of a vector or point: `x 1.2 y 0 z -3`."""
    return " ".join(f"{axis} {number(getattr(vector, axis), decimals)}" for axis in "xyz")


def position(point: Message) -> str:
    """A point in metres: `x 1.2 y -0.5 m`; z only where the robot is not on the ground."""
    parts = [f"{axis} {number(getattr(point, axis), 2)}" for axis in "xy"]
    if _counts(point.z, _SHOWN_HEIGHT_M):
        parts.append(f"z {number(point.z, 2)}")
    return " ".join(parts) + " m"


def yaw_deg(quaternion: Message) -> float:
    """Heading in degrees, counter-clockwise; NaN for a quaternion of zero length."""
    return _euler_deg(quaternion)[2]


def roll_deg(quaternion: Message) -> float:
    """Roll in degrees; NaN for a quaternion of zero length."""
    return _euler_deg(quaternion)[0]


def pitch_deg(quaternion: Message) -> float:
    """Pitch in degrees; NaN for a quaternion of zero length."""
    return _euler_deg(quaternion)[1]


def attitude(quaternion: Message) -> str:
    """Orientation in degrees: `yaw 90 deg`, with roll and pitch where it is tilted."""
    roll, pitch, yaw = _euler_deg(quaternion)
    text = f"yaw {number(yaw, 0)} deg"
    if abs(roll) >= _SHOWN_TILT_DEG or abs(pitch) >= _SHOWN_TILT_DEG:
        text = f"roll {number(roll, 0)} pitch {number(pitch, 0)} {text}"
    return text


def pose(message: Message) -> str:
    """A geometry_msgs/msg/Pose: `x 1.2 y -0.5 m yaw 90 deg`."""
    return f"{position(message.position)} {attitude(message.orientation)}"


def transform(message: Message) -> str:
    """A geometry_msgs/msg/Transform, as a pose."""
    return f"{position(message.translation)} {attitude(message.rotation)}"


def twist(message: Message) -> str:
    """A geometry_msgs/msg/Twist: `forward 0.5 m/s, turn 12 deg/s` (left is positive)."""
    linear, angular = message.linear, message.angular
    speeds = [("forward", linear.x), ("left", linear.y), ("up", linear.z)]
    rates = [("roll", angular.x), ("pitch", angular.y), ("turn", angular.z)]
    parts = [f"{name} {number(v, 2)}" for name, v in speeds if _counts(v, _SHOWN_SPEED)]
    turns = [
        f"{name} {number(math.degrees(v), 0 if abs(v) > 0.2 else 1)}"
        for name, v in rates
        if _counts(v, _SHOWN_SPEED)
    ]
    phrases = [" ".join(parts) + " m/s"] if parts else []
    phrases += [" ".join(turns) + " deg/s"] if turns else []
    return ", ".join(phrases) or "no motion"


def in_frame(header: Message) -> str:
    """The frame of a std_msgs/msg/Header: ` in map`; empty where none is named."""
    return f" in {header.frame_id}" if header.frame_id else ""


def seconds(stamp: Message) -> float:
    """A builtin_interfaces Time or Duration in seconds."""
    return float(stamp.sec) + float(stamp.nanosec) * 1e-9


def degrees(radians: float) -> float:
    """Radians to degrees."""
    return math.degrees(radians)


def norm(vector: object) -> float:
    """Euclidean length of a vector, point, quaternion or sequence of numbers."""
    if isinstance(vector, ArrayView | Sequence):
        values = numbers(vector)
        components = [] if values is None else values.astype(float).tolist()
    else:
        components = [float(getattr(vector, axis)) for axis in "xyz"]
        components += [float(vector.w)] if hasattr(vector, "w") else []
    return math.hypot(*components)


def _counts(value: float, threshold: float) -> bool:
    """True where a value is worth its tokens; NaN and infinity are."""
    return not abs(value) < threshold


def _euler_deg(quaternion: Message) -> tuple[float, float, float]:
    x, y, z, w = (float(getattr(quaternion, axis)) for axis in "xyzw")
    length = x * x + y * y + z * z + w * w
    if not math.isfinite(length) or length < 1e-12:
        return math.nan, math.nan, math.nan
    x, y, z, w = (component / math.sqrt(length) for component in (x, y, z, w))
    roll = math.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    pitch = math.asin(max(-1.0, min(1.0, 2 * (w * y - z * x))))
    yaw = math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return math.degrees(roll), math.degrees(pitch), math.degrees(yaw)
