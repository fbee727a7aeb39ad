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
"""Conversions between the policy's values and the node's messages: pure, no graph."""

from __future__ import annotations

from builtin_interfaces.msg import Time

from csr_policy.decision import Answer, Decision, Outcome
from csr_policy.msg import ActionDecision
from csr_policy.srv import Ask, Decide

_NS_PER_S = 1_000_000_000


def time_message(stamp_ns: int) -> Time:
    """Nanoseconds as a message; times before the epoch become zero."""
    seconds, nanoseconds = divmod(max(0, stamp_ns), _NS_PER_S)
    return Time(sec=seconds, nanosec=nanoseconds)


def decision_message(decision: Decision) -> ActionDecision:
    """A decision as it is published."""
    message = ActionDecision(
        id=decision.id,
        action=decision.action,
        outcome=int(decision.outcome),
        reason=decision.reason,
        actions=list(decision.actions),
        probabilities=list(decision.probabilities),
        label_mass=decision.label_mass,
        ttft_s=decision.ttft_s,
        prompt_tokens=decision.prompt_tokens,
        cached_tokens=decision.cached_tokens,
        must_be_cached=decision.must_be_cached,
        version=decision.version,
        last_chunk_index=decision.last_chunk_index,
        engine=decision.engine,
        route=decision.route,
        phase=decision.phase,
        after_swap=decision.after_swap,
    )
    message.header.stamp = time_message(decision.stamp_ns)
    return message


def decide_response(decision: Decision) -> Decide.Response:
    """The reply of `~/decide`."""
    return Decide.Response(
        success=decision.outcome is Outcome.OK,
        message=decision.reason,
        decision=decision_message(decision),
    )


def decide_refusal(reason: str) -> Decide.Response:
    """The reply of `~/decide` where nothing was asked."""
    decision = ActionDecision(
        outcome=ActionDecision.NOT_READY,
        reason=reason,
        label_mass=float("nan"),
        ttft_s=float("nan"),
        last_chunk_index=-1,
    )
    return Decide.Response(success=False, message=reason, decision=decision)


def ask_response(answer: Answer) -> Ask.Response:
    """The reply of `~/ask`."""
    return Ask.Response(
        success=answer.ok,
        message=answer.reason,
        text=answer.text,
        ttft_s=answer.ttft_s,
        prompt_tokens=answer.prompt_tokens,
        cached_tokens=answer.cached_tokens,
        reply_tokens=answer.reply_tokens,
        version=answer.version,
        engine=answer.engine,
    )


def ask_refusal(reason: str) -> Ask.Response:
    """The reply of `~/ask` where nothing was asked."""
    return Ask.Response(success=False, message=reason, ttft_s=float("nan"))
