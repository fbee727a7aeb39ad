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
"""The result of one tick: which action, how sure, and at what cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum


class Outcome(IntEnum):
    """How a tick ended; the values are those of ActionDecision.msg."""

    UNKNOWN = 0
    OK = 1
    FALLBACK_DEADLINE = 2
    FALLBACK_ENGINE = 3
    FALLBACK_LOW_CONFIDENCE = 4
    FALLBACK_STALE = 5
    NOT_READY = 6


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision.

    Attributes:
        id: Number of the decision in this process, from 1.
        stamp_ns: When the state was frozen, nanoseconds of the policy's clock.
        action: Chosen or fallback action; empty for none.
        outcome: How the tick ended.
        reason: Why it is a fallback; empty for OK.
        actions: Action set, in the order of `probabilities`.
        probabilities: Distribution over `actions` (sum 1); empty without a reply.
        label_mass: Model probability of all label tokens together, 0 to 1; NaN without a reply.
        ttft_s: From handing the query to the client to its token, seconds; NaN without a reply.
        prompt_tokens: Tokens of the prompt asked.
        cached_tokens: Tokens the engine took from its prefix cache.
        must_be_cached: Tokens that had to be cached: the full blocks of what this engine
            had already computed of this version.
        version: Sequence version k the decision was made on.
        last_chunk_index: Newest chunk in the prompt; -1 for none.
        engine: Name of the engine asked; empty for none.
        route: Appendix F's case: continuation, bridging, straggler or restitched.
        phase: Phase of the reconciliation when the state was frozen.
        after_swap: True for the first decision on a version.
    """

    id: int
    stamp_ns: int
    action: str
    outcome: Outcome
    reason: str = ""
    actions: tuple[str, ...] = ()
    probabilities: tuple[float, ...] = ()
    label_mass: float = math.nan
    ttft_s: float = math.nan
    prompt_tokens: int = 0
    cached_tokens: int = 0
    must_be_cached: int = 0
    version: int = 0
    last_chunk_index: int = -1
    engine: str = ""
    route: str = ""
    phase: str = ""
    after_swap: bool = False

    @property
    def ok(self) -> bool:
        """True where the model chose the action."""
        return self.outcome is Outcome.OK

    @property
    def probability(self) -> float:
        """Probability of `action`; NaN where the model was not heard or it is not in the set."""
        if self.action in self.actions and self.probabilities:
            return self.probabilities[self.actions.index(self.action)]
        return math.nan


@dataclass(frozen=True, slots=True)
class Answer:
    """A free-text reply over the cached state.

    Attributes:
        text: The reply; empty where `ok` is false.
        ok: True where the engine replied.
        reason: Why there is no reply.
        ttft_s: Until the first token, seconds; NaN without a reply.
        prompt_tokens: Tokens of the prompt asked.
        cached_tokens: Tokens the engine took from its prefix cache.
        reply_tokens: Tokens of the reply.
        version: Sequence version asked.
        engine: Name of the engine asked.
    """

    text: str
    ok: bool
    reason: str = ""
    ttft_s: float = math.nan
    prompt_tokens: int = 0
    cached_tokens: int = 0
    reply_tokens: int = 0
    version: int = 0
    engine: str = ""
