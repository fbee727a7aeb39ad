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
"""Which observation a decision was made on."""

from __future__ import annotations

from csr_policy.demo.sightings import Sightings

S = 1_000_000_000


def test_the_newest_value_before_a_time_is_given() -> None:
    sightings: Sightings[str] = Sightings()
    sightings.add(1 * S, "first")
    sightings.add(2 * S, "second")

    assert sightings.at(1 * S - 1) is None
    assert sightings.at(1 * S) == "first"
    assert sightings.at(2 * S - 1) == "first"
    assert sightings.at(9 * S) == "second"


def test_memory_is_bounded_and_keeps_the_newest() -> None:
    sightings: Sightings[int] = Sightings()
    for second in range(1000):
        sightings.add(second * S, second)

    assert sightings.at(1000 * S) == 999
    assert sightings.at(950 * S) == 950
    assert sightings.at(100 * S) is None


def test_values_in_a_burst_become_the_last_of_them() -> None:
    sightings: Sightings[str] = Sightings()
    sightings.add(1 * S, "first")
    sightings.add(1 * S + 1, "last")

    assert sightings.at(2 * S) == "last"
