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
"""Algorithm 1 and Appendix F on scripted engines: who serves what, and what is kept."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from policies import PATIENCE_S, fill, policy_settings, started, wait_until
from scripted_engine import BLOCK, ScriptedEngine

from csr_policy.decision import Outcome
from csr_policy.policy import Policy
from csr_policy.reconciliation.routing import Route, RouteCase, route

Pair = tuple[ScriptedEngine, ScriptedEngine]


def on(pair: Pair, folder: Path, **changes: Any) -> Policy:
    return started(policy_settings([engine.url for engine in pair], folder, **changes))


def ready(policy: Policy) -> Policy:
    wait_until(lambda: all(e.ready for e in policy.status().engines), "both engines ready")
    return policy


def fill_to_swap(policy: Policy) -> None:
    """Append until an eviction is due, and wait for its swap."""
    swaps = policy.status().swaps
    number = policy.status().chunks
    while policy.status().static_tokens < policy.status().tau_mem_tokens:
        fill(policy, 1, number)
        number += 1
    wait_until(lambda: policy.status().swaps > swaps, "the swap")


def hold_warm_up(engine: ScriptedEngine) -> threading.Event:
    """Let the engine hold requests until the event is set; tells when one has come."""
    came = threading.Event()
    engine.gate.clear()

    def note(path: str, body: dict[str, Any]) -> None:
        if path == "/inference/v1/generate":
            came.set()

    engine.before = note  # type: ignore[assignment]
    return came


def test_the_threshold_swaps_the_engines(pair: Pair, tiny_folder: Path) -> None:
    policy = ready(on(pair, tiny_folder))
    assert policy.decide(remember=False).engine == "engine_0"
    fill_to_swap(policy)
    status = policy.status()
    assert (status.version, status.swaps, status.in_place_evictions) == (1, 1, 0)
    assert [engine.role for engine in status.engines] == ["secondary", "primary"]
    first = policy.decide(remember=False)
    assert (first.engine, first.version, first.after_swap) == ("engine_1", 1, True)
    assert not policy.decide(remember=False).after_swap
    policy.close()


def test_the_static_tokens_after_a_swap_are_prefix_head_and_log(
    pair: Pair, tiny_folder: Path
) -> None:
    policy = ready(on(pair, tiny_folder))
    log: list[list[int]] = []
    for number in range(200):
        keep = number in (1, 30)
        policy.append(f"n{number} a door and a key", "view", stamp_ns=0, keep=keep)
        text = f"0.0 view: n{number} a door and a key\n"
        log.append(list(policy.assembler.tokenizer.encode_text(text)))
        policy.wait_reconciled(PATIENCE_S)
        query = policy.freeze()
        ids = policy.prompt_ids(query)[: query.state.static_tokens]
        status = policy.status()
        pins = [index for index in (1, 30) if index < status.first_chunk_index]
        kept = [*pins, *range(status.first_chunk_index, number + 1)]
        expected = [*policy.assembler.prefix, *(t for index in kept for t in log[index])]
        assert ids == expected, f"chunk {number}, version {status.version}"
    assert policy.status().swaps >= 3 and policy.status().head_tokens == len(log[1] + log[30])
    policy.close()


def test_queries_bridge_on_the_primary_while_the_secondary_warms(
    pair: Pair, tiny_folder: Path
) -> None:
    policy = ready(on(pair, tiny_folder))
    came = hold_warm_up(pair[1])
    fill(policy, 40)
    assert came.wait(PATIENCE_S)
    late = policy.append("the newest chunk", "view", stamp_ns=1)
    decision = policy.decide(remember=False)
    assert (decision.route, decision.engine, decision.version) == ("bridging", "engine_0", 0)
    assert decision.phase == "warming" and decision.last_chunk_index == late
    pair[1].gate.set()
    assert policy.wait_reconciled(PATIENCE_S)
    assert policy.decide(remember=False).last_chunk_index == late
    policy.close()


def test_catch_up_leaves_at_most_n_catchup(pair: Pair, tiny_folder: Path) -> None:
    policy = ready(on(pair, tiny_folder))
    came = hold_warm_up(pair[1])
    fill(policy, 40)
    assert came.wait(PATIENCE_S)
    fill(policy, 8, 40)  # more than N_catchup, all while the warm-up is held
    pair[1].gate.set()
    assert policy.wait_reconciled(PATIENCE_S)
    status = policy.status()
    assert status.swaps == 1 and status.swap_missing_tokens <= 64
    decision = policy.decide(remember=False)
    static = decision.prompt_tokens - len(policy.freeze().dynamic)
    assert decision.cached_tokens >= static - 64 - BLOCK
    policy.close()


def test_a_straggler_is_served_by_the_engine_that_has_its_version(
    pair: Pair, tiny_folder: Path
) -> None:
    policy = ready(on(pair, tiny_folder))
    fill(policy, 5)
    query = policy.freeze()
    asked = policy.prompt_ids(query)
    policy.dispatch(query)
    fill_to_swap(policy)
    decision = policy.dispatch(query)
    assert (decision.route, decision.engine, decision.version) == ("straggler", "engine_0", 0)
    assert pair[0].prompts[-1] == asked and decision.last_chunk_index == 4
    assert decision.cached_tokens >= decision.must_be_cached > 0
    assert policy.status().stragglers == 1
    policy.close()


def test_a_straggler_of_a_lost_version_is_restitched(pair: Pair, tiny_folder: Path) -> None:
    policy = ready(on(pair, tiny_folder))
    fill(policy, 5)
    query = policy.freeze()
    fill_to_swap(policy)
    fill_to_swap(policy)
    decision = policy.dispatch(query)
    status = policy.status()
    assert (decision.route, decision.version) == ("restitched", 2)
    assert decision.last_chunk_index == status.last_chunk_index and status.restitched == 1
    policy.close()


def test_a_straggler_goes_to_the_primary_once_the_secondary_warms_again(
    pair: Pair, tiny_folder: Path
) -> None:
    policy = ready(on(pair, tiny_folder))
    query = policy.freeze()
    fill_to_swap(policy)
    came = hold_warm_up(pair[0])
    fill(policy, 40, 100)
    assert came.wait(PATIENCE_S)
    assert policy.dispatch(query).route == "restitched"
    policy.close()


@pytest.mark.parametrize(
    ("query", "current", "reconciling", "holds", "expected"),
    [
        (3, 3, False, False, Route(RouteCase.CONTINUATION, 0, 3)),
        (3, 3, True, False, Route(RouteCase.BRIDGING, 0, 3)),
        (2, 3, False, True, Route(RouteCase.STRAGGLER, 1, 2)),
        (2, 3, True, False, Route(RouteCase.RESTITCHED, 0, 3)),
        (1, 3, False, True, Route(RouteCase.RESTITCHED, 0, 3)),
    ],
)
def test_routes(query: int, current: int, reconciling: bool, holds: bool, expected: Route) -> None:
    chosen = route(
        query, current, primary=0, secondary=1, reconciling=reconciling, secondary_holds=holds
    )
    assert chosen == expected


def test_a_failed_warm_up_is_retried_while_the_primary_serves(
    pair: Pair, tiny_folder: Path
) -> None:
    policy = ready(on(pair, tiny_folder))
    pair[1].before = lambda path, body: (
        (500, b'{"error":"worker died"}') if path == "/inference/v1/generate" else None
    )
    fill(policy, 40)
    wait_until(lambda: policy.status().reconciliation_failures, "the failure is counted")
    assert policy.decide(remember=False).ok
    assert "worker died" in policy.status().last_error
    pair[1].before = lambda path, body: None
    wait_until(lambda: policy.status().swaps == 1, "the retry succeeds")
    policy.close()


def test_at_the_hard_limit_the_primary_evicts_in_place(
    make_engine: Callable[..., ScriptedEngine], tiny_folder: Path
) -> None:
    primary = make_engine(max_model_len=1000)
    urls = [primary.url, "http://127.0.0.1:9"]
    policy = started(policy_settings(urls, tiny_folder))
    for number in range(150):
        fill(policy, 1, number)
        decision = policy.decide(remember=False)
        assert decision.outcome is Outcome.OK, decision
        assert decision.prompt_tokens <= 999
    status = policy.status()
    assert status.in_place_evictions >= 2 and status.swaps == 0
    assert "no engine to warm up" in status.degraded
    policy.close()


def test_without_any_engine_the_log_stays_bounded(tiny_folder: Path) -> None:
    policy = Policy(policy_settings(["http://127.0.0.1:9"], tiny_folder))
    policy.start()
    fill(policy, 300)
    status = policy.status()
    assert status.chunks == 300 and status.static_tokens <= 2 * status.tau_mem_tokens
    policy.close()


def test_one_engine_reconciles_with_itself(
    make_engine: Callable[..., ScriptedEngine], tiny_folder: Path
) -> None:
    engine = make_engine()
    policy = started(policy_settings([engine.url], tiny_folder))
    fill_to_swap(policy)
    decision = policy.decide(remember=False)
    assert decision.ok and decision.engine == "engine_0" and decision.version == 1
    assert decision.cached_tokens >= decision.must_be_cached > 0
    assert policy.status().degraded.startswith("one engine")
    policy.close()


def test_a_lost_primary_hands_over_to_the_secondary(
    make_engine: Callable[..., ScriptedEngine], tiny_folder: Path
) -> None:
    primary, secondary = make_engine(), make_engine()
    policy = ready(started(policy_settings([primary.url, secondary.url], tiny_folder)))
    fill(policy, 10)
    assert policy.decide(remember=False).engine == "engine_0"
    primary.before = lambda path, body: (500, b'{"error":"EngineCore died"}')
    assert policy.decide(remember=False).outcome is Outcome.FALLBACK_ENGINE
    wait_until(lambda: policy.decide(remember=False).engine == "engine_1", "the hand-over")
    decision = policy.decide(remember=False)
    assert decision.ok and decision.version == 0 and decision.last_chunk_index == 9
    assert policy.status().failovers == 1
    policy.close()


def test_a_lost_cache_is_counted(pair: Pair, tiny_folder: Path) -> None:
    policy = ready(on(pair, tiny_folder))
    fill(policy, 10)
    policy.decide(remember=False)
    pair[0].cache.clear()
    decision = policy.decide(remember=False)
    assert decision.ok and decision.cached_tokens < decision.must_be_cached
    assert policy.status().cache_losses == 1 and "lost its cache" in policy.status().last_error
    assert policy.decide(remember=False).cached_tokens > 0
    policy.close()


def test_reset_starts_at_the_logs_end(pair: Pair, tiny_folder: Path) -> None:
    policy = ready(on(pair, tiny_folder))
    fill(policy, 10)
    policy.append("pinned", "view", keep=True)
    assert policy.reset() == 1
    status = policy.status()
    assert (status.static_tokens, status.head_tokens) == (status.prefix_tokens, 0)
    assert (status.first_chunk_index, status.last_chunk_index) == (11, 10)
    decision = policy.decide(remember=False)
    assert decision.ok and decision.version == 1
    policy.close()


def test_a_reset_during_a_warm_up_drops_it(pair: Pair, tiny_folder: Path) -> None:
    policy = ready(on(pair, tiny_folder))
    came = hold_warm_up(pair[1])
    fill(policy, 40)
    assert came.wait(PATIENCE_S)
    version = policy.reset()
    pair[1].gate.set()
    assert policy.wait_reconciled(PATIENCE_S)
    fill(policy, 3)
    assert policy.decide(remember=False).version == version
    assert policy.status().swaps == 0
    fill_to_swap(policy)
    policy.close()


def test_reconcile_is_accepted_or_refused_at_once(pair: Pair, tiny_folder: Path) -> None:
    policy = ready(on(pair, tiny_folder))
    assert policy.reconcile() == (False, "there is no chunk to evict")
    fill(policy, 4)
    came = hold_warm_up(pair[1])
    assert policy.reconcile() == (True, "")
    assert came.wait(PATIENCE_S)
    accepted, reason = policy.reconcile()
    assert not accepted and "under way" in reason
    pair[1].gate.set()
    wait_until(lambda: policy.status().swaps == 1, "the swap")
    policy.close()


def test_a_pin_beyond_the_bound_is_refused_but_the_chunk_is_kept(
    pair: Pair, tiny_folder: Path
) -> None:
    policy = on(pair, tiny_folder)
    for number in range(8):
        policy.append(f"landmark {number} at the door", "map", keep=True)
    status = policy.status()
    assert status.chunks == 8 and 0 < status.refused_pins < 8
    policy.close()


@pytest.mark.parametrize("seed", range(5))
def test_random_interleavings_keep_every_chunk_in_order(
    pair: Pair, tiny_folder: Path, seed: int
) -> None:
    rng = random.Random(seed)
    policy = ready(on(pair, tiny_folder, reconciliation__warm_up_step_tokens=128))
    held = []
    for number in range(120):
        action = rng.randrange(10)
        if action < 6:
            policy.append(f"n{number}", "view", stamp_ns=0, keep=rng.random() < 0.03)
        elif action == 6:
            held.append(policy.freeze())
        elif action == 7 and held:
            assert policy.dispatch(held.pop(rng.randrange(len(held)))).ok
        elif action == 8:
            policy.reconcile()
        elif rng.random() < 0.1:
            policy.reset()
        decision = policy.decide(remember=False)
        assert decision.ok, decision
        newest = max(pair[0].prompts[-1], pair[1].prompts[-1], key=len)
        assert newest, "an engine was asked"
        text = policy.assembler.tokenizer.decode(policy.prompt_ids(policy.freeze()))
        seen = [int(line.split(" n")[1]) for line in text.splitlines() if " view: n" in line]
        assert seen == sorted(set(seen)), "order kept, nothing doubled"
    policy.close()


def test_a_killed_policy_resumes_where_it_was(
    pair: Pair, tiny_folder: Path, tmp_path: Path
) -> None:
    path = str(tmp_path / "j.db")
    policy = ready(on(pair, tiny_folder, journal__path=path))
    policy.append("landmark", "map", stamp_ns=0, keep=True)
    fill_to_swap(policy)
    fill(policy, 2, 500)
    before = policy.prompt_ids(policy.freeze())
    policy.close()
    again = ready(on(pair, tiny_folder, journal__path=path, journal__resume=True))
    assert again.prompt_ids(again.freeze()) == before
    decision = again.decide(remember=False)
    assert decision.ok and decision.version == 1
    index = again.append("more", "view")
    assert index == decision.last_chunk_index + 1
    again.close()


def test_missed_deadlines_alone_do_not_move_the_robot(pair: Pair, tiny_folder: Path) -> None:
    policy = ready(on(pair, tiny_folder))
    asked = threading.Event()
    pair[0].before = lambda path, body: asked.set() if path == "/v1/models" else None  # type: ignore[func-returns-value]
    pair[0].gate.clear()
    for _ in range(5):
        assert policy.decide(deadline_s=0.02).outcome is Outcome.FALLBACK_DEADLINE
    assert asked.wait(PATIENCE_S), "the engine is asked whether it still answers"
    pair[0].gate.set()
    decision = policy.decide(deadline_s=PATIENCE_S)
    assert decision.ok and decision.engine == "engine_0" and policy.status().failovers == 0
    policy.close()


def test_an_engine_that_answers_but_never_decides_is_given_up(
    pair: Pair, tiny_folder: Path
) -> None:
    policy = ready(on(pair, tiny_folder))
    pair[0].gate.clear()
    wait_until(lambda: policy.decide(deadline_s=0.02).engine == "engine_1", "the robot is moved")
    assert policy.status().failovers == 1
    policy.close()
