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
"""Section 4 at any scale: predictions against vLLM.

`run_point` replays conversations on a real server and puts beside its own cached-token
counts what the block simulator finds on the same requests and what the estimators say.
`compare_with_manager` drives vLLM's KVCacheManager with sampled timelines instead:
thousands of conversations in seconds, no server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from csr_policy.capacity.arrays import IntArray
from csr_policy.capacity.finite_size import hit_ratio_finite
from csr_policy.capacity.gaps import Empirical, Exponential, GapLaw
from csr_policy.capacity.mean_field import estimate_workload
from csr_policy.capacity.schedules import Setting, schedule_of, window_deviation
from csr_policy.capacity.server_replay import (
    Progress,
    Schedule,
    Served,
    Server,
    replay_on_server,
)
from csr_policy.capacity.simulator.block_lru import replay
from csr_policy.capacity.simulator.exact import replay_exact
from csr_policy.capacity.simulator.result import HitRatio, measure
from csr_policy.capacity.simulator.timeline import (
    Timeline,
    poisson_timeline,
    warm_up_conversations,
)
from csr_policy.capacity.tail_law import TailLaw
from csr_policy.capacity.trace import Trace
from csr_policy.capacity.vllm_manager import VllmManager
from csr_policy.capacity.workload import Boundary, Reading, Workload, blocks_of


@dataclass(frozen=True, slots=True)
class Prediction:
    """Estimates of one hit ratio under one F.

    Attributes:
        limit: Equation (39) under the law of the engine.
        size_corrected: With the content's own size.
        finite: With the spread of the displacement as well.
        paper: Equation (39) as printed, with the cumulative reading; to be compared with
            `paper_actual` of the point.
    """

    limit: float
    size_corrected: float
    finite: float
    paper: float


@dataclass(frozen=True, slots=True)
class Point:
    """One setting, measured and predicted.

    Attributes:
        arrival_rate_hz: Conversations a second.
        gap_mean_s: Target mean gap.
        measured_gap_mean_s: Realised mean gap.
        latency_mean_s: Mean end-to-end time.
        blocks: N.
        turns: Requests in the window.
        actual: Blocks reused over blocks asked for, as the engine counted.
        standard_error: Deviation between windows of this setting, simulated.
        paper_actual: The same reused blocks over the paper's cumulative R_j.
        token_hit_ratio: Cached over queried tokens.
        simulated: The block simulator on the same requests.
        prior: With the target F.
        posterior: With an exponential F of the realised mean, as the paper does.
        empirical: With the realised gaps themselves.
        late_share: Requests sent clearly late by the client.
        failed: Requests without an answer.
    """

    arrival_rate_hz: float
    gap_mean_s: float
    measured_gap_mean_s: float
    latency_mean_s: float
    blocks: int
    turns: int
    actual: float
    standard_error: float
    paper_actual: float
    token_hit_ratio: float
    simulated: float
    prior: Prediction
    posterior: Prediction
    empirical: Prediction
    late_share: float
    failed: int


def run_point(
    server: Server, trace: Trace, setting: Setting, progress: Progress | None = None
) -> Point:
    """Replay on a real server and compare.

    Raises:
        CapacityError: The server refuses or most requests fail.
    """
    schedule = schedule_of(trace, setting)
    served = replay_on_server(
        server,
        trace,
        schedule,
        boundary=setting.boundary,
        seed=setting.text_seed,
        progress=progress,
    )
    return compare(trace, schedule, served, setting)


def compare(trace: Trace, schedule: Schedule, served: Served, setting: Setting) -> Point:
    """Put measured, simulated and predicted side by side."""
    work = blocks_of(
        trace, setting.block_tokens, reading=Reading.LIVE, boundary=Boundary.DISAGGREGATED
    )
    stored = work
    if setting.boundary is Boundary.COLOCATED:
        stored = blocks_of(
            trace, setting.block_tokens, reading=Reading.LIVE, boundary=setting.boundary
        )
    timeline = timeline_of(trace, schedule, served)
    # A prompt asks for its own blocks, whatever is stored after it.
    asked = replace(stored, size=work.size)
    actual = measure(timeline, asked, served.cached_tokens // setting.block_tokens)
    cumulative = blocks_of(trace, setting.block_tokens, boundary=setting.boundary)
    paper_actual = measure(timeline, cumulative, served.cached_tokens // setting.block_tokens)
    reuse = replay(timeline, stored, setting.blocks, setting.law)
    simulated = measure(timeline, asked, reuse.blocks, refused=reuse.refused)
    rows = schedule.rows[schedule.warm_up :]
    gaps = served.gaps_s
    laws: tuple[GapLaw, ...] = (
        Exponential(setting.gap_mean_s),
        Exponential(float(gaps.mean())),
        Empirical.of(gaps),
    )
    prior, posterior, empirical = (
        _predict(asked.take(rows), cumulative.take(rows), setting, law) for law in laws
    )
    return Point(
        arrival_rate_hz=setting.arrival_rate_hz,
        gap_mean_s=setting.gap_mean_s,
        measured_gap_mean_s=float(gaps.mean()),
        latency_mean_s=float(served.latencies_s.mean()),
        blocks=setting.blocks,
        turns=actual.turns,
        actual=actual.hit_ratio,
        standard_error=window_deviation(trace, setting),
        paper_actual=paper_actual.hit_ratio,
        token_hit_ratio=actual.token_hit_ratio,
        simulated=simulated.hit_ratio,
        prior=prior,
        posterior=posterior,
        empirical=empirical,
        late_share=served.late_share,
        failed=served.failed,
    )


def timeline_of(trace: Trace, schedule: Schedule, served: Served) -> Timeline:
    """The requests that a server really got, as the simulator takes them."""
    turn = trace.offsets[schedule.rows[served.instance]] + served.turn
    return Timeline(
        conversation=served.instance,
        group=np.zeros(turn.size, dtype=np.int64),
        turn=turn.astype(np.int64),
        first=served.turn == 0,
        time_s=served.sent_s,
        finish_s=served.done_s,
        counted=np.ones(turn.size, dtype=np.bool_),
        window_s=served.window_s,
    )


def _predict(asked: Workload, cumulative: Workload, setting: Setting, gap: GapLaw) -> Prediction:
    rate, blocks = setting.arrival_rate_hz, setting.blocks
    own = estimate_workload(asked, law=setting.law, gap=gap, arrival_rate_hz=rate, blocks=blocks)
    paper = estimate_workload(
        cumulative, law=TailLaw.PAPER, gap=gap, arrival_rate_hz=rate, blocks=blocks
    )
    assert own.hit_ratio_size_corrected is not None
    return Prediction(
        limit=own.hit_ratio,
        size_corrected=own.hit_ratio_size_corrected,
        finite=hit_ratio_finite(
            asked, law=setting.law, gap=gap, arrival_rate_hz=rate, blocks=blocks
        ),
        paper=paper.hit_ratio,
    )


@dataclass(frozen=True, slots=True)
class ManagerPoint:
    """One capacity: vLLM's manager, the simulator and the laws.

    Attributes:
        blocks: N.
        law: Tail law of the manager.
        actual: Hit ratio that the manager gave, of the live reading.
        simulated: The block simulator's.
        different_turns: Turns in which the two found different numbers of blocks.
        limit: Equation (39) under the manager's law.
        size_corrected: With the content's own size.
        finite: With the spread of the displacement as well.
        paper_actual: Reused blocks over the paper's cumulative R_j.
        paper: Equation (39) as printed, cumulative reading.
        paper_live: Equation (39) with R_j = ceil(live tokens / block).
    """

    blocks: int
    law: TailLaw
    actual: HitRatio
    simulated: HitRatio
    different_turns: int
    limit: float
    size_corrected: float
    finite: float
    paper_actual: float
    paper: float
    paper_live: float


class ManagerFactory(Protocol):
    """Makes a manager of N blocks."""

    def __call__(self, blocks: int, *, block_tokens: int, tails_first: bool) -> VllmManager:
        """Make it."""


def compare_with_manager(
    trace: Trace,
    *,
    block_tokens: int,
    blocks: tuple[int, ...],
    gap: GapLaw,
    arrival_rate_hz: float,
    law: TailLaw = TailLaw.TAILS_FIRST,
    boundary: Boundary = Boundary.DISAGGREGATED,
    measured: int = 4000,
    seed: int = 0,
    service_s: float = 0.0,
    factory: ManagerFactory = VllmManager,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[ManagerPoint, ...]:
    """Compare at several capacities on one timeline.

    Raises:
        CapacityError: A number is out of range, or vllm is not installed.
    """
    work = blocks_of(trace, block_tokens, reading=Reading.LIVE, boundary=boundary)
    cumulative = blocks_of(trace, block_tokens, boundary=boundary)
    timeline = poisson_timeline(
        work,
        arrival_rate_hz=arrival_rate_hz,
        gap=gap,
        rng=np.random.default_rng(seed),
        measured=measured,
        warm_up=warm_up_conversations(work, gap, arrival_rate_hz, max(blocks)),
        service_s=service_s,
    )
    points = []
    for count in blocks:
        first = law is TailLaw.TAILS_FIRST
        manager = factory(count, block_tokens=block_tokens, tails_first=first)
        found = replay_exact(manager, timeline, work, progress)
        points.append(
            _manager_point(work, cumulative, timeline, found, count, law, gap, arrival_rate_hz)
        )
    return tuple(points)


def _manager_point(
    work: Workload,
    cumulative: Workload,
    timeline: Timeline,
    found: IntArray,
    blocks: int,
    law: TailLaw,
    gap: GapLaw,
    rate_hz: float,
) -> ManagerPoint:
    reuse = replay(timeline, work, blocks, law)

    def limit(workload: Workload, tail_law: TailLaw) -> float:
        return estimate_workload(
            workload, law=tail_law, gap=gap, arrival_rate_hz=rate_hz, blocks=blocks
        ).hit_ratio

    own = estimate_workload(work, law=law, gap=gap, arrival_rate_hz=rate_hz, blocks=blocks)
    assert own.hit_ratio_size_corrected is not None
    return ManagerPoint(
        blocks=blocks,
        law=law,
        actual=measure(timeline, work, found),
        simulated=measure(timeline, work, reuse.blocks, refused=reuse.refused),
        different_turns=int(np.count_nonzero(found != reuse.blocks)),
        limit=own.hit_ratio,
        size_corrected=own.hit_ratio_size_corrected,
        finite=hit_ratio_finite(work, law=law, gap=gap, arrival_rate_hz=rate_hz, blocks=blocks),
        paper_actual=measure(timeline, cumulative, found).hit_ratio,
        paper=limit(cumulative, TailLaw.PAPER),
        paper_live=limit(work, TailLaw.PAPER),
    )
