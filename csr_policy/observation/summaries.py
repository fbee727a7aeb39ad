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
"""Summaries of message types that a plain template cannot write in a few tokens.

Each takes a normalised view (`view.py`) of the type in its docstring, never raises on
NaN, infinity or an empty array, and its length is bounded whatever the message holds.
Pure; any thread may call it.
"""

from __future__ import annotations

import math
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from csr_policy.observation.arrays import more, short
from csr_policy.observation.geometry import attitude, axes, in_frame, position, transform
from csr_policy.observation.text import number
from csr_policy.observation.view import ArrayView, numbers, raw

Message = Any
"""A MessageView; its fields are known by name only."""

MAX_JOINTS = 16
MAX_TRANSFORMS = 8
MAX_DIAGNOSTICS = 5
MAX_MEASURED_POSES = 5_000

_SECTORS = {
    4: ("front", "left", "back", "right"),
    8: (
        "front",
        "front-left",
        "left",
        "back-left",
        "back",
        "back-right",
        "right",
        "front-right",
    ),
}
_LEVELS = ("OK", "WARN", "ERROR", "STALE")
_WORST_FIRST = (2, 3, 1)
_CHARGING = {1: "charging", 2: "discharging", 3: "not charging", 4: "full"}
_OCCUPIED_FROM = 50


def sectors(scan: Message, count: int = 4) -> str:
    """A sensor_msgs/msg/LaserScan: the nearest range in each of 4 or 8 sectors, metres.

    A sector that sees nothing within range is `clear`, one that sees only faults is
    `nan`, one outside the field of view is left out. By REP-117 an infinite range is free
    space, a negative infinite one is an object too close to measure.
    """
    if count not in _SECTORS:
        raise ValueError(f"sectors: is {count!r}; expected 4 or 8")
    ranges = numbers(scan.ranges)
    if ranges is None or not ranges.size:
        return "no ranges"
    values = ranges.astype(np.float64)
    with np.errstate(all="ignore"):
        angles = scan.angle_min + scan.angle_increment * np.arange(values.size)
        turn = np.floor(angles / (2 * math.pi / count) + 0.5)
        sector = np.mod(turn, count)
        parts = [
            f"{name} {_nearest(values[sector == index], scan.range_min, scan.range_max)}"
            for index, name in enumerate(_SECTORS[count])
            if np.any(sector == index)
        ]
    return f"nearest {' '.join(parts)} m" if parts else "no valid angles"


def _nearest(values: NDArray[np.float64], range_min: float, range_max: float) -> str:
    if np.any(np.isneginf(values)):
        return f"under {number(range_min, 2)}"
    hits = values[(values >= range_min) & (values <= range_max) & np.isfinite(values)]
    if hits.size:
        return number(float(hits.min()), 2)
    return "clear" if np.any(values > range_max) or np.any(np.isposinf(values)) else "nan"


def battery(state: Message) -> str:
    """A sensor_msgs/msg/BatteryState: `charge 87 % 12.3 V -1.2 A discharging`.

    The charge is a share of one by definition; drivers that send percent are understood.
    What a driver does not measure is NaN by definition and left out, but for the charge.
    """
    share = state.percentage
    percent = share * 100 if share <= 1 else share
    parts = [f"charge {number(percent, 0)} %", f"{number(state.voltage, 2)} V"]
    if not math.isnan(state.current):
        parts.append(f"{number(state.current, 2)} A")
    if not math.isnan(state.temperature) and state.temperature != 0:
        parts.append(f"{number(state.temperature, 0)} C")
    if state.power_supply_status in _CHARGING:
        parts.append(_CHARGING[state.power_supply_status])
    return " ".join(parts)


def imu(message: Message) -> str:
    """A sensor_msgs/msg/Imu; what the first covariance marks as absent (-1) is left out."""
    parts = []
    if message.orientation_covariance[0] != -1:
        parts.append(attitude(message.orientation))
    if message.angular_velocity_covariance[0] != -1:
        parts.append(f"turn rate {axes(message.angular_velocity)} rad/s")
    if message.linear_acceleration_covariance[0] != -1:
        parts.append(f"acceleration {axes(message.linear_acceleration, 1)} m/s2")
    return ", ".join(parts) or "no data"


def joints(state: Message) -> str:
    """A sensor_msgs/msg/JointState: positions by name, and speeds of what moves.

    Positions are radians, or metres for a sliding joint; the message does not tell.
    """
    names = [str(name) for name in islice(state.name[:MAX_JOINTS], MAX_JOINTS)]
    columns = {
        "position": state.position,
        "velocity": state.velocity,
        "effort": state.effort,
    }
    filled = {name: values for name, values in columns.items() if values}
    if not names or not filled:
        return f"{len(state.name)} joints without values" if names else "no joints"
    label, values = next(iter(filled.items()))
    parts = []
    for index, name in enumerate(names):
        text = f"{short(name)} {number(values[index], 2) if index < len(values) else 'nan'}"
        if label == "position" and index < len(state.velocity):
            speed = state.velocity[index]
            text += "" if abs(speed) < 0.005 else f" ({number(speed, 2)}/s)"
        parts.append(text)
    unit = {"position": "rad or m", "velocity": "rad/s or m/s", "effort": "N m or N"}[label]
    return f"{label} {', '.join(parts)}{more(len(state.name) - len(parts))} {unit}"


def path(message: Message) -> str:
    """A nav_msgs/msg/Path: number of poses, length, end."""
    poses = message.poses
    if not poses:
        return "no poses"
    last = poses[-1].pose.position
    text = f"{len(poses)} poses, {_length_text(poses)}, ends {position(last)}"
    return text + (in_frame(message.header) or in_frame(poses[-1].header))


def _length_text(poses: ArrayView) -> str:
    """Length of a path; every n-th pose of one that is too long to measure in time."""
    stride = 1 + (len(poses) - 1) // MAX_MEASURED_POSES
    points = [raw(item) for item in map(_point, poses[::stride][:MAX_MEASURED_POSES])]
    if (len(poses) - 1) % stride:
        points.append(raw(_point(poses[-1])))
    length = sum(math.dist(_xyz(a), _xyz(b)) for a, b in pairwise(points))
    return f"{'about ' if stride > 1 else ''}{number(float(length), 1)} m long"


def _point(stamped: Message) -> object:
    return stamped.pose.position


def _xyz(point: Any) -> tuple[float, float, float]:
    return float(point.x), float(point.y), float(point.z)


def grid(message: Message) -> str:
    """A nav_msgs/msg/OccupancyGrid: size, share known and share occupied."""
    info = message.info
    size = f"{info.width} x {info.height} cells of {number(info.resolution, 3)} m"
    cells = numbers(message.data)
    if cells is None or not cells.size:
        return f"{size}, no data"
    signed = cells.astype(np.int8, copy=False)
    known = np.count_nonzero(signed >= 0) / signed.size
    occupied = np.count_nonzero(signed >= _OCCUPIED_FROM) / signed.size
    return f"{size}, {number(known * 100, 0)} % known, {number(occupied * 100, 0)} % occupied"


def joystick(message: Message) -> str:
    """A sensor_msgs/msg/Joy: axes and the numbers of the pressed buttons."""
    axes = numbers(message.axes)
    pressed = numbers(message.buttons)
    stick = [] if axes is None else axes[:MAX_JOINTS].tolist()
    keys = [] if pressed is None else np.flatnonzero(pressed)[:MAX_JOINTS].tolist()
    stick_text = " ".join(number(float(value), 2) for value in stick) or "none"
    return f"axes {stick_text}, pressed {' '.join(map(str, keys)) or 'none'}"


def diagnostics(message: Message) -> str:
    """A diagnostic_msgs/msg/DiagnosticArray: worst first, then how many are OK."""
    codes = [message.status[index].level for index in range(len(message.status))]
    order = [i for worst in _WORST_FIRST for i, code in enumerate(codes) if code == worst]
    order += [i for i, code in enumerate(codes) if code not in (0, *_WORST_FIRST)]
    parts = [_diagnostic(message.status[index]) for index in order[:MAX_DIAGNOSTICS]]
    if len(order) > len(parts):
        parts.append(f"{len(order) - len(parts)} more not OK")
    if 0 in codes or not codes:
        parts.append(f"{codes.count(0)} OK")
    return "; ".join(parts)


def _diagnostic(status: Message) -> str:
    level = _LEVELS[status.level] if status.level < len(_LEVELS) else f"level {status.level}"
    text = f"{level} {short(status.name)}".rstrip()
    return f"{text}: {short(status.message)}" if status.message else text


def transforms(message: Message) -> str:
    """A tf2_msgs/msg/TFMessage: `map to odom x 1 y 2 m yaw 3 deg`, a few of them."""
    items = message.transforms
    parts = [
        f"{short(item.header.frame_id)} to {short(item.child_frame_id)} "
        f"{transform(item.transform)}"
        for item in islice(items[:MAX_TRANSFORMS], MAX_TRANSFORMS)
    ]
    return "; ".join(parts) + more(len(items) - len(parts)) if parts else "no transforms"
