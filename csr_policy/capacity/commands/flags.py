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
"""Flags that describe a workload, an engine and where results go."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.gap_text import parse_gap
from csr_policy.capacity.gaps import GapLaw
from csr_policy.capacity.generators import mcm, parse_integer_law
from csr_policy.capacity.readers import TraceFormat, read_trace
from csr_policy.capacity.tail_law import TailLaw
from csr_policy.capacity.text_tokens import counter
from csr_policy.capacity.trace import Trace
from csr_policy.capacity.workload import (
    Boundary,
    Reading,
    Statistics,
    Workload,
    blocks_of,
    given_statistics,
    statistics,
)


@dataclass(frozen=True, slots=True)
class Conversations:
    """Where conversations come from: a trace, a generator, or published averages."""

    trace: Annotated[Path | None, typer.Option(help="File of conversations.")] = None
    trace_format: Annotated[
        TraceFormat, typer.Option("--format", help="How the trace is written.")
    ] = TraceFormat.AUTO
    block_tokens: Annotated[int, typer.Option(help="Tokens a KV block; 16 on GPUs.")] = 128
    reading: Annotated[
        Reading | None, typer.Option(help="What R_j counts; else what the tail law is for.")
    ] = None
    boundary: Annotated[
        Boundary, typer.Option(help="What a turn leaves cached; a plain vLLM is colocated.")
    ] = Boundary.DISAGGREGATED
    min_turns: Annotated[int, typer.Option(help="Leave shorter conversations out.")] = 1
    shared_tokens: Annotated[
        int, typer.Option(help="Tokens of a system prompt that all conversations have.")
    ] = 0
    tokenizer: Annotated[Path | None, typer.Option(help="Tokenizer folder, for text.")] = None
    characters_per_token: Annotated[
        float | None, typer.Option(help="Rough count for text without a tokenizer.")
    ] = None
    prefix_tokens: Annotated[int, typer.Option(help="Tokens of X_pre, for a journal.")] = 0
    period_s: Annotated[float, typer.Option(help="Decision period, for a journal.")] = 0.5
    turns: Annotated[
        str | None, typer.Option(help="Generate: law of M, such as geometric:0.75.")
    ] = None
    increments: Annotated[
        str | None, typer.Option(help="Generate: law of Z_j, such as uniform:1,6.")
    ] = None
    dependence: Annotated[float, typer.Option(help="Generate: correlation of the Z_j.")] = 0.0
    a_r: Annotated[float | None, typer.Option(help="Average (35), in blocks.")] = None
    a_h_hash: Annotated[float | None, typer.Option(help="Average (36), in blocks.")] = None
    e_b: Annotated[float | None, typer.Option(help="Average E[B] of (37), in blocks.")] = None
    e_m: Annotated[float | None, typer.Option(help="Average E[M] of (37), turns.")] = None
    shared_blocks: Annotated[int, typer.Option(help="Shared blocks, with averages.")] = 0

    def resolve(self, law: TailLaw) -> ResolvedWorkload:
        """Read, generate or check.

        Raises:
            CapacityError: Not exactly one source is given, or it is wrong.
        """
        averages = (self.a_r, self.a_h_hash, self.e_b)
        given = any(value is not None for value in averages)
        generated = self.turns is not None or self.increments is not None
        if (self.trace is not None) + generated + given != 1:
            raise CapacityError(
                "workload: expected one of --trace, --turns with --increments, or --a-r with "
                "--a-h-hash and --e-b"
            )
        if given:
            return self._averages()
        if generated:
            work = self._generated()
            return ResolvedWorkload(statistics(work), work, None)
        trace = self.read()
        work = blocks_of(
            trace, self.block_tokens, reading=self.reading or law.reading, boundary=self.boundary
        )
        return ResolvedWorkload(statistics(work), work, trace)

    def read(self) -> Trace:
        """Read the trace.

        Raises:
            CapacityError: There is none, or it is wrong.
        """
        if self.trace is None:
            raise CapacityError("trace: is missing; expected a file of conversations")
        if self.shared_tokens < 0 or self.min_turns < 1:
            raise CapacityError(
                f"shared_tokens, min_turns: are {self.shared_tokens}, {self.min_turns}; expected "
                "at least 0 and 1"
            )
        trace = read_trace(
            self.trace,
            self.trace_format,
            count=counter(self.tokenizer, self.characters_per_token),
            prefix_tokens=self.prefix_tokens,
            period_s=self.period_s,
            shared_tokens=self.shared_tokens,
        )
        return trace.with_at_least(self.min_turns) if self.min_turns > 1 else trace

    def _averages(self) -> ResolvedWorkload:
        for name in ("a_r", "a_h_hash", "e_b"):
            if getattr(self, name) is None:
                raise CapacityError(f"{name}: is missing; expected --a-r, --a-h-hash and --e-b")
        assert self.a_r is not None
        assert self.a_h_hash is not None
        assert self.e_b is not None
        stats = given_statistics(
            a_r=self.a_r,
            a_h_hash=self.a_h_hash,
            e_b=self.e_b,
            e_m=self.e_m,
            shared_blocks=self.shared_blocks,
        )
        return ResolvedWorkload(stats, None, None)

    def _generated(self) -> Workload:
        if self.turns is None or self.increments is None:
            raise CapacityError("workload: expected both --turns and --increments")
        return mcm(
            np.random.default_rng(0),
            20_000,
            parse_integer_law(self.turns, "turns"),
            parse_integer_law(self.increments, "increments"),
            dependence=self.dependence,
        )


@dataclass(frozen=True, slots=True)
class ResolvedWorkload:
    """Averages, and the conversations behind them where there are any."""

    statistics: Statistics
    workload: Workload | None
    trace: Trace | None

    def require(self) -> Workload:
        """The conversations.

        Raises:
            CapacityError: Only averages are known.
        """
        if self.workload is None:
            raise CapacityError(
                "workload: averages do not suffice here; expected --trace, or --turns and "
                "--increments"
            )
        return self.workload


@dataclass(frozen=True, slots=True)
class Load:
    """How conversations come."""

    arrival_rate: Annotated[
        float | None, typer.Option(help="New conversations a second (lambda_0).")
    ] = None
    gap: Annotated[
        str | None,
        typer.Option(
            help="Law of the time between two prompts: exponential:mean, gamma:shape,mean, "
            "lognormal:mu,sigma, lomax:shape,scale, deterministic:s, empirical:FILE."
        ),
    ] = None
    tail_law: Annotated[TailLaw, typer.Option(help="Treatment of partly filled blocks.")] = (
        TailLaw.TAILS_FIRST
    )

    @property
    def rate_hz(self) -> float:
        """The arrival rate.

        Raises:
            CapacityError: It is missing or not positive.
        """
        if self.arrival_rate is None:
            raise CapacityError("arrival_rate: is missing; expected conversations a second")
        if not (math.isfinite(self.arrival_rate) and self.arrival_rate > 0):
            raise CapacityError(
                f"arrival_rate: is {self.arrival_rate:g}; expected a positive number of "
                "conversations a second"
            )
        return self.arrival_rate

    @property
    def law(self) -> GapLaw:
        """The gap law.

        Raises:
            CapacityError: It is missing or wrong.
        """
        if self.gap is None:
            raise CapacityError("gap: is missing; expected a law such as exponential:135")
        return parse_gap(self.gap)


@dataclass(frozen=True, slots=True)
class Output:
    """Where results go."""

    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the result to this file.")
    ] = None
    csv_file: Annotated[
        Path | None, typer.Option("--csv", help="Write the table to this file.")
    ] = None


def require_blocks(blocks: int | None) -> int:
    """N as given.

    Raises:
        CapacityError: It is missing or not positive.
    """
    if blocks is None:
        raise CapacityError("blocks: is missing; expected N, the KV blocks of the engine")
    if blocks < 1:
        raise CapacityError(f"blocks: is {blocks}; expected 1 or more")
    return blocks
