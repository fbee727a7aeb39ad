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
"""The commands: JSON as documented, one line for every wrong input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from csr_policy.capacity.cli import capacity_app
from csr_policy.capacity.vllm_manager import vllm_available

AVERAGES = ["--a-r", "38.9092", "--a-h-hash", "22.5178", "--e-b", "12.9220"]
LOAD = ["--arrival-rate", "1.5", "--gap", "exponential:135"]
PAPER = [*AVERAGES, "--e-m", "4.4694", *LOAD, "--tail-law", "paper"]
GENERATED = ["--turns", "geometric:0.7", "--increments", "uniform:1,5", "--tail-law", "ideal"]


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(capacity_app, list(arguments))
    return result.exit_code, result.stdout, result.stderr


def result_of(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    file = tmp_path / "out.json"
    status, _, errors = run(*arguments, "--json", str(file))
    assert (status, errors) == (0, "")
    document: dict[str, Any] = json.loads(file.read_text())
    return document


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    rows = [[[100 + 37 * i % 400, 60 + 11 * i % 300]] * (1 + i % 5) for i in range(60)]
    path.write_text("".join(json.dumps({"turns": row}) + "\n" for row in rows))
    return path


def test_estimate_from_published_averages(tmp_path: Path) -> None:
    found = result_of(tmp_path, "estimate", *PAPER, "--blocks", "2275")
    assert found["hit_ratio"] == pytest.approx(0.171784, abs=5e-7)
    assert found["characteristic_time_s"] == pytest.approx(47.5413, abs=5e-5)
    assert found["h_max"] == pytest.approx(25.9872 / 38.9092)
    assert found["h_max_hash"] == pytest.approx(22.5178 / 38.9092)


def test_estimate_without_e_m_has_no_h_max(tmp_path: Path) -> None:
    arguments = [*AVERAGES, *LOAD, "--tail-law", "paper", "--blocks", "2275"]
    found = result_of(tmp_path, "estimate", *arguments)
    assert found["h_max"] is None
    assert found["hit_ratio"] == pytest.approx(0.171784, abs=5e-7)


def test_estimate_from_a_trace_has_everything(tmp_path: Path, trace: Path) -> None:
    cost = ["--cost", "0.04,2.6e-6,3.6e-5,1.2e-9", "--deadline-s", "0.06"]
    extras = ["--check", "--bounds", "--bootstrap", "20", "--measured-gap", "140"]
    found = result_of(
        tmp_path,
        "estimate", "--trace", str(trace), "--block-tokens", "16", *LOAD, "--blocks", "3000",
        *cost, *extras,
    )  # fmt: skip
    for name in ("hit_ratio_size_corrected", "hit_ratio_finite", "token_hit_ratio"):
        assert 0 < found[name] < 1
    assert 0 < found["ttft"]["late_probability"] < 1
    assert found["confidence"]["hit_ratio"]["low"] < found["hit_ratio"]
    assert len(found["assumptions"]) == 4
    assert found["bounds"]["vacuous"] is True
    assert found["posterior_hit_ratio"] != found["hit_ratio"]


def test_a_gap_waits_for_the_reply(tmp_path: Path) -> None:
    latencies = tmp_path / "e2e.txt"
    latencies.write_text("200 200 200")
    slow = ["--latency", str(latencies)]
    found = result_of(tmp_path, "estimate", *PAPER, "--blocks", "2275", *slow)
    # No gap is below 200 s now, and T_C is: nothing is left to hit.
    assert found["hit_ratio"] == 0


def test_simulate_and_its_estimates(tmp_path: Path) -> None:
    found = result_of(
        tmp_path,
        "simulate", *GENERATED, *LOAD, "--blocks", "800", "--blocks", "1600", "--measured", "2000",
    )  # fmt: skip
    assert [row["blocks"] for row in found["results"]] == [800, 1600]
    for row in found["results"]:
        assert row["hit_ratio"] == pytest.approx(
            row["finite"], abs=0.01 + 3 * row["standard_error"]
        )


def test_provision_gives_blocks_and_gib(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(
            {
                "num_hidden_layers": 36,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "head_dim": 128,
                "torch_dtype": "bfloat16",
            }
        )
    )
    found = result_of(
        tmp_path, "provision", *PAPER, "--target", "0.171784", "--model", str(config)
    )
    assert found["blocks"] == pytest.approx(2275, abs=1)
    assert found["gib"] == pytest.approx(found["blocks"] * 18 / 1024)
    assert found["kib_per_token"] == 144


def test_provision_for_a_deadline_and_idle_sessions(tmp_path: Path, trace: Path) -> None:
    found = result_of(
        tmp_path,
        "provision", "--trace", str(trace), "--block-tokens", "16", *LOAD, "--deadline-s", "0.07",
        "--probability", "0.6", "--cost", "0.04,2.6e-6,3.6e-5,1.2e-9", "--idle-sessions", "2",
    )  # fmt: skip
    assert found["reached"] >= 0.6
    assert found["gib"] is None
    assert found["keep_alive_interval_s"] > 0


def test_a_fleet_and_its_simulation(tmp_path: Path) -> None:
    found = result_of(
        tmp_path,
        "fleet", "--blocks", "14000", "--simulate", "--cost", "0.04,0,3.6e-5,0", "--idle", "2",
        "--limit-tokens", "8191", "--deadline-s", "0.1",
    )  # fmt: skip
    assert found["robots"] >= 40
    assert found["simulated_hit_ratio"] == pytest.approx(found["hit_ratio"], abs=0.03)
    assert found["verdict"] == "always"


def test_fleets_are_compared(tmp_path: Path) -> None:
    found = result_of(
        tmp_path, "fleet", "--blocks", "14000", "--fraction", "0.3", "--fraction", "0.6"
    )
    assert [row["fraction"] for row in found["plans"]] == [0.3, 0.6]


def test_plot_leaves_pictures(tmp_path: Path, trace: Path) -> None:
    folder = tmp_path / "plots"
    status, out, _ = run(
        "plot", "--trace", str(trace), "--block-tokens", "16", *LOAD, "--blocks", "3000",
        "--output", str(folder),
    )  # fmt: skip
    assert status == 0
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "hit_ratio_by_blocks.png", "hit_ratio_by_rate.png", "displacement.png", "workload.png",
    }  # fmt: skip
    assert all(path.stat().st_size > 5000 for path in folder.iterdir())
    assert "displacement.png" in out


@pytest.mark.skipif(not vllm_available(), reason="needs vllm")
def test_validate_against_the_manager(tmp_path: Path, trace: Path) -> None:
    found = result_of(
        tmp_path,
        "validate", "--manager", "--trace", str(trace), "--block-tokens", "16", "--blocks", "900",
        "--arrival-rate", "0.2", "--gap", "exponential:60", "--measured", "500",
    )  # fmt: skip
    (point,) = found["points"]
    assert point["different_turns"] == 0
    assert point["actual"]["hit_ratio"] == point["simulated"]["hit_ratio"]


def test_one_yaml_serves_all_commands_and_flags_win(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(
        "a-r: 38.9092\na_h_hash: 22.5178\ne_b: 12.922\ne_m: 4.4694\narrival_rate: 1.5\n"
        "gap: exponential:135\ntail_law: paper\nblocks: 2275\ntarget: 0.3\n"
    )
    found = result_of(tmp_path, "estimate", "--config", str(config))
    assert found["hit_ratio"] == pytest.approx(0.171784, abs=5e-7)
    doubled = result_of(tmp_path, "estimate", "--config", str(config), "--blocks", "4550")
    assert doubled["blocks"] == 4550
    sized = result_of(tmp_path, "provision", "--config", str(config))
    assert sized["target"] == 0.3


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["estimate"], "expected one of --trace"),
        (["estimate", *PAPER], "blocks: is missing"),
        (["estimate", *PAPER, "--blocks", "0"], "blocks: is 0"),
        (["estimate", *PAPER, "--blocks", "12"], "at least one conversation, 13"),
        (["estimate", *AVERAGES, "--blocks", "99"], "gap: is missing"),
        (["estimate", *PAPER, "--blocks", "99", "--arrival-rate", "-1"], "arrival_rate: is -1"),
        (["estimate", *PAPER, "--blocks", "99", "--gap", "exponential"], "exponential:mean"),
        (["estimate", *PAPER, "--blocks", "99", "--gap", "lomax:0.9,3"], "infinite mean"),
        (["estimate", "--a-r", "3", *LOAD, "--blocks", "99"], "a_h_hash: is missing"),
        (["estimate", "--trace", "/nonexistent", *LOAD, "--blocks", "99"], "no file"),
        (["estimate", *PAPER, "--blocks", "99", "--check"], "averages do not suffice"),
        (["estimate", *PAPER, "--blocks", "99", "--measured-gap", "0"], "measured_gap: is 0"),
        (["provision", *PAPER], "expected one of --target and --deadline-s"),
        (["provision", *PAPER, "--target", "0.6"], "below 0.5787"),
        (["provision", *PAPER, "--target", "0.1", "--model", "/no"], "model: cannot read"),
        (["fleet"], "expected one of --blocks and --gib"),
        (["fleet", "--blocks", "100"], "at least one session"),
        (["fleet", "--blocks", "9000", "--cost", "1,2"], "expected t0,t1,a,kappa"),
        (["watch"], "engine: is missing"),
        (["watch", "--engine", "http://127.0.0.1:1", *PAPER], "averages do not suffice"),
        (["plot", "--validation", "/nonexistent"], "expected a folder that validate wrote"),
        (["simulate", *GENERATED, *LOAD, "--blocks", "50", "--measured", "1"], "at least 2"),
    ],
)
def test_wrong_input_is_one_line_and_status_1(arguments: list[str], part: str) -> None:
    status, _, errors = run(*arguments)
    assert status == 1
    assert errors.startswith("csr-policy capacity: ")
    assert errors.count("\n") == 1
    assert part in errors


@pytest.mark.parametrize(
    ("content", "part"),
    [("bloks: 3", "did you mean 'blocks'"), ("[1]", "is no mapping"), ("a: [", "is no YAML")],
)
def test_a_wrong_yaml_is_one_line(tmp_path: Path, content: str, part: str) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(content)
    status, _, errors = run("estimate", "--config", str(config))
    assert status == 1
    assert part in errors
    assert errors.count("\n") == 1


def test_watch_raises_the_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from csr_policy.capacity.commands import watch as watch_module

    readings = iter(range(100))

    def metrics(*_: object) -> str:
        count = next(readings)
        return (
            f"vllm:prefix_cache_queries_total {1000 * count}\n"
            f"vllm:prefix_cache_hits_total {300 * count}\n"
        )

    monkeypatch.setattr(watch_module, "fetch_metrics", metrics)
    report = tmp_path / "report.md"
    arguments = ["--duration-s", "0.3", "--interval-s", "0.05", "--report", str(report)]
    drifted, out, _ = run("watch", "--engine", "http://x", "--expected", "0.5", *arguments)
    assert drifted == 3
    assert "ALARM" in out
    assert "Verdict: **ALARM: drift**" in report.read_text()
    steady, out, _ = run("watch", "--engine", "http://x", "--expected", "0.3", *arguments)
    assert steady == 0
    assert out.endswith("as predicted\n")
