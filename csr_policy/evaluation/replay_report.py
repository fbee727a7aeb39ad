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
"""What an offline replay leaves behind, and what it shows meanwhile."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from csr_policy.evaluation.offline import OfflineReplay, ReplayedDecision
from csr_policy.observation.bags import BagReader
from csr_policy.status import Status

COLUMNS = (
    "bag_time_ns",
    "action",
    "probability",
    "outcome",
    "prompt_sha256",
    "prompt_tokens",
    "cached_tokens",
    "version",
    "engine",
    "ttft_s",
)


def row_of(made: ReplayedDecision) -> dict[str, Any]:
    """One decision as a row of `decisions.csv`."""
    decision = made.decision
    return {
        "bag_time_ns": made.bag_time_ns,
        "action": decision.action,
        "probability": repr(decision.probability),
        "outcome": decision.outcome.name,
        "prompt_sha256": made.prompt_sha256,
        "prompt_tokens": decision.prompt_tokens,
        "cached_tokens": decision.cached_tokens,
        "version": decision.version,
        "engine": decision.engine,
        "ttft_s": f"{decision.ttft_s:.6f}",
    }


def summary_of(
    path: Path,
    bag: BagReader,
    replay: OfflineReplay,
    made: Sequence[ReplayedDecision],
    status: Status,
    skipped: Mapping[str, str],
) -> dict[str, Any]:
    """The run as a whole: decisions, and what became of every message of the bag."""
    ttft_s = sorted(m.decision.ttft_s for m in made if not math.isnan(m.decision.ttft_s))
    counts = replay.ingest.all_counts()
    return {
        "bag": str(path),
        "decisions": len(made),
        "outcomes": dict(Counter(m.decision.outcome.name for m in made)),
        "swaps": status.swaps,
        "chunks": status.chunks,
        "ttft_median_s": ttft_s[len(ttft_s) // 2] if ttft_s else None,
        "observations": {
            name: {
                "taken": count.taken,
                "skipped": count.skipped,
                "failed": count.failed,
                "refused": replay.refused.get(name, 0),
            }
            for name, count in counts.items()
        },
        "topics": {
            topic.name: {
                "type": topic.type,
                "messages": topic.messages,
                "reason": topic.reason or skipped.get(topic.name, ""),
            }
            for topic in bag.topics
        },
    }


def write_replay(
    output: Path, made: Sequence[ReplayedDecision], summary: Mapping[str, Any]
) -> None:
    """Write `decisions.csv` and `summary.json` into a folder, which is made if need be."""
    output.mkdir(parents=True, exist_ok=True)
    with (output / "decisions.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(row_of(decision) for decision in made)
    text = json.dumps(summary, indent=2, ensure_ascii=False) + "\n"
    (output / "summary.json").write_text(text, encoding="utf-8")
