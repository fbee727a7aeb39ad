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
"""What a simulation measured."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from csr_policy.capacity.arrays import FloatArray, IntArray
from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.simulator.timeline import Timeline
from csr_policy.capacity.workload import Workload

_BATCHES = 20


@dataclass(frozen=True, slots=True)
class HitRatio:
    """A measured hit ratio.

    Attributes:
        hit_ratio: Blocks reused over blocks asked for (equation (6)).
        standard_error: Of it, by batch means over time.
        token_hit_ratio: Cached over queried prompt tokens, as vLLM counts them.
        turns: Turns in the window.
        refused: Turns that did not fit beside those in service.
    """

    hit_ratio: float
    standard_error: float
    token_hit_ratio: float
    turns: int
    refused: int = 0


def ratio_with_error(numerator: FloatArray, denominator: FloatArray) -> tuple[float, float]:
    """Ratio of sums and its standard error by batch means."""
    total = float(denominator.sum())
    ratio = float(numerator.sum()) / total
    batches = min(_BATCHES, numerator.size)
    if batches < 2:
        return ratio, math.inf
    edges = np.linspace(0, numerator.size, batches + 1).astype(np.int64)[:-1]
    residual = np.add.reduceat(numerator - ratio * denominator, edges)
    spread = float(np.sqrt(np.sum(residual**2) * batches / (batches - 1)))
    return ratio, spread / total


def measure(
    timeline: Timeline, workload: Workload, reused_blocks: IntArray, *, refused: int = 0
) -> HitRatio:
    """Hit ratio inside the window.

    Args:
        timeline: The turns.
        workload: Where they come from.
        reused_blocks: Blocks that each turn of the timeline reused, shared ones included.
        refused: Turns that the simulator could not place.

    Raises:
        CapacityError: No turn lies in the window.
    """
    inside = timeline.measured
    if not inside.any():
        raise CapacityError("window: holds no turns; expected more conversations")
    turns = timeline.turn[inside]
    reused = reused_blocks[inside].astype(np.float64)
    ratio, error = ratio_with_error(reused, workload.size[turns].astype(np.float64))
    tokens = reused.sum() * workload.block_tokens / workload.prompt_tokens[turns].sum()
    return HitRatio(ratio, error, float(tokens), int(inside.sum()), refused)
