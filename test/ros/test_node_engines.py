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
"""The node on two real vLLM servers, driven by another ROS process."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest
from csr_policy.msg import ActionDecision, StateChunk
from csr_policy.srv import Ask, Decide
from diagnostic_msgs.msg import DiagnosticStatus
from nav_msgs.msg import Odometry
from std_msgs.msg import String
from std_srvs.srv import SetBool, Trigger

pytest.importorskip("vllm", reason="vllm is not installed: run make test")

OK = ActionDecision.OK
API_KEY = "CSR_POLICY_API_KEY"


@pytest.fixture
def parameters(engine_pair, tiny_folder, tmp_path) -> dict[str, object]:
    return {
        "engines": list(engine_pair.urls),
        "tokenizer": str(tiny_folder),
        "actions": ["stop", "go", "turn left"],
        "decision.fallback_action": "stop",
        # The tiny model needs a tenth of this; the rest is for a busy machine.
        "decision.rate_hz": 1.0,
        "engine.cache_salt": tmp_path.name,
        "journal.path": str(tmp_path / "journal.sqlite"),
        "observation_sources": ["odom"],
        "observations.odom.topic": "odom",
        "observations.odom.type": "nav_msgs/msg/Odometry",
    }


@pytest.fixture
def run(run_node, engine_pair):
    """Start a node that has the engines' key."""

    def start(values: dict[str, object], *arguments: str, **options: object):
        environment = {API_KEY: engine_pair.api_key}
        return run_node(values, *arguments, environment=environment, **options)

    return start


def journalled(values: dict[str, object]) -> list[tuple[int, str]]:
    with sqlite3.connect(f"file:{values['journal.path']}?mode=ro", uri=True) as journal:
        return list(journal.execute("SELECT idx, text FROM chunks ORDER BY idx"))


def test_observations_become_chunks_of_ok_decisions(run, parameters, robot):
    run(parameters)
    odom = robot.publisher(Odometry, "/odom")
    robot.wait_until_ready()

    message = Odometry()
    message.pose.pose.position.x = 1.25
    odom.publish(message)
    before = robot.decisions[-1].last_chunk_index
    decision = robot.wait_for_decision(
        lambda d: d.outcome == OK and d.last_chunk_index > before, "a decision on the chunk"
    )

    assert decision.action in parameters["actions"]
    assert list(decision.actions) == parameters["actions"]
    assert sum(decision.probabilities) == pytest.approx(1.0)
    assert 0 < decision.label_mass <= 1
    assert decision.ttft_s > 0
    assert decision.prompt_tokens > decision.cached_tokens >= decision.must_be_cached >= 0
    assert any("odom:" in text and "1.25" in text for _, text in journalled(parameters))


def test_a_new_task_and_a_result_reach_the_next_decisions(run, parameters, robot):
    run(parameters)
    task = robot.publisher(String, "/csr_policy/task")
    result = robot.publisher(String, "/csr_policy/action_result")
    robot.wait_until_ready()
    old = robot.decisions[-1]

    task.publish(String(data="Fetch the red ball from the kitchen and bring it here."))
    result.publish(String(data="the door was locked"))
    robot.wait_for_status(
        lambda s: (
            all(o.taken for o in s.observations if o.name != "odom" and o.received)
            and sum(o.taken for o in s.observations) >= 2
        ),
        "task and result",
    )
    new = robot.wait_for_decision(lambda d: d.outcome == OK, "a decision")

    assert new.prompt_tokens > old.prompt_tokens
    assert any("action_result: the door was locked" in text for _, text in journalled(parameters))


def test_decide_has_its_own_task_and_actions(run, parameters, robot):
    run(parameters)
    robot.wait_until_ready()

    response = robot.call(Decide, "decide", task="Which arm?", actions=["left", "right"])

    assert response.success, response.message
    assert list(response.decision.actions) == ["left", "right"]
    assert response.decision.action in ("left", "right")
    assert sum(response.decision.probabilities) == pytest.approx(1.0)
    assert (
        list(robot.wait_for_decision(lambda d: d.outcome == OK, "a tick").actions)
        == (parameters["actions"])
    )


def test_ask_replies_from_the_same_cached_state(run, parameters, robot):
    run(parameters)
    chunk = robot.publisher(StateChunk, "/csr_policy/chunk")
    robot.wait_until_ready()
    for number in range(10):
        chunk.publish(StateChunk(text=f"The corridor goes on, door {number} is closed."))
    robot.wait_for_decision(
        lambda d: d.outcome == OK and d.last_chunk_index >= 9, "a decision on ten chunks"
    )

    response = robot.call(Ask, "ask", question="What did you see?", max_tokens=8)

    assert response.success, response.message
    assert 0 < response.reply_tokens <= 8
    assert response.cached_tokens > 0
    assert response.engine == "engine_0"


def test_a_long_question_delays_no_tick_and_no_callback(run, parameters, robot):
    run(parameters)
    odom = robot.publisher(Odometry, "/odom")
    robot.wait_until_ready()
    start = robot.decisions[-1].id

    sent = 0
    replies = []
    while robot.decisions[-1].id < start + 6:
        asked = robot.start_call(Ask, "ask", question="Tell a long story.", max_tokens=64)
        while not asked.done():
            odom.publish(Odometry())
            sent += 1
            robot.executor.spin_once(timeout_sec=0.02)
        replies.append(asked.result())
    status = robot.wait_for_status(lambda s: s.observations[0].taken == sent, "every message")

    assert all(reply.success for reply in replies)
    assert max(reply.reply_tokens for reply in replies) == 64
    during = [d for d in robot.decisions if d.id > start]
    assert [d.outcome for d in during] == [OK] * len(during)
    assert status.ticks_skipped == 0
    assert status.observations[0].received == sent
    assert status.dropped_messages == 0


def test_pause_stops_decisions_and_not_the_ingest(run, parameters, robot):
    run(parameters)
    chunk = robot.publisher(StateChunk, "/csr_policy/chunk")
    robot.wait_until_ready()

    assert robot.call(SetBool, "pause", data=True).success
    paused = robot.wait_for_status(lambda s: s.paused, "a paused status")
    robot.wait_for(lambda: robot.decisions[-1].id >= paused.last_decision_id, "the last tick")
    chunk.publish(StateChunk(text="still listening"))
    later = robot.wait_for_status(
        lambda s: s.chunks > paused.chunks and s.header.stamp.sec > paused.header.stamp.sec + 2,
        "a chunk while paused",
    )
    assert robot.call(SetBool, "pause", data=False).success
    decision = robot.wait_for_decision(lambda d: d.outcome == OK, "a decision after the pause")

    assert later.ticks_started - paused.ticks_started <= 1
    assert decision.last_chunk_index >= later.last_chunk_index


def test_reset_starts_a_version_at_the_end_and_keeps_the_journal(run, parameters, robot):
    run(parameters)
    chunk = robot.publisher(StateChunk, "/csr_policy/chunk")
    robot.wait_until_ready()
    chunk.publish(StateChunk(text="soon forgotten"))
    robot.wait_for_decision(lambda d: d.last_chunk_index >= 1, "a decision on the chunk")

    response = robot.call(Trigger, "reset")
    status = robot.wait_for_status(lambda s: s.version == 1, "version 1")
    decision = robot.wait_for_decision(lambda d: d.outcome == OK and d.version == 1, "a decision")

    assert response.success, response.message
    assert status.first_chunk_index > 1
    assert decision.version == 1
    assert any("soon forgotten" in text for _, text in journalled(parameters))


def test_reconcile_swaps_the_engines(run, parameters, robot):
    run(parameters)
    chunk = robot.publisher(StateChunk, "/csr_policy/chunk")
    robot.wait_until_ready()
    for number in range(10):
        chunk.publish(StateChunk(text=f"Door {number} is closed."))
    robot.wait_for_status(lambda s: s.engines[1].ready and s.chunks >= 10, "the secondary")

    response = robot.call(Trigger, "reconcile")
    status = robot.wait_for_status(lambda s: s.swaps == 1, "a swap")
    decision = robot.wait_for_decision(lambda d: d.outcome == OK and d.version == 1, "a decision")

    assert response.success, response.message
    assert [engine.role for engine in status.engines] == ["secondary", "primary"]
    assert decision.engine == "engine_1"


def test_diagnostics_say_that_all_is_well(run, parameters, robot):
    run(parameters)
    robot.publisher(Odometry, "/odom")
    robot.wait_until_ready()

    def all_well() -> bool:
        newest = robot.diagnostics[-1].status if robot.diagnostics else []
        return bool(newest) and all(s.level == DiagnosticStatus.OK for s in newest)

    robot.wait_for(all_well, "diagnostics without a warning")

    names = [s.name for s in robot.diagnostics[-1].status]
    assert names == [
        f"/csr_policy: {part}" for part in ("policy", "engine_0", "engine_1", "ingest")
    ]


def test_a_late_subscriber_gets_the_status_at_once(run, parameters, robot, make_robot):
    run(parameters)
    robot.wait_until_ready()

    late = make_robot()
    status = late.wait_for_status(lambda s: True, "a status")

    assert status.ready


def test_a_killed_node_resumes_and_decides_on_every_acknowledged_chunk(run, parameters, robot):
    node = run(parameters)
    chunk = robot.publisher(StateChunk, "/csr_policy/chunk")
    robot.wait_until_ready()
    for number in range(30):
        chunk.publish(StateChunk(text=f"Door {number} is closed."))
        robot.executor.spin_once(timeout_sec=0.01)
    robot.wait_for_decision(lambda d: d.last_chunk_index >= 20, "an acknowledging decision")

    node.process.kill()
    node.process.wait()
    killed_s = time.time()
    chunks = journalled(parameters)
    run(parameters | {"journal.resume": True})
    first = robot.wait_for_decision(
        lambda d: d.outcome == OK and d.header.stamp.sec > killed_s, "an OK decision"
    )
    said = [m for m in (*robot.decisions, *robot.statuses) if m.header.stamp.sec <= killed_s]
    acknowledged = max(message.last_chunk_index for message in said)

    assert [index for index, _ in chunks] == list(range(len(chunks)))
    assert len(chunks) > acknowledged
    assert first.last_chunk_index >= acknowledged
    assert first.version == 0
    assert journalled(parameters)[: len(chunks)] == chunks
    doors = [text.partition("Door ")[2] for _, text in chunks if "Door " in text]
    assert doors == [f"{number} is closed." for number in range(len(doors))]


def test_a_wrong_key_is_one_line_and_not_ready(run_node, parameters, robot):
    node = run_node(parameters, environment={API_KEY: "wrong"})

    status = robot.wait_for_status(lambda s: s.engines and s.engines[0].error, "the error")
    decision = robot.wait_for_decision(lambda d: d.outcome == ActionDecision.NOT_READY, "a tick")

    assert "key" in status.engines[0].error
    assert "key" in decision.reason
    assert len(node.lines("engine_0", "key")) == 1
    assert "Traceback" not in node.log


def test_the_node_imports_neither_torch_nor_vllm(run, parameters, robot):
    node = run(parameters, python=("-X", "importtime", "-m", "csr_policy.node.main"))
    robot.wait_until_ready()
    robot.call(Ask, "ask", question="Where are you?", max_tokens=4)

    imported = {line.rpartition("|")[2].strip() for line in node.lines("import time:")}
    maps = Path(f"/proc/{node.pid}/maps").read_text()

    assert "csr_policy.policy" in imported
    assert not {name for name in imported if name.partition(".")[0] in ("torch", "vllm")}
    assert "libtorch" not in maps


def test_two_decisions_a_second_at_thirty_thousand_tokens(run, parameters, robot):
    run(
        parameters
        | {
            "decision.rate_hz": 2.5,
            "reconciliation.tau_mem_tokens": 40_000,
            "ingest.max_chunk_tokens": 1000,
        }
    )
    chunks = robot.publisher(StateChunk, "/csr_policy/chunk")
    robot.wait_until_ready()
    for number in range(34):
        chunks.publish(StateChunk(source="note", text=f"{number} " + "door key ball wall " * 225))
        robot.wait_for_status(lambda s, n=number: s.chunks > n, f"chunk {number}")
    first = robot.wait_for_decision(
        lambda d: d.outcome == OK and d.prompt_tokens > 30_000, "an OK decision at 30,000 tokens"
    )
    last = robot.wait_for_decision(lambda d: d.id >= first.id + 25, "25 more")

    during = [d for d in robot.decisions if first.id <= d.id <= last.id]
    made = [d for d in during if d.outcome == OK]
    span_s = (last.header.stamp.sec - first.header.stamp.sec) + 1e-9 * (
        last.header.stamp.nanosec - first.header.stamp.nanosec
    )
    # A rate the product promises, over ten seconds; not how long something takes.
    assert (len(made) - 1) / span_s >= 2.0
    assert all(d.cached_tokens >= d.must_be_cached > 29_000 for d in made[1:])
