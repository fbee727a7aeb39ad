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
"""Choosing tau_mem and the eviction fraction of a fleet.

Dropping little at a time keeps more history but re-prefills more often: an eviction
computes what it keeps, so each tick carries delta (1 - f) / f tokens of it. Dropping
much forgets more. Theorem 4 adds that the warm-up must be done before the primary
overflows, for all robots that share a secondary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.robots import Session, most_robots, predict_fleet
from csr_policy.capacity.tail_law import TailLaw
from csr_policy.cost_model import CostModel, reconciliation_time


class Verdict(StrEnum):
    """Theorem 4 for robots that share a secondary."""

    ALWAYS = "always"
    STAGGERED = "staggered"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class SharedSecondary:
    """Inequality (54) for n robots whose warm-ups queue on one engine.

    Attributes:
        reconciliation_s: Warm-up and catch-up of one robot.
        to_overflow_s: From its eviction to its limit.
        utilisation: Share of time that the secondary warms up.
        always_robots: Robots that may evict at the same moment.
        verdict: `always` whatever the phases, `staggered` only if evictions are spread out,
            `never` if even one, or the load of all, is too much.
    """

    reconciliation_s: float
    to_overflow_s: float
    utilisation: float
    always_robots: int
    verdict: Verdict


def shared_secondary(
    session: Session,
    cost: CostModel,
    *,
    robots: int,
    limit_tokens: int,
    n_catchup_tokens: int,
    slowdown: float = 1.0,
) -> SharedSecondary:
    """Check Theorem 4 for n robots on one pair of engines.

    Raises:
        CapacityError: A number is out of range.
    """
    room = limit_tokens - session.tau_mem_tokens - session.suffix_tokens
    if room <= 0:
        raise CapacityError(
            f"limit_tokens: is {limit_tokens}; expected more than tau_mem and suffix, "
            f"{session.tau_mem_tokens + session.suffix_tokens}"
        )
    if robots < 1:
        raise CapacityError(f"robots: is {robots}; expected 1 or more")
    one = reconciliation_time(
        cost,
        kept_tokens=session.kept_tokens,
        cached_tokens=session.prefix_tokens if session.shared_prefix else 0,
        rate_tokens_hz=session.chunk_tokens / session.period_s,
        room_tokens=room,
        n_catchup_tokens=n_catchup_tokens,
        slowdown=slowdown,
    )
    spent = one.warm_up_s + one.catch_up_s
    load = robots * spent / (session.ticks * session.period_s)
    always = int(min(one.to_overflow_s / spent, 1e9)) if spent > 0 else 10**9
    if robots <= always:
        verdict = Verdict.ALWAYS
    elif always >= 1 and load < 1:
        verdict = Verdict.STAGGERED
    else:
        verdict = Verdict.NEVER
    return SharedSecondary(spent, one.to_overflow_s, load, always, verdict)


@dataclass(frozen=True, slots=True)
class Plan:
    """One choice of tau_mem and fraction.

    Attributes:
        tau_mem_tokens: Threshold.
        fraction: Share of the chunks that an eviction drops.
        ticks: Ticks between evictions.
        kept_tokens: Static state after an eviction.
        reprefill_tokens_per_tick: What an eviction computes, spread over its ticks.
        ideal_reprefill_tokens_per_tick: delta (1 - f) / f, the same without rounding.
        reachable_hit_ratio: If nothing is ever evicted between ticks.
        blocks_per_robot: KV blocks.
        robots: n* for the target hit ratio; None where no N was given.
        secondary: Theorem 4 at that n*, or for one robot; None without a cost model.
    """

    tau_mem_tokens: int
    fraction: float
    ticks: int
    kept_tokens: int
    reprefill_tokens_per_tick: float
    ideal_reprefill_tokens_per_tick: float
    reachable_hit_ratio: float
    blocks_per_robot: float
    robots: int | None
    secondary: SharedSecondary | None


def plan(
    session: Session,
    *,
    tau_mem_tokens: Sequence[int],
    fractions: Sequence[float],
    blocks: int | None = None,
    target_hit_ratio: float | None = None,
    law: TailLaw = TailLaw.TAILS_FIRST,
    cost: CostModel | None = None,
    limit_tokens: int | None = None,
    n_catchup_tokens: int = 256,
) -> tuple[Plan, ...]:
    """Work out every combination.

    Raises:
        CapacityError: A number is out of range.
    """
    rows = []
    for tau in tau_mem_tokens:
        for fraction in fractions:
            one = replace(session, tau_mem_tokens=tau, fraction=fraction)
            rows.append(
                _plan(one, blocks, target_hit_ratio, law, cost, limit_tokens, n_catchup_tokens)
            )
    return tuple(rows)


def _plan(
    session: Session,
    blocks: int | None,
    target: float | None,
    law: TailLaw,
    cost: CostModel | None,
    limit_tokens: int | None,
    n_catchup_tokens: int,
) -> Plan:
    # One robot on an engine that holds everything shows what the fleet could reach.
    alone = predict_fleet(session, robots=1, blocks=1 << 40, law=law)
    robots = None
    if blocks is not None and target is not None:
        robots = most_robots(session, blocks=blocks, target_hit_ratio=target, law=law).robots
    secondary = None
    if cost is not None and limit_tokens is not None:
        secondary = shared_secondary(
            session,
            cost,
            robots=robots or 1,
            limit_tokens=limit_tokens,
            n_catchup_tokens=n_catchup_tokens,
        )
    kept = session.kept_chunks * session.chunk_tokens
    f = session.fraction
    return Plan(
        tau_mem_tokens=session.tau_mem_tokens,
        fraction=f,
        ticks=session.ticks,
        kept_tokens=session.kept_tokens,
        reprefill_tokens_per_tick=kept / session.ticks,
        ideal_reprefill_tokens_per_tick=session.chunk_tokens * (1 - f) / f,
        reachable_hit_ratio=alone.reachable_hit_ratio,
        blocks_per_robot=alone.blocks_per_robot,
        robots=robots,
        secondary=secondary,
    )
