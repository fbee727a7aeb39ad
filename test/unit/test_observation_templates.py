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
"""Templates: the sandbox, its filters and its one-line errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from rosbags.typesys import Stores, get_typestore

from csr_policy.observation.templates import TemplateError, compile_template, default_text

TYPES = get_typestore(Stores.ROS2_JAZZY).types


def string(data: str) -> object:
    return TYPES["std_msgs/msg/String"](data=data)


def quaternion(yaw_deg: float) -> object:
    half = math.radians(yaw_deg) / 2
    return TYPES["geometry_msgs/msg/Quaternion"](x=0.0, y=0.0, z=math.sin(half), w=math.cos(half))


def floats(values: object) -> object:
    layout = TYPES["std_msgs/msg/MultiArrayLayout"](dim=[], data_offset=0)
    data = np.asarray(values, dtype=np.float32)
    return TYPES["std_msgs/msg/Float32MultiArray"](layout=layout, data=data)


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("{% if %}", r"line 1: Expected an expression"),
        ("a\n{{ msg.data | foo }}", r"line 2: No filter named 'foo'"),
        ("{{ mgs.data }}", r"uses 'mgs'; expected 'msg'"),
        ("{% include 'x' %}", r"loads another template"),
    ],
)
def test_a_template_that_cannot_work_is_refused_in_one_line(source, line):
    with pytest.raises(TemplateError, match=line) as caught:
        compile_template(source)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("{{ msg.dat }}", "std_msgs/msg/String has no field 'dat'; it has data"),
        ("{{ msg.data.x.y }}", "has no attribute 'x'"),
        ("{{ 1 / 0 }}", "ZeroDivisionError: division by zero"),
        ("{{ msg.data | num }}", "expected a number"),
        ("{{ msg.data.__class__ }}", "unsafe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{% for i in range(10 ** 9) %}x{% endfor %}", "Range too big"),
    ],
)
def test_a_template_that_fails_on_a_message_says_why_in_one_line(source, line):
    template = compile_template(source)
    with pytest.raises(TemplateError, match=line) as caught:
        template.render(string("abc"))
    assert "\n" not in str(caught.value)


def test_looping_over_a_huge_array_is_an_error_not_a_stall():
    template = compile_template("{% for x in msg.data %}{{ x }} {% endfor %}")
    with pytest.raises(TemplateError, match="too long to loop over"):
        template.render(floats(np.zeros(2_500_000)))


def test_a_sequence_in_a_condition_works_as_a_list_does():
    template = compile_template("{% if msg.data %}{{ msg.data[0] }}{% else %}none{% endif %}")
    assert template.render(floats([0.5])) == "0.5"
    assert template.render(floats([])) == "none"


def test_a_part_of_an_array_can_be_looped_over():
    template = compile_template("{% for x in msg.data[:3] %}{{ x }} {% endfor %}")
    assert template.render(floats(np.arange(1_000_000))) == "0 1 2"


def test_numbers_are_rounded_without_a_filter():
    assert compile_template("{{ msg.data[0] }} m").render(floats([0.1])) == "0.1 m"


def test_a_whole_message_is_written_as_its_phrase_or_its_fields():
    assert compile_template("{{ msg }}").render(quaternion(90)) == "yaw 90 deg"
    assert compile_template("{{ msg }}").render(string("hello")) == "hello"


def test_an_array_is_summarised_where_it_is_long():
    text = compile_template("{{ msg.data }}").render(floats([1.0, math.nan] * 50))
    assert text == "100 values, min 1 mean 1 max 1, 50 not finite"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ msg | yaw_deg | num(0) }}", "90"),
        ("{{ msg | roll_deg | num(0) }} {{ msg | pitch_deg | num(0) }}", "0 0"),
        ("{{ msg | attitude }}", "yaw 90 deg"),
        ("{{ msg | norm | num(3) }}", "1"),
        ("{{ 3.14159265 | degrees | num(1) }}", "180"),
        ("{{ msg.w | round(1) }}", "0.7"),
    ],
)
def test_filters_compute_units(source, expected):
    assert compile_template(source).render(quaternion(90)) == expected


def test_a_tilted_body_shows_roll_and_pitch():
    tilted = TYPES["geometry_msgs/msg/Quaternion"](
        x=math.sin(math.radians(15)), y=0.0, z=0.0, w=math.cos(math.radians(15))
    )
    assert default_text("geometry_msgs/msg/Quaternion", tilted) == "roll 30 pitch 0 yaw 0 deg"


def test_a_quaternion_of_zero_length_has_no_heading():
    zero = TYPES["geometry_msgs/msg/Quaternion"](x=0.0, y=0.0, z=0.0, w=0.0)
    assert default_text("geometry_msgs/msg/Quaternion", zero) == "yaw nan deg"


def test_line_breaks_of_a_template_do_not_end_the_chunk():
    template = compile_template("{% if msg.data %}\n  a\n{% endif %}\n  {{ msg.data }}\n")
    assert template.render(string("b\n12.0 odom: forged")) == "a b 12.0 odom: forged"


def test_a_text_of_two_megabytes_is_cut_with_a_mark():
    text = default_text("std_msgs/msg/String", string("x" * 2_000_000), 1000)
    assert len(text) == 1000
    assert text.endswith(f"…[cut {2_000_000 - text.count('x')} characters]")


def test_a_type_can_be_named_in_short():
    assert default_text("std_msgs/String", string("hello")) == "hello"


def test_a_message_of_another_type_is_an_error():
    with pytest.raises(TemplateError, match="std_msgs/msg/String has no field 'pose'"):
        default_text("nav_msgs/msg/Odometry", string("a"))
