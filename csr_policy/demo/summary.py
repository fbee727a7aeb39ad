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
"""What a run leaves behind: `decisions.csv`, `summary.json`, and lines for the screen.

Pure but for the two files; any thread may call it.
"""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from csr_policy.evaluation.plots import DecisionPoint

RECONCILING = ("warming", "catching_up")


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """One decision as it came over `~/decision`, and what the robot had seen last.

    Attributes:
        time_s: When its state was frozen, from the first decision of the run.
        observation: Newest observation on the robot's side at that time.
        outcome: Name of the outcome.
        probability: Of the action; NaN without a reply.
    """

    id: int
    time_s: float
    observation: str
    action: str
    outcome: str
    reason: str
    probability: float
    label_mass: float
    ttft_s: float
    prompt_tokens: int
    cached_tokens: int
    must_be_cached: int
    version: int
    last_chunk_index: int
    engine: str
    route: str
    phase: str
    after_swap: bool

    @property
    def ok(self) -> bool:
        """True where the model chose the action."""
        return self.outcome == "OK"

    @property
    def cached_share(self) -> float:
        """Share of the prompt that the engine had cached; NaN without a reply."""
        return self.cached_tokens / self.prompt_tokens if math.isfinite(self.ttft_s) else math.nan


@dataclass(frozen=True, slots=True)
class RunCounters:
    """Counters of the newest `~/status`."""

    swaps: int = 0
    in_place_evictions: int = 0
    cache_losses: int = 0
    stragglers: int = 0
    ticks_skipped: int = 0
    chunks: int = 0
    tau_mem_tokens: int = 0
    topics_in_prompt: tuple[str, ...] = ()


def summarise(
    rows: Sequence[DecisionRow], counters: RunCounters, facts: Mapping[str, object]
) -> dict[str, object]:
    """Build the summary of a run.

    Args:
        rows: All its decisions, in order.
        counters: From the newest status.
        facts: What the source has to tell, added as it is.

    Returns:
        Values for JSON; a number that cannot be given is None.
    """
    answered = [row for row in rows if math.isfinite(row.ttft_s)]
    ttft = [row.ttft_s for row in answered]
    duration_s = rows[-1].time_s - rows[0].time_s if len(rows) > 1 else 0.0
    return {
        "ticks": len(rows),
        "outcomes": dict(Counter(row.outcome for row in rows)),
        "swaps": counters.swaps,
        "rate_hz": _rounded((len(rows) - 1) / duration_s if duration_s > 0 else math.nan),
        "ttft_median_s": _quantile(ttft, 0.5),
        "ttft_p99_s": _quantile(ttft, 0.99),
        "ttft_max_s": _quantile(ttft, 1.0),
        "cached_share_median": _quantile([row.cached_share for row in answered], 0.5),
        "topics_in_prompt": list(counters.topics_in_prompt),
        "duration_s": _rounded(duration_s),
        "actions": dict(Counter(row.action for row in rows if row.ok)),
        "probability_median": _quantile([row.probability for row in answered], 0.5),
        "label_mass_median": _quantile([row.label_mass for row in answered], 0.5),
        "prompt_tokens_max": max((row.prompt_tokens for row in rows), default=0),
        "tau_mem_tokens": counters.tau_mem_tokens,
        "ttft_median_idle_s": _quantile(_ttft(answered, reconciling=False), 0.5),
        "ttft_median_reconciling_s": _quantile(_ttft(answered, reconciling=True), 0.5),
        "ttft_after_swap_s": [_rounded(row.ttft_s) for row in answered if row.after_swap],
        "cached_less_than_must": sum(row.cached_tokens < row.must_be_cached for row in answered),
        "in_place_evictions": counters.in_place_evictions,
        "cache_losses": counters.cache_losses,
        "stragglers": counters.stragglers,
        "ticks_skipped": counters.ticks_skipped,
        "decisions_not_received": _gaps([row.id for row in rows]),
        "chunks": counters.chunks,
        **facts,
    }


def write_summary(path: Path, summary: Mapping[str, object]) -> None:
    """Write `summary.json`."""
    text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def write_decisions(path: Path, rows: Sequence[DecisionRow]) -> None:
    """Write `decisions.csv`: one line a decision, absent numbers empty."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(DecisionRow)])
        writer.writeheader()
        for row in rows:
            writer.writerow({name: _cell(value) for name, value in asdict(row).items()})


def decision_points(rows: Sequence[DecisionRow]) -> list[DecisionPoint]:
    """The decisions as the plot takes them."""
    return [
        DecisionPoint(
            time_s=row.time_s,
            ttft_s=row.ttft_s,
            prompt_tokens=row.prompt_tokens,
            version=row.version,
            reconciling=row.phase in RECONCILING,
            after_swap=row.after_swap,
        )
        for row in rows
    ]


def closing_lines(summary: Mapping[str, object]) -> list[str]:
    """What the screen says at the end, without the files."""
    outcomes = summary["outcomes"]
    topics = summary["topics_in_prompt"]
    assert isinstance(outcomes, Mapping) and isinstance(topics, Sequence)
    counted = ", ".join(f"{count} {name}" for name, count in outcomes.items()) or "none"
    lines = [
        f"decisions  {summary['ticks']} ({counted}) at {_shown(summary['rate_hz'])} Hz",
        f"swaps      {summary['swaps']} "
        f"(evictions forced on the serving engine: {summary['in_place_evictions']})",
        f"TTFT       median {_shown(summary['ttft_median_s'])} s, "
        f"p99 {_shown(summary['ttft_p99_s'])} s, max {_shown(summary['ttft_max_s'])} s; "
        f"median while the other engine warms up {_shown(summary['ttft_median_reconciling_s'])} s",
        f"cache      {_percent(summary['cached_share_median'])} of the prompt cached (median), "
        f"longest prompt {summary['prompt_tokens_max']} tokens",
        f"topics     {len(topics)} in the prompt: {', '.join(map(str, topics)) or 'none'}",
    ]
    if "goals_reached" in summary:
        lines.append(
            f"robot      {summary['goals_reached']} goals reached in {summary['actions_done']} "
            f"actions; choosing at random reaches {_shown(summary['goals_at_random'])} on average"
        )
    return lines


def _ttft(rows: Sequence[DecisionRow], *, reconciling: bool) -> list[float]:
    return [row.ttft_s for row in rows if (row.phase in RECONCILING) is reconciling]


def _quantile(values: Sequence[float], q: float) -> float | None:
    finite = [value for value in values if math.isfinite(value)]
    return _rounded(float(np.quantile(finite, q))) if finite else None


def _rounded(value: float) -> float | None:
    return round(value, 4) if math.isfinite(value) else None


def _gaps(ids: Sequence[int]) -> int:
    return max(ids) - min(ids) + 1 - len(set(ids)) if ids else 0


def _cell(value: object) -> object:
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else ""
    return value


def _shown(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else "-"


def _percent(value: object) -> str:
    return f"{100 * value:.0f} %" if isinstance(value, int | float) else "-"
