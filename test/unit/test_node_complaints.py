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
"""A repeated problem is one line, and its end another."""

from __future__ import annotations

from csr_policy.node.complaints import Complaints


def test_a_problem_is_written_once_until_it_is_over() -> None:
    warned: list[str] = []
    informed: list[str] = []
    complaints = Complaints(warned.append, informed.append)

    for _ in range(3):
        complaints.raised("odom", "is empty")
    complaints.over("odom")
    complaints.raised("odom", "is empty again")

    assert len(warned) == 2
    assert "odom: is empty" in warned[0]
    assert informed == ["odom: well again after 3 refused"]


def test_nothing_is_written_about_what_was_well() -> None:
    lines: list[str] = []

    Complaints(lines.append, lines.append).over("odom")

    assert lines == []


def test_sources_complain_apart() -> None:
    warned: list[str] = []
    complaints = Complaints(warned.append, warned.append)

    complaints.raised("odom", "is empty")
    complaints.raised("battery", "is empty")

    assert len(warned) == 2
