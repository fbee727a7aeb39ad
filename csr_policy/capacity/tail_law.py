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
"""What a partly filled last block does to the cache, by engine.

Every turn ends in a block that is usually partly filled and has no hash. Who
evicts it when decides how much room a conversation takes:

| law | engine | blocks taken a conversation | history moved |
|---|---|---|---|
| `ideal` | the model of Theorem 3.1: every block is full | E[B] | A_H |
| `paper` | equations (28)-(39) | E[B] | A_H^hash |
| `tails-recent` | vLLM up to 0.22: a dead tail queues as recent | E[B] + E[M-1] | A_H^hash |
| `tails-first` | vLLM from 0.25: a dead tail is taken first | E[B] - 1 | A_H^hash |

The last two are written for R_j = ceil(S_j / block). A trace gives them without
the approximation that no turn ever ends on a block boundary.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.workload import Reading, Statistics


class TailLaw(StrEnum):
    """Treatment of partly filled blocks."""

    IDEAL = "ideal"
    PAPER = "paper"
    TAILS_RECENT = "tails-recent"
    TAILS_FIRST = "tails-first"

    @property
    def reading(self) -> Reading:
        """The reading of R_j that the law is written for."""
        exact = (TailLaw.TAILS_RECENT, TailLaw.TAILS_FIRST)
        return Reading.LIVE if self in exact else Reading.CUMULATIVE


@dataclass(frozen=True, slots=True)
class Displacement:
    """Coefficients of d(t), a conversation's share, in blocks.

    Attributes:
        new: Blocks that take new room.
        history: Blocks that a revisit moves to the recent end.
        shared: Blocks that all conversations have in common.
        turns: E[M], how often a conversation touches the shared blocks.
    """

    new: float
    history: float
    shared: int = 0
    turns: float = 0.0


def displacement(statistics: Statistics, law: TailLaw) -> Displacement:
    """Coefficients of the displacement curve under a law.

    Raises:
        CapacityError: The law needs E[M] and the statistics lack it.
    """
    shared = statistics.shared_blocks
    if statistics.e_m is None:
        if law in (TailLaw.IDEAL, TailLaw.TAILS_RECENT):
            raise CapacityError(f"e_m: is missing; expected E[M] for the law {law.value!r}")
        turns = 0.0
    else:
        turns = statistics.e_m
    follow_ups = max(turns - 1, 0.0)
    if statistics.reusable_blocks is not None and law.reading is Reading.LIVE:
        assert statistics.new_blocks is not None
        assert statistics.full_blocks is not None
        first = law is TailLaw.TAILS_FIRST
        new = statistics.full_blocks if first else statistics.new_blocks
        return Displacement(new, statistics.reusable_blocks, shared, turns)
    # Published averages count the shared blocks in every R_j; they are taken out here.
    history = statistics.a_h_hash - shared * follow_ups
    new = statistics.e_b - shared
    if law is TailLaw.IDEAL:
        history += follow_ups
    elif law is TailLaw.TAILS_RECENT:
        new += follow_ups
    elif law is TailLaw.TAILS_FIRST:
        new -= 1
    if history < 0 or new < 0:
        raise CapacityError(
            f"shared_blocks: {shared} is more than the averages hold; expected at most e_b"
        )
    return Displacement(new, history, shared, turns)
