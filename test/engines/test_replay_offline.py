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
"""A recording in lock-step on real engines: the same prompts, the same decisions."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from csr_policy.evaluation.replay_command import ReplayRequest, replay_offline
from csr_policy.observation.bags import BagReader
from csr_policy.serving.pair import EnginePair

BAGS = Path(__file__).resolve().parents[3] / "shared" / "data" / "bags"
REPEATED = ("bag_time_ns", "action", "probability", "outcome", "prompt_sha256", "prompt_tokens")
REPEATED += ("cached_tokens", "version", "engine")


class NoProgress:
    def __init__(self, total: int, what: str) -> None:
        assert total > 0 and what

    def __enter__(self) -> Any:
        return lambda done: None

    def __exit__(self, *_: object) -> None:
        pass


def replayed(pair: EnginePair, bag: Path, params: Path, output: Path) -> list[dict[str, str]]:
    request = ReplayRequest(bag, params, output, pair.urls, pair.model_folder, 0)
    summary = replay_offline(request, print, NoProgress)
    assert summary == json.loads((output / "summary.json").read_text())
    with (output / "decisions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert summary["decisions"] == len(rows)
    return [{name: row[name] for name in REPEATED} | {"swaps": summary["swaps"]} for row in rows]


@pytest.fixture
def params(tmp_path: Path) -> Path:
    path = tmp_path / "p.yaml"
    path.write_text(
        "/**:\n  ros__parameters:\n"
        "    actions: [stop, go, turn]\n"
        "    decision: {rate_hz: 0.5, remember_actions: all}\n"
        "    reconciliation: {tau_mem_tokens: 1600}\n"
        "    ingest: {max_chunk_tokens: 256}\n"
        "    eviction: {head_max_tokens: 128}\n"
    )
    return path


@pytest.mark.skipif(not BAGS.is_dir(), reason="../shared/data is absent")
def test_two_replays_are_the_same(
    engine_pair: EnginePair, params: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CSR_POLICY_API_KEY", engine_pair.api_key)
    bag = BAGS / "cougars_cleaned_db3"
    first = replayed(engine_pair, bag, params, tmp_path / "a")
    second = replayed(engine_pair, bag, params, tmp_path / "b")
    assert first == second
    assert len(first) > 60 and {row["outcome"] for row in first} == {"OK"}
    assert int(first[-1]["version"]) == first[-1]["swaps"] >= 1
    assert len({row["prompt_sha256"] for row in first}) == len(first)


@pytest.mark.skipif(not BAGS.is_dir(), reason="../shared/data is absent")
def test_every_message_of_the_bag_is_accounted_for(
    engine_pair: EnginePair, params: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CSR_POLICY_API_KEY", engine_pair.api_key)
    bag = BAGS / "cougars_SO_bag"
    replayed(engine_pair, bag, params, tmp_path / "a")
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    observed = sum(
        counts["taken"] + counts["skipped"] + counts["failed"]
        for counts in summary["observations"].values()
    )
    left_out = sum(t["messages"] for t in summary["topics"].values() if t["reason"])
    with BagReader(bag) as reader:
        assert observed + left_out == reader.message_count
