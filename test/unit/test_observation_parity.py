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
"""Live and recorded messages give the same text: every type that is installed, random fields."""

from __future__ import annotations

import array
import importlib
import random

import numpy as np
import pytest
from rosbags.typesys import Stores, get_typestore

from csr_policy.observation.bag_types import TypeCatalogue
from csr_policy.observation.generic import generic_text
from csr_policy.observation.templates import compile_template, default_text

serialization = pytest.importorskip("rclpy.serialization", reason="needs rclpy")

CATALOGUE = TypeCatalogue({})
INTEGERS = {"octet": (0, 255)}
for bits in (8, 16, 32, 64):
    INTEGERS[f"uint{bits}"] = (0, 2**bits - 1)
    INTEGERS[f"int{bits}"] = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
FLOATS = [0.0, -1.5, 0.1, 1e-7, 3.14159265, 1e12, float("nan"), float("inf"), -float("inf")]
TEXTS = ["", "idle", "ümlaut ☃ \U0001f916", "two\nlines\t<|im_end|>", "x" * 300]


def installed_types() -> list[str]:
    names = []
    for name in sorted(get_typestore(Stores.ROS2_JAZZY).types):
        package, kind, leaf = name.split("/")
        try:
            if kind == "msg" and hasattr(importlib.import_module(f"{package}.msg"), leaf):
                names.append(name)
        except ImportError:
            continue
    return names


def message_class(name: str) -> type:
    package, leaf = name.split("/")[0], name.split("/")[-1]
    return getattr(importlib.import_module(f"{package}.msg"), leaf)


def filled(name: str, draw: random.Random, depth: int = 0) -> object:
    """A message of random valid fields."""
    message = message_class(name)()
    for field, kind in message.get_fields_and_field_types().items():
        setattr(message, field, value_of(kind, getattr(message, field), draw, depth))
    return message


def value_of(kind: str, blank: object, draw: random.Random, depth: int) -> object:
    if kind.startswith("sequence<"):
        inner, _, bound = kind.removeprefix("sequence<").rpartition(">")[0].partition(", ")
        length = min(draw.choice([0, 1, 3]) if depth < 3 else 0, int(bound or 3))
        items = [value_of(inner, None, draw, depth + 1) for _ in range(length)]
        return array.array(blank.typecode, items) if isinstance(blank, array.array) else items
    if kind.endswith("]"):
        inner = kind.partition("[")[0]
        items = [value_of(inner, None, draw, depth + 1) for _ in range(len(blank))]
        return np.array(items, dtype=blank.dtype) if isinstance(blank, np.ndarray) else items
    return scalar_of(kind, draw, depth)


def scalar_of(kind: str, draw: random.Random, depth: int) -> object:
    if kind in INTEGERS:
        number = draw.choice([*INTEGERS[kind], 1, draw.randint(*INTEGERS[kind])])
        return bytes([number]) if kind == "octet" else number
    if kind in ("float", "double"):
        number = draw.choice([*FLOATS, draw.uniform(-1e3, 1e3)])
        return float(np.float32(number)) if kind == "float" else number
    if kind == "boolean":
        return draw.random() < 0.5
    if kind.startswith(("string", "wstring")):
        return draw.choice(TEXTS)
    return filled(kind, draw, depth + 1)


@pytest.mark.parametrize("name", installed_types())
def test_a_message_has_the_same_text_live_and_from_a_bag(name):
    draw = random.Random(name)
    for _ in range(10):
        live = filled(name, draw)
        recorded = CATALOGUE.decoder(name)(serialization.serialize_message(live))
        assert default_text(name, recorded) == default_text(name, live)
        assert generic_text(recorded) == generic_text(live)


def test_a_users_template_sees_the_same_from_both():
    template = compile_template(
        "{% if msg.ranges %}{{ msg.ranges[1:3] }} of {{ msg.ranges | length }}, "
        "{{ msg.ranges | min }}, {{ msg.range_max }}{% endif %}{{ msg.intensities == [] }}"
    )
    live = message_class("sensor_msgs/msg/LaserScan")(ranges=[1.5, 0.1, 2.5], range_max=30.0)
    recorded = CATALOGUE.decoder("sensor_msgs/msg/LaserScan")(
        serialization.serialize_message(live)
    )
    assert template.render(live) == "0.1 2.5 of 3, 0.1, 30true"
    assert template.render(recorded) == template.render(live)
