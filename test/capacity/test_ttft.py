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
"""TTFT from a predicted cache, against summing over every outcome."""

from __future__ import annotations

import numpy as np
import pytest

from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.ttft import (
    Prompts,
    late_probability,
    mean_ttft,
    predict,
    quantile_ttft,
)
from csr_policy.cost_model import CostModel

COST = CostModel(0.03, 1e-6, 4e-5, 2e-9)
PROMPTS = Prompts(
    tokens=np.array([500, 1100, 2300, 300]),
    own=np.array([0, 6, 15, 0]),
    shared=2,
    block_tokens=128,
)
FOUND = np.linspace(0.9, 0.4, 15)


def outcomes() -> list[tuple[float, float]]:
    """(probability, TTFT) of every turn and number of blocks found."""
    result = []
    count = PROMPTS.tokens.size
    for tokens, own in zip(PROMPTS.tokens.tolist(), PROMPTS.own.tolist(), strict=True):
        reached = np.concatenate(([1.0], FOUND[:own], [0.0]))
        for blocks in range(own + 1):
            chance = (reached[blocks] - reached[blocks + 1]) / count
            cached = (PROMPTS.shared + blocks) * PROMPTS.block_tokens
            result.append((float(chance), COST.request_s(tokens, cached)))
    return result


def test_mean_is_the_sum_over_outcomes() -> None:
    expected = sum(chance * seconds for chance, seconds in outcomes())
    assert mean_ttft(PROMPTS, FOUND, COST) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("deadline", [0.001, 0.031, 0.045, 0.05, 0.07, 0.1, 1.0])
def test_late_probability_is_the_sum_over_outcomes(deadline: float) -> None:
    expected = sum(chance for chance, seconds in outcomes() if seconds > deadline)
    assert late_probability(PROMPTS, FOUND, COST, deadline) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    "cost",
    [CostModel(0.01, 0, 1e-4, 0), CostModel(0.01, 0, 0, 1e-7), CostModel(0.02, 1e-5, 0, 0)],
)
def test_models_without_a_term_work(cost: CostModel) -> None:
    late = [late_probability(PROMPTS, FOUND, cost, t) for t in (0.005, 0.03, 0.06, 10.0)]
    assert late[0] == pytest.approx(1.0)
    assert late == sorted(late, reverse=True)
    assert late[-1] == pytest.approx(0.0)


def test_quantile_inverts_the_late_probability() -> None:
    t = quantile_ttft(PROMPTS, FOUND, COST, 0.8)
    assert late_probability(PROMPTS, FOUND, COST, t) <= 0.2
    assert late_probability(PROMPTS, FOUND, COST, t * 0.999) > 0.2


def test_bounds_are_all_found_and_nothing_found() -> None:
    result = predict(PROMPTS, FOUND, COST)
    assert result.hit_mean_s < result.mean_s < result.miss_mean_s
    assert result.late_probability is None
    assert mean_ttft(PROMPTS, np.ones(15), COST) == pytest.approx(result.hit_mean_s)
    assert mean_ttft(PROMPTS, np.zeros(15), COST) == pytest.approx(result.miss_mean_s)


def test_a_deadline_must_be_positive() -> None:
    with pytest.raises(CapacityError, match="deadline_s: is 0"):
        late_probability(PROMPTS, FOUND, COST, 0.0)
