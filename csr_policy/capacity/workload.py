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
"""Conversations as KV blocks, and the statistics (35)-(37) of a workload.

A turn stores `S_j` tokens. Disaggregated (the paper's prefiller), that is the
prompt of turn j: replies are computed again as part of the next prompt.
Colocated (a plain vLLM server, Remark B.1), the reply's blocks stay as well,
all but its last token, whose keys and values were never computed.

Two readings of the content size R_j are in use, and they differ by one block a
turn: `cumulative` adds the increments Z_j, so that each turn's partly filled
last block is counted again by the next turn (the paper's statistics);
`live` is what is really held, ceil(S_j / block).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from csr_policy.capacity.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    gather_rows,
    positions,
    row_cumsum,
    row_sum,
)
from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.trace import Trace


class Reading(StrEnum):
    """What R_j counts."""

    CUMULATIVE = "cumulative"
    LIVE = "live"


class Boundary(StrEnum):
    """What a turn leaves in the cache."""

    DISAGGREGATED = "disaggregated"
    COLOCATED = "colocated"


@dataclass(frozen=True, slots=True)
class Workload:
    """Conversations as blocks, flat arrays with one element a turn.

    Attributes:
        offsets: Turn range of each conversation, length conversations + 1.
        size: R_j in blocks, shared ones included.
        reusable: Full blocks the next turn can reuse, shared ones excluded.
        new: Blocks taken from the pool when the history is cached, partial one included.
        dead: Full blocks that no later turn can reuse (a changing suffix).
        partial: Whether the last block is only partly filled.
        prompt_tokens: Whole prompt of the turn, as a server counts queries.
        shared_blocks: Full blocks in front of every conversation, the same in all.
        block_tokens: Tokens a block.
        source: Name for messages.
    """

    offsets: IntArray
    size: IntArray
    reusable: IntArray
    new: IntArray
    dead: IntArray
    partial: BoolArray
    prompt_tokens: IntArray
    shared_blocks: int
    block_tokens: int
    source: str

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

    @property
    def continues(self) -> BoolArray:
        """Turns that another turn follows."""
        last = np.zeros(self.turns, dtype=np.bool_)
        last[self.offsets[1:] - 1] = True
        return ~last

    @property
    def history(self) -> IntArray:
        """Own full blocks the turn finds if nothing was evicted, 0 at the first turn."""
        before = np.zeros(self.turns, dtype=np.int64)
        before[1:] = np.where(self.continues[:-1], self.reusable[:-1], 0)
        return before

    def take(self, rows: IntArray) -> Workload:
        """The chosen conversations, repeated where chosen twice."""
        offsets, flat = gather_rows(self.offsets, rows)
        return Workload(
            offsets,
            self.size[flat],
            self.reusable[flat],
            self.new[flat],
            self.dead[flat],
            self.partial[flat],
            self.prompt_tokens[flat],
            self.shared_blocks,
            self.block_tokens,
            self.source,
        )


def stored_tokens(trace: Trace, boundary: Boundary) -> IntArray:
    """S_j, the tokens whose keys and values turn j leaves, shared ones included."""
    total = row_cumsum(trace.prompt_tokens + trace.reply_tokens, trace.offsets)
    if boundary is Boundary.COLOCATED:
        result = total + trace.shared_tokens - (trace.reply_tokens > 0)
    else:
        result = total + trace.shared_tokens - trace.reply_tokens
    return result.astype(np.int64)


def prompt_lengths(trace: Trace) -> IntArray:
    """Tokens of the whole prompt of each turn, shared ones included."""
    total = row_cumsum(trace.prompt_tokens + trace.reply_tokens, trace.offsets)
    return (total + trace.shared_tokens - trace.reply_tokens).astype(np.int64)


def blocks_of(
    trace: Trace,
    block_tokens: int,
    *,
    reading: Reading = Reading.CUMULATIVE,
    boundary: Boundary = Boundary.DISAGGREGATED,
) -> Workload:
    """Cut a token trace into blocks.

    Raises:
        CapacityError: The block size is not positive.
    """
    if block_tokens < 1:
        raise CapacityError(f"block_tokens: is {block_tokens}; expected 1 or more")
    stored = stored_tokens(trace, boundary)
    full = stored // block_tokens
    partial = stored % block_tokens > 0
    shared = trace.shared_tokens // block_tokens
    before = np.full(trace.turns, shared, dtype=np.int64)
    inside = positions(trace.offsets) > 0
    before[inside] = full[:-1][inside[1:]]
    new = full + partial - before
    size = full + partial
    if reading is Reading.CUMULATIVE:
        size = row_cumsum(new, trace.offsets).astype(np.int64) + shared
    return Workload(
        offsets=trace.offsets,
        size=size,
        reusable=full - shared,
        new=new,
        dead=np.zeros(trace.turns, dtype=np.int64),
        partial=partial,
        prompt_tokens=prompt_lengths(trace),
        shared_blocks=shared,
        block_tokens=block_tokens,
        source=trace.source,
    )


def workload_from_increments(
    offsets: IntArray, increments: IntArray, source: str = "increments"
) -> Workload:
    """The MCM itself: block increments Z_j, every block full and reusable.

    Raises:
        CapacityError: There is no conversation, or an increment is below 1.
    """
    if offsets.size < 2 or offsets[-1] == 0:
        raise CapacityError(f"workload: {source} holds no conversations; expected at least one")
    if int(increments.min()) < 1:
        raise CapacityError(
            f"workload: {source} has an increment of {increments.min()} blocks; expected 1 or more"
        )
    size = row_cumsum(increments, offsets).astype(np.int64)
    zeros = np.zeros(size.size, dtype=np.int64)
    return Workload(
        offsets,
        size,
        size,
        increments.astype(np.int64),
        zeros,
        zeros > 0,
        size,
        0,
        1,
        source,
    )


@dataclass(frozen=True, slots=True)
class Statistics:
    """Direct averages over conversations, equations (35)-(37).

    The last five are exact counts that a trace gives beyond the paper's four; they
    are None where only published averages are known.

    Attributes:
        a_r: E[sum of R_j], shared blocks included.
        a_h_hash: E[sum over non-final turns of (R_j - 1)].
        e_b: E[B], B = R_M.
        e_m: E[M]; None where unknown.
        new_blocks: E[blocks taken from the pool], partial ones included.
        full_blocks: E[full blocks of the whole conversation].
        reusable_blocks: E[sum over non-final turns of full blocks].
        prompt_tokens: E[tokens queried].
        shared_blocks: Full blocks all conversations have in common.
        block_tokens: Tokens a block.
    """

    a_r: float
    a_h_hash: float
    e_b: float
    e_m: float | None
    new_blocks: float | None = None
    full_blocks: float | None = None
    reusable_blocks: float | None = None
    prompt_tokens: float | None = None
    shared_blocks: int = 0
    block_tokens: int | None = None

    @property
    def a_h(self) -> float | None:
        """E[sum over non-final turns of R_j], equation (28) read backwards."""
        return None if self.e_m is None else self.a_h_hash + self.e_m - 1

    @property
    def h_max(self) -> float | None:
        """A_H / A_R, equation (11); None without E[M]."""
        return None if self.a_h is None else self.a_h / self.a_r

    @property
    def h_max_hash(self) -> float:
        """A_H^hash / A_R, what (39) tends to for an endless cache."""
        return self.a_h_hash / self.a_r


def conversation_sums(workload: Workload) -> dict[str, FloatArray]:
    """What each conversation adds to the averages of `statistics`."""
    offsets, continues = workload.offsets, workload.continues
    ends = offsets[1:] - 1
    return {
        "a_r": row_sum(workload.size, offsets),
        "a_h_hash": row_sum(np.where(continues, workload.size - 1, 0), offsets),
        "e_b": workload.size[ends].astype(np.float64),
        "e_m": workload.turn_counts.astype(np.float64),
        "new_blocks": row_sum(workload.new, offsets),
        "full_blocks": workload.reusable[ends] + row_sum(workload.dead, offsets),
        "reusable_blocks": row_sum(np.where(continues, workload.reusable, 0), offsets),
        "prompt_tokens": row_sum(workload.prompt_tokens, offsets),
    }


def statistics(workload: Workload) -> Statistics:
    """Equations (35)-(37) on a workload, and the exact counts beside them."""
    means = {name: float(values.mean()) for name, values in conversation_sums(workload).items()}
    return Statistics(
        shared_blocks=workload.shared_blocks, block_tokens=workload.block_tokens, **means
    )


def given_statistics(
    *,
    a_r: float,
    a_h_hash: float,
    e_b: float,
    e_m: float | None = None,
    shared_blocks: int = 0,
) -> Statistics:
    """Check published averages.

    Raises:
        CapacityError: One is out of range or they contradict each other.
    """
    for name, value, least in (("a_r", a_r, 0.0), ("e_b", e_b, 0.0)):
        if not np.isfinite(value) or value <= least:
            raise CapacityError(f"{name}: is {value:g}; expected a positive number of blocks")
    if not np.isfinite(a_h_hash) or a_h_hash < 0:
        raise CapacityError(f"a_h_hash: is {a_h_hash:g}; expected 0 or more blocks")
    if a_h_hash > a_r:
        raise CapacityError(f"a_h_hash: is {a_h_hash:g}; expected at most a_r, {a_r:g}")
    if e_m is not None and not (np.isfinite(e_m) and e_m >= 1):
        raise CapacityError(f"e_m: is {e_m:g}; expected at least 1 turn")
    if shared_blocks < 0:
        raise CapacityError(f"shared_blocks: is {shared_blocks}; expected 0 or more")
    if shared_blocks > 0 and e_m is None:
        raise CapacityError("e_m: is missing; expected E[M] where there are shared blocks")
    return Statistics(a_r, a_h_hash, e_b, e_m, shared_blocks=shared_blocks)
