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
"""Time to first token under a predicted cache, by the cost model of the robot path.

Hits and misses only: the model has no queue, so it holds while requests seldom meet.
A turn's cache is found block by block with probability G(k) for its k-th block, which
decides both the mean and the chance to miss a deadline.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from csr_policy.capacity.arrays import FloatArray, IntArray
from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.workload import Workload
from csr_policy.cost_model import CostModel


@dataclass(frozen=True, slots=True)
class Prompts:
    """Requests, as the cost sees them; one element a request.

    Attributes:
        tokens: Length of the prompt.
        own: Own blocks that may be cached.
        shared: Blocks that surely are.
        block_tokens: Tokens a block.
    """

    tokens: IntArray
    own: IntArray
    shared: int
    block_tokens: int


def prompts_of(workload: Workload) -> Prompts:
    """The turns of a workload as requests."""
    return Prompts(
        workload.prompt_tokens, workload.history, workload.shared_blocks, workload.block_tokens
    )


@dataclass(frozen=True, slots=True)
class TtftPrediction:
    """Prediction over all turns.

    Attributes:
        mean_s: E[TTFT].
        hit_mean_s: E[TTFT] if everything reusable is found.
        miss_mean_s: E[TTFT] if only shared blocks are found.
        deadline_s: The deadline asked about; None for none.
        late_probability: P(TTFT > deadline); None without one.
    """

    mean_s: float
    hit_mean_s: float
    miss_mean_s: float
    deadline_s: float | None
    late_probability: float | None


def predict(
    prompts: Prompts, found: FloatArray, cost: CostModel, *, deadline_s: float | None = None
) -> TtftPrediction:
    """Predict TTFT.

    Args:
        prompts: The requests.
        found: P(block k of the own content is found), k = 1, 2, ...
        cost: Cost of a request.
        deadline_s: Ask for P(TTFT > deadline) too.

    Raises:
        CapacityError: The deadline is not positive.
    """
    base = prompts.shared * prompts.block_tokens
    best = base + prompts.own * prompts.block_tokens
    return TtftPrediction(
        mean_s=mean_ttft(prompts, found, cost),
        hit_mean_s=float(cost.ttft_s(prompts.tokens, best).mean()),
        miss_mean_s=float(cost.ttft_s(prompts.tokens, np.full_like(best, base)).mean()),
        deadline_s=deadline_s,
        late_probability=(
            None if deadline_s is None else late_probability(prompts, found, cost, deadline_s)
        ),
    )


def mean_ttft(prompts: Prompts, found: FloatArray, cost: CostModel) -> float:
    """E[TTFT]: each further block found saves what it would have cost.

    With r cached tokens the cost falls by a + kappa (r + b/2 + 1/2) a token when the next b
    are found too, so two cumulative sums of G give every turn's mean.
    """
    block = prompts.block_tokens
    most = int(prompts.own.max(initial=0))
    chance = np.zeros(most)
    chance[: found.size] = found[:most]
    cached = (prompts.shared + np.arange(most)) * block
    saved = block * (cost.per_new_token_s + cost.per_pair_s * (cached + (block + 1) / 2))
    total = np.concatenate(([0.0], np.cumsum(chance * saved)))
    base = np.full(prompts.tokens.shape, prompts.shared * block)
    return float(np.mean(cost.ttft_s(prompts.tokens, base) - total[prompts.own]))


def late_probability(
    prompts: Prompts, found: FloatArray, cost: CostModel, deadline_s: float
) -> float:
    """P(TTFT > deadline) over all turns.

    Raises:
        CapacityError: The deadline is not positive.
    """
    if not deadline_s > 0:
        raise CapacityError(f"deadline_s: is {deadline_s:g}; expected a positive time")
    new = _affordable_tokens(prompts.tokens, cost, deadline_s)
    needed_tokens = prompts.tokens - new
    needed = np.ceil(needed_tokens / prompts.block_tokens - 1e-9) - prompts.shared
    chance = np.concatenate(([1.0], found, [0.0]))
    index = np.clip(needed, 0, found.size + 1).astype(np.int64)
    in_time = np.where(needed > prompts.own, 0.0, chance[index])
    return float(1 - in_time.mean())


def quantile_ttft(
    prompts: Prompts, found: FloatArray, cost: CostModel, probability: float
) -> float:
    """Smallest t with P(TTFT > t) <= 1 - probability, to a millionth of its size."""
    base = np.full(prompts.tokens.shape, prompts.shared * prompts.block_tokens)
    high = float(cost.ttft_s(prompts.tokens, base).max())
    low = 0.0
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        if late_probability(prompts, found, cost, middle) <= 1 - probability:
            high = middle
        else:
            low = middle
    return high


def _affordable_tokens(tokens: IntArray, cost: CostModel, deadline_s: float) -> FloatArray:
    """Most tokens that can be computed in time; negative where the prompt alone is late.

    With n = L - r new ones, a n + kappa n (2 L - n + 1) / 2 = y, y what t0 and t1 leave.
    """
    y = deadline_s - cost.t0_s - cost.per_token_s * tokens
    linear = cost.per_new_token_s + cost.per_pair_s * (2 * tokens + 1) / 2
    if cost.per_pair_s == 0:
        if cost.per_new_token_s == 0:
            return np.where(y >= 0, tokens, -math.inf)
        new = y / cost.per_new_token_s
    else:
        inside = np.maximum(linear**2 - 2 * cost.per_pair_s * np.maximum(y, 0), 0)
        # The form that does not cancel for a small kappa.
        new = 2 * np.maximum(y, 0) / (linear + np.sqrt(inside))
    return np.where(y < 0, -math.inf, np.minimum(new, tokens))
