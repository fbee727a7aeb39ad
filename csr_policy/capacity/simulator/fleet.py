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
"""A fleet of CSR sessions, tick by tick, on one engine's cache."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from csr_policy.capacity.arrays import BoolArray, FloatArray, IntArray
from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.robots import Session, cycle
from csr_policy.capacity.simulator.block_lru import replay
from csr_policy.capacity.simulator.timeline import Timeline
from csr_policy.capacity.tail_law import TailLaw
from csr_policy.capacity.workload import Workload


@dataclass(frozen=True, slots=True)
class FleetResult:
    """Measured over several fleets that differ in their phases.

    Attributes:
        hit_ratio: Mean over the fleets.
        standard_error: Of that mean; between fleets, since phases of one fleet are frozen.
        fleets: How many.
        ticks: Measured in all.
    """

    hit_ratio: float
    standard_error: float
    fleets: int
    ticks: int


def fleet_timeline(
    session: Session, work: Workload, *, robots: int, cycles: float, rng: np.random.Generator
) -> Timeline:
    """Ticks of n robots with random phases, in time and in their sawtooth.

    The window leaves out the first cycle, in which the cache fills.
    """
    ticks = math.ceil((cycles + 1) * session.ticks)
    parts = [_one_robot(session, ticks, rng) for _ in range(robots)]
    versions = ticks // session.ticks + 2
    times = np.concatenate([part[0] for part in parts])
    rows = np.concatenate([part[1] for part in parts])
    version = np.concatenate([part[2] for part in parts])
    robot = np.repeat(np.arange(robots, dtype=np.int64), [part[0].size for part in parts])
    conversation = robot * versions + version
    if session.shared_prefix:
        group = np.zeros_like(robot)
    else:
        group = robot if session.engines == 1 else conversation
    order = np.argsort(times, kind="stable")
    counted = np.ones(times.size, dtype=np.bool_)
    if session.warm_up:
        counted = rows > 0
    end = float(min(part[0][-1] for part in parts))
    return Timeline(
        conversation=conversation[order],
        group=group[order],
        turn=rows[order],
        first=(rows == 0)[order],
        time_s=times[order],
        finish_s=times[order],
        counted=counted[order],
        window_s=(session.ticks * session.period_s, end),
    )


def _one_robot(
    session: Session, ticks: int, rng: np.random.Generator
) -> tuple[FloatArray, IntArray, IntArray]:
    """Times, rows of the cycle and versions of one robot's requests, in order."""
    times = rng.uniform(0, session.period_s) + np.cumsum(session.gap.sample(rng, ticks))
    place = int(rng.integers(session.ticks)) + np.arange(ticks, dtype=np.int64)
    rows, version = place % session.ticks, place // session.ticks
    if not session.warm_up:
        return times, rows, version
    opening: BoolArray = (rows == 0) & (np.arange(ticks) > 0)
    before = (times[:-1] + times[1:])[opening[1:]] / 2
    all_times = np.concatenate((times, before))
    all_rows = np.concatenate((rows + 1, np.zeros(before.size, dtype=np.int64)))
    all_versions = np.concatenate((version, version[opening]))
    order = np.argsort(all_times, kind="stable")
    return all_times[order], all_rows[order], all_versions[order]


def simulate_fleet(
    session: Session,
    *,
    robots: int,
    blocks: int,
    law: TailLaw = TailLaw.TAILS_FIRST,
    fleets: int = 8,
    cycles: float = 2.0,
    seed: int = 0,
) -> FleetResult:
    """Hit ratio of the ticks, by block-level LRU.

    Raises:
        CapacityError: A number is out of range.
    """
    if robots < 1 or fleets < 1:
        raise CapacityError(f"robots: {robots} in {fleets} fleets; expected 1 or more")
    work = cycle(session)
    grouped = with_groups(session, work)
    ratios, total = [], 0
    for fleet in range(fleets):
        rng = np.random.default_rng([seed, fleet])
        timeline = fleet_timeline(session, work, robots=robots, cycles=cycles, rng=rng)
        found = replay(timeline, grouped, blocks, law).blocks
        inside = timeline.measured
        asked = work.size[timeline.turn[inside]].sum()
        ratios.append(float(found[inside].sum() / asked))
        total += int(inside.sum())
    spread = float(np.std(ratios, ddof=1) / math.sqrt(fleets)) if fleets > 1 else math.inf
    return FleetResult(float(np.mean(ratios)), spread, fleets, total)


def with_groups(session: Session, work: Workload) -> Workload:
    """The cycle with its prefix as blocks of a group, a private one of one robot too."""
    prefix = session.prefix_tokens // session.block_tokens
    if session.shared_prefix or prefix == 0:
        return work
    return Workload(
        offsets=work.offsets,
        size=work.size,
        reusable=work.reusable - prefix,
        new=work.new,
        dead=work.dead,
        partial=work.partial,
        prompt_tokens=work.prompt_tokens,
        shared_blocks=prefix,
        block_tokens=work.block_tokens,
        source=work.source,
    )
