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
"""The node walks the lifecycle, and whatever ends it, it ends in order."""

from __future__ import annotations

import signal

import pytest
from csr_policy.msg import ActionDecision, StateChunk
from csr_policy.srv import Ask, Decide
from diagnostic_msgs.msg import DiagnosticStatus
from lifecycle_msgs.msg import State, Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
from rcl_interfaces.srv import SetParameters
from std_srvs.srv import Trigger


def change(robot, transition: int) -> bool:
    return robot.call(ChangeState, "change_state", transition=Transition(id=transition)).success


def state(robot) -> int:
    return robot.call(GetState, "get_state").current_state.id


def set_rate(robot, rate_hz: float):
    value = ParameterValue(type=ParameterType.PARAMETER_DOUBLE, double_value=rate_hz)
    parameter = Parameter(name="decision.rate_hz", value=value)
    return robot.call(SetParameters, "set_parameters", parameters=[parameter]).results[0]


def test_the_node_waits_to_be_configured_without_autostart(run_node, unreachable, robot):
    run_node(unreachable | {"autostart": False})

    assert state(robot) == State.PRIMARY_STATE_UNCONFIGURED
    assert change(robot, Transition.TRANSITION_CONFIGURE)
    assert change(robot, Transition.TRANSITION_ACTIVATE)
    robot.wait_for_decision(lambda d: True, "a decision")


def test_engines_that_refuse_leave_the_node_active_and_not_ready(run_node, unreachable, robot):
    run_node(unreachable)

    decision = robot.wait_for_decision(lambda d: d.reason, "a decision")
    status = robot.wait_for_status(lambda s: s.engines and s.engines[0].error, "an error")

    assert state(robot) == State.PRIMARY_STATE_ACTIVE
    assert decision.outcome == ActionDecision.NOT_READY
    assert decision.action == "stop"
    assert not status.ready
    assert "127.0.0.1:9" in status.engines[0].url
    assert "refused" in status.engines[0].error


def test_a_failed_configure_leaves_the_node_unconfigured_and_alive(run_node, unreachable, robot):
    node = run_node(unreachable | {"autostart": False, "decision.rate_hz": 100.0})

    assert not change(robot, Transition.TRANSITION_CONFIGURE)
    assert state(robot) == State.PRIMARY_STATE_UNCONFIGURED
    assert len(node.lines("cannot configure", "decision.rate_hz")) == 1
    assert set_rate(robot, 10.0).successful
    assert change(robot, Transition.TRANSITION_CONFIGURE)


def test_parameters_are_fixed_while_configured(run_node, unreachable, robot):
    run_node(unreachable)
    robot.wait_for_decision(lambda d: True, "a decision")

    refused = set_rate(robot, 5.0)

    assert not refused.successful
    assert "decision.rate_hz" in refused.reason


def test_deactivation_publishes_a_fallback_and_ends_the_decisions(run_node, unreachable, robot):
    run_node(unreachable)
    robot.wait_for_decision(lambda d: True, "a decision")

    assert change(robot, Transition.TRANSITION_DEACTIVATE)
    robot.wait_for(lambda: robot.decisions[-1].reason == "the node stops", "the last decision")
    last = robot.decisions[-1]
    ended = robot.wait_for_status(lambda s: s.last_chunk_index >= -1, "a status")
    later = robot.wait_for_status(
        lambda s: s.header.stamp.sec > ended.header.stamp.sec + 1, "a later status"
    )

    assert (last.outcome, last.action) == (ActionDecision.NOT_READY, "stop")
    assert robot.decisions[-1].id == last.id
    assert later.ticks_started == ended.ticks_started


def test_the_node_can_be_activated_again(run_node, unreachable, robot):
    run_node(unreachable)
    robot.wait_for_decision(lambda d: True, "a decision")
    assert change(robot, Transition.TRANSITION_DEACTIVATE)

    assert change(robot, Transition.TRANSITION_ACTIVATE)

    robot.wait_for_decision(lambda d: d.reason != "the node stops", "a decision")


def test_the_node_can_be_configured_again(run_node, unreachable, robot):
    node = run_node(unreachable)
    robot.wait_for_decision(lambda d: True, "a decision")
    assert change(robot, Transition.TRANSITION_DEACTIVATE)
    assert change(robot, Transition.TRANSITION_CLEANUP)
    assert set_rate(robot, 20.0).successful

    assert change(robot, Transition.TRANSITION_CONFIGURE)
    assert change(robot, Transition.TRANSITION_ACTIVATE)

    robot.wait_for_decision(lambda d: d.reason != "the node stops", "a decision")
    assert "Traceback" not in node.log


@pytest.mark.parametrize(
    "transition",
    [
        Transition(id=Transition.TRANSITION_CONFIGURE),
        Transition(label="configure"),
        Transition(id=77),
        Transition(label="fly"),
    ],
    ids=["configure", "configure by label", "77", "fly"],
)
def test_a_transition_that_the_state_lacks_is_one_line(run_node, unreachable, robot, transition):
    node = run_node(unreachable)
    robot.wait_for_decision(lambda d: True, "a decision")

    assert not robot.call(ChangeState, "change_state", transition=transition).success
    robot.wait_for_decision(lambda d: True, "a decision after it")
    assert len(node.lines("[ERROR]", "transition", "'active' does not have it")) == 1


def test_services_answer_at_once_while_the_node_is_inactive(run_node, unreachable, robot):
    run_node(unreachable | {"autostart": False})
    assert change(robot, Transition.TRANSITION_CONFIGURE)

    for service, name, request in (
        (Decide, "decide", {}),
        (Ask, "ask", {"question": "Where are you?"}),
        (Trigger, "reset", {}),
        (Trigger, "reconcile", {}),
    ):
        response = robot.call(service, name, **request)
        assert not response.success
        assert response.message == "the node is not active"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_with_a_fallback_a_status_and_exit_0(run_node, unreachable, robot, number):
    node = run_node(unreachable)
    robot.wait_for_decision(lambda d: True, "a decision")
    statuses = len(robot.statuses)

    assert node.stop(number) == 0

    robot.wait_for(lambda: robot.decisions[-1].reason == "the node stops", "the last decision")
    robot.wait_for(lambda: len(robot.statuses) > statuses, "the last status")
    assert robot.decisions[-1].action == "stop"
    assert "Traceback" not in node.log


def test_a_signal_before_the_node_is_up_ends_it(run_node, unreachable, robot):
    node = run_node(unreachable, "-r", "__ns:=/early")
    robot.wait_for(
        lambda: ("csr_policy", "/early") in robot.node.get_node_names_and_namespaces(),
        "the node in the graph",
    )

    assert node.stop() == 0


def test_a_dead_thread_is_in_the_status_and_its_traceback_in_the_log(run_node, unreachable, robot):
    program = """
import sys
from csr_policy.node.ingest_thread import IngestWorker
from csr_policy.node.main import main

def take(self, item):
    raise RuntimeError("nobody thought of this")

IngestWorker._take = take
sys.exit(main())
"""
    node = run_node(unreachable, python=("-c", program))
    robot.publisher(StateChunk, "/csr_policy/chunk").publish(StateChunk(text="x"))

    status = robot.wait_for_status(lambda s: s.dead_thread, "a dead thread")
    robot.wait_for_decision(lambda d: True, "a decision in spite of it")
    robot.wait_for(
        lambda: any(
            d.status[0].level == DiagnosticStatus.ERROR and "ingest" in d.status[0].message
            for d in robot.diagnostics
        ),
        "the error in the diagnostics",
    )

    assert status.dead_thread == "ingest"
    assert node.lines("Traceback")
    assert node.lines("RuntimeError: nobody thought of this")
    assert node.stop() == 0
