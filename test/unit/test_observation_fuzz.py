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
"""Messages of any type with any valid fields never stop the ingest, and all are counted."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_typestore

from csr_policy.observation.ingest import Ingest
from csr_policy.settings import ObservationSettings, Settings

STORE = get_typestore(Stores.ROS2_JAZZY)
NAMES = sorted(name for name in STORE.types if "/msg/" in name)
MESSAGES = 10_000
MESSAGES_PER_EXAMPLE = 50
NUMPY_NAMES = {"bool": "bool_", "byte": "uint8", "char": "uint8"}
FLOATS = (0.0, -0.0, 1.0, 5e-324, 1e-9, 1e9, 1.7e308, float("nan"), float("inf"), -float("inf"))
CHARACTERS = "a9 \t\r\n\x00\x1b\x7f\x85\u2028\ud800\udfffü☃\U0001f916<|im_end|>{{}}%"


def message(name: str, draw: random.Random) -> object:
    """A message of random valid fields, and of some that no publisher could send."""
    fields = {
        f"{field}_" if field == "from" else field: value(description, draw)
        for field, description in STORE.fielddefs[name][1]
    }
    return STORE.types[name](**fields)


def value(description: Any, draw: random.Random) -> object:
    kind, detail = description
    if kind == Nodetype.BASE:
        return scalar(detail[0], draw)
    if kind == Nodetype.NAME:
        return message(detail, draw)
    (inner_kind, inner), bound = detail
    length = bound if kind == Nodetype.ARRAY else min(draw.choice((0, 1, 2, 30)), bound or 30)
    if inner_kind == Nodetype.BASE and inner[0] != "string":
        dtype = getattr(np, NUMPY_NAMES.get(inner[0], inner[0]))
        return np.array([scalar(inner[0], draw) for _ in range(length)], dtype=dtype)
    length = min(length, 2) if kind == Nodetype.SEQUENCE else length
    return [value((inner_kind, inner), draw) for _ in range(length)]


def scalar(name: str, draw: random.Random) -> object:
    if name == "string":
        return "".join(draw.choices(CHARACTERS, k=draw.choice((0, 1, 10, 300))))
    if name == "bool":
        return draw.random() < 0.5
    if name.startswith("float"):
        number = draw.choice((*FLOATS, draw.uniform(-100, 100)))
        with np.errstate(over="ignore"):
            return float(getattr(np, name)(number))
    limits = np.iinfo(NUMPY_NAMES.get(name, name))
    return draw.choice((int(limits.min), int(limits.max), 0, 1, draw.randint(0, 100)))


def an_ingest() -> Ingest:
    observations = {
        f"o{number}": ObservationSettings(topic=f"/o{number}", type=name)
        for number, name in enumerate(NAMES)
    }
    return Ingest(Settings(observations=observations), warn=lambda line: None)


def test_ten_thousand_messages_of_any_type_become_texts_and_are_counted():
    ingest = an_ingest()

    @settings(
        max_examples=MESSAGES // MESSAGES_PER_EXAMPLE,
        deadline=None,
        derandomize=True,
        database=None,
    )
    @given(st.integers(0, 2**32))
    def offer(seed):
        draw = random.Random(seed)
        for _ in range(MESSAGES_PER_EXAMPLE):
            number = draw.randrange(len(NAMES))
            source = f"o{number}"
            before = ingest.counts(source)
            observation = ingest.offer(
                source, message(NAMES[number], draw), ros_time_ns=0, steady_ns=0
            )
            counts = ingest.counts(source)
            assert counts.offered == before.offered + 1
            assert counts.failed == 0, NAMES[number]
            if observation is not None:
                assert observation.text.encode("utf-8")
                assert len(observation.text.splitlines()) == 1

    offer()
    assert sum(counts.offered for counts in ingest.all_counts().values()) >= MESSAGES
