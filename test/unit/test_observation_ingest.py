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
"""The one ingest path: gates, suffix age, failures that are counted and told once."""

from __future__ import annotations

import logging
import threading
import time

import pytest
from rosbags.typesys import Stores, get_typestore

from csr_policy.observation.ingest import Counts, Ingest
from csr_policy.observation.templates import TemplateError
from csr_policy.settings import ObservationSettings, Placement, Settings

TYPES = get_typestore(Stores.ROS2_JAZZY).types
SECOND = 1_000_000_000


class Offered:
    """An ingest with one source called `talk`, and what it warned of."""

    def __init__(self, *, max_text_characters: int = 65_536, **fields: object) -> None:
        self.lines: list[str] = []
        source = ObservationSettings(**{"topic": "/talk", "type": "std_msgs/msg/String", **fields})
        settings = Settings(
            observations={"talk": source}, ingest={"max_text_characters": max_text_characters}
        )
        self.ingest = Ingest(settings, warn=self.lines.append)

    def offer(self, text: str, at_s: float = 0.0) -> str | None:
        """Offer a String at a time; its text, or None where it was not taken."""
        at_ns = round(at_s * SECOND)
        observation = self.ingest.offer("talk", string(text), ros_time_ns=at_ns, steady_ns=at_ns)
        return None if observation is None else observation.text

    @property
    def counts(self) -> Counts:
        return self.ingest.counts("talk")


def string(data: str) -> object:
    return TYPES["std_msgs/msg/String"](data=data)


def test_a_message_becomes_an_observation_with_its_sources_settings():
    offered = Offered(placement="suffix", keep=True, max_tokens=40)
    observation = offered.ingest.offer("talk", string("hi"), ros_time_ns=5, steady_ns=9)
    assert observation is not None
    assert observation.source == "talk"
    assert observation.text == "hi"
    assert observation.placement is Placement.SUFFIX
    assert observation.stamp_ns == 5
    assert observation.keep
    assert observation.max_tokens == 40


def test_the_minimum_interval_counts_from_the_last_message_taken():
    offered = Offered(min_interval_s=1.0)
    taken = [offered.offer(f"{at}", at) for at in (10.0, 10.6, 11.0, 11.9, 12.0)]
    assert taken == ["10.0", None, "11.0", None, "12.0"]
    assert offered.counts == Counts(taken=3, skipped_interval=2)


def test_simulated_time_starts_at_zero_and_may_start_again():
    offered = Offered(min_interval_s=5.0)
    assert [offered.offer("a", 0.0), offered.offer("b", 100.0)] == ["a", "b"]
    assert offered.offer("c", 0.1) == "c"


def test_on_change_skips_the_text_of_the_last_message_taken():
    offered = Offered(on_change=True)
    assert [offered.offer(text) for text in "aabba"] == ["a", None, "b", None, "a"]
    assert offered.counts == Counts(taken=3, skipped_unchanged=2)


def test_noise_below_the_rounding_is_no_change():
    offered = Offered(type="std_msgs/msg/Float64", on_change=True)
    for value in (20.4, 20.4000001):
        message = TYPES["std_msgs/msg/Float64"](data=value)
        offered.ingest.offer("talk", message, ros_time_ns=0, steady_ns=0)
    assert offered.counts == Counts(taken=1, skipped_unchanged=1)


def test_a_template_that_writes_nothing_skips_the_message():
    offered = Offered(template="{% if msg.data != 'ok' %}{{ msg.data }}{% endif %}")
    assert [offered.offer("ok"), offered.offer("fire")] == [None, "fire"]
    assert offered.counts == Counts(taken=1, skipped_empty=1)


def test_an_empty_suffix_takes_the_old_one_out_of_the_prompt_once():
    offered = Offered(
        placement="suffix", template="{% if msg.data != 'ok' %}{{ msg.data }}{% endif %}"
    )
    assert [offered.offer(text) for text in ("ok", "fire", "ok", "ok")] == [None, "fire", "", None]


def test_suffix_text_expires_once_and_is_taken_again_afterwards():
    offered = Offered(placement="suffix", max_age_s=2.0, on_change=True)
    offered.offer("a", 10.0)
    assert offered.ingest.expired(12 * SECOND) == ()
    assert offered.ingest.expired(12 * SECOND + 1) == ("talk",)
    assert offered.ingest.expired(20 * SECOND) == ()
    assert offered.offer("a", 20.0) == "a"


def test_an_unchanged_suffix_that_keeps_arriving_does_not_expire():
    offered = Offered(placement="suffix", max_age_s=2.0, on_change=True)
    for at_s in (10.0, 11.5, 13.0):
        offered.offer("a", at_s)
    assert offered.ingest.expired(14 * SECOND) == ()


def test_chunks_do_not_expire():
    offered = Offered(max_age_s=1.0)
    offered.offer("a", 0.0)
    assert offered.ingest.expired(100 * SECOND) == ()


def test_a_failing_template_is_told_once_counted_and_told_again_when_it_works():
    offered = Offered(template="{{ (100 / (msg.data | int)) | num(1) }}")
    assert [offered.offer(text) for text in ("0", "0", "0", "4")] == [None, None, None, "25"]
    assert offered.counts == Counts(taken=1, failed=3)
    assert offered.lines == [
        "observation 'talk': ZeroDivisionError: division by zero; "
        "such messages are dropped and counted until one works",
        "observation 'talk': works again after 3 dropped messages",
    ]


def test_a_source_that_fails_now_and_then_does_not_fill_the_log():
    offered = Offered(template="{{ 100 / (msg.data | int) }}")
    for number in range(100):
        offered.offer(str(number % 2), number * 0.01)
    assert offered.counts == Counts(taken=50, failed=50)
    assert len(offered.lines) == 2
    offered.offer("0", 20.0)
    assert len(offered.lines) == 3


def test_a_missing_field_is_named_with_those_there_are():
    offered = Offered(template="{{ msg.dat }}")
    offered.offer("a")
    assert "std_msgs/msg/String has no field 'dat'; it has data" in offered.lines[0]


@pytest.mark.parametrize("message", [None, 3, "text", b"bytes", object(), [1, 2]])
def test_what_is_no_message_never_raises(message):
    offered = Offered()
    assert offered.ingest.offer("talk", message, ros_time_ns=0, steady_ns=0) is None
    assert offered.counts == Counts(failed=1)


def test_a_source_that_is_not_configured_is_told_once_and_counted():
    offered = Offered()
    for _ in range(2):
        assert offered.ingest.offer("walk", string("a"), ros_time_ns=0, steady_ns=0) is None
    assert offered.ingest.counts("walk") == Counts(failed=2)
    assert offered.lines == ["observation 'walk': is not configured; its messages are dropped"]


def test_a_template_that_cannot_be_compiled_stops_the_start_in_one_line():
    with pytest.raises(TemplateError, match=r"observations\.talk\.template: line 1: ") as caught:
        Offered(template="{{ msg.data")
    assert "\n" not in str(caught.value)


def test_a_message_of_two_megabytes_is_cut_with_a_mark():
    offered = Offered(max_text_characters=1000)
    text = offered.offer("x" * 2_000_000)
    assert text is not None
    assert len(text) == 1000
    assert text.endswith(" characters]")


def test_control_tokens_and_broken_unicode_stay_plain_text():
    text = Offered().offer("<|im_end|>\x00\ud800</think>\n")
    assert text == "<|im_end|>\ufffd\ufffd</think>"


def test_an_empty_string_is_an_observation_called_empty():
    assert Offered().offer("") == "empty"


def test_warnings_go_to_the_log_where_nobody_takes_them(caplog):
    source = ObservationSettings(topic="/t", type="std_msgs/msg/String", template="{{ msg.x }}")
    ingest = Ingest(Settings(observations={"talk": source}))
    with caplog.at_level(logging.WARNING):
        ingest.offer("talk", string("a"), ros_time_ns=0, steady_ns=0)
    assert "observation 'talk'" in caplog.text


def test_counts_read_from_another_thread_always_add_up():
    offered = Offered(on_change=True)
    done = threading.Event()
    wrong: list[Counts] = []

    def read() -> None:
        while not done.is_set():
            counts = offered.counts
            if counts.taken - counts.skipped_unchanged not in (0, 1):
                wrong.append(counts)
            time.sleep(0)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(2000):
            offered.offer(str(number // 2))
    finally:
        done.set()
        reader.join(timeout=10)
    assert not wrong
    assert offered.counts == Counts(taken=1000, skipped_unchanged=1000)
