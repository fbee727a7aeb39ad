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
"""`csr-policy capacity fleet`: robots on one engine, tau_mem, Theorem 4, keep-alive."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from csr_policy.capacity.commands.bundles import command
from csr_policy.capacity.commands.flags import Output
from csr_policy.capacity.commands.output import deliver, plain, say
from csr_policy.capacity.costs import read_cost
from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.kv_memory import read_kv_memory
from csr_policy.capacity.planner import Plan, plan, shared_secondary
from csr_policy.capacity.provisioning import keep_alive
from csr_policy.capacity.robots import (
    FleetPrediction,
    Session,
    cycle,
    fleet_background,
    found_by_block,
    most_robots,
    predict_fleet,
    tick_prompts,
)
from csr_policy.capacity.simulator.fleet import simulate_fleet
from csr_policy.capacity.tail_law import TailLaw
from csr_policy.capacity.ttft import predict
from csr_policy.cost_model import CostModel


@dataclass(frozen=True, slots=True)
class Robot:
    """A robot's session."""

    prefix_tokens: Annotated[int, typer.Option(help="X_pre.")] = 600
    chunk_tokens: Annotated[int, typer.Option(help="Tokens appended a tick (delta).")] = 40
    suffix_tokens: Annotated[int, typer.Option(help="Suffix, task and tail (m).")] = 60
    tau_mem: Annotated[
        list[int] | None, typer.Option(help="tau_mem; several times to compare. 6000.")
    ] = None
    fraction: Annotated[
        list[float] | None, typer.Option(help="Evicted share; several times to compare. 0.5.")
    ] = None
    block_tokens: Annotated[int, typer.Option(help="Tokens a KV block.")] = 16
    rate_hz: Annotated[float, typer.Option(help="Ticks a second.")] = 2.0
    jitter: Annotated[float, typer.Option(help="Deviation of the period over it.")] = 0.05
    shared_prefix: Annotated[bool, typer.Option(help="One prefix and salt for all.")] = False
    warm_up: Annotated[bool, typer.Option(help="ASR; else eviction in place.")] = True
    engines: Annotated[int, typer.Option(help="2: a pair that swaps roles.")] = 2

    def sessions(self) -> list[Session]:
        """Every combination of tau_mem and fraction.

        Raises:
            CapacityError: A number is out of range.
        """
        if not self.rate_hz > 0:
            raise CapacityError(f"rate_hz: is {self.rate_hz:g}; expected a positive rate")
        return [
            Session(
                prefix_tokens=self.prefix_tokens,
                chunk_tokens=self.chunk_tokens,
                suffix_tokens=self.suffix_tokens,
                tau_mem_tokens=tau,
                fraction=share,
                block_tokens=self.block_tokens,
                period_s=1 / self.rate_hz,
                jitter=self.jitter,
                shared_prefix=self.shared_prefix,
                warm_up=self.warm_up,
                engines=self.engines,
            )
            for tau in self.tau_mem or [6000]
            for share in self.fraction or [0.5]
        ]


@command
def fleet_command(
    robot: Robot,
    output: Output,
    robots: Annotated[int | None, typer.Option(help="n; else the most for the target.")] = None,
    blocks: Annotated[int | None, typer.Option(help="N of the engine.")] = None,
    gib: Annotated[float | None, typer.Option(help="Instead of N, with a model.")] = None,
    model: Annotated[Path | None, typer.Option(help="Model folder or config.json.")] = None,
    tensor_parallel: Annotated[int, typer.Option(help="GPUs that share a layer.")] = 1,
    target: Annotated[float, typer.Option(help="Hit ratio to reach.")] = 0.9,
    tail_law: Annotated[TailLaw, typer.Option(help="Of the engine.")] = TailLaw.TAILS_FIRST,
    cost: Annotated[str | None, typer.Option(help="t0,t1,a,kappa or a file.")] = None,
    deadline_s: Annotated[float | None, typer.Option(help="Ask for P(TTFT > deadline).")] = None,
    limit_tokens: Annotated[
        int | None, typer.Option(help="Longest prompt, for Theorem 4 (with --cost).")
    ] = None,
    n_catchup: Annotated[int, typer.Option(help="N_catchup in tokens.")] = 256,
    idle: Annotated[int, typer.Option(help="Idle robots to keep cached.")] = 0,
    simulate: Annotated[bool, typer.Option(help="Check by block-level simulation.")] = False,
) -> None:
    """How many robots share an engine, and what they can expect."""
    sessions = robot.sessions()
    count = _blocks(blocks, gib, model, robot.block_tokens, tensor_parallel)
    costs = None if cost is None else read_cost(cost)
    if len(sessions) > 1:
        _compare(robot, sessions, output, count, target, tail_law, costs, limit_tokens, n_catchup)
        return
    session = sessions[0]
    if robots is None:
        found = most_robots(session, blocks=count, target_hit_ratio=target, law=tail_law)
    else:
        found = predict_fleet(session, robots=robots, blocks=count, law=tail_law)
    document: dict[str, Any] = plain(found)
    document |= _turn_facts(session, found)
    if costs is not None:
        chance = found_by_block(session, robots=found.robots, blocks=count, law=tail_law)
        document |= plain(predict(tick_prompts(session), chance, costs, deadline_s=deadline_s))
        if limit_tokens is not None:
            document |= plain(
                shared_secondary(
                    session,
                    costs,
                    robots=found.robots,
                    limit_tokens=limit_tokens,
                    n_catchup_tokens=n_catchup,
                )
            )
    if idle > 0:
        document |= _keep_alive(session, found, idle, tail_law)
    if simulate:
        result = simulate_fleet(session, robots=found.robots, blocks=count, law=tail_law)
        document["simulated_hit_ratio"] = result.hit_ratio
        document["simulated_standard_error"] = result.standard_error
    deliver(output, document, [document], f"{found.robots} robots on {count} blocks")


def _blocks(
    blocks: int | None, gib: float | None, model: Path | None, block_tokens: int, gpus: int
) -> int:
    if (blocks is None) == (gib is None):
        raise CapacityError("fleet: expected one of --blocks and --gib")
    if blocks is not None:
        return blocks
    if model is None:
        raise CapacityError("model: is missing; expected a model folder with --gib")
    assert gib is not None
    return read_kv_memory(model, block_tokens=block_tokens, tensor_parallel=gpus).blocks(gib)


def _turn_facts(session: Session, found: FleetPrediction) -> dict[str, Any]:
    kept = session.kept_chunks * session.chunk_tokens
    return {
        "ticks_per_cycle": session.ticks,
        "kept_tokens": session.kept_tokens,
        "reprefill_tokens_per_tick": kept / session.ticks,
        "robots_by_size_alone": int(found.blocks / found.blocks_per_robot),
    }


def _keep_alive(
    session: Session, found: FleetPrediction, idle: int, law: TailLaw
) -> dict[str, Any]:
    largest = int(np.max(cycle(session).reusable)) + cycle(session).shared_blocks
    background = fleet_background(session, robots=found.robots + 1, law=law)
    kept = keep_alive(background, blocks=found.blocks, session_blocks=largest, idle_sessions=idle)
    return {
        "keep_alive_interval_s": kept.interval_s,
        "keep_alive_requests_hz": kept.requests_hz,
    }


def _compare(
    robot: Robot,
    sessions: list[Session],
    output: Output,
    blocks: int,
    target: float,
    law: TailLaw,
    cost: CostModel | None,
    limit_tokens: int | None,
    n_catchup: int,
) -> None:
    plans = plan(
        sessions[0],
        tau_mem_tokens=robot.tau_mem or [6000],
        fractions=robot.fraction or [0.5],
        blocks=blocks,
        target_hit_ratio=target,
        law=law,
        cost=cost,
        limit_tokens=limit_tokens,
        n_catchup_tokens=n_catchup,
    )
    rows = [_plan_row(one) for one in plans]
    deliver(output, {"plans": plain(plans)}, rows, f"tau_mem and fraction on {blocks} blocks")
    say("h* is the hit ratio if nothing is evicted between ticks; robots reach the target.")


def _plan_row(one: Plan) -> dict[str, Any]:
    row: dict[str, Any] = {
        "tau_mem": one.tau_mem_tokens,
        "f": one.fraction,
        "ticks": one.ticks,
        "kept": one.kept_tokens,
        "re-prefill a tick": one.reprefill_tokens_per_tick,
        "h*": one.reachable_hit_ratio,
        "blocks a robot": one.blocks_per_robot,
        "robots": one.robots,
    }
    if one.secondary is not None:
        row["warm-up s"] = one.secondary.reconciliation_s
        row["to overflow s"] = one.secondary.to_overflow_s
        row["Theorem 4"] = one.secondary.verdict.value
    return row
