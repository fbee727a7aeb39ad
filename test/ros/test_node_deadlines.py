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
"""Ticks, deadlines and questions, on an engine that answers when it is told to."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from csr_policy.msg import ActionDecision
from csr_policy.srv import Ask, Decide
from scripted_engine import ScriptedEngine, serving
from std_msgs.msg import String

OK, DEADLINE = ActionDecision.OK, ActionDecision.FALLBACK_DEADLINE


@pytest.fixture
def engine(tiny_folder) -> Iterator[ScriptedEngine]:
    with serving(ScriptedEngine(str(tiny_folder / "tokenizer.json"))) as engine:
        yield engine


@pytest.fixture
def scripted(unreachable, engine) -> dict[str, object]:
    return unreachable | {"engines": [engine.url], "decision.rate_hz": 4.0}


def ticks_of(robot) -> list[ActionDecision]:
    return [d for d in robot.decisions if d.reason != "the node stops"]


def test_every_tick_ends_in_one_decision_whatever_the_engine_does(
    run_node, scripted, engine, robot
):
    run_node(scripted)
    robot.wait_until_ready()

    engine.gate.clear()
    late = robot.wait_for_decision(lambda d: d.outcome == DEADLINE, "a fallback")
    robot.wait_for_decision(lambda d: d.outcome == DEADLINE, "one more")
    engine.gate.set()
    robot.wait_for_decision(lambda d: d.outcome == OK, "an OK decision after the fallbacks")
    first = robot.decisions[0].id
    status = robot.wait_for_status(lambda s: s.last_decision_id > late.id + 2, "a status")
    robot.wait_for(lambda: robot.decisions[-1].id >= status.last_decision_id, "its decisions")

    ids = [d.id for d in robot.decisions]
    assert ids == list(range(first, first + len(ids)))
    assert sum(status.outcome_counts) in (status.ticks_started, status.ticks_started - 1)
    assert (late.action, list(late.probabilities)) == ("stop", [])
    assert "deadline" in late.reason


def test_actions_are_published_for_every_decision_that_has_one(run_node, scripted, robot):
    run_node(scripted)
    robot.wait_until_ready()
    robot.wait_for(lambda: len(robot.actions) >= 3, "three actions")

    published = [d.action for d in robot.decisions if d.action]
    assert robot.actions == published[-len(robot.actions) :] or robot.actions == published[:-1]


def test_an_empty_fallback_publishes_no_action(run_node, scripted, engine, robot):
    engine.gate.clear()
    run_node(scripted | {"decision.fallback_action": ""})

    robot.wait_for(lambda: len(robot.decisions) >= 3, "three decisions")

    assert all(d.outcome != OK and d.action == "" for d in robot.decisions)
    assert robot.actions == []


def test_a_question_too_many_is_refused_at_once(run_node, scripted, engine, robot):
    run_node(scripted | {"ask.workers": 1})
    robot.wait_until_ready()

    engine.gate.clear()
    first = robot.start_call(Ask, "ask", question="Where are you?")
    robot.wait_for_decision(lambda d: d.outcome == DEADLINE, "a tick while it is asked")
    second = robot.call(Decide, "decide")
    assert not first.done()
    engine.gate.set()
    robot.wait_for(first.done, "the first response")

    assert first.result().success
    assert not second.success
    assert second.message.startswith("busy: 1 question")
    robot.wait_for_status(lambda s: s.questions_refused == 1, "the refusal in the status")


def test_an_open_question_is_answered_when_the_node_stops(run_node, scripted, engine, robot):
    node = run_node(scripted)
    robot.wait_until_ready()
    engine.gate.clear()
    asked = robot.start_call(Ask, "ask", question="Where are you?")
    robot.wait_for_decision(lambda d: d.outcome == DEADLINE, "a tick while it is asked")

    node.process.terminate()
    robot.wait_for(asked.done, "the response")

    assert node.wait() == 0
    assert not asked.result().success
    assert asked.result().message == "the node is not active"


def test_a_suffix_is_in_the_prompt_until_it_is_too_old(
    run_node, scripted, engine, robot, tokenizer
):
    run_node(
        scripted
        | {
            "observation_sources": ["battery"],
            "observations.battery.topic": "battery",
            "observations.battery.type": "std_msgs/msg/String",
            "observations.battery.placement": "suffix",
            "observations.battery.max_age_s": 2.0,
        }
    )
    battery = robot.publisher(String, "/battery")
    robot.wait_until_ready()

    def newest_prompt() -> str:
        return tokenizer.decode(engine.prompts[-1])

    battery.publish(String(data="forty percent left"))
    robot.wait_for(lambda: "forty percent left" in newest_prompt(), "the suffix in a prompt")
    robot.wait_for(lambda: "forty percent left" not in newest_prompt(), "a prompt without it")


def test_the_model_sees_the_actions_that_were_published(
    run_node, scripted, engine, robot, tokenizer
):
    run_node(scripted | {"decision.rate_hz": 10.0, "decision.remember_actions": "all"})
    robot.wait_until_ready()
    robot.wait_for(lambda: len(robot.actions) >= 20, "twenty actions")

    made = [d.action for d in robot.decisions if d.outcome == OK]
    seen = re.findall(r" action: (.*)", tokenizer.decode(engine.prompts[-1]))
    assert len(set(made)) > 1
    # The robot may have missed the first ones, and the newest were made after that prompt.
    assert ", ".join(made[:-3]) in ", ".join(seen)


@pytest.mark.parametrize(
    ("service", "name", "fields", "subject"),
    [
        (Ask, "ask", {"question": " "}, "question"),
        (Ask, "ask", {"question": "Where?", "max_tokens": 65}, "max_tokens"),
        (Decide, "decide", {"deadline_s": -1.0}, "deadline_s"),
        (Decide, "decide", {"deadline_s": float("nan")}, "deadline_s"),
        (Decide, "decide", {"actions": ["go", "go"]}, "go"),
    ],
)
def test_a_bad_request_is_one_line(run_node, scripted, robot, service, name, fields, subject):
    node = run_node(scripted)
    robot.wait_until_ready()

    response = robot.call(service, name, **fields)

    assert not response.success
    assert subject in response.message
    assert "\n" not in response.message
    assert "Traceback" not in node.log
