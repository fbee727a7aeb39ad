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
"""`csr-policy capacity simulate`: event-driven LRU beside the estimates."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import numpy as np
import typer

from csr_policy.capacity.commands.bundles import command
from csr_policy.capacity.commands.flags import Conversations, Load, Output, require_blocks
from csr_policy.capacity.commands.output import deliver, progress
from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.finite_size import hit_ratio_finite
from csr_policy.capacity.gaps import GapLaw
from csr_policy.capacity.mean_field import estimate_workload
from csr_policy.capacity.mooncake import BLOCK_TOKENS, read_requests
from csr_policy.capacity.simulator.block_lru import simulate_block_lru
from csr_policy.capacity.simulator.block_pool import BlockPool
from csr_policy.capacity.simulator.exact import replay_log
from csr_policy.capacity.simulator.result import HitRatio
from csr_policy.capacity.simulator.timeline import (
    Timeline,
    poisson_timeline,
    warm_up_conversations,
)
from csr_policy.capacity.simulator.whole_content import simulate_whole_content
from csr_policy.capacity.tail_law import TailLaw
from csr_policy.capacity.workload import Reading, Workload


class Policy(StrEnum):
    """What is evicted: whole conversations (Algorithm 1) or blocks (vLLM)."""

    WHOLE = "whole"
    BLOCKS = "blocks"


@command
def simulate_command(
    conversations: Conversations,
    load: Load,
    output: Output,
    blocks: Annotated[list[int] | None, typer.Option(help="N; several times for several.")] = None,
    policy: Annotated[
        Policy | None, typer.Option(help="Else blocks for an engine's tail law, or whole.")
    ] = None,
    measured: Annotated[int, typer.Option(help="Conversations in the window.")] = 5000,
    warm_up: Annotated[int, typer.Option(help="Conversations before; 0: as many as needed.")] = 0,
    service_s: Annotated[float, typer.Option(help="Time that a request holds its blocks.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Of all that is drawn.")] = 0,
    as_log: Annotated[
        bool, typer.Option(help="Replay a mooncake log as it is, in its own order.")
    ] = False,
) -> None:
    """Simulate LRU on conversations and compare with the estimates."""
    counts = [require_blocks(count) for count in blocks or []] or [require_blocks(None)]
    if as_log:
        _simulate_log(conversations, load.tail_law, counts, output)
        return
    work = conversations.resolve(load.tail_law).require()
    gap, rate = load.law, load.rate_hz
    chosen = policy or (Policy.BLOCKS if load.tail_law.reading is Reading.LIVE else Policy.WHOLE)
    before = warm_up or warm_up_conversations(work, gap, rate, max(counts))
    timeline = poisson_timeline(
        work,
        arrival_rate_hz=rate,
        gap=gap,
        rng=np.random.default_rng(seed),
        measured=measured,
        warm_up=before,
        service_s=service_s,
    )
    rows = []
    with progress("simulating") as report:
        for index, count in enumerate(counts):
            report(index, len(counts))
            result = _simulate(chosen, timeline, work, count, load.tail_law)
            rows.append(_row(result, work, load.tail_law, gap, rate, count))
    document = {
        "policy": chosen.value,
        "tail_law": load.tail_law.value,
        "gap": gap.describe(),
        "arrival_rate_hz": rate,
        "warm_up_conversations": before,
        "measured_conversations": measured,
        "results": rows,
    }
    deliver(output, document, rows, f"{chosen.value} LRU, {work.source}")


def _simulate(
    policy: Policy, timeline: Timeline, work: Workload, blocks: int, law: TailLaw
) -> HitRatio:
    if policy is Policy.WHOLE:
        return simulate_whole_content(timeline, work, blocks)
    return simulate_block_lru(timeline, work, blocks, law)


def _row(
    result: HitRatio, work: Workload, law: TailLaw, gap: GapLaw, rate: float, blocks: int
) -> dict[str, Any]:
    own = estimate_workload(work, law=law, gap=gap, arrival_rate_hz=rate, blocks=blocks)
    finite = hit_ratio_finite(work, law=law, gap=gap, arrival_rate_hz=rate, blocks=blocks)
    return {
        "blocks": blocks,
        "hit_ratio": result.hit_ratio,
        "standard_error": result.standard_error,
        "token_hit_ratio": result.token_hit_ratio,
        "limit": own.hit_ratio,
        "size_corrected": own.hit_ratio_size_corrected,
        "finite": finite,
        "turns": result.turns,
        "refused": result.refused,
    }


def _simulate_log(
    conversations: Conversations, law: TailLaw, counts: list[int], output: Output
) -> None:
    if conversations.trace is None or not conversations.trace.is_file():
        raise CapacityError("trace: is missing; expected a mooncake log")
    if law.reading is not Reading.LIVE:
        raise CapacityError(
            f"tail_law: {law.value!r} is no engine's; expected tails-recent or tails-first"
        )
    requests = read_requests(conversations.trace)
    tokens = sum(request.prompt_tokens for request in requests)
    asked = sum(len(request.hashes) for request in requests)
    rows = []
    for count in counts:
        pool = BlockPool(count, block_tokens=BLOCK_TOKENS, tails_first=law is TailLaw.TAILS_FIRST)
        found, refused = replay_log(pool, requests)
        rows.append(
            {
                "blocks": count,
                "hit_ratio": float(found.sum() / asked),
                "token_hit_ratio": float(found.sum() * BLOCK_TOKENS / tokens),
                "requests": len(requests),
                "refused": refused,
            }
        )
    deliver(output, {"tail_law": law.value, "results": rows}, rows, "log replayed as it is")
