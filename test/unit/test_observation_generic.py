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
"""The text of any message: flattened, rounded, summarised, bounded."""

from __future__ import annotations

import math

import numpy as np
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from csr_policy.observation.generic import MAX_FIELDS, generic_text

STORE = get_typestore(Stores.ROS2_JAZZY)


def made(definition: str, **fields: object) -> object:
    """A message of a custom type with this definition."""
    store = get_typestore(Stores.EMPTY)
    store.register(get_types_from_msg(definition, "robot_msgs/msg/Thing") | _known())
    return store.types["robot_msgs/msg/Thing"](**fields)


def _known() -> dict[str, object]:
    wanted = ("std_msgs/msg/Header", "builtin_interfaces/msg/Time", "geometry_msgs/msg/Pose")
    wanted += ("geometry_msgs/msg/Point", "geometry_msgs/msg/Quaternion")
    return {name: STORE.fielddefs[name] for name in wanted}


def header(frame: str) -> object:
    stamp = STORE.types["builtin_interfaces/msg/Time"](sec=7, nanosec=0)
    return STORE.types["std_msgs/msg/Header"](stamp=stamp, frame_id=frame)


def pose(x: float, y: float) -> object:
    types = STORE.types
    return types["geometry_msgs/msg/Pose"](
        position=types["geometry_msgs/msg/Point"](x=x, y=y, z=0.0),
        orientation=types["geometry_msgs/msg/Quaternion"](x=0.0, y=0.0, z=0.0, w=1.0),
    )


def test_fields_are_named_and_numbers_rounded():
    message = made(
        "float64 speed\nint32 gear\nbool brake\nstring mode\n",
        speed=1.23456,
        gear=-2,
        brake=True,
        mode="auto",
    )
    assert generic_text(message) == "speed 1.235, gear -2, brake true, mode auto"


def test_nan_and_infinity_are_named():
    message = made("float64 a\nfloat64 b\n", a=math.nan, b=-math.inf)
    assert generic_text(message) == "a nan, b -inf"


def test_stamps_covariances_and_empty_texts_are_left_out():
    message = made(
        "std_msgs/Header header\nfloat64[4] pose_covariance\nfloat64[4] covariance\n"
        "string note\nint32 a\n",
        header=header("map"),
        pose_covariance=np.ones(4),
        covariance=np.ones(4),
        note="",
        a=1,
    )
    assert generic_text(message) == "frame map, a 1"


def test_nested_fields_have_dotted_names_and_known_geometry_is_a_phrase():
    message = made(
        "geometry_msgs/Pose goal\nInner inner\n"
        + "=" * 80
        + "\nMSG: robot_msgs/Inner\nint32 a\nint32 b\n",
        goal=pose(1.0, 2.0),
        inner=_inner(1, 2),
    )
    assert generic_text(message) == "goal x 1 y 2 m yaw 0 deg, inner.a 1, inner.b 2"


def _inner(a: int, b: int) -> object:
    store = get_typestore(Stores.EMPTY)
    store.register(get_types_from_msg("int32 a\nint32 b\n", "robot_msgs/msg/Inner"))
    return store.types["robot_msgs/msg/Inner"](a=a, b=b)


def test_arrays_are_listed_while_short_and_summarised_beyond():
    message = made(
        "float64[] few\nfloat64[] many\nuint8[] raw\nstring[] names\nbool[] flags\nint32[] none\n",
        few=np.array([1.0, 2.5]),
        many=np.arange(100.0),
        raw=np.zeros(500, dtype=np.uint8),
        names=["a", "b"],
        flags=np.array([True] * 3 + [False] * 17),
        none=np.array([], dtype=np.int32),
    )
    assert generic_text(message) == (
        "few 1 2.5, many 100 values, min 0 mean 49.5 max 99, raw 500 bytes, "
        "names a, b, flags 3 of 20 true, none none"
    )


def test_a_list_of_messages_shows_its_first_and_its_length():
    message = made("geometry_msgs/Pose[] goals\n", goals=[pose(float(n), 0.0) for n in range(9)])
    text = generic_text(message)
    assert text.startswith("goals 9 items, goals[0] x 0 y 0 m yaw 0 deg, goals[1] x 1 y 0 m")
    assert text.count("yaw") == 3


def test_a_long_list_of_texts_tells_how_many_more():
    message = made("string[] names\n", names=[f"n{i}" for i in range(20)])
    assert generic_text(message).endswith("n7, +12 more")


def test_a_message_of_one_data_field_is_its_value():
    assert generic_text(made("float64 data\n", data=0.5)) == "0.5"


def test_a_message_that_says_nothing_is_called_empty():
    assert generic_text(STORE.types["std_msgs/msg/Empty"]()) == "empty"
    assert generic_text(made("string note\n", note="")) == "empty"


def test_a_message_of_very_many_fields_is_cut_visibly():
    names = [f"f{number}" for number in range(100)]
    message = made("".join(f"int32 {name}\n" for name in names), **dict.fromkeys(names, 0))
    text = generic_text(message)
    assert text.count(",") == MAX_FIELDS
    assert text.endswith(", and more fields")


def test_a_field_named_like_a_python_keyword_keeps_its_name():
    assert generic_text(made("int32 from\n", from_=3)) == "from 3"


def test_a_long_text_in_a_field_is_cut_with_a_mark():
    text = generic_text(made("string note\nint32 a\n", note="x" * 10_000, a=1))
    assert "…[cut 98" in text
    assert text.endswith("characters], a 1")
