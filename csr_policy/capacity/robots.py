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
"""Robots on one engine: a closed fleet of CSR sessions.

A session's static state grows by one chunk a tick from what an eviction kept to
tau_mem, so its size is a sawtooth, uniform over a cycle. All robots tick at the same
rate, so between two ticks of one all others pass once: the displacement is the sum of
n - 1 sawtooths. Its mean is that of the mean-field curve with the fleet's tick rate
for the arrival rate, its variance that of n - 1 independent sizes, its law normal by
the central limit theorem. There is a cliff where the fleet's content meets N.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from csr_policy.capacity.arrays import FloatArray, IntArray
from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.finite_size import Background, found_probability
from csr_policy.capacity.gaps import Gamma, GapLaw
from csr_policy.capacity.mean_field import characteristic_time
from csr_policy.capacity.tail_law import Displacement, TailLaw, displacement
from csr_policy.capacity.ttft import Prompts
from csr_policy.capacity.workload import Workload, statistics


@dataclass(frozen=True, slots=True)
class Session:
    """A robot's prompt over time, in tokens.

    Attributes:
        prefix_tokens: X_pre.
        chunk_tokens: Tokens appended between two ticks (delta).
        suffix_tokens: Suffix, task and chat tail, new at every tick (m).
        tau_mem_tokens: Static tokens at which an eviction starts.
        fraction: Share of the chunks that an eviction drops (f).
        block_tokens: Tokens a KV block (b).
        period_s: Time between two ticks.
        jitter: Standard deviation of that time over its mean.
        shared_prefix: Whether all robots have the same prefix and cache salt.
        warm_up: Whether a new version is warmed before its first tick (ASR).
        engines: 2 where the next version goes to the other engine of a pair.
    """

    prefix_tokens: int
    chunk_tokens: int
    suffix_tokens: int
    tau_mem_tokens: int
    fraction: float = 0.5
    block_tokens: int = 16
    period_s: float = 0.5
    jitter: float = 0.05
    shared_prefix: bool = False
    warm_up: bool = True
    engines: int = 2

    def __post_init__(self) -> None:
        """Check ranges.

        Raises:
            CapacityError: A number is out of range or leaves no room for chunks.
        """
        for name, least in (
            ("prefix_tokens", 0),
            ("chunk_tokens", 1),
            ("suffix_tokens", 0),
            ("block_tokens", 1),
        ):
            if getattr(self, name) < least:
                raise CapacityError(f"{name}: is {getattr(self, name)}; expected {least} or more")
        if not 0 < self.fraction < 1:
            raise CapacityError(f"fraction: is {self.fraction:g}; expected between 0 and 1")
        if not (self.period_s > 0 and 0 < self.jitter <= 1):
            raise CapacityError(
                f"period_s, jitter: are {self.period_s:g}, {self.jitter:g}; expected a positive "
                "time and a share of it"
            )
        if self.tau_mem_tokens < self.prefix_tokens + 2 * self.chunk_tokens:
            raise CapacityError(
                f"tau_mem_tokens: is {self.tau_mem_tokens}; expected at least the prefix and two "
                f"chunks, {self.prefix_tokens + 2 * self.chunk_tokens}"
            )
        if self.engines not in (1, 2):
            raise CapacityError(f"engines: is {self.engines}; expected 1 or 2")

    @property
    def most_chunks(self) -> int:
        """Chunks in the log when an eviction starts."""
        return -(-(self.tau_mem_tokens - self.prefix_tokens) // self.chunk_tokens)

    @property
    def kept_chunks(self) -> int:
        """Chunks that an eviction keeps; it drops at least one."""
        return self.most_chunks - max(1, round(self.most_chunks * self.fraction))

    @property
    def ticks(self) -> int:
        """Ticks between two evictions."""
        return self.most_chunks - self.kept_chunks

    @property
    def static_tokens(self) -> IntArray:
        """Static state at each tick of a cycle."""
        chunks = np.arange(self.kept_chunks + 1, self.most_chunks + 1, dtype=np.int64)
        return self.prefix_tokens + chunks * self.chunk_tokens

    @property
    def kept_tokens(self) -> int:
        """Static state that a new version starts with."""
        return self.prefix_tokens + self.kept_chunks * self.chunk_tokens

    @property
    def gap(self) -> GapLaw:
        """Law of the time between two ticks."""
        return Gamma(1 / self.jitter**2, self.period_s)

    @property
    def reuses_prefix(self) -> bool:
        """Whether a new version finds the robot's own prefix on its engine."""
        return not self.shared_prefix and self.engines == 1


def cycle(session: Session) -> Workload:
    """One sequence version as a conversation: the warm-up where there is one, the ticks."""
    static = session.static_tokens
    suffix = np.full(static.size, session.suffix_tokens, dtype=np.int64)
    if session.warm_up:
        static = np.concatenate(([session.kept_tokens], static))
        suffix = np.concatenate(([0], suffix))
    block = session.block_tokens
    prompt = static + suffix
    full = static // block
    shared = session.prefix_tokens // block if session.shared_prefix else 0
    partial = prompt % block > 0
    dead = prompt // block - full
    before = np.concatenate(([shared], full[:-1]))
    return Workload(
        offsets=np.array([0, static.size], dtype=np.int64),
        size=-(-prompt // block),
        reusable=full - shared,
        new=full + dead + partial - before,
        dead=dead,
        partial=partial,
        prompt_tokens=prompt,
        shared_blocks=shared,
        block_tokens=block,
        source="fleet",
    )


@dataclass(frozen=True, slots=True)
class FleetPrediction:
    """What n robots on one engine can expect.

    Attributes:
        robots: n.
        blocks: N.
        hit_ratio: Blocks reused over blocks asked for, by the ticks.
        reachable_hit_ratio: The same if nothing were ever evicted.
        cached_tokens_share: Cached over prompt tokens.
        blocks_per_robot: Mean blocks that a robot's newest prompt and its dead ones take.
        new_blocks_per_tick: Mean, warm-ups included.
        reused_blocks_per_tick: Mean if nothing is evicted.
        characteristic_time_s: T_C.
    """

    robots: int
    blocks: int
    hit_ratio: float
    reachable_hit_ratio: float
    cached_tokens_share: float
    blocks_per_robot: float
    new_blocks_per_tick: float
    reused_blocks_per_tick: float
    characteristic_time_s: float


@dataclass(frozen=True, slots=True)
class _Flow:
    """What a robot puts through the cache in a cycle, in blocks.

    Attributes:
        new: Taking new room.
        history: Moved from one tick to the next.
        warmed: Moved from the warm-up to the first tick, half a period later.
        shared: Of the prefix that all robots have in common.
        passing: What others see pass at each tick.
    """

    new: float
    history: float
    warmed: float
    shared: int
    passing: FloatArray


def _flow(session: Session, work: Workload, law: TailLaw) -> _Flow:
    curve = displacement(statistics(work), law)
    row = int(session.warm_up)
    warmed = float(work.reusable[0]) if session.warm_up else 0.0
    # A version that finds its own prefix moves it instead of taking new room.
    prefix = session.prefix_tokens // session.block_tokens if session.reuses_prefix else 0
    loose = work.dead + (work.partial if law is TailLaw.TAILS_RECENT else 0)
    return _Flow(
        new=curve.new - prefix,
        history=curve.history + prefix - warmed,
        warmed=warmed,
        shared=curve.shared,
        passing=(work.reusable + loose)[row:].astype(np.float64),
    )


def _background(session: Session, flow: _Flow, others: float) -> Background:
    """The other robots; a tick passes with probability E[min(W, t)] / E[W] in time t."""
    gap = session.gap
    cycles_hz = others / (session.ticks * session.period_s)

    def mean(t_s: FloatArray) -> FloatArray:
        ticks = flow.new * t_s + flow.history * gap.tail_integral(t_s)
        warm_ups = flow.warmed * gap.tail_integral(2 * t_s) / 2
        return np.asarray(cycles_hz * (ticks + warm_ups) + flow.shared)

    def deviation(t_s: FloatArray) -> FloatArray:
        ticked = gap.tail_integral(t_s) / gap.mean_s
        # A robot has ticked or not, and its size is anywhere in its sawtooth.
        spread = ticked * np.mean(flow.passing**2) - (ticked * np.mean(flow.passing)) ** 2
        return np.asarray(np.sqrt(others * np.maximum(spread, 0.0)))

    return Background(mean, deviation, 3 * gap.mean_s, float(flow.shared))


def fleet_background(session: Session, *, robots: float, law: TailLaw) -> Background:
    """The displacement that one robot of a fleet sees."""
    _check(robots, 1)
    return _background(session, _flow(session, cycle(session), law), robots - 1)


def found_by_block(session: Session, *, robots: float, blocks: int, law: TailLaw) -> FloatArray:
    """P(block k of a robot's own content is still there at its next tick), k = 1, 2, ..."""
    return _found(session, robots=robots, blocks=blocks, law=law, gap=session.gap)


def _found(
    session: Session, *, robots: float, blocks: int, law: TailLaw, gap: GapLaw
) -> FloatArray:
    _check(robots, blocks)
    background = fleet_background(session, robots=robots, law=law)
    targets = blocks - np.arange(1, int(cycle(session).reusable.max()) + 1)
    return found_probability(targets, background, gap)


def tick_prompts(session: Session) -> Prompts:
    """The ticks of a cycle as requests."""
    work = cycle(session)
    row = int(session.warm_up)
    own = work.history.copy()
    if not session.warm_up and session.reuses_prefix:
        own[0] = session.prefix_tokens // session.block_tokens
    return Prompts(work.prompt_tokens[row:], own[row:], work.shared_blocks, work.block_tokens)


def predict_fleet(
    session: Session, *, robots: int, blocks: int, law: TailLaw = TailLaw.TAILS_FIRST
) -> FleetPrediction:
    """Hit ratio of n robots on an engine of N blocks.

    Raises:
        CapacityError: A number is out of range, or N holds not one session.
    """
    found = found_by_block(session, robots=robots, blocks=blocks, law=law)
    work = cycle(session)
    row = int(session.warm_up)
    if blocks < int(work.size.max()):
        raise CapacityError(
            f"blocks: is {blocks}; expected at least one session, {int(work.size.max())}"
        )
    prompts = tick_prompts(session)
    shared = float(work.shared_blocks)
    reached = np.concatenate(([0.0], np.cumsum(found)))[prompts.own] + shared
    if session.warm_up:
        soon = Gamma(1 / session.jitter**2, session.period_s / 2)
        early = _found(session, robots=robots, blocks=blocks, law=law, gap=soon)
        reached[0] = early[: prompts.own[0]].sum() + shared
    best = prompts.own + shared
    asked = work.size[row:].sum()
    flow = _flow(session, work, law)
    return FleetPrediction(
        robots=robots,
        blocks=blocks,
        hit_ratio=float(reached.sum() / asked),
        reachable_hit_ratio=float(best.sum() / asked),
        cached_tokens_share=float(reached.sum() * session.block_tokens / prompts.tokens.sum()),
        blocks_per_robot=float(flow.passing.mean()),
        new_blocks_per_tick=flow.new / session.ticks,
        reused_blocks_per_tick=float(best.mean()),
        characteristic_time_s=_fleet_time(session, flow, robots, blocks),
    )


def _fleet_time(session: Session, flow: _Flow, robots: int, blocks: int) -> float:
    """T_C of the fleet, infinite for one robot alone."""
    if robots < 2:
        return math.inf
    rate = (robots - 1) / (session.ticks * session.period_s)
    curve = Displacement(flow.new, flow.history + flow.warmed / 2, flow.shared)
    return float(characteristic_time(float(blocks), curve, session.gap, rate))


def most_robots(
    session: Session,
    *,
    blocks: int,
    target_hit_ratio: float,
    law: TailLaw = TailLaw.TAILS_FIRST,
) -> FleetPrediction:
    """n*: the largest fleet that reaches a hit ratio.

    Raises:
        CapacityError: The target is out of range or not even one robot reaches it.
    """
    alone = predict_fleet(session, robots=1, blocks=blocks, law=law)
    if not 0 < target_hit_ratio <= alone.hit_ratio:
        raise CapacityError(
            f"target: is {target_hit_ratio:g}; expected above 0 and at most "
            f"{alone.hit_ratio:.4f}, what one robot alone reaches"
        )

    def enough(robots: int) -> bool:
        fleet = predict_fleet(session, robots=robots, blocks=blocks, law=law)
        return fleet.hit_ratio >= target_hit_ratio

    low, high = 1, 2
    while enough(high):
        low, high = high, 2 * high
        if high > 1 << 20:
            raise CapacityError("target: is reached by any fleet; the prefix alone suffices")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if enough(middle) else (low, middle)
    return predict_fleet(session, robots=low, blocks=blocks, law=law)


def _check(robots: float, blocks: int) -> None:
    if robots < 1:
        raise CapacityError(f"robots: is {robots:g}; expected 1 or more")
    if blocks < 1:
        raise CapacityError(f"blocks: is {blocks}; expected 1 or more")
