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
"""Request logs with block hashes (the layout Mooncake publishes).

One line a request: `timestamp` in milliseconds, `input_length`, `output_length`,
`hash_ids`, the chain of prompt blocks; equal ids mean equal prefixes. The log is
used twice: as it is by the block simulator, and as conversations, found by
linking a request to the latest one whose full blocks it starts with.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.trace import Trace, trace_from_turns

BLOCK_TOKENS = 512
"""Tokens a block in the published logs."""


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request of a log."""

    time_s: float
    prompt_tokens: int
    reply_tokens: int
    hashes: tuple[int, ...]


def read_requests(path: Path) -> list[LoggedRequest]:
    """Read a log, in order of time.

    Raises:
        CapacityError: A line lacks a field or holds a wrong one, or there is none.
    """
    requests = []
    with path.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                request = LoggedRequest(
                    time_s=float(record["timestamp"]) / 1e3,
                    prompt_tokens=int(record["input_length"]),
                    reply_tokens=int(record["output_length"]),
                    hashes=tuple(int(h) for h in record["hash_ids"]),
                )
            except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
                raise CapacityError(
                    f"trace: {str(path)!r} line {number}: {error!r}; expected timestamp, "
                    "input_length, output_length, hash_ids"
                ) from None
            if request.prompt_tokens < 1:
                raise CapacityError(
                    f"trace: {str(path)!r} line {number}: input_length is "
                    f"{request.prompt_tokens}; expected 1 or more"
                )
            requests.append(request)
    if not requests:
        raise CapacityError(f"trace: {str(path)!r} holds no requests; expected at least one")
    return sorted(requests, key=lambda request: request.time_s)


def conversations_of(requests: list[LoggedRequest], source: str = "log") -> Trace:
    """Link requests into conversations; the prefix all of them have becomes shared."""
    shared = _common_blocks(requests)
    open_at: dict[tuple[int, ...], int] = {}
    members: list[list[LoggedRequest]] = []
    for request in requests:
        row = _parent(request, open_at, members, shared)
        if row is None:
            row = len(members)
            members.append([])
        else:
            open_at.pop(_full(members[row][-1]), None)
        members[row].append(request)
        open_at[_full(request)] = row
    conversations = [_turns(rows, shared * BLOCK_TOKENS) for rows in members]
    starts = [[request.time_s for request in rows] for rows in members]
    return trace_from_turns(
        conversations,
        starts_s=starts,
        shared_tokens=shared * BLOCK_TOKENS,
        source=source,
    )


def _full(request: LoggedRequest) -> tuple[int, ...]:
    return request.hashes[: request.prompt_tokens // BLOCK_TOKENS]


def _common_blocks(requests: list[LoggedRequest]) -> int:
    if len(requests) < 2:
        return 0
    # At least one token of every prompt must be its own.
    least = min((request.prompt_tokens - 1) // BLOCK_TOKENS for request in requests)
    common = 0
    while common < least and len({request.hashes[common] for request in requests}) == 1:
        common += 1
    return common


def _parent(
    request: LoggedRequest,
    open_at: dict[tuple[int, ...], int],
    members: list[list[LoggedRequest]],
    shared: int,
) -> int | None:
    for length in range(len(request.hashes), shared, -1):
        row = open_at.get(request.hashes[:length])
        if row is not None and members[row][-1].prompt_tokens < request.prompt_tokens:
            return row
    return None


def _turns(rows: list[LoggedRequest], shared_tokens: int) -> list[tuple[int, int]]:
    lengths = np.array([request.prompt_tokens for request in rows])
    growth = np.diff(lengths)
    replies = [
        min(request.reply_tokens, int(more) - 1)
        for request, more in zip(rows, growth, strict=False)
    ]
    turns = [(int(lengths[0]) - shared_tokens, replies[0] if replies else rows[0].reply_tokens)]
    for index, more in enumerate(growth):
        last = index + 1 == len(growth)
        reply = rows[-1].reply_tokens if last else replies[index + 1]
        turns.append((int(more) - replies[index], reply))
    return turns
