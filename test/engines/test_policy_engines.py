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
"""The policy on two real vLLM servers with the tiny model."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from policies import NOT_REACHED, PATIENCE_S, policy_settings, wait_until

from csr_policy.evaluation.prefix import run_prefix_bench
from csr_policy.policy import Policy
from csr_policy.reconciliation.state import full_blocks
from csr_policy.serving.pair import EnginePair

READY_S = 240.0
LONG = {
    "reconciliation__tau_mem_tokens": 3000,
    "ingest__max_chunk_tokens": 512,
    "eviction__head_max_tokens": 256,
    "decision__rate_hz": 0.05,
}


@pytest.fixture(autouse=True)
def key_of_the_pair(engine_pair: EnginePair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CSR_POLICY_API_KEY", engine_pair.api_key)


@contextmanager
def policy_on(pair: EnginePair, **changes: Any) -> Iterator[Policy]:
    settings = policy_settings(pair.urls, pair.model_folder, **{**LONG, **changes})
    policy = Policy(settings)
    policy.start()
    try:
        assert policy.wait_ready(READY_S), policy.status()
        yield policy
    finally:
        policy.close()


def words(count: int, seed: int) -> str:
    rng = random.Random(seed)
    return " ".join(rng.choice(["door", "key", "ball", "wall", "left"]) for _ in range(count))


def test_prefix_bench_finds_no_violation(engine_pair: EnginePair) -> None:
    settings = policy_settings(
        engine_pair.urls, engine_pair.model_folder, **{**LONG, "decision__rate_hz": 10.0}
    )
    report = run_prefix_bench(
        settings, decisions=60, chunk_tokens=160, seed=3, progress=lambda made, swaps: None
    )
    assert report.decisions == 60 and report.violations == 0 and report.swaps >= 3
    engines = {row.engine for row in report.rows}
    assert engines == {"engine_0", "engine_1"}
    assert sum(row.cached_tokens for row in report.rows) > 60 * 1000


def test_the_engine_caches_what_the_policy_expects_exactly(engine_pair: EnginePair) -> None:
    with policy_on(engine_pair) as policy:
        policy.append(words(400, 1), "view", stamp_ns=0)
        first = policy.decide(remember=False)
        again = policy.decide(remember=False)
    static = first.prompt_tokens - len(policy.freeze().dynamic)
    block = policy.block_tokens()
    assert again.must_be_cached == full_blocks(static, again.prompt_tokens, block) > 0
    assert again.cached_tokens >= again.must_be_cached


def test_changing_one_chunk_changes_the_probabilities(engine_pair: EnginePair) -> None:
    seen = []
    for word in ("door", "door", "ball"):
        with policy_on(engine_pair) as policy:
            policy.append(words(30, 1), "view", stamp_ns=0)
            policy.append(word, "view", stamp_ns=0)
            seen.append(policy.decide(remember=False).probabilities)
    assert seen[0] == pytest.approx(seen[1], abs=1e-6)
    assert max(abs(a - b) for a, b in zip(seen[0], seen[2], strict=True)) > 1e-5


def test_a_cached_decision_equals_an_uncached_one(engine_pair: EnginePair) -> None:
    """What comes from the cache is what a prefill from scratch would have computed."""
    with policy_on(engine_pair) as policy:
        for number in range(10):
            policy.append(words(60, number), "view", stamp_ns=0)
            cached = policy.decide(remember=False)
    with policy_on(engine_pair) as fresh:
        for number in range(10):
            fresh.append(words(60, number), "view", stamp_ns=0)
        uncached = fresh.decide(remember=False)
    assert cached.cached_tokens > 0 and cached.prompt_tokens == uncached.prompt_tokens
    assert cached.probabilities == pytest.approx(uncached.probabilities, abs=1e-4)
    assert cached.label_mass == pytest.approx(uncached.label_mass, rel=1e-2)


@pytest.mark.parametrize("endpoint", ["generate", "completions"])
def test_both_endpoints_agree(engine_pair: EnginePair, endpoint: str) -> None:
    results = {}
    for name in ("auto", endpoint):
        with policy_on(engine_pair, engine__endpoint=name) as policy:
            policy.append(words(100, 1), "view", stamp_ns=0)
            results[name] = policy.decide(remember=False)
    assert results[endpoint].probabilities == pytest.approx(results["auto"].probabilities)


def test_pins_survive_a_swap_on_real_engines(engine_pair: EnginePair) -> None:
    with policy_on(engine_pair) as policy:
        index = policy.append("the charger is in the kitchen", "map", stamp_ns=0, keep=True)
        for number in range(60):
            policy.append(words(100, number), "view", stamp_ns=0)
            assert policy.wait_reconciled(PATIENCE_S), policy.status()
        decision = policy.decide(remember=False)
        status = policy.status()
        text = policy.assembler.tokenizer.decode(policy.prompt_ids(policy.freeze()))
    assert status.swaps >= 2 and status.first_chunk_index > index
    assert decision.ok and text.count("the charger is in the kitchen") == 1


def test_ask_replies_in_tokens_over_the_cached_state(engine_pair: EnginePair) -> None:
    with policy_on(engine_pair) as policy:
        policy.append(words(400, 1), "view", stamp_ns=0)
        policy.decide(remember=False)
        answer = policy.ask("What do you see?", max_tokens=5)
    assert answer.ok and 0 < answer.reply_tokens <= 5 and answer.ttft_s > 0
    assert answer.cached_tokens > 0


def test_thirty_thousand_tokens(engine_pair: EnginePair) -> None:
    changes = {"reconciliation__tau_mem_tokens": 40_000}
    with policy_on(engine_pair, **changes) as policy:
        for number in range(100):
            policy.append(words(300, number), "view", stamp_ns=0)
        policy.decide(remember=False, deadline_s=READY_S)
        decision = policy.decide(remember=False, deadline_s=READY_S)
    assert decision.ok and decision.prompt_tokens > 30_000
    assert decision.cached_tokens >= decision.must_be_cached > 29_000


def refusal(policy: Policy) -> str:
    """The first engine's error, once there is one."""
    policy.start()
    try:
        wait_until(lambda: policy.status().engines[0].error != NOT_REACHED, "an error")
        return policy.status().engines[0].error
    finally:
        policy.close()


def test_a_wrong_key_is_one_line(engine_pair: EnginePair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CSR_POLICY_API_KEY", "wrong")
    line = refusal(Policy(policy_settings(engine_pair.urls, engine_pair.model_folder, **LONG)))
    assert "HTTP 401" in line and "is the API key right" in line and "\n" not in line


def test_a_threshold_at_the_models_limit_is_one_line(engine_pair: EnginePair) -> None:
    settings = policy_settings(
        engine_pair.urls,
        engine_pair.model_folder,
        **{**LONG, "reconciliation__tau_mem_tokens": engine_pair.max_model_len - 1},
    )
    line = refusal(Policy(settings))
    assert line.startswith("reconciliation.tau_mem_tokens: is ") and "expected less" in line


def test_another_tokenizer_is_one_line(engine_pair: EnginePair, other_tokenizer: Path) -> None:
    line = refusal(Policy(policy_settings(engine_pair.urls, other_tokenizer, **LONG)))
    assert line.startswith("tokenizer: differs from the one that")
