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
"""Everything of the node that the graph can see, from `configure` to `cleanup`.

Made and destroyed by the executor's thread; `publish_decision` is called by the
decision thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.timer import Timer
from std_msgs.msg import String
from std_srvs.srv import SetBool, Trigger

from csr_policy.decision import Decision
from csr_policy.msg import ActionDecision, PolicyStatus
from csr_policy.node.messages import decision_message
from csr_policy.node.qos import latched_profile, own_topic_profile
from csr_policy.node.questions import Questions
from csr_policy.srv import Ask, Decide


@dataclass(frozen=True, slots=True)
class Controls:
    """What the node's plain services call.

    Each takes the request and fills the response; none raises.
    """

    pause: Callable[[SetBool.Request, SetBool.Response], SetBool.Response]
    reset: Callable[[Trigger.Request, Trigger.Response], Trigger.Response]
    reconcile: Callable[[Trigger.Request, Trigger.Response], Trigger.Response]


class Plumbing:
    """Publishers, services and timers; subscriptions are in `subscriptions`."""

    def __init__(self, node: Node, questions: Questions, controls: Controls) -> None:
        """Create all of them; nothing is published yet."""
        self._node = node
        reliable = own_topic_profile()
        self._decision = node.create_publisher(ActionDecision, "~/decision", reliable)
        self._action = node.create_publisher(String, "~/action", reliable)
        # Plain publishers, not lifecycle ones, which drop silently while the node is inactive.
        self._status = node.create_publisher(PolicyStatus, "~/status", latched_profile())
        self._diagnostics = node.create_publisher(DiagnosticArray, "/diagnostics", reliable)
        parallel = ReentrantCallbackGroup()
        self._services = [
            node.create_service(Decide, "~/decide", questions.on_decide, callback_group=parallel),
            node.create_service(Ask, "~/ask", questions.on_ask, callback_group=parallel),
            node.create_service(SetBool, "~/pause", controls.pause),
            node.create_service(Trigger, "~/reset", controls.reset),
            node.create_service(Trigger, "~/reconcile", controls.reconcile),
        ]
        # The steady clock: a timer on ROS time stands still with a paused bag.
        self._clock = Clock(clock_type=ClockType.STEADY_TIME)
        self._timers: list[Timer] = []

    def every(self, period_s: float, callback: Callable[[], None]) -> None:
        """Call back periodically, on the steady clock."""
        self._timers.append(self._node.create_timer(period_s, callback, clock=self._clock))

    def publish_decision(self, decision: Decision) -> None:
        """Publish a decision and, where it has one, its action."""
        self._decision.publish(decision_message(decision))
        if decision.action:
            self._action.publish(String(data=decision.action))

    def publish_status(self, status: PolicyStatus) -> None:
        """Publish a status."""
        self._status.publish(status)

    def publish_diagnostics(self, diagnostics: DiagnosticArray) -> None:
        """Publish diagnostics."""
        self._diagnostics.publish(diagnostics)

    def flush(self, timeout_s: float) -> None:
        """Wait, at most so long for each, until subscribers have what was published last."""
        for publisher in (self._decision, self._action, self._status):
            publisher.wait_for_all_acked(Duration(seconds=timeout_s))

    def destroy(self) -> None:
        """Destroy everything that was made."""
        for timer in self._timers:
            self._node.destroy_timer(timer)
        for service in self._services:
            self._node.destroy_service(service)
        for publisher in (self._decision, self._action, self._status, self._diagnostics):
            self._node.destroy_publisher(publisher)
