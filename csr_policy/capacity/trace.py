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
"""Conversations as token counts, whatever file they came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from csr_policy.capacity.arrays import FloatArray, IntArray, gather_rows
from csr_policy.capacity.errors import CapacityError


@dataclass(frozen=True, slots=True)
class Trace:
    """Conversations held in flat arrays, one element a turn.

    Attributes:
        offsets: Turn range of each conversation, length conversations + 1.
        prompt_tokens: New prompt tokens of each turn (x_j).
        reply_tokens: Reply tokens of each turn (y_j).
        shared_tokens: Tokens in front of every conversation, the same in all (a system
            prompt); not part of `prompt_tokens`.
        start_s: Submission time of each turn where the source has it.
        skipped: Source records that held no usable conversation.
        source: Name for messages.
    """

    offsets: IntArray
    prompt_tokens: IntArray
    reply_tokens: IntArray
    shared_tokens: int = 0
    start_s: FloatArray | None = None
    skipped: int = 0
    source: str = "trace"

    @property
    def conversations(self) -> int:
        """Number of conversations."""
        return int(self.offsets.size - 1)

    @property
    def turns(self) -> int:
        """Number of turns in all."""
        return int(self.offsets[-1])

    @property
    def turn_counts(self) -> IntArray:
        """M of each conversation."""
        return np.diff(self.offsets)

    def take(self, rows: IntArray) -> Trace:
        """The chosen conversations, repeated where chosen twice."""
        offsets, flat = gather_rows(self.offsets, rows)
        return replace(
            self,
            offsets=offsets,
            prompt_tokens=self.prompt_tokens[flat],
            reply_tokens=self.reply_tokens[flat],
            start_s=None if self.start_s is None else self.start_s[flat],
        )

    def with_at_least(self, turns: int) -> Trace:
        """Only conversations of at least that many turns.

        Raises:
            CapacityError: None is that long.
        """
        rows = np.flatnonzero(self.turn_counts >= turns)
        if rows.size == 0:
            raise CapacityError(
                f"trace: {self.source} has no conversation of {turns} turns or more; "
                f"the longest has {int(self.turn_counts.max())}"
            )
        return self.take(rows)


def trace_from_turns(
    conversations: Sequence[Sequence[tuple[int, int]]],
    *,
    starts_s: Sequence[Sequence[float]] | None = None,
    shared_tokens: int = 0,
    skipped: int = 0,
    source: str = "trace",
) -> Trace:
    """Build a trace from (prompt tokens, reply tokens) pairs.

    Raises:
        CapacityError: There is no conversation, one has no turn, or a count is wrong.
    """
    if not conversations:
        raise CapacityError(f"trace: {source} holds no conversations; expected at least one")
    counts = np.array([len(turns) for turns in conversations], dtype=np.int64)
    if counts.min() == 0:
        row = int(counts.argmin())
        raise CapacityError(f"trace: {source}, conversation {row} has no turns; expected one")
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    flat = np.array([pair for turns in conversations for pair in turns], dtype=np.int64)
    prompt, reply = flat[:, 0].copy(), flat[:, 1].copy()
    bad = np.flatnonzero((prompt < 1) | (reply < 0))
    if bad.size:
        row = int(np.searchsorted(offsets, bad[0], side="right")) - 1
        raise CapacityError(
            f"trace: {source}, conversation {row} has a turn of {prompt[bad[0]]} prompt and "
            f"{reply[bad[0]]} reply tokens; expected at least 1 and at least 0"
        )
    start = None
    if starts_s is not None:
        start = np.array([t for row_s in starts_s for t in row_s], dtype=np.float64)
    return Trace(offsets, prompt, reply, shared_tokens, start, skipped, source)
