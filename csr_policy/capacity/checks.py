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
"""Do the data meet the model's assumptions, and what follows where they do not?"""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from csr_policy.capacity.arrays import FloatArray, positions, row_sum
from csr_policy.capacity.gaps import GapLaw
from csr_policy.capacity.mean_field import check_rate, estimate
from csr_policy.capacity.tail_law import TailLaw
from csr_policy.capacity.trace import Trace
from csr_policy.capacity.workload import (
    Statistics,
    Workload,
    conversation_sums,
    statistics,
)

_SIGNIFICANT = 0.01
_FEW = 30


def _tests() -> Any:
    """SciPy's statistics, loaded only where they are asked for: half a second."""
    return importlib.import_module("scipy.stats")


@dataclass(frozen=True, slots=True)
class Finding:
    """One assumption.

    Attributes:
        assumption: Which.
        holds: Whether the data agree with it; None where they cannot tell.
        evidence: The statistic, in words.
        effect: What it does to the estimate.
    """

    assumption: str
    holds: bool | None
    evidence: str
    effect: str


def check_assumptions(workload: Workload, trace: Trace | None = None) -> tuple[Finding, ...]:
    """Check what the theory assumes of conversations and, with a trace, of arrivals."""
    findings = [_tail(workload), _independence(workload)]
    starts = None if trace is None else _first_starts(trace)
    findings.append(_poisson(starts))
    findings.append(_stationarity(workload, starts))
    return tuple(findings)


def _first_starts(trace: Trace) -> FloatArray | None:
    if trace.start_s is None:
        return None
    first = trace.start_s[trace.offsets[:-1]]
    return None if np.isnan(first).any() else first


def _tail(workload: Workload) -> Finding:
    """Assumption B.3: excesses over a high level of a light tail vary less than they average."""
    name = "light tail of B (B.3)"
    ends = np.sort(workload.size[workload.offsets[1:] - 1].astype(np.float64))
    level = ends[int(0.9 * ends.size)]
    excess = ends[ends > level] - level
    if excess.size < _FEW:
        return Finding(name, None, f"only {excess.size} conversations above {level:g} blocks", "")
    variation = float(excess.std(ddof=1) / excess.mean())
    limit = 1 + 2 / math.sqrt(excess.size)
    return Finding(
        name,
        variation <= limit,
        f"excess over {level:g} blocks varies {variation:.2f} times its mean "
        f"(exponential: 1, limit {limit:.2f})",
        "A heavy tail makes A_R and the spread of D(t) rest on few conversations: trust the "
        "confidence interval, and expect a larger error at small N.",
    )


def _independence(workload: Workload) -> Finding:
    """Assumption B.2: sizes do not depend on the number of turns."""
    name = "turns and sizes independent (B.2)"
    counts = workload.turn_counts
    total = row_sum(workload.new, workload.offsets)
    each = total / counts
    if counts.size < _FEW or counts.min() == counts.max() or each.min() == each.max():
        return Finding(name, None, "too few conversations, or all alike", "")
    test = _tests().spearmanr(counts, each)
    product = product_form(workload)
    direct = statistics(workload)
    difference = product.a_r / direct.a_r - 1
    return Finding(
        name,
        bool(test.pvalue >= _SIGNIFICANT),
        f"rank correlation {float(test.statistic):+.2f} (p {float(test.pvalue):.1g}); the product "
        f"form of A_R is {difference:+.1%} off",
        "Use the direct averages (35)-(37), as this tool does: they need no independence; "
        "products of P(M >= j) and E[R_j] would carry the error shown.",
    )


def product_form(workload: Workload) -> Statistics:
    """A_R and A_H as sums of P(M >= j) E[R_j], which presumes independence."""
    place = positions(workload.offsets)
    most = int(place.max()) + 1
    reached = np.bincount(place, minlength=most).astype(np.float64)
    grown = np.diff(workload.size, prepend=0)
    grown[place == 0] = workload.size[place == 0]
    mean_new = np.bincount(place, weights=grown, minlength=most) / reached
    mean_size = np.cumsum(mean_new)
    survive = reached / workload.conversations
    after = np.concatenate((survive[1:], [0.0]))
    e_m = float(survive.sum())
    a_r, a_h = float(survive @ mean_size), float(after @ mean_size)
    return Statistics(a_r, a_h - (e_m - 1), a_r - a_h, e_m)


def _poisson(starts: FloatArray | None) -> Finding:
    name = "Poisson arrivals"
    effect = (
        "Burstier arrivals spread D(t) more, so the cliff is flatter than predicted and "
        "T_C is shorter in a burst; regular ones do the opposite."
    )
    if starts is None or starts.size < _FEW:
        return Finding(name, None, "the trace has no start times", effect)
    gaps = np.diff(np.sort(starts))
    variation = float(gaps.std(ddof=1) / gaps.mean())
    p = float(_tests().kstest(gaps, "expon", args=(0, gaps.mean())).pvalue)
    return Finding(
        name,
        p >= _SIGNIFICANT,
        f"gaps between arrivals vary {variation:.2f} times their mean (Poisson: 1), "
        f"Kolmogorov-Smirnov p {p:.1g}",
        effect,
    )


def _stationarity(workload: Workload, starts: FloatArray | None) -> Finding:
    name = "stationarity"
    ends = workload.size[workload.offsets[1:] - 1].astype(np.float64)
    half = ends.size // 2
    if half < _FEW:
        return Finding(name, None, "too few conversations", "")
    p = float(_tests().mannwhitneyu(ends[:half], ends[half:]).pvalue)
    evidence = (
        f"E[B] is {ends[:half].mean():.2f} in the first half, {ends[half:].mean():.2f} in the "
        f"second (p {p:.1g})"
    )
    holds = p >= _SIGNIFICANT
    if starts is not None:
        ordered = np.sort(starts)
        middle = (ordered[0] + ordered[-1]) / 2
        early = int((ordered < middle).sum())
        z = abs(2 * early - ordered.size) / math.sqrt(ordered.size)
        evidence += f"; arrivals {early} and {ordered.size - early} in the halves (z {z:.1f})"
        holds = holds and z < 2.6
    return Finding(
        name,
        bool(holds),
        evidence,
        "Estimate busy hours by themselves: one average over a day hides that N is too small "
        "at its peak.",
    )


@dataclass(frozen=True, slots=True)
class Interval:
    """A bootstrap confidence interval of 95 %."""

    value: float
    low: float
    high: float


def bootstrap(
    workload: Workload, rng: np.random.Generator, *, replicates: int = 400
) -> dict[str, Interval]:
    """Confidence intervals of the averages, resampling whole conversations."""
    sums = conversation_sums(workload)
    names = list(sums)
    table = np.stack([sums[name] for name in names], axis=1)
    count = workload.conversations
    means = np.empty((replicates, len(names)))
    even = np.full(count, 1 / count)
    for index in range(replicates):
        means[index] = rng.multinomial(count, even) @ table / count
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    return {
        name: Interval(float(table[:, i].mean()), float(low[i]), float(high[i]))
        for i, name in enumerate(names)
    }


def bootstrap_hit_ratio(
    workload: Workload,
    rng: np.random.Generator,
    *,
    law: TailLaw,
    gap: GapLaw,
    arrival_rate_hz: float,
    blocks: int,
    replicates: int = 200,
) -> Interval:
    """Confidence interval of estimator (39), resampling whole conversations."""
    check_rate(arrival_rate_hz)
    values = []
    for _ in range(replicates):
        rows = rng.integers(0, workload.conversations, workload.conversations)
        part = statistics(workload.take(rows))
        values.append(
            estimate(
                part, law=law, gap=gap, arrival_rate_hz=arrival_rate_hz, blocks=blocks
            ).hit_ratio
        )
    whole = estimate(
        statistics(workload), law=law, gap=gap, arrival_rate_hz=arrival_rate_hz, blocks=blocks
    )
    low, high = np.quantile(values, [0.025, 0.975])
    return Interval(whole.hit_ratio, float(low), float(high))
