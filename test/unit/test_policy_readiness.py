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
"""What the probe at start finds out about an engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from policies import NOT_REACHED, policy_settings, started, wait_until
from scripted_engine import ScriptedEngine

from csr_policy.policy import Policy

Make = Callable[..., ScriptedEngine]


def refused(policy: Policy) -> str:
    """The first engine's error, once there is one."""
    policy.start()
    try:
        wait_until(lambda: policy.status().engines[0].error != NOT_REACHED, "an error")
        assert not policy.status().ready
        return policy.status().engines[0].error
    finally:
        policy.close()


def alone(engine: ScriptedEngine, folder: Path, **changes: Any) -> Policy:
    return Policy(policy_settings([engine.url], folder, **changes))


def test_completions_is_used_where_generate_is_not_offered(
    make_engine: Make, tiny_folder: Path
) -> None:
    engine = make_engine()
    engine.offers_generate = False
    paths: list[str] = []
    engine.before = lambda path, body: paths.append(path)  # type: ignore[assignment, func-returns-value]
    policy = started(policy_settings([engine.url], tiny_folder))
    assert policy.decide().ok and paths[-1] == "/v1/completions"
    policy.close()


def test_ignored_label_scores_are_found_by_the_probe(make_engine: Make, tiny_folder: Path) -> None:
    engine = make_engine()
    engine.ignores_label_scores = True
    policy = started(policy_settings([engine.url], tiny_folder))
    # The engine scores every allowed label when asked for the top ones after the mask.
    assert len(policy.decide().probabilities) == 3
    policy.close()


def test_an_engine_that_scores_no_labels_is_refused(make_engine: Make, tiny_folder: Path) -> None:
    engine = make_engine()

    def strip(path: str, body: dict[str, Any]) -> tuple[int, bytes] | None:
        if "inference" not in path:
            return None
        return 200, (
            b'{"choices":[{"token_ids":[1],"logprobs":{"content":[{"token_id":1,"logprob":-1,'
            b'"top_logprobs":[]}]}}],"usage":{"prompt_tokens":1}}'
        )

    engine.before = strip
    assert "labels came back without a score" in refused(alone(engine, tiny_folder))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"engine__model": "other"}, "serves ['scripted'], not 'other'"),
        (
            {"engine__max_prompt_tokens": 500},
            "reconciliation.tau_mem_tokens: is 600; expected less than",
        ),
    ],
)
def test_settings_that_do_not_fit_the_engine(
    make_engine: Make, tiny_folder: Path, changes: dict[str, Any], line: str
) -> None:
    assert line in refused(alone(make_engine(), tiny_folder, **changes))


def test_a_threshold_at_the_models_limit(make_engine: Make, tiny_folder: Path) -> None:
    line = refused(alone(make_engine(max_model_len=600), tiny_folder))
    assert line.startswith("reconciliation.tau_mem_tokens: is 600; expected less than")


def test_another_tokenizer(make_engine: Make, tiny_folder: Path) -> None:
    engine = make_engine()
    engine.before = lambda path, body: (
        (200, b'{"tokens":[1,2,3]}') if path == "/tokenize" else None
    )
    assert refused(alone(engine, tiny_folder)).startswith("tokenizer: differs from the one that")


def test_a_wrong_key(make_engine: Make, tiny_folder: Path) -> None:
    engine = make_engine()
    engine.before = lambda path, body: (401, b'{"error":"Unauthorized"}')
    assert "is the API key right" in refused(alone(engine, tiny_folder))


def test_a_server_without_cached_token_counts(make_engine: Make, tiny_folder: Path) -> None:
    engine = make_engine()
    engine.reports_cache = False
    assert "--enable-prompt-tokens-details" in refused(alone(engine, tiny_folder))


def test_a_server_that_caches_nothing(make_engine: Make, tiny_folder: Path) -> None:
    engine = make_engine()
    engine.before = lambda path, body: engine.cache.clear()  # type: ignore[assignment, func-returns-value]
    assert "expected prefix caching on" in refused(alone(engine, tiny_folder))


def test_something_that_is_no_vllm(make_engine: Make, tiny_folder: Path) -> None:
    engine = make_engine()
    engine.before = lambda path, body: (200, b'{"data":[{"id":"x"}]}')
    assert "expected a vLLM server" in refused(alone(engine, tiny_folder))
