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
"""A thread has an owner, and its death is not silent."""

from __future__ import annotations

import threading

from csr_policy.node.threads import OwnedThread


def test_a_death_is_reported_with_its_traceback() -> None:
    reports: list[tuple[str, str]] = []
    reported = threading.Event()

    def body(stop: threading.Event) -> None:
        raise RuntimeError("the disk is gone")

    def on_death(name: str, trace: str) -> None:
        reports.append((name, trace))
        reported.set()

    thread = OwnedThread("ingest", body, on_death)
    thread.start()

    assert reported.wait(5.0)
    assert thread.stop(5.0)
    assert thread.dead
    assert reports[0][0] == "ingest"
    assert "Traceback" in reports[0][1]
    assert "the disk is gone" in reports[0][1]


def test_a_stopped_thread_is_not_dead() -> None:
    thread = OwnedThread("ingest", lambda stop: stop.wait() and None, lambda *report: None)
    thread.start()

    assert thread.stop(5.0)
    assert not thread.dead


def test_stopping_is_bounded() -> None:
    hold = threading.Event()
    thread = OwnedThread("ingest", lambda stop: hold.wait() and None, lambda *report: None)
    thread.start()

    assert not thread.stop(0.01)

    hold.set()
    assert thread.stop(5.0)


def test_a_thread_that_was_never_started_can_be_stopped() -> None:
    assert OwnedThread("ingest", lambda stop: None, lambda *report: None).stop(0.0)
