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
"""The text of any message: fields flattened, numbers rounded, long arrays summarised.

What tells a decision nothing is left out: stamps, covariances, empty texts. Known
geometry inside an unknown message is written as the phrases of `geometry.py`. The work
and the length are bounded, whatever the message holds. Pure; any thread may call it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from csr_policy.observation.arrays import array_text, short
from csr_policy.observation.geometry import attitude, axes, pose, seconds, transform, twist
from csr_policy.observation.text import number
from csr_policy.observation.view import ArrayView, MessageView, field_items, type_name, view

MAX_FIELDS = 48
MAX_DEPTH = 8
MAX_LISTED_MESSAGES = 3
EMPTY_TEXT = "empty"

_PHRASES: Mapping[str, Callable[[MessageView], str]] = {
    "builtin_interfaces/msg/Duration": lambda value: f"{number(seconds(value), 3)} s",
    "builtin_interfaces/msg/Time": lambda value: f"{number(seconds(value), 3)} s",
    "geometry_msgs/msg/Point": lambda value: f"{axes(value)} m",
    "geometry_msgs/msg/Point32": lambda value: f"{axes(value)} m",
    "geometry_msgs/msg/Pose": pose,
    "geometry_msgs/msg/Quaternion": attitude,
    "geometry_msgs/msg/Transform": transform,
    "geometry_msgs/msg/Twist": twist,
    "geometry_msgs/msg/Vector3": lambda value: axes(value, None),
}
_STAMP_TYPE = "builtin_interfaces/msg/Time"
_HEADER_TYPE = "std_msgs/msg/Header"
_LAYOUT_TYPE = "std_msgs/msg/MultiArrayLayout"


def generic_text(message: object) -> str:
    """Flatten a message into `name value, other.name value, …`.

    Args:
        message: A message of rclpy or rosbags, or a view of one.

    Returns:
        The text; `empty` where the message has no field that says anything.
    """
    seen = view(message)
    if isinstance(seen, ArrayView):
        return array_text(seen)
    if not isinstance(seen, MessageView):
        return _scalar_text(seen)
    if phrase := _PHRASES.get(type_name(seen)):
        return phrase(seen)
    fields = _fields(seen, "", 0)
    parts = list(islice(fields, MAX_FIELDS))
    if len(parts) == MAX_FIELDS and next(fields, None) is not None:
        parts.append(("", "and more fields"))
    if len(parts) == 1 and parts[0][0] == "data":
        return parts[0][1]
    return ", ".join(f"{name} {text}" if name else text for name, text in parts) or EMPTY_TEXT


def _fields(message: MessageView, prefix: str, depth: int) -> Iterator[tuple[str, str]]:
    """Leaves of a message, name and text, in the order of the definition."""
    for name, value in field_items(message):
        path = f"{prefix}{name}"
        if name.endswith("covariance"):
            continue
        if isinstance(value, MessageView):
            yield from _message_fields(value, path, name, depth)
        elif isinstance(value, ArrayView) and _holds_messages(value):
            yield from _listed_messages(value, path, depth)
        elif isinstance(value, ArrayView):
            yield path, array_text(value)
        elif value != "":
            yield path, _scalar_text(value)


def _message_fields(
    value: MessageView, path: str, name: str, depth: int
) -> Iterator[tuple[str, str]]:
    kind = type_name(value)
    if kind == _HEADER_TYPE:
        frame = value.frame_id
        if frame:
            yield "frame", short(str(frame))
    elif kind == _LAYOUT_TYPE or (kind == _STAMP_TYPE and name == "stamp"):
        return
    elif kind in _PHRASES:
        yield path, _PHRASES[kind](value)
    elif depth >= MAX_DEPTH:
        yield path, "…"
    else:
        yield from _fields(value, f"{path}.", depth + 1)


def _listed_messages(values: ArrayView, path: str, depth: int) -> Iterator[tuple[str, str]]:
    """The first few messages of a sequence, and how many there are."""
    shown = min(len(values), MAX_LISTED_MESSAGES)
    if len(values) > shown:
        yield path, f"{len(values)} items"
    for index in range(shown):
        item = values[index]
        if isinstance(item, MessageView):
            yield from _message_fields(item, f"{path}[{index}]", "", depth)


def _holds_messages(values: ArrayView) -> bool:
    return len(values) > 0 and isinstance(values[0], MessageView)


def _scalar_text(value: object) -> str:
    return short(value) if isinstance(value, str) else number(value)
