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
"""Everything that turns configuration and requests into tokens, made once.

Safe to call from any thread: after construction only two small caches change,
and each of their updates is one assignment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from csr_policy.context.actions import ActionSet, build_action_set
from csr_policy.context.errors import ContextError
from csr_policy.context.frame import check_chunks_join, split_frame
from csr_policy.context.prompt import build_prefix, dynamic_ids, dynamic_text
from csr_policy.context.tokens import TokenIds, Tokenizer
from csr_policy.settings import Settings


class PromptAssembler:
    """Tokenizer, chat frame, prefix and action set of one policy."""

    def __init__(self, settings: Settings) -> None:
        """Load the tokenizer and build the prefix.

        Raises:
            ContextError: The configuration cannot become a prompt; one line.
        """
        if not settings.tokenizer:
            raise ContextError("tokenizer: is empty; expected the served model's folder")
        self._settings = settings
        self.tokenizer = Tokenizer(Path(settings.tokenizer).expanduser())
        self.frame = split_frame(self.tokenizer)
        self.warning = check_chunks_join(self.tokenizer)
        self.actions = build_action_set(
            self.tokenizer, self.frame, settings.actions, settings.action_coding
        )
        self.prefix = build_prefix(
            self.tokenizer,
            self.frame,
            settings.prefix,
            self.actions,
            settings.action_descriptions,
        )
        self._check_room()
        self._last_dynamic: tuple[str, TokenIds[int]] = ("", self.frame.tail)
        self._last_own: tuple[tuple[str, ...], ActionSet] = (self.actions.actions, self.actions)

    @property
    def identity(self) -> dict[str, str]:
        """What a journal must have been written with to be resumed."""
        prefix = hashlib.sha256(self.prefix.tobytes()).hexdigest()
        return {"tokenizer": self.tokenizer.fingerprint, "prefix": prefix}

    @property
    def reply_stop_ids(self) -> tuple[int, ...]:
        """Token that closes a turn, where the frame has one."""
        first = self.frame.tail[0] if self.frame.tail else None
        return (first,) if first in self.tokenizer.added_ids and first is not None else ()

    def action_set(self, actions: Sequence[str] | None) -> ActionSet:
        """The configured actions, or a question's own.

        Raises:
            ContextError: The question's own actions cannot be coded.
        """
        if actions is None or tuple(actions) == self.actions.actions:
            return self.actions
        known, own = self._last_own
        if known != tuple(actions):
            own = build_action_set(
                self.tokenizer, self.frame, actions, self._settings.action_coding
            )
            self._last_own = (tuple(actions), own)
        return own

    def decision_tail(
        self, suffix: Mapping[str, str], task: str, actions: ActionSet
    ) -> TokenIds[int]:
        """`X_suff ⊕ X_task` and the frame's tail, for a decision."""
        closing = actions.instruction
        if actions is not self.actions:
            closing = f"Actions for this question:\n{actions.listing()}\n{closing}"
        return self._dynamic(dynamic_text(suffix, task, closing))

    def question_tail(self, suffix: Mapping[str, str], question: str) -> TokenIds[int]:
        """`X_suff ⊕ X_task` and the frame's tail, for a free-text reply."""
        return self._dynamic(dynamic_text(suffix, question, "Answer briefly."))

    def _dynamic(self, text: str) -> TokenIds[int]:
        known, ids = self._last_dynamic
        if known != text:
            ids = dynamic_ids(self.tokenizer, self.frame, text)
            self._last_dynamic = (text, ids)
        return ids

    def _check_room(self) -> None:
        settings = self._settings
        tau_mem = settings.reconciliation.tau_mem_tokens
        needed = len(self.prefix) + settings.eviction.head_max_tokens
        needed += 2 * settings.ingest.max_chunk_tokens
        if needed >= tau_mem:
            raise ContextError(
                f"reconciliation.tau_mem_tokens: is {tau_mem}; expected more than {needed}, "
                f"the prefix ({len(self.prefix)}), eviction.head_max_tokens "
                f"({settings.eviction.head_max_tokens}) and two chunks of "
                f"ingest.max_chunk_tokens ({settings.ingest.max_chunk_tokens})"
            )
