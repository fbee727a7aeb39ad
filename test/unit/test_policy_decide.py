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
"""Decisions and fallbacks, on scripted engines."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from policies import ACTIONS, PATIENCE_S, fill, policy_settings, started, wait_until
from scripted_engine import ScriptedEngine, expected_probabilities

from csr_policy.context.errors import ChunkRefusedError
from csr_policy.decision import Outcome
from csr_policy.policy import Policy, PolicyError

Pair = tuple[ScriptedEngine, ScriptedEngine]


@pytest.fixture
def policy(pair: Pair, tiny_folder: Path) -> Any:
    policy = started(policy_settings([engine.url for engine in pair], tiny_folder))
    yield policy
    policy.close()


def test_a_decision_is_the_models_distribution(policy: Policy, pair: Pair) -> None:
    fill(policy, 3)
    query = policy.freeze()
    decision = policy.dispatch(query)
    ids = pair[0].prompts[-1]
    assert ids == policy.prompt_ids(query)
    expected = expected_probabilities(ids, policy.assembler.actions.tokens)
    assert decision.outcome is Outcome.OK and decision.reason == ""
    assert decision.actions == ACTIONS
    assert decision.probabilities == pytest.approx(expected)
    assert decision.action == ACTIONS[expected.index(max(expected))]
    assert decision.probability == max(decision.probabilities)
    assert (decision.engine, decision.route, decision.phase) == (
        "engine_0",
        "continuation",
        "idle",
    )
    assert decision.last_chunk_index == 2 and decision.prompt_tokens == len(ids)


def test_the_prompt_is_prefix_chunks_suffix_task_tail(policy: Policy, pair: Pair) -> None:
    policy.append(" a door \n", "view", stamp_ns=5_000_000_000)
    policy.append("x 1", "odom", stamp_ns=7_500_000_000)
    policy.set_suffix("battery", "80 %")
    policy.set_task("Find the key.")
    policy.decide(remember=False)
    assembler = policy.assembler
    text = (
        "0.0 view: a door\n2.5 odom: x 1\nnow battery: 80 %\nFind the key.\n"
        "Answer with one letter of the action list."
    )
    expected = [*assembler.prefix, *assembler.tokenizer.encode_text(text), *assembler.frame.tail]
    assert pair[0].prompts[-1] == expected


def test_a_suffix_is_replaced_and_removed(policy: Policy, pair: Pair) -> None:
    for text in ("1 V", "2 V", ""):
        policy.set_suffix("battery", text)
        policy.decide(remember=False)
    tails = [policy.assembler.tokenizer.decode(ids) for ids in pair[0].prompts[-3:]]
    assert ["battery: 1 V" in tails[0], "battery: 2 V" in tails[1]] == [True, True]
    assert "battery" not in tails[2] and "1 V" not in tails[1]


def test_own_task_and_actions_change_one_question_only(policy: Policy, pair: Pair) -> None:
    own = policy.decide(task="Is it open?", actions=["yes", "no"], remember=False)
    assert own.actions == ("yes", "no")
    assert policy.decide(remember=False).actions == ACTIONS
    assert "Is it open?" not in policy.assembler.tokenizer.decode(pair[0].prompts[-1])


def test_a_decision_is_remembered_on_change(policy: Policy) -> None:
    for action in ("forward", "forward", "turn left"):
        policy.remember_action(action)
    assert policy.status().chunks == 2


@pytest.mark.parametrize(("how", "chunks"), [("all", 3), ("changes", 2), ("none", 0)])
def test_remember_actions(pair: Pair, tiny_folder: Path, how: str, chunks: int) -> None:
    urls = [engine.url for engine in pair]
    policy = started(policy_settings(urls, tiny_folder, decision__remember_actions=how))
    for action in ("forward", "forward", "turn left"):
        policy.remember_action(action)
    assert policy.status().chunks == chunks
    policy.close()


def test_a_late_engine_gives_the_fallback_at_the_deadline(pair: Pair, tiny_folder: Path) -> None:
    urls = [engine.url for engine in pair]
    settings = policy_settings(urls, tiny_folder, decision__fallback_action="forward")
    policy = started(settings)
    pair[0].gate.clear()
    decision = policy.decide(deadline_s=0.05)
    assert decision.outcome is Outcome.FALLBACK_DEADLINE
    assert decision.action == "forward" and math.isnan(decision.ttft_s)
    assert decision.probabilities == () and math.isnan(decision.probability)
    pair[0].gate.set()
    # The late reply is gone with its connection: the next question gets its own.
    assert policy.decide(deadline_s=PATIENCE_S).outcome is Outcome.OK
    policy.close()


@pytest.mark.parametrize(
    ("answer", "outcome", "line"),
    [
        ((500, b'{"error":{"message":"EngineCore died"}}'), Outcome.FALLBACK_ENGINE, "died"),
        ((503, b""), Outcome.FALLBACK_ENGINE, "HTTP 503"),
        ((200, b"{"), Outcome.FALLBACK_ENGINE, "not JSON"),
        ((401, b'{"error":"Unauthorized"}'), Outcome.FALLBACK_ENGINE, "API key"),
    ],
)
def test_a_failing_engine_gives_a_marked_fallback_and_recovers(
    policy: Policy, pair: Pair, answer: tuple[int, bytes], outcome: Outcome, line: str
) -> None:
    pair[0].before = lambda path, body: answer if "inference" in path else None
    decision = policy.decide()
    assert decision.outcome is outcome and line in decision.reason
    assert decision.action == "" and "\n" not in decision.reason
    pair[0].before = lambda path, body: None
    wait_until(lambda: policy.decide().ok, "recovery")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"decision__min_probability": 1.0}, "is below decision.min_probability 1"),
        ({"decision__min_label_mass": 1.0}, "is below decision.min_label_mass 1"),
    ],
)
def test_low_confidence_is_a_fallback_with_its_scores(
    pair: Pair, tiny_folder: Path, changes: dict[str, Any], line: str
) -> None:
    policy = started(policy_settings([engine.url for engine in pair], tiny_folder, **changes))
    decision = policy.decide()
    assert decision.outcome is Outcome.FALLBACK_LOW_CONFIDENCE and line in decision.reason
    assert math.fsum(decision.probabilities) == pytest.approx(1)
    assert decision.action == ""
    policy.close()


def test_a_log_that_is_too_old_is_a_fallback(pair: Pair, tiny_folder: Path) -> None:
    now_ns = 100_000_000_000
    urls = [engine.url for engine in pair]
    settings = policy_settings(urls, tiny_folder, decision__max_state_age_s=1.0)
    policy = started(settings, now_ns=lambda: now_ns)
    assert policy.decide().outcome is Outcome.FALLBACK_STALE
    policy.append("a door", "view", stamp_ns=now_ns - 500_000_000)
    assert policy.decide(remember=False).ok
    policy.append("a door", "view", stamp_ns=now_ns - 1_500_000_000)
    stale = policy.decide()
    assert stale.outcome is Outcome.FALLBACK_STALE and "1.5 s old" in stale.reason
    policy.close()


def test_no_engine_yet_is_not_ready(tiny_folder: Path) -> None:
    policy = Policy(policy_settings(["http://127.0.0.1:9", "http://127.0.0.1:9"], tiny_folder))
    policy.start()
    wait_until(lambda: "refused" in policy.status().engines[0].error, "the refusal is reported")
    decision = policy.decide()
    assert decision.outcome is Outcome.NOT_READY and "refused" in decision.reason
    policy.close()


@pytest.mark.parametrize("text", ["", "  \n "])
def test_an_empty_chunk_is_refused_and_counted(policy: Policy, text: str) -> None:
    with pytest.raises(ChunkRefusedError, match="is empty"):
        policy.append(text, "view")
    assert (policy.status().refused_chunks, policy.status().chunks) == (1, 0)


def test_a_huge_text_is_cut_and_marked(policy: Policy, pair: Pair) -> None:
    policy.append("x" * 2_000_000, "view")
    policy.decide(remember=False)
    assert "…[cut" in policy.assembler.tokenizer.decode(pair[0].prompts[-1])


def test_ask_answers_and_becomes_a_chunk(policy: Policy, pair: Pair) -> None:
    event = (
        b'data: {"choices":[{"token_ids":[%d]}]}\n\n'
        b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}\n\n'
        b"data: [DONE]\n\n"
    )
    word = policy.assembler.tokenizer.encode_text("door")[0]
    pair[0].before = lambda path, body: (200, event % word) if body.get("stream") else None
    answer = policy.ask("What do you see?")
    assert (answer.ok, answer.text, answer.reply_tokens) == (True, "door", 1)
    assert answer.ttft_s > 0 and answer.engine == "engine_0"
    assert policy.status().chunks == 1


def test_ask_says_why_there_is_no_answer(policy: Policy, pair: Pair) -> None:
    pair[0].before = lambda path, body: (503, b"") if body.get("stream") else None
    answer = policy.ask("What do you see?")
    assert not answer.ok and "HTTP 503" in answer.reason and policy.status().chunks == 0


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"tokenizer": "/nowhere"}, "has no tokenizer.json"),
        ({"engine__api_key_file": "/nowhere/key"}, "engine.api_key_file: cannot read"),
        ({"journal__path": "/proc/none/j.db"}, "journal.path: cannot write"),
    ],
)
def test_what_stops_a_start_is_one_line(
    tiny_folder: Path, changes: dict[str, Any], line: str
) -> None:
    with pytest.raises(PolicyError, match=line) as caught:
        Policy(policy_settings(["http://127.0.0.1:9"], tiny_folder, **changes))
    assert "\n" not in str(caught.value)


def test_close_is_bounded_and_may_be_repeated(
    make_engine: Callable[..., ScriptedEngine], tiny_folder: Path
) -> None:
    engine = make_engine()
    engine.gate.clear()
    policy = Policy(policy_settings([engine.url], tiny_folder))
    policy.start()
    policy.close()
    policy.close()
    assert policy.status().degraded
