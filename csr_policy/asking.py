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
"""Making decisions and answers: freeze, route, ask, judge.

Any thread may call. Nothing is locked during a model call, and nothing here
raises for trouble with an engine: the result is a marked fallback.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from csr_policy.context.actions import ActionSet
from csr_policy.context.assembler import PromptAssembler
from csr_policy.context.tokens import TokenIds
from csr_policy.decision import Answer, Decision, Outcome
from csr_policy.engine.errors import EngineError
from csr_policy.engine.scores import Distribution, distribution
from csr_policy.journal import JournalError
from csr_policy.judgement import failure_outcome, judge, judge_age
from csr_policy.reconciliation.evictor import Evictor
from csr_policy.reconciliation.query import (
    Dispatch,
    FrozenState,
    PromptRoomError,
    freeze,
    prepare,
    record_failure,
    record_success,
)
from csr_policy.reconciliation.state import SharedState
from csr_policy.settings import Settings

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Query:
    """A decision to be made, on the state as it was when the tick started.

    Attributes:
        id: Number of the decision.
        stamp_ns: When the state was frozen, on the policy's clock.
        started_s: The same on the steady clock; deadlines count from here.
        state: Version and position.
        dynamic: Ids of suffix, task and tail.
        actions: Action set.
    """

    id: int
    stamp_ns: int
    started_s: float
    state: FrozenState
    dynamic: TokenIds[int]
    actions: ActionSet


class Asker:
    """Asks the engines. Thread-safe."""

    def __init__(
        self,
        settings: Settings,
        assembler: PromptAssembler,
        state: SharedState,
        evictor: Evictor,
        now_ns: Callable[[], int],
    ) -> None:
        """Take what does not change from one query to the next."""
        self._settings = settings
        self._assembler = assembler
        self._state = state
        self._evictor = evictor
        self._now_ns = now_ns
        self._ids = itertools.count(1)

    def freeze(self, suffix: Mapping[str, str], task: str, actions: ActionSet) -> Query:
        """Note the state a decision is to be made on, in one step."""
        started_s = time.monotonic()
        return Query(
            id=next(self._ids),
            stamp_ns=self._now_ns(),
            started_s=started_s,
            state=freeze(self._state),
            dynamic=self._assembler.decision_tail(suffix, task, actions),
            actions=actions,
        )

    def dispatch(self, query: Query, *, deadline_s: float | None = None) -> Decision:
        """Make a frozen decision; a query of the previous version is a straggler."""
        wait_s = self._settings.deadline_s if deadline_s is None else deadline_s
        stale = judge_age(query.state.newest_stamp_ns, query.stamp_ns, self._settings.decision)
        if stale:
            return self._fallback(query, Outcome.FALLBACK_STALE, stale)
        try:
            dispatch = self._prepare(query.state, query.dynamic)
        except EngineError as error:
            return self._fallback(query, failure_outcome(error), str(error))
        try:
            token = dispatch.client.first_token(
                dispatch.info, dispatch.prompt, query.actions.tokens, query.started_s + wait_s
            )
            scores = distribution(query.actions.tokens, token.reply.logprobs)
        except EngineError as error:
            record_failure(self._state, dispatch, error)
            return self._fallback(query, failure_outcome(error), str(error), dispatch)
        loss = record_success(self._state, dispatch, token.reply.usage)
        if loss:
            LOG.warning("%s", loss)
        outcome, reason = judge(scores, self._settings.decision)
        return _decision(
            query,
            dispatch,
            outcome,
            reason,
            query.actions.actions[scores.best]
            if outcome is Outcome.OK
            else self._settings.decision.fallback_action,
            scores,
            token.ttft_s,
            token.reply.usage.cached_tokens or 0,
        )

    def ask(self, suffix: Mapping[str, str], question: str, max_tokens: int | None) -> Answer:
        """Ask for a free-text reply over the same cached state.

        Args:
            suffix: Instantaneous information by source.
            question: What to ask; takes the place of the task.
            max_tokens: Longest reply; None takes `ask.max_tokens`, which also bounds it.

        Returns:
            The reply, or why there is none.
        """
        longest = self._settings.ask.max_tokens
        longest = longest if max_tokens is None else max(1, min(max_tokens, longest))
        dynamic = self._assembler.question_tail(suffix, question)
        tokenizer = self._assembler.tokenizer
        version, engine = -1, ""
        try:
            dispatch = self._prepare(freeze(self._state), dynamic, longest)
            version, engine = dispatch.state.version, dispatch.client.name
            reply = dispatch.client.free_text(
                dispatch.info,
                dispatch.prompt,
                max_tokens=longest,
                stop_ids=self._assembler.reply_stop_ids,
                deadline_s=time.monotonic() + self._settings.ask.timeout_s,
                decode=lambda text: tuple(tokenizer.encode_text(text)),
            )
        except EngineError as error:
            return Answer("", ok=False, reason=str(error), version=version, engine=engine)
        record_success(self._state, dispatch, reply.usage)
        text = tokenizer.decode(reply.ids).strip()
        return Answer(
            text,
            ok=True,
            ttft_s=reply.ttft_s,
            prompt_tokens=reply.usage.prompt_tokens,
            cached_tokens=reply.usage.cached_tokens or 0,
            reply_tokens=len(reply.ids),
            version=version,
            engine=engine,
        )

    def _prepare(
        self, frozen: FrozenState, dynamic: TokenIds[int], reply_tokens: int = 1
    ) -> Dispatch:
        """Route a query; where its prompt does not fit, evict in place first."""
        try:
            return prepare(self._state, frozen, dynamic, reply_tokens)
        except PromptRoomError:
            with self._state.lock:
                limit = self._state.limit_tokens()
            try:
                self._evictor.evict_in_place(len(dynamic) + reply_tokens - 1, limit)
            except JournalError as error:
                raise EngineError(str(error)) from error
            LOG.warning("evicted in place at the limit of %d tokens: expect a spike", limit)
            return prepare(self._state, freeze(self._state), dynamic, reply_tokens)

    def _fallback(
        self, query: Query, outcome: Outcome, reason: str, dispatch: Dispatch | None = None
    ) -> Decision:
        action = self._settings.decision.fallback_action
        return _decision(query, dispatch, outcome, reason, action, None, math.nan, 0)


def _decision(
    query: Query,
    dispatch: Dispatch | None,
    outcome: Outcome,
    reason: str,
    action: str,
    scores: Distribution | None,
    ttft_s: float,
    cached_tokens: int,
) -> Decision:
    state = dispatch.state if dispatch else query.state
    return Decision(
        id=query.id,
        stamp_ns=query.stamp_ns,
        action=action,
        outcome=outcome,
        reason=reason,
        actions=query.actions.actions if scores else (),
        probabilities=scores.probabilities if scores else (),
        label_mass=scores.label_mass if scores else math.nan,
        ttft_s=ttft_s,
        prompt_tokens=dispatch.prompt.tokens if dispatch else 0,
        cached_tokens=cached_tokens,
        must_be_cached=dispatch.must_be_cached if dispatch else 0,
        version=state.version,
        last_chunk_index=state.last_chunk_index,
        engine=dispatch.client.name if dispatch else "",
        route=dispatch.case.value if dispatch else "",
        phase=state.phase.value,
        after_swap=dispatch.after_swap if dispatch else False,
    )
