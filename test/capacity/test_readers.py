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
"""Traces from files: every format, and one line for what is wrong."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.mooncake import conversations_of, read_requests
from csr_policy.capacity.readers import TraceFormat, detect, read_trace
from csr_policy.capacity.simulator.block_pool import BlockPool
from csr_policy.capacity.simulator.exact import replay_log
from csr_policy.capacity.text_tokens import counter
from csr_policy.capacity.trace import Trace


def pairs(trace: Trace) -> list[list[tuple[int, int]]]:
    flat = list(zip(trace.prompt_tokens.tolist(), trace.reply_tokens.tolist(), strict=True))
    rows = zip(trace.offsets[:-1], trace.offsets[1:], strict=True)
    return [flat[a:b] for a, b in rows]


def write(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_real_token_counts(sharegpt: Trace, hh_rlhf: Trace) -> None:
    assert (sharegpt.conversations, hh_rlhf.conversations) == (1002, 2312)
    assert sharegpt.skipped == 0


def test_token_counts_with_start_times(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.jsonl",
        {"turns": [[3, 4], [5, 6]], "start_s": [0.0, 7.5]},
        {"turns": []},
        {"turns": [[1, 0]], "start_s": [2.0]},
    )
    trace = read_trace(path)
    assert pairs(trace) == [[(3, 4), (5, 6)], [(1, 0)]]
    assert trace.start_s is not None
    assert trace.start_s.tolist() == [0.0, 7.5, 2.0]
    assert trace.skipped == 1


def test_sharegpt_text(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(
        json.dumps(
            [
                {
                    "conversations": [
                        {"from": "system", "value": "abcd"},
                        {"from": "human", "value": "abcdefgh"},
                        {"from": "gpt", "value": "xxxx"},
                        {"from": "human", "value": "ab"},
                        {"from": "gpt", "value": "yyyyyyyy"},
                        {"from": "human", "value": "never answered"},
                    ]
                },
                {"conversations": [{"from": "gpt", "value": "nobody asked"}]},
            ]
        )
    )
    trace = read_trace(path, count=counter(None, 4.0))
    assert pairs(trace) == [[(3, 1), (1, 2)]]
    assert trace.skipped == 1


def test_text_is_counted_with_the_chat_frame(tiny_folder: Path) -> None:
    count = counter(tiny_folder, None)
    assert count is not None
    # ChatML: <|im_start|>, role, newline, <|im_end|>, newline.
    assert count("x") == 1 + 5


def test_text_needs_a_way_to_count(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text('[{"conversations": []}]')
    with pytest.raises(CapacityError, match="expected a tokenizer or characters per token"):
        read_trace(path)


def request(at_ms: int, tokens: int, hashes: list[int], reply: int = 10) -> dict[str, object]:
    return {
        "timestamp": at_ms,
        "input_length": tokens,
        "output_length": reply,
        "hash_ids": hashes,
    }


def test_a_mooncake_log_becomes_conversations(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.jsonl",
        request(0, 1100, [0, 1, 2]),
        request(1000, 1200, [0, 7, 8]),
        # Continues the first: its two full blocks, then more.
        request(5000, 2100, [0, 1, 20, 21, 22], reply=30),
        request(6000, 900, [0, 30]),
    )
    trace = read_trace(path)
    assert trace.shared_tokens == 512
    assert pairs(trace) == [
        [(1100 - 512, 10), (2100 - 1100 - 10, 30)],
        [(1200 - 512, 10)],
        [(900 - 512, 10)],
    ]
    assert trace.start_s is not None
    assert trace.start_s.tolist() == [0.0, 5.0, 1.0, 6.0]


def test_a_mooncake_log_is_replayed_as_it_is(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.jsonl",
        request(0, 1100, [0, 1, 2]),
        request(1000, 1200, [0, 7, 8]),
        request(5000, 2100, [0, 1, 20, 21, 22]),
        request(6000, 1024, [0, 1]),
    )
    requests = read_requests(path)
    found, refused = replay_log(BlockPool(100, block_tokens=512, tails_first=True), requests)
    # The last prompt ends on a block, whose last token is computed again.
    assert found.tolist() == [0, 1, 2, 1]
    assert refused == 0
    assert conversations_of(requests).conversations == 3


def journal(path: Path) -> Path:
    """Chunks of 10 tokens each second; an eviction of the oldest half after 8 of them."""
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE chunks (idx, stamp_ns, source, keep, text, ids)")
        db.execute("CREATE TABLE versions (number, start, head)")
        for index in range(12):
            row = (index, index * 10**9, "odom", 0, "x", bytes(40))
            db.execute("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?)", row)
        db.execute("INSERT INTO versions VALUES (0, 0, '[]')")
        db.execute("INSERT INTO versions VALUES (1, 4, '[2]')")
    return path


def test_a_journals_versions_are_conversations(tmp_path: Path) -> None:
    trace = read_trace(journal(tmp_path / "j.sqlite"), prefix_tokens=100, period_s=1.0)
    first, second = pairs(trace)
    assert first == [(110, 0)] + [(10, 0)] * 7
    # The prefix, the pinned chunk, chunks 4 to 7 and the first new one.
    assert second == [(100 + 10 + 40 + 10, 0)] + [(10, 0)] * 3
    assert trace.start_s is not None
    assert trace.start_s[:3].tolist() == [0.0, 1.0, 2.0]


def test_chunks_of_one_period_are_one_turn(tmp_path: Path) -> None:
    trace = read_trace(journal(tmp_path / "j.sqlite"), prefix_tokens=0, period_s=2.0)
    assert pairs(trace)[0] == [(20, 0)] * 4


def test_decisions_are_turns(tmp_path: Path) -> None:
    path = tmp_path / "decisions.csv"
    path.write_text(
        "time_s,version,prompt_tokens,cached_tokens\n"
        "0.0,0,300,0\n0.5,0,340,256\n1.0,0,,\n1.5,0,380,256\n2.0,1,200,128\n"
    )
    trace = read_trace(path)
    assert pairs(trace) == [[(300, 0), (40, 0), (40, 0)], [(200, 0)]]
    assert trace.skipped == 1


@pytest.mark.parametrize(
    ("content", "form"),
    [
        ('{"turns": [[1, 2]]}', TraceFormat.TOKENS),
        ('[{"conversations": []}]', TraceFormat.SHAREGPT),
        ('{"id": 1, "conversations": []}', TraceFormat.SHAREGPT),
        ('{"timestamp": 0, "hash_ids": [1]}', TraceFormat.MOONCAKE),
        ("version,prompt_tokens\n", TraceFormat.DECISIONS),
    ],
)
def test_formats_are_told_apart(tmp_path: Path, content: str, form: TraceFormat) -> None:
    path = tmp_path / "x"
    path.write_text(content)
    assert detect(path) is form


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("", "is empty"),
        ("hello", "starts with 'hello'"),
        ('{"turns": [[1, 2]]}\n{"turns": \n', "line 2 is no JSON"),
        ('{"turns": [[1, 2]]}\n[3]\n', "line 2 is no object"),
        ('{"id": 3}', "line 1 has no 'turns'"),
        ('{"turns": [[1]]}', "not pairs of token counts"),
        ('{"turns": []}', "holds no conversations"),
        ('{"turns": [[0, 2]]}', "a turn of 0 prompt"),
        ('{"timestamp": 0, "hash_ids": [1]}', "expected timestamp, input_length"),
        ("time_s,prompt_tokens\n1,2\n", "no column 'version'"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, content: str, part: str) -> None:
    path = tmp_path / "x"
    path.write_text(content)
    with pytest.raises(CapacityError, match=part) as caught:
        read_trace(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CapacityError, match="no file"):
        read_trace(tmp_path / "nothing")


def test_short_conversations_can_be_left_out(sharegpt: Trace) -> None:
    assert sharegpt.with_at_least(2).turn_counts.min() == 2
    with pytest.raises(CapacityError, match="the longest has"):
        sharegpt.with_at_least(10_000)
