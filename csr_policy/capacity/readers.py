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
"""Reading conversations from files, by format, into one `Trace`.

| format | what is in it |
|---|---|
| `tokens` | JSONL, `{"turns": [[prompt tokens, reply tokens], ...]}`, maybe `start_s` |
| `sharegpt` | JSON list of `{"conversations": [{"from": ..., "value": ...}, ...]}`: text |
| `mooncake` | JSONL of requests: `timestamp` (ms), `input_length`, `output_length`, `hash_ids` |
| `journal` | the SQLite journal of a policy: each sequence version is a conversation |
| `decisions` | CSV of decisions with `version` and `prompt_tokens`, optional `time_s` |

A record without a usable conversation is counted in `Trace.skipped`, never dropped
silently; a file without any is refused.
"""

from __future__ import annotations

import csv
import itertools
import json
import sqlite3
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.mooncake import conversations_of, read_requests
from csr_policy.capacity.trace import Trace, trace_from_turns

TokenCounter = Callable[[str], int]
HUMAN = frozenset({"human", "user", "system"})
REPLY = frozenset({"gpt", "assistant", "chatgpt", "bing", "bard", "model"})


class TraceFormat(StrEnum):
    """How a trace file is written; auto looks at it."""

    AUTO = "auto"
    TOKENS = "tokens"
    SHAREGPT = "sharegpt"
    MOONCAKE = "mooncake"
    JOURNAL = "journal"
    DECISIONS = "decisions"


def read_trace(
    path: Path,
    form: TraceFormat = TraceFormat.AUTO,
    *,
    count: TokenCounter | None = None,
    prefix_tokens: int = 0,
    period_s: float = 0.5,
    shared_tokens: int = 0,
) -> Trace:
    """Read conversations.

    Args:
        path: The file.
        form: Its format; auto decides by its first bytes.
        count: Tokens of a text, needed for `sharegpt`.
        prefix_tokens: Tokens of the prefix X_pre, which a `journal` does not hold.
        period_s: Decision period to cut a `journal` into turns.
        shared_tokens: Tokens in front of every conversation, beyond those in the file.

    Raises:
        CapacityError: The file cannot be read, is empty, or is not in the format.
    """
    if not path.is_file():
        raise CapacityError(f"trace: no file {str(path)!r}; expected a trace")
    if path.stat().st_size == 0:
        raise CapacityError(f"trace: {str(path)!r} is empty; expected conversations")
    form = detect(path) if form is TraceFormat.AUTO else form
    if form is TraceFormat.SHAREGPT and count is None:
        raise CapacityError(
            f"trace: {str(path)!r} holds text; expected a tokenizer or characters per token"
        )
    if form is TraceFormat.JOURNAL:
        return _read_journal(path, prefix_tokens, period_s)
    if form is TraceFormat.DECISIONS:
        return _read_decisions(path)
    if form is TraceFormat.MOONCAKE:
        return conversations_of(read_requests(path), source=path.name)
    if form is TraceFormat.SHAREGPT:
        assert count is not None
        return _read_sharegpt(path, count, shared_tokens)
    return _read_tokens(path, shared_tokens)


def detect(path: Path) -> TraceFormat:
    """Tell the format from the first bytes."""
    with path.open("rb") as stream:
        head = stream.read(4096)
    if head.startswith(b"SQLite format 3\x00"):
        return TraceFormat.JOURNAL
    text = head.decode("utf-8", errors="replace").lstrip()
    if text.startswith("["):
        return TraceFormat.SHAREGPT
    first = text.splitlines()[0] if text else ""
    if text.startswith("{"):
        if '"hash_ids"' in first:
            return TraceFormat.MOONCAKE
        return TraceFormat.SHAREGPT if '"conversations"' in first else TraceFormat.TOKENS
    if "prompt_tokens" in first and "," in first:
        return TraceFormat.DECISIONS
    raise CapacityError(
        f"trace: {str(path)!r} starts with {first[:20]!r}; expected JSON, JSONL, CSV or a journal"
    )


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Objects of a JSONL file with their line numbers.

    Raises:
        CapacityError: A line is not a JSON object.
    """
    with path.open(encoding="utf-8", errors="replace") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise CapacityError(
                    f"trace: {str(path)!r} line {number} is no JSON ({error.msg})"
                ) from None
            if not isinstance(record, dict):
                raise CapacityError(
                    f"trace: {str(path)!r} line {number} is no object; expected {{...}}"
                )
            yield number, record


def _read_tokens(path: Path, shared_tokens: int) -> Trace:
    conversations: list[list[tuple[int, int]]] = []
    starts: list[list[float]] = []
    skipped = 0
    for number, record in json_lines(path):
        turns = record.get("turns")
        if not isinstance(turns, list):
            raise CapacityError(
                f"trace: {str(path)!r} line {number} has no 'turns'; "
                "expected [[prompt tokens, reply tokens], ...]"
            )
        if not turns:
            skipped += 1
            continue
        try:
            pairs = [(int(prompt), int(reply)) for prompt, reply in turns]
        except (TypeError, ValueError):
            raise CapacityError(
                f"trace: {str(path)!r} line {number}: turns are not pairs of token counts"
            ) from None
        conversations.append(pairs)
        if "start_s" in record:
            starts.append([float(t) for t in record["start_s"]])
    with_starts = len(starts) == len(conversations) and all(
        len(s) == len(c) for s, c in zip(starts, conversations, strict=True)
    )
    return trace_from_turns(
        conversations,
        starts_s=starts if starts and with_starts else None,
        shared_tokens=shared_tokens,
        skipped=skipped,
        source=path.name,
    )


def _sharegpt_records(path: Path) -> list[dict[str, Any]]:
    if path.read_bytes()[:64].lstrip().startswith(b"["):
        try:
            records = json.loads(path.read_text(encoding="utf-8", errors="replace"))
        except json.JSONDecodeError as error:
            raise CapacityError(f"trace: {str(path)!r} is no JSON ({error.msg})") from None
        return [record for record in records if isinstance(record, dict)]
    return [record for _, record in json_lines(path)]


def _read_sharegpt(path: Path, count: TokenCounter, shared_tokens: int) -> Trace:
    conversations: list[list[tuple[int, int]]] = []
    skipped = 0
    for record in _sharegpt_records(path):
        messages = record.get("conversations") or record.get("messages") or []
        turns = _turns_of_messages(messages, count)
        if turns:
            conversations.append(turns)
        else:
            skipped += 1
    return trace_from_turns(
        conversations, shared_tokens=shared_tokens, skipped=skipped, source=path.name
    )


def _turns_of_messages(messages: list[Any], count: TokenCounter) -> list[tuple[int, int]]:
    """Pair what was asked with what was replied; several messages in a row are one."""
    turns: list[tuple[int, int]] = []
    asked = 0
    for message in messages:
        if not isinstance(message, dict):
            continue
        role = str(message.get("from", message.get("role", ""))).lower()
        tokens = count(str(message.get("value", message.get("content", ""))))
        if role in HUMAN:
            asked += tokens
        elif role in REPLY and asked:
            turns.append((asked, tokens))
            asked = 0
        elif role in REPLY and turns:
            turns[-1] = (turns[-1][0], turns[-1][1] + tokens)
    return turns


def _read_journal(path: Path, prefix_tokens: int, period_s: float) -> Trace:
    """Each sequence version is a conversation; a period with new chunks is a turn."""
    if period_s <= 0:
        raise CapacityError(f"period_s: is {period_s:g}; expected a positive time")
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
            chunks = db.execute("SELECT idx, stamp_ns, length(ids) FROM chunks ORDER BY idx")
            rows = [(int(i), int(stamp), int(size) // 4) for i, stamp, size in chunks]
            starts = db.execute("SELECT start, head FROM versions ORDER BY number").fetchall()
    except sqlite3.Error as error:
        raise CapacityError(f"trace: {str(path)!r} is no journal ({error})") from None
    if not rows:
        raise CapacityError(f"trace: {str(path)!r} has no chunks; expected at least one")
    tokens = {index: size for index, _, size in rows}
    begins = [int(start) for start, _ in starts] or [rows[0][0]]
    heads = [json.loads(head) for _, head in starts] or [[]]
    conversations: list[list[tuple[int, int]]] = []
    times: list[list[float]] = []
    live = _versions_by_chunk(begins, [index for index, _, _ in rows])
    for number, begin in enumerate(begins):
        own = [row for row, version in zip(rows, live, strict=True) if version == number]
        if not own:
            continue
        carried = prefix_tokens + sum(tokens.get(int(i), 0) for i in heads[number])
        carried += sum(size for index, _, size in rows if begin <= index < own[0][0])
        turns, stamps = _turns_of_chunks(own, carried, period_s)
        conversations.append(turns)
        times.append(stamps)
    return trace_from_turns(conversations, starts_s=times, source=path.name)


def _versions_by_chunk(begins: list[int], indexes: list[int]) -> list[int]:
    """Version that each chunk was appended to.

    A journal has no stamp of an eviction. Version k starts at a chunk that is already in the
    log, and by the oldest-half rule it began when the log held about twice that span, so a
    chunk is counted to the first version whose span it doubles.
    """
    result: list[int] = []
    version = 0
    for index in indexes:
        while version + 1 < len(begins) and index >= 2 * begins[version + 1] - begins[version]:
            version += 1
        result.append(version)
    return result


def _turns_of_chunks(
    rows: list[tuple[int, int, int]], carried: int, period_s: float
) -> tuple[list[tuple[int, int]], list[float]]:
    turns: list[tuple[int, int]] = []
    stamps: list[float] = []
    period_ns = int(period_s * 1e9)
    tick = None
    for _, stamp, size in rows:
        if tick is not None and stamp // period_ns == tick:
            turns[-1] = (turns[-1][0] + size, 0)
            continue
        tick = stamp // period_ns
        turns.append((size + (carried if not turns else 0), 0))
        stamps.append(stamp / 1e9)
    return turns, stamps


def _read_decisions(path: Path) -> Trace:
    """Each version is a conversation, each decision a turn."""
    with path.open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        names = reader.fieldnames or []
        missing = [name for name in ("version", "prompt_tokens") if name not in names]
        if missing:
            raise CapacityError(
                f"trace: {str(path)!r} has no column {missing[0]!r}; expected version and "
                "prompt_tokens"
            )
        rows = list(reader)
    lengths: dict[str, list[int]] = {}
    stamps: dict[str, list[float]] = {}
    skipped = 0
    for row in rows:
        try:
            length = int(float(row["prompt_tokens"] or 0))
        except ValueError:
            length = 0
        if length < 1:
            skipped += 1
            continue
        lengths.setdefault(row["version"], []).append(length)
        stamps.setdefault(row["version"], []).append(float(row.get("time_s") or "nan"))
    conversations = [
        [(grown[0], 0), *((max(b - a, 1), 0) for a, b in itertools.pairwise(grown))]
        for grown in lengths.values()
    ]
    return trace_from_turns(
        conversations, starts_s=list(stamps.values()), skipped=skipped, source=path.name
    )
