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
"""A message looks the same whoever made it, and an array is never converted."""

from __future__ import annotations

import array

import numpy as np
import pytest
from rosbags.typesys import Stores, get_typestore

from csr_policy.observation.view import (
    MAX_ITERATED,
    ArrayView,
    ViewError,
    field_names,
    numbers,
    type_name,
    view,
)

TYPES = get_typestore(Stores.ROS2_JAZZY).types


def string(data: str) -> object:
    return TYPES["std_msgs/msg/String"](data=data)


@pytest.mark.parametrize(
    "items",
    [
        [1.0, 2.0, 3.0],
        (1.0, 2.0, 3.0),
        array.array("d", [1.0, 2.0, 3.0]),
        np.array([1.0, 2.0, 3.0]),
        np.array([1.0, 2.0, 3.0], dtype=np.float32),
    ],
    ids=["list", "tuple", "array", "float64", "float32"],
)
def test_every_kind_of_sequence_behaves_like_a_list(items):
    seen = view(items)
    assert bool(seen)
    assert len(seen) == 3
    assert list(seen) == [1.0, 2.0, 3.0]
    assert seen[-1] == 3.0
    assert type(seen[0]) is float
    assert seen[1:] == [2.0, 3.0]
    assert 2.0 in seen
    assert seen == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("items", [[], array.array("f"), np.array([]), b""])
def test_an_empty_sequence_is_false(items):
    assert not view(items)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int16(-3), -3),
        (np.float64(0.5), 0.5),
        (np.bool_(True), True),
        (np.array(7), 7),
        (b"\x02", 2),
        ("text", "text"),
    ],
)
def test_a_scalar_is_pythons_own(value, expected):
    seen = view(value)
    assert seen == expected
    assert type(seen) is type(expected)


def test_an_array_is_wrapped_without_a_copy():
    data = np.zeros(10_000_000, dtype=np.uint8)
    assert np.shares_memory(numbers(view(data)[5:]), data)
    values = array.array("B", bytes(1000))
    assert np.shares_memory(numbers(view(values)), np.asarray(values))


def test_bytes_in_a_list_are_numbers():
    assert numbers(view([b"\x01", b"\xff"])).tolist() == [1, 255]


def test_texts_are_no_numbers():
    assert numbers(view(["a", "b"])) is None


def test_looping_over_a_huge_array_is_refused_in_one_line():
    huge = view(np.zeros(MAX_ITERATED + 1))
    with pytest.raises(ViewError, match="too long to loop over"):
        iter(huge)
    assert sum(1 for _ in huge[:100]) == 100


def test_a_message_shows_its_fields_and_constants_only():
    log = view(
        TYPES["diagnostic_msgs/msg/DiagnosticStatus"](
            level=2, name="motor", message="hot", hardware_id="", values=[]
        )
    )
    assert log.name == "motor"
    assert log.ERROR == 2
    assert isinstance(log.values, ArrayView)
    for name in ("__msgtype__", "_message", "nothing"):
        with pytest.raises(AttributeError):
            log.__getattr__(name)


def test_constants_are_no_fields():
    names = field_names(TYPES["sensor_msgs/msg/NavSatStatus"](status=0, service=1))
    assert names == ("status", "service")


def test_the_filler_of_an_empty_message_is_no_field():
    assert field_names(TYPES["std_msgs/msg/Empty"]()) == ()


def test_a_type_is_named_as_ros_names_it():
    assert type_name(view(string("a"))) == "std_msgs/msg/String"


def test_messages_with_equal_fields_are_equal():
    assert view(string("a")) == view(string("a"))
    assert view(string("a")) != view(string("b"))


def test_what_is_no_message_is_refused_in_one_line():
    with pytest.raises(ViewError, match="is a set; expected a message"):
        field_names({1, 2})
