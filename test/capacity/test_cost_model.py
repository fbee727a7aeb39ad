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
"""The cost model: the paper's Table II, the running fit, Theorem 4 in seconds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from csr_policy.cost_model import CostFit, CostModel, cost_terms, fit, reconciliation_time

# Table II: seconds by dynamic tokens M (0 is the unordered row) at 30K, 60K, 90K, 120K.
TABLE_II = {
    0: (1.83, 4.90, 9.22, 14.67),
    1: (0.12, 0.21, 0.27, 0.34),
    1024: (0.20, 0.31, 0.42, 0.56),
    2048: (0.26, 0.42, 0.58, 0.73),
    4096: (0.41, 0.65, 0.89, 1.13),
    8192: (0.69, 1.11, 1.53, 1.95),
}
STATIC = (30_000, 60_000, 90_000, 120_000)


def table() -> tuple[list[float], list[float], list[float]]:
    prompt, cached, seconds = [], [], []
    for dynamic, row in TABLE_II.items():
        for static, measured in zip(STATIC, row, strict=True):
            prompt.append(float(static + dynamic))
            cached.append(0.0 if dynamic == 0 else float(static))
            seconds.append(measured)
    return prompt, cached, seconds


def test_table_ii_is_met_within_13_percent() -> None:
    _, quality = fit(*table())
    assert quality.observations == 24
    assert quality.max_relative <= 0.13


def test_equation_25_alone_misses_table_ii() -> None:
    prompt, cached, seconds = table()
    pairs = cost_terms(prompt, cached)[:, 3] / np.array(seconds)
    errors = [
        float(np.max(np.abs(k * pairs - 1))) for k in np.geomspace(0.1, 10, 400) / pairs.max()
    ]
    assert min(errors) > 0.5


def test_a_model_is_found_again_from_its_own_times() -> None:
    model = CostModel(0.05, 2e-6, 4e-5, 1e-9)
    rng = np.random.default_rng(0)
    prompt = rng.integers(100, 60_000, 60).astype(float)
    cached = np.floor(prompt * rng.random(60))
    found, quality = fit(list(prompt), list(cached), list(model.ttft_s(prompt, cached)))
    assert quality.max_relative < 1e-6
    assert found.per_pair_s == pytest.approx(model.per_pair_s, rel=1e-4)
    assert found.t0_s == pytest.approx(model.t0_s, rel=1e-4)


def test_coefficients_are_never_negative() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        running = CostFit()
        for _ in range(int(rng.integers(1, 12))):
            prompt = float(rng.integers(10, 5000))
            running.observe(prompt, float(rng.integers(0, int(prompt) + 1)), rng.random() + 0.01)
        model = running.model()
        assert model is not None
        assert min(model.t0_s, model.per_token_s, model.per_new_token_s, model.per_pair_s) >= 0


def test_the_best_bounded_fit_is_found() -> None:
    """No small step within the bounds lowers the squared relative error."""
    rng = np.random.default_rng(2)
    prompt = rng.integers(10, 5000, 30).astype(float)
    cached = np.floor(prompt * rng.random(30))
    seconds = 0.05 + prompt * 1e-5 * rng.random(30)
    model, _ = fit(list(prompt), list(cached), list(seconds))
    terms = cost_terms(prompt, cached)

    def loss(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
        return float(np.sum((terms @ values / seconds - 1) ** 2))

    best = np.array([model.t0_s, model.per_token_s, model.per_new_token_s, model.per_pair_s])
    for index, scale in enumerate((1e-2, 1e-6, 1e-6, 1e-10)):
        for step in (-scale, scale):
            moved = best.copy()
            moved[index] = max(0.0, moved[index] + step)
            assert loss(moved) >= loss(best) - 1e-9


def test_a_fit_that_forgets_follows_a_slower_engine() -> None:
    running = CostFit(half_life=20)
    for _ in range(200):
        running.observe(1000, 900, 0.1)
    for _ in range(200):
        running.observe(1000, 900, 0.3)
    model = running.model()
    assert model is not None
    assert model.request_s(1000, 900) == pytest.approx(0.3, rel=0.01)


def test_before_the_first_observation_there_is_no_model() -> None:
    assert CostFit().model() is None


@pytest.mark.parametrize(
    ("prompt", "cached", "seconds"),
    [(10, 11, 1.0), (10, -1, 1.0), (10, 5, 0.0), (10, 5, math.inf), (10, 5, math.nan)],
)
def test_an_observation_that_makes_no_sense_is_refused(
    prompt: float, cached: float, seconds: float
) -> None:
    with pytest.raises(ValueError, match="observation: prompt 10"):
        CostFit().observe(prompt, cached, seconds)


def test_the_quadratic_term_is_the_sum_of_attended_positions() -> None:
    assert cost_terms(10, 4)[3] == sum(range(5, 11))


SLOW = CostModel(0.05, 0.0, 1e-3, 0.0)


def test_warm_up_in_steps_costs_the_same_tokens_and_the_pauses() -> None:
    one = reconciliation_time(
        SLOW,
        kept_tokens=5000,
        cached_tokens=1000,
        rate_tokens_hz=0,
        room_tokens=2000,
        n_catchup_tokens=256,
    )
    steps = reconciliation_time(
        SLOW,
        kept_tokens=5000,
        cached_tokens=1000,
        rate_tokens_hz=0,
        room_tokens=2000,
        n_catchup_tokens=256,
        step_tokens=1500,
        pause_s=0.5,
    )
    assert one.warm_up_s == pytest.approx(0.05 + 4.0)
    assert steps.warm_up_s == pytest.approx(3 * 0.05 + 4.0 + 2 * 0.5)
    assert math.isinf(one.to_overflow_s)
    assert one.holds


def test_catch_up_repeats_until_little_is_missing() -> None:
    result = reconciliation_time(
        SLOW,
        kept_tokens=5000,
        cached_tokens=0,
        rate_tokens_hz=500,
        room_tokens=10_000,
        n_catchup_tokens=256,
    )
    # 5.05 s of 500 tokens/s are 2525; those take 2.575 s, in which 1287 come, and so on.
    behind, spent, rounds = 500 * 5.05, 0.0, 0
    while behind > 256:
        step = 0.05 + 1e-3 * behind
        spent, behind, rounds = spent + step, 500 * step, rounds + 1
    assert result.catch_up_s == pytest.approx(spent)
    assert result.rounds == rounds
    assert result.margin_s == pytest.approx(20 - 5.05 - spent)


def test_an_engine_slower_than_the_stream_never_catches_up() -> None:
    result = reconciliation_time(
        SLOW,
        kept_tokens=5000,
        cached_tokens=0,
        rate_tokens_hz=1100,
        room_tokens=10_000,
        n_catchup_tokens=256,
    )
    assert math.isinf(result.catch_up_s)
    assert not result.holds
