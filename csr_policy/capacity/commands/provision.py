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
"""`csr-policy capacity provision`: the smallest N for a hit ratio or a TTFT."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from csr_policy.capacity.commands.bundles import command
from csr_policy.capacity.commands.flags import Conversations, Load, Output, ResolvedWorkload
from csr_policy.capacity.commands.output import deliver, say
from csr_policy.capacity.costs import read_cost
from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.finite_size import poisson_background
from csr_policy.capacity.kv_memory import GIB, KvMemory, read_kv_memory
from csr_policy.capacity.provisioning import (
    Provision,
    blocks_for_hit_ratio,
    blocks_for_ttft,
    keep_alive,
)


@command
def provision_command(
    conversations: Conversations,
    load: Load,
    output: Output,
    target: Annotated[float | None, typer.Option(help="Hit ratio to reach.")] = None,
    deadline_s: Annotated[float | None, typer.Option(help="TTFT to meet, s.")] = None,
    probability: Annotated[float, typer.Option(help="Share of turns that meet it.")] = 0.95,
    cost: Annotated[str | None, typer.Option(help="t0,t1,a,kappa or a file.")] = None,
    model: Annotated[Path | None, typer.Option(help="Folder or config.json, for GiB.")] = None,
    kv_bytes_per_token: Annotated[
        int | None, typer.Option(help="Instead of a model, for GiB.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Of the KV cache; auto: the model's.")] = "auto",
    tensor_parallel: Annotated[int, typer.Option(help="GPUs that share a layer.")] = 1,
    idle_sessions: Annotated[
        int, typer.Option(help="Idle sessions to keep cached; adds their keep-alive interval.")
    ] = 0,
    idle_blocks: Annotated[int, typer.Option(help="Blocks of an idle session; 0: E[B].")] = 0,
) -> None:
    """Size the KV cache."""
    resolved = conversations.resolve(load.tail_law)
    memory = _memory(model, kv_bytes_per_token, conversations.block_tokens, dtype, tensor_parallel)
    if (target is None) == (deadline_s is None):
        raise CapacityError("provision: expected one of --target and --deadline-s")
    if target is not None:
        result = _for_hit_ratio(resolved, load, target)
    else:
        assert deadline_s is not None
        result = _for_ttft(resolved, load, deadline_s, probability, cost)
    document = _document(result, memory)
    if idle_sessions > 0:
        document |= _keep_alive(resolved, load, result.blocks, idle_sessions, idle_blocks)
    deliver(output, document, [document], "provision")
    if result.method == "limit":
        say("note: averages alone invert the limit; a trace gives finite-size accuracy.")


def _for_hit_ratio(resolved: ResolvedWorkload, load: Load, target: float) -> Provision:
    return blocks_for_hit_ratio(
        resolved.statistics,
        target,
        law=load.tail_law,
        gap=load.law,
        arrival_rate_hz=load.rate_hz,
        workload=resolved.workload,
    )


def _for_ttft(
    resolved: ResolvedWorkload,
    load: Load,
    deadline_s: float,
    probability: float,
    cost: str | None,
) -> Provision:
    if cost is None:
        raise CapacityError("cost: is missing; expected t0,t1,a,kappa or a file")
    return blocks_for_ttft(
        resolved.require(),
        read_cost(cost),
        deadline_s=deadline_s,
        probability=probability,
        law=load.tail_law,
        gap=load.law,
        arrival_rate_hz=load.rate_hz,
    )


def _keep_alive(
    resolved: ResolvedWorkload, load: Load, blocks: int, sessions: int, session_blocks: int
) -> dict[str, Any]:
    background = poisson_background(
        resolved.require(), load.tail_law, load.law, load.rate_hz, blocks
    )
    kept = keep_alive(
        background,
        blocks=blocks,
        session_blocks=session_blocks or max(1, round(resolved.statistics.e_b)),
        idle_sessions=sessions,
    )
    return {
        "keep_alive_interval_s": kept.interval_s,
        "keep_alive_requests_hz": kept.requests_hz,
    }


def _memory(
    model: Path | None, per_token: int | None, block_tokens: int, dtype: str, gpus: int
) -> KvMemory | None:
    if model is not None and per_token is not None:
        raise CapacityError("provision: expected one of --model and --kv-bytes-per-token")
    if model is not None:
        return read_kv_memory(model, block_tokens=block_tokens, dtype=dtype, tensor_parallel=gpus)
    if per_token is None:
        return None
    if per_token < 1:
        raise CapacityError(f"kv_bytes_per_token: is {per_token}; expected 1 or more")
    return KvMemory(per_token, block_tokens, gpus, "given")


def _document(result: Provision, memory: KvMemory | None) -> dict[str, Any]:
    return {
        "blocks": result.blocks,
        "gib": None if memory is None else memory.gib(result.blocks),
        "gib_all_gpus": None if memory is None else memory.gib(result.blocks) * memory.gpus,
        "kib_per_token": None if memory is None else memory.bytes_per_token / 1024,
        "mib_per_block": None if memory is None else memory.bytes_per_block * 1024 / GIB,
        "target": result.target,
        "reached": result.reached,
        "ceiling": result.ceiling,
        "method": result.method,
    }
