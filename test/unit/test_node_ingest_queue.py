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
"""The node's bounded queue: fair, and every loss is counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from csr_policy.node.ingest_queue import IngestQueue, Received


def received(source: str, message: object) -> Received:
    return Received(source, message, ros_time_ns=1, steady_ns=1)


def drain(queue: IngestQueue) -> list[tuple[str, object]]:
    taken = []
    while (item := queue.take(0.0)) is not None:
        taken.append((item.source, item.message))
    return taken


def test_a_flooding_source_delays_another_by_one_message() -> None:
    queue = IngestQueue(("flood", "quiet"), limit=100)
    for number in range(50):
        queue.put(received("flood", number))
    queue.put(received("quiet", "heard"))

    assert [source for source, _ in drain(queue)][:2] == ["flood", "quiet"]


def test_a_full_queue_drops_the_oldest_of_the_longest_line_and_counts_it() -> None:
    queue = IngestQueue(("flood", "quiet"), limit=4)
    for number in range(4):
        queue.put(received("flood", number))
    queue.put(received("quiet", "heard"))

    assert queue.dropped == {"flood": 1, "quiet": 0}
    assert drain(queue) == [("flood", 1), ("quiet", "heard"), ("flood", 2), ("flood", 3)]


def test_a_source_alone_in_a_full_queue_keeps_its_newest_messages() -> None:
    queue = IngestQueue(("one",), limit=1)
    queue.put(received("one", "old"))
    queue.put(received("one", "new"))

    assert drain(queue) == [("one", "new")]
    assert queue.dropped == {"one": 1}


def test_what_is_cleared_counts_as_dropped() -> None:
    queue = IngestQueue(("one", "two"), limit=10)
    queue.put(received("one", 1))
    queue.put(received("two", 2))

    queue.clear()

    assert queue.dropped == {"one": 1, "two": 1}
    assert queue.take(0.0) is None


@given(
    st.lists(st.one_of(st.sampled_from("abc"), st.none()), max_size=200),
    st.integers(min_value=1, max_value=8),
)
def test_every_message_is_taken_in_its_sources_order_or_counted(
    steps: list[str | None], limit: int
) -> None:
    queue = IngestQueue(tuple("abc"), limit)
    taken: list[tuple[str, object]] = []
    for number, source in enumerate(steps):
        if source is not None:
            queue.put(received(source, number))
        elif (item := queue.take(0.0)) is not None:
            taken.append((item.source, item.message))
        assert queue.waiting <= limit
    taken += drain(queue)

    for source in "abc":
        numbers = [number for name, number in taken if name == source]
        assert numbers == sorted(numbers)
        assert len(numbers) + queue.dropped[source] == queue.received[source]
