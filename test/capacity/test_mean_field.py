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
"""The limit: the paper's numbers, an independent solver, closed forms, refusals."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from scipy import integrate, optimize

from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.gap_text import parse_gap
from csr_policy.capacity.gaps import Deterministic, Exponential, GapLaw
from csr_policy.capacity.kv_memory import kv_memory
from csr_policy.capacity.mean_field import (
    characteristic_time,
    characteristic_time_exponential,
    estimate,
    estimate_workload,
)
from csr_policy.capacity.scm import scm_limit, scm_statistics
from csr_policy.capacity.tail_law import Displacement, TailLaw
from csr_policy.capacity.trace import Trace
from csr_policy.capacity.workload import Reading, blocks_of, given_statistics

PUBLISHED = given_statistics(a_r=38.9092, a_h_hash=22.5178, e_b=12.9220, e_m=4.4694)
QWEN3_8B = {
    "model_type": "qwen3",
    "hidden_size": 4096,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "torch_dtype": "bfloat16",
}


def independent(
    new: float, history: float, gap: GapLaw, rate: float, blocks: float
) -> tuple[float, float]:
    """T_C and F(T_C) by quadrature and bracketing, sharing no code with the package."""

    def missing(t: float) -> float:
        tail, _ = integrate.quad(lambda u: 1 - float(gap.cdf(u)), 0, t, epsabs=1e-12, limit=500)
        return rate * (new * t + history * tail) - blocks

    high = 1.0
    while missing(high) < 0:
        high *= 2
    time_s = float(optimize.brentq(missing, 0, high, xtol=1e-12, rtol=1e-14))
    return time_s, float(gap.cdf(time_s))


def test_the_papers_operating_point() -> None:
    result = estimate(
        PUBLISHED,
        law=TailLaw.PAPER,
        gap=Exponential(135.0),
        arrival_rate_hz=1.5,
        blocks=2275,
    )
    assert f"{result.characteristic_time_s:.4f}" == "47.5413"
    assert f"{result.hit_ratio:.6f}" == "0.171784"
    assert result.h_max == pytest.approx((22.5178 + 3.4694) / 38.9092)
    assert result.h_max_hash == pytest.approx(22.5178 / 38.9092)


def test_qwen3_8b_has_144_kib_a_token_and_2275_blocks() -> None:
    memory = kv_memory(QWEN3_8B, block_tokens=128)
    assert memory.bytes_per_token == 144 * 1024
    assert memory.bytes_per_block == 18 * 1024 * 1024
    assert memory.blocks(40) == 2275


@pytest.mark.parametrize("rate", [0.5, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("mean", [90.0, 135.0, 240.0])
@pytest.mark.parametrize("blocks", [500, 2275, 20_000])
def test_every_operating_point_agrees_with_an_independent_solver(
    rate: float, mean: float, blocks: int
) -> None:
    gap = Exponential(mean)
    result = estimate(PUBLISHED, law=TailLaw.PAPER, gap=gap, arrival_rate_hz=rate, blocks=blocks)
    time_s, probability = independent(12.9220, 22.5178, gap, rate, blocks)
    assert result.characteristic_time_s == pytest.approx(time_s, rel=1e-6)
    assert result.hit_ratio == pytest.approx(22.5178 / 38.9092 * probability, rel=1e-6)


@pytest.mark.parametrize(
    ("law", "new", "history"),
    [
        (TailLaw.IDEAL, 12.9220, 22.5178 + 3.4694),
        (TailLaw.PAPER, 12.9220, 22.5178),
        (TailLaw.TAILS_RECENT, 12.9220 + 3.4694, 22.5178),
        (TailLaw.TAILS_FIRST, 11.9220, 22.5178),
    ],
)
@pytest.mark.parametrize(
    "text", ["exponential:135", "gamma:0.5,135", "gamma:4,135", "lognormal:4,1.2", "lomax:1.5,60"]
)
def test_every_law_and_gap_agrees_with_an_independent_solver(
    law: TailLaw, new: float, history: float, text: str
) -> None:
    gap = parse_gap(text)
    result = estimate(PUBLISHED, law=law, gap=gap, arrival_rate_hz=1.5, blocks=2275)
    time_s, probability = independent(new, history, gap, 1.5, 2275)
    assert result.characteristic_time_s == pytest.approx(time_s, rel=1e-6)
    assert result.hit_ratio == pytest.approx(history / 38.9092 * probability, rel=1e-6)


@pytest.mark.parametrize("history", [0.0, 0.3, 22.0, 4000.0])
@pytest.mark.parametrize("blocks", [1.0, 300.0, 1e7])
def test_the_closed_form_solves_the_same_equation(history: float, blocks: float) -> None:
    curve = Displacement(12.9, history)
    found = characteristic_time_exponential(blocks, curve, 135.0, 1.5)
    solved = float(characteristic_time(blocks, curve, Exponential(135.0), 1.5))
    assert found == pytest.approx(solved, rel=1e-6)


def test_scm_closed_forms() -> None:
    stats = scm_statistics(0.75, 4, 3)
    assert stats.a_r == pytest.approx((4 + 0.75 * 3) / 0.25**2)
    assert stats.a_h == pytest.approx(0.75 * stats.a_r)
    assert stats.h_max == pytest.approx(0.75)
    general = estimate(
        stats, law=TailLaw.IDEAL, gap=Exponential(20.0), arrival_rate_hz=0.7, blocks=900
    )
    closed = scm_limit(0.75, 4, 3, gap_mean_s=20.0, arrival_rate_hz=0.7, blocks=900)
    assert closed.hit_ratio == pytest.approx(general.hit_ratio, rel=1e-10)
    assert closed.characteristic_time_s == pytest.approx(general.characteristic_time_s, rel=1e-10)


def test_a_fixed_gap_is_all_or_nothing_and_says_so() -> None:
    def at(gap_s: float) -> tuple[float, str]:
        result = estimate(
            PUBLISHED,
            law=TailLaw.PAPER,
            gap=Deterministic(gap_s),
            arrival_rate_hz=1.5,
            blocks=2275,
        )
        return result.hit_ratio, " ".join(result.notes)

    # All history moves within 2275 / (1.5 (12.922 + 22.5178)) = 42.8 s.
    below, note = at(42.0)
    assert below == pytest.approx(PUBLISHED.h_max_hash)
    assert "jumps" in note
    assert at(44.0)[0] == 0.0


def test_a_cache_that_never_fills_hits_always() -> None:
    curve = Displacement(0.0, 10.0)
    assert math.isinf(characteristic_time(500.0, curve, Exponential(10.0), 1.0))
    assert float(characteristic_time(50.0, curve, Exponential(10.0), 1.0)) == pytest.approx(
        10 * math.log(2), rel=1e-9
    )


def test_shared_blocks_take_their_room_once() -> None:
    alone = Displacement(12.9, 22.5)
    shared = Displacement(12.9, 22.5, shared=300)
    gap = Exponential(135.0)
    assert float(characteristic_time(2300.0, shared, gap, 1.5)) == pytest.approx(
        float(characteristic_time(2000.0, alone, gap, 1.5))
    )


def test_size_correction_vanishes_as_the_cache_grows(small_trace: Trace) -> None:
    work = blocks_of(small_trace, 16, reading=Reading.LIVE)

    def gap_at(scale: int) -> float:
        result = estimate_workload(
            work,
            law=TailLaw.TAILS_FIRST,
            gap=Exponential(60.0),
            arrival_rate_hz=0.2 * scale,
            blocks=400 * scale,
        )
        assert result.hit_ratio_size_corrected is not None
        return result.hit_ratio - result.hit_ratio_size_corrected

    assert gap_at(1) > 0
    assert gap_at(100) == pytest.approx(gap_at(1) / 100, rel=0.1)


def test_an_estimate_takes_less_than_50_ms(sharegpt: Trace) -> None:
    work = blocks_of(sharegpt, 128, reading=Reading.LIVE)
    spent = []
    for _ in range(5):
        begin = time.process_time()
        estimate_workload(
            work,
            law=TailLaw.TAILS_FIRST,
            gap=parse_gap("lognormal:4,1.2"),
            arrival_rate_hz=1.5,
            blocks=2275,
        )
        spent.append(time.process_time() - begin)
    assert float(np.median(spent)) < 0.05


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"arrival_rate_hz": -1.0}, "arrival_rate: is -1"),
        ({"arrival_rate_hz": 0.0}, "positive"),
        ({"arrival_rate_hz": math.nan}, "positive"),
        ({"blocks": 12}, "at least one conversation, 13"),
    ],
)
def test_wrong_input_is_one_line(changes: dict[str, float], part: str) -> None:
    good = {"law": TailLaw.PAPER, "gap": Exponential(135.0), "arrival_rate_hz": 1.5, "blocks": 99}
    with pytest.raises(CapacityError, match=part):
        estimate(PUBLISHED, **{**good, **changes})  # type: ignore[arg-type]


def test_a_law_that_needs_e_m_says_so() -> None:
    stats = given_statistics(a_r=38.9, a_h_hash=22.5, e_b=12.9)
    with pytest.raises(CapacityError, match="e_m: is missing"):
        estimate(
            stats,
            law=TailLaw.TAILS_RECENT,
            gap=Exponential(1.0),
            arrival_rate_hz=1.0,
            blocks=99,
        )
    result = estimate(
        stats, law=TailLaw.PAPER, gap=Exponential(1.0), arrival_rate_hz=1.0, blocks=99
    )
    assert result.h_max is None
