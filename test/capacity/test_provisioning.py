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
"""Sizing: N for a hit ratio or a TTFT, memory, keep-alive, all against simulation."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.finite_size import (
    Background,
    hit_ratio_finite,
    poisson_background,
)
from csr_policy.capacity.gaps import Exponential
from csr_policy.capacity.generators import mcm, parse_integer_law
from csr_policy.capacity.kv_memory import kv_memory
from csr_policy.capacity.provisioning import blocks_for_hit_ratio, blocks_for_ttft, keep_alive
from csr_policy.capacity.simulator.block_lru import replay, simulate_block_lru
from csr_policy.capacity.simulator.result import HitRatio
from csr_policy.capacity.simulator.timeline import poisson_timeline, warm_up_conversations
from csr_policy.capacity.simulator.whole_content import simulate_whole_content
from csr_policy.capacity.tail_law import TailLaw
from csr_policy.capacity.trace import Trace
from csr_policy.capacity.workload import (
    Reading,
    Workload,
    blocks_of,
    given_statistics,
    statistics,
)
from csr_policy.cost_model import CostModel

GAP = Exponential(135.0)
COST = CostModel(0.04, 2.6e-6, 3.6e-5, 1.2e-9)
PUBLISHED = given_statistics(a_r=38.9092, a_h_hash=22.5178, e_b=12.9220, e_m=4.4694)


def big_contents() -> Workload:
    """Contents of 60 blocks on average: large against N = 1,000."""
    return mcm(
        np.random.default_rng(3),
        20_000,
        parse_integer_law("geometric:0.8", "turns"),
        parse_integer_law("uniform:1,23", "increments"),
        dependence=0.5,
    )


def bisected(simulate: Callable[[int], HitRatio], target: float, around: int) -> tuple[int, float]:
    """The N at which the simulation reaches the target, on one timeline; and its error."""
    low, high = int(0.85 * around), int(1.15 * around)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if simulate(middle).hit_ratio >= target else (middle, high)
    result = simulate(high)
    above, below = simulate(int(1.03 * high)), simulate(int(0.97 * high))
    slope = (above.hit_ratio - below.hit_ratio) / (int(1.03 * high) - int(0.97 * high))
    return high, result.standard_error / slope


@pytest.mark.parametrize(
    ("law", "rate_hz", "target"),
    [
        (TailLaw.TAILS_FIRST, 1.5, 0.18),
        (TailLaw.TAILS_FIRST, 1.5, 0.30),
        (TailLaw.IDEAL, 0.12, 0.16),
        (TailLaw.IDEAL, 0.12, 0.30),
    ],
)
def test_the_n_returned_is_the_simulators(
    request: pytest.FixtureRequest, law: TailLaw, rate_hz: float, target: float
) -> None:
    if law is TailLaw.IDEAL:
        work = big_contents()
    else:
        trace: Trace = request.getfixturevalue("sharegpt")
        work = blocks_of(trace, 128, reading=Reading.LIVE)
    found = blocks_for_hit_ratio(
        statistics(work), target, law=law, gap=GAP, arrival_rate_hz=rate_hz, workload=work
    )
    assert found.blocks >= 1000
    timeline = poisson_timeline(
        work,
        arrival_rate_hz=rate_hz,
        gap=GAP,
        rng=np.random.default_rng(11),
        measured=25_000,
        warm_up=min(warm_up_conversations(work, GAP, rate_hz, found.blocks), 5000),
    )

    def simulate(blocks: int) -> HitRatio:
        if law is TailLaw.IDEAL:
            return simulate_whole_content(timeline, work, blocks)
        return simulate_block_lru(timeline, work, blocks, law)

    simulated, error = bisected(simulate, target, found.blocks)
    print(f"{found.blocks} predicted, {simulated} simulated, standard error {error:.0f}")
    assert found.blocks == pytest.approx(simulated, rel=0.02)


def test_from_averages_the_limit_is_inverted() -> None:
    found = blocks_for_hit_ratio(
        PUBLISHED, 0.171784, law=TailLaw.PAPER, gap=GAP, arrival_rate_hz=1.5
    )
    assert found.method == "limit"
    assert found.blocks == pytest.approx(2275, abs=1)


def test_it_is_the_smallest_n(small_trace: Trace) -> None:
    work = blocks_of(small_trace, 16, reading=Reading.LIVE)
    setting = {"law": TailLaw.TAILS_FIRST, "gap": Exponential(30.0), "arrival_rate_hz": 0.5}
    found = blocks_for_hit_ratio(statistics(work), 0.3, workload=work, **setting)  # type: ignore[arg-type]

    def at(blocks: int) -> float:
        return hit_ratio_finite(work, blocks=blocks, **setting)  # type: ignore[arg-type]

    assert at(found.blocks - 1) < 0.3 <= at(found.blocks)


@pytest.mark.parametrize(
    ("target", "part"),
    [(0.6, "below 0.5787"), (0.0, "between 0 and 1"), (1.5, "between 0 and 1"), (-1, "between")],
)
def test_a_target_out_of_reach_is_one_line(target: float, part: str) -> None:
    with pytest.raises(CapacityError, match=part):
        blocks_for_hit_ratio(PUBLISHED, target, law=TailLaw.PAPER, gap=GAP, arrival_rate_hz=1.5)


def test_the_n_for_a_deadline_meets_it_in_simulation(sharegpt: Trace) -> None:
    work = blocks_of(sharegpt, 128, reading=Reading.LIVE)
    law = TailLaw.TAILS_FIRST
    found = blocks_for_ttft(
        work,
        COST,
        deadline_s=0.08,
        probability=0.9,
        law=law,
        gap=GAP,
        arrival_rate_hz=1.5,
    )
    timeline = poisson_timeline(
        work,
        arrival_rate_hz=1.5,
        gap=GAP,
        rng=np.random.default_rng(2),
        measured=15_000,
        warm_up=3000,
    )
    cached = replay(timeline, work, found.blocks, law).blocks * 128
    ttft = COST.ttft_s(work.prompt_tokens[timeline.turn], cached)[timeline.measured]
    assert float(np.mean(ttft <= 0.08)) == pytest.approx(0.9, abs=0.01)


def test_a_deadline_out_of_reach_is_one_line(small_trace: Trace) -> None:
    work = blocks_of(small_trace, 16, reading=Reading.LIVE)
    with pytest.raises(CapacityError, match=r"deadline_s: 0\.01 s is met by 0\.0000"):
        blocks_for_ttft(
            work,
            COST,
            deadline_s=0.01,
            probability=0.9,
            law=TailLaw.TAILS_FIRST,
            gap=GAP,
            arrival_rate_hz=1.5,
        )


def test_a_session_kept_alive_at_the_interval_stays_whole(small_trace: Trace) -> None:
    """The displacement within the interval, by simulation, leaves the session its room."""
    work = blocks_of(small_trace, 16, reading=Reading.LIVE)
    gap, rate, blocks, own = Exponential(30.0), 0.5, 1500, 40
    background = poisson_background(work, TailLaw.TAILS_FIRST, gap, rate, blocks)
    kept = keep_alive(background, blocks=blocks, session_blocks=own, probability=0.9)
    timeline = poisson_timeline(
        work,
        arrival_rate_hz=rate,
        gap=gap,
        rng=np.random.default_rng(1),
        measured=4000,
        warm_up=300,
    )
    size = work.reusable[timeline.turn]
    begin, end = timeline.window_s
    whole = []
    for moment in np.arange(begin, end - kept.interval_s, kept.interval_s / 2):
        low, high = np.searchsorted(timeline.time_s, [moment, moment + kept.interval_s])
        newest = dict(zip(timeline.conversation[low:high], size[low:high], strict=True))
        whole.append(sum(newest.values()) + own <= blocks)
    assert float(np.mean(whole)) == pytest.approx(0.9, abs=0.03)


def test_idle_sessions_take_room_from_each_other(small_trace: Trace) -> None:
    work = blocks_of(small_trace, 16, reading=Reading.LIVE)
    background = poisson_background(work, TailLaw.TAILS_FIRST, Exponential(30.0), 0.5, 1500)

    def interval(idle: int) -> float:
        return keep_alive(
            background, blocks=1500, session_blocks=40, idle_sessions=idle
        ).interval_s

    assert interval(20) < interval(1)
    with pytest.raises(CapacityError, match="expected more than the idle sessions"):
        interval(40)


@pytest.mark.parametrize(
    ("changes", "gpus", "per_token"),
    [
        ({}, 1, 2 * 36 * 8 * 128 * 2),
        ({}, 4, 2 * 36 * 2 * 128 * 2),
        # Fewer KV heads than GPUs are copied.
        ({}, 16, 2 * 36 * 1 * 128 * 2),
        ({"torch_dtype": "float32"}, 1, 2 * 36 * 8 * 128 * 4),
        ({"head_dim": None}, 1, 2 * 36 * 8 * 128 * 2),
        # Latent attention: one vector a token and layer.
        ({"kv_lora_rank": 512, "qk_rope_head_dim": 64}, 8, 36 * 576 * 2),
    ],
)
def test_bytes_a_token(changes: dict[str, object], gpus: int, per_token: int) -> None:
    config = {
        "hidden_size": 4096,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "torch_dtype": "bfloat16",
    }
    memory = kv_memory({**config, **changes}, block_tokens=16, tensor_parallel=gpus)
    assert memory.bytes_per_token == per_token
    assert memory.gib(memory.blocks(10)) == pytest.approx(10, abs=0.01)


@pytest.mark.parametrize(
    ("config", "part"),
    [
        ({}, "no 'num_hidden_layers'"),
        ({"num_hidden_layers": 2, "model_type": "mamba2"}, "not a KV block"),
        ({"num_hidden_layers": 2, "layer_types": ["linear_attention"]}, "not a KV block"),
        ({"num_hidden_layers": 0}, "positive integer"),
    ],
)
def test_a_model_that_cannot_be_sized_is_one_line(config: dict[str, object], part: str) -> None:
    with pytest.raises(CapacityError, match=part):
        kv_memory(config, block_tokens=16)


def test_nothing_evicts_an_idle_session_without_others() -> None:
    quiet = Background(lambda t: 0 * t, lambda t: 0 * t, 1.0)
    kept = keep_alive(quiet, blocks=100, session_blocks=40)
    assert math.isinf(kept.interval_s)
    assert kept.requests_hz == 0
