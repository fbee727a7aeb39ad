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
"""Watches the policy from outside: collects `~/decision` and `~/status`.

Callbacks run in the executor's thread; the other methods may be called from any thread.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from rclpy.context import Context
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

from csr_policy.decision import Outcome
from csr_policy.demo.summary import DecisionRow, RunCounters
from csr_policy.msg import ActionDecision, PolicyStatus

_DEPTH = 100


class Watcher(Node):
    """Records every decision and the newest status of one policy."""

    def __init__(
        self, *, policy: str, context: Context, observation_at: Callable[[int], str]
    ) -> None:
        """Subscribe.

        Args:
            policy: Full name of the policy's node.
            context: ROS context.
            observation_at: The newest observation at a time; asked for every decision with the
                time at which its state was frozen.
        """
        super().__init__("csr_policy_watcher", context=context)
        self._policy = policy
        self._observation_at = observation_at
        self._lock = threading.Lock()
        self._rows: list[DecisionRow] = []
        self._taken = 0
        self._start_ns: int | None = None
        self._status: PolicyStatus | None = None
        latched = QoSProfile(
            depth=1,
            reliability=ReliabilityPolicy.RELIABLE,
            durability=DurabilityPolicy.TRANSIENT_LOCAL,
        )
        self.create_subscription(ActionDecision, f"{policy}/decision", self._on_decision, _DEPTH)
        self.create_subscription(PolicyStatus, f"{policy}/status", self._on_status, latched)

    @property
    def policy_is_there(self) -> bool:
        """True where somebody publishes decisions under the policy's name."""
        return self.count_publishers(f"{self._policy}/decision") > 0

    @property
    def status(self) -> PolicyStatus | None:
        """The newest status; None before the first."""
        return self._status

    @property
    def rows(self) -> list[DecisionRow]:
        """All decisions so far."""
        with self._lock:
            return list(self._rows)

    def take_new(self) -> list[DecisionRow]:
        """The decisions since the last call."""
        with self._lock:
            new = self._rows[self._taken :]
            self._taken = len(self._rows)
        return new

    def counters(self) -> RunCounters:
        """The newest status as counters of the run."""
        status = self._status
        if status is None:
            return RunCounters()
        return RunCounters(
            swaps=status.swaps,
            in_place_evictions=status.in_place_evictions,
            cache_losses=status.cache_losses,
            stragglers=status.stragglers,
            ticks_skipped=status.ticks_skipped,
            chunks=status.chunks,
            tau_mem_tokens=status.tau_mem_tokens,
            topics_in_prompt=tuple(o.topic for o in status.observations if o.taken > 0),
        )

    def _on_decision(self, message: ActionDecision) -> None:
        stamp_ns = message.header.stamp.sec * 1_000_000_000 + message.header.stamp.nanosec
        if self._start_ns is None:
            self._start_ns = stamp_ns
        time_s = (stamp_ns - self._start_ns) / 1e9
        row = decision_row(message, time_s, self._observation_at(stamp_ns))
        with self._lock:
            self._rows.append(row)

    def _on_status(self, message: PolicyStatus) -> None:
        self._status = message


def decision_row(message: ActionDecision, time_s: float, observation: str) -> DecisionRow:
    """A decision message as a row."""
    actions = list(message.actions)
    probability = math.nan
    if message.action in actions and len(message.probabilities) == len(actions):
        probability = message.probabilities[actions.index(message.action)]
    return DecisionRow(
        id=message.id,
        time_s=time_s,
        observation=observation,
        action=message.action,
        outcome=Outcome(message.outcome).name,
        reason=message.reason,
        probability=probability,
        label_mass=message.label_mass,
        ttft_s=message.ttft_s,
        prompt_tokens=message.prompt_tokens,
        cached_tokens=message.cached_tokens,
        must_be_cached=message.must_be_cached,
        version=message.version,
        last_chunk_index=message.last_chunk_index,
        engine=message.engine,
        route=message.route,
        phase=message.phase,
        after_swap=message.after_swap,
    )
