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
"""`csr-policy capacity estimate`: T_C, hit ratio and TTFT of one engine."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import typer

from csr_policy.capacity.bounds import bounds
from csr_policy.capacity.checks import bootstrap, bootstrap_hit_ratio, check_assumptions
from csr_policy.capacity.commands.bundles import command
from csr_policy.capacity.commands.flags import (
    Conversations,
    Load,
    Output,
    ResolvedWorkload,
    require_blocks,
)
from csr_policy.capacity.commands.output import deliver, plain, say
from csr_policy.capacity.costs import read_cost
from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.finite_size import (
    found_probability,
    hit_ratio_finite,
    poisson_background,
)
from csr_policy.capacity.gap_text import parse_gap
from csr_policy.capacity.gaps import Empirical, Exponential, GapLaw, NotBeforeReply
from csr_policy.capacity.mean_field import Estimate, estimate
from csr_policy.capacity.ttft import TtftPrediction, predict, prompts_of


@command
def estimate_command(
    conversations: Conversations,
    load: Load,
    output: Output,
    blocks: Annotated[int | None, typer.Option(help="N, the engine's KV blocks.")] = None,
    measured_gap: Annotated[
        float | None, typer.Option(help="Posterior: realised mean gap, s; F is exponential.")
    ] = None,
    latency: Annotated[
        str | None, typer.Option(help="File of E2E times, s: a gap is max{E2E, sample}.")
    ] = None,
    cost: Annotated[str | None, typer.Option(help="t0,t1,a,kappa or file: TTFT.")] = None,
    deadline_s: Annotated[float | None, typer.Option(help="Ask for P(TTFT > deadline).")] = None,
    bootstraps: Annotated[
        int, typer.Option("--bootstrap", help="Replicates of the confidence intervals; 0: none.")
    ] = 0,
    check: Annotated[bool, typer.Option(help="Check the model's assumptions.")] = False,
    show_bounds: Annotated[
        bool, typer.Option("--bounds", help="Constants and bounds of the theorems.")
    ] = False,
) -> None:
    """Predict the hit ratio of an engine's prefix cache."""
    resolved = conversations.resolve(load.tail_law)
    count = require_blocks(blocks)
    gap = _gap(load, latency)
    result = estimate(
        resolved.statistics,
        law=load.tail_law,
        gap=gap,
        arrival_rate_hz=load.rate_hz,
        blocks=count,
        workload=resolved.workload,
    )
    document = _document(result, resolved, load, gap, count)
    if resolved.trace is not None:
        document["reading"] = (conversations.reading or load.tail_law.reading).value
        document["boundary"] = conversations.boundary.value
    if measured_gap is not None:
        document |= _posterior(resolved, load, count, measured_gap)
    if cost is not None:
        document["ttft"] = plain(_ttft(resolved, load, gap, count, cost, deadline_s))
    rows = {key: value for key, value in document.items() if not isinstance(value, (dict, list))}
    if bootstraps > 0:
        document["confidence"] = plain(_confidence(resolved, load, gap, count, bootstraps))
    if check:
        document["assumptions"] = plain(check_assumptions(resolved.require(), resolved.trace))
    if show_bounds:
        document["bounds"] = plain(
            bounds(resolved.require(), gap=gap, arrival_rate_hz=load.rate_hz, blocks=count)
        )
    deliver(output, document, [rows], f"{count} blocks, {load.tail_law.value}")
    _explain(document, result)


def _posterior(
    resolved: ResolvedWorkload, load: Load, blocks: int, mean_s: float
) -> dict[str, Any]:
    """The same with an exponential F of the realised mean gap."""
    if not mean_s > 0:
        raise CapacityError(f"measured_gap: is {mean_s:g}; expected a positive mean in seconds")
    found = estimate(
        resolved.statistics,
        law=load.tail_law,
        gap=Exponential(mean_s),
        arrival_rate_hz=load.rate_hz,
        blocks=blocks,
        workload=resolved.workload,
    )
    return {
        "posterior_hit_ratio": found.hit_ratio,
        "posterior_hit_ratio_size_corrected": found.hit_ratio_size_corrected,
        "posterior_characteristic_time_s": plain(found.characteristic_time_s),
    }


def _gap(load: Load, latency: str | None) -> GapLaw:
    if latency is None:
        return load.law
    measured = parse_gap(f"empirical:{latency}")
    assert isinstance(measured, Empirical)
    return NotBeforeReply(load.law, measured)


def _document(
    result: Estimate, resolved: ResolvedWorkload, load: Load, gap: GapLaw, blocks: int
) -> dict[str, Any]:
    stats = resolved.statistics
    finite = None
    if resolved.workload is not None:
        finite = hit_ratio_finite(
            resolved.workload,
            law=load.tail_law,
            gap=gap,
            arrival_rate_hz=load.rate_hz,
            blocks=blocks,
        )
    return {
        "hit_ratio": result.hit_ratio,
        "hit_ratio_size_corrected": result.hit_ratio_size_corrected,
        "hit_ratio_finite": finite,
        "token_hit_ratio": result.token_hit_ratio,
        "characteristic_time_s": plain(result.characteristic_time_s),
        "hit_probability": result.hit_probability,
        "h_max": result.h_max,
        "h_max_hash": result.h_max_hash,
        "tail_law": result.law.value,
        "gap": result.gap,
        "arrival_rate_hz": result.arrival_rate_hz,
        "blocks": result.blocks,
        "skipped_records": 0 if resolved.trace is None else resolved.trace.skipped,
        "statistics": {**plain(stats), "a_h": stats.a_h},
        "notes": list(result.notes),
    }


def _ttft(
    resolved: ResolvedWorkload,
    load: Load,
    gap: GapLaw,
    blocks: int,
    cost: str,
    deadline_s: float | None,
) -> TtftPrediction:
    work = resolved.require()
    background = poisson_background(work, load.tail_law, gap, load.rate_hz, blocks)
    most = int(work.reusable.max())
    found = found_probability(blocks - np.arange(1, most + 1), background, gap)
    return predict(prompts_of(work), found, read_cost(cost), deadline_s=deadline_s)


def _confidence(
    resolved: ResolvedWorkload, load: Load, gap: GapLaw, blocks: int, replicates: int
) -> dict[str, Any]:
    work = resolved.require()
    rng = np.random.default_rng(0)
    intervals: dict[str, Any] = dict(bootstrap(work, rng, replicates=replicates))
    intervals["hit_ratio"] = bootstrap_hit_ratio(
        work,
        rng,
        law=load.tail_law,
        gap=gap,
        arrival_rate_hz=load.rate_hz,
        blocks=blocks,
        replicates=replicates,
    )
    return intervals


def _explain(document: dict[str, Any], result: Estimate) -> None:
    for name, one in document.get("confidence", {}).items():
        say(f"{name}: {one['value']:.6g}, 95 % between {one['low']:.6g} and {one['high']:.6g}")
    for finding in document.get("assumptions", []):
        verdict = {True: "holds", False: "VIOLATED", None: "unknown"}[finding["holds"]]
        say(f"{finding['assumption']}: {verdict}; {finding['evidence']}")
        if finding["holds"] is False:
            say(f"  {finding['effect']}")
    for name, value in document.get("bounds", {}).items():
        say(f"bound {name}: {value}")
    ttft = document.get("ttft")
    if ttft:
        say(
            f"TTFT: mean {ttft['mean_s']:.4g} s (hits {ttft['hit_mean_s']:.4g}, misses "
            f"{ttft['miss_mean_s']:.4g})"
        )
        if ttft["late_probability"] is not None:
            say(f"P(TTFT > {ttft['deadline_s']:g} s) = {ttft['late_probability']:.4f}")
    for note in result.notes:
        say(f"note: {note}")
