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
"""The chat frame, split so that what grows stands at the end of one user turn.

`system text | turn opening | chunks ... suffix, task | tail`: head and chunks
are a pure prefix of every prompt, and the tail closes the turn and opens the
reply. The split is made on the model's own chat template, so any model whose
template accepts a user message works.
"""

from __future__ import annotations

from dataclasses import dataclass

from csr_policy.context.errors import ContextError
from csr_policy.context.tokens import TokenIds, Tokenizer

_SYSTEM_MARK = "@@csr-policy-system@@"
_USER_MARK = "@@csr-policy-user@@"
_PROBES = ("12.3 odom: x 1.24 m\n", "12.4 view: a door, 2 m ahead.\n", "b: True\n", "é…✓\n")


@dataclass(frozen=True, slots=True)
class Frame:
    """Pieces of the chat frame, in token ids.

    Attributes:
        opening: Before the system text; empty where the template has no system turn.
        joint: Between the system text and the chunks.
        tail: After the task: closes the user turn, opens the reply.
    """

    opening: TokenIds[int]
    joint: TokenIds[int]
    tail: TokenIds[int]


def split_frame(tokenizer: Tokenizer) -> Frame:
    """Split the model's chat template into the pieces around system and user text.

    Raises:
        ContextError: The template does not keep the texts as they are, in order.
    """
    try:
        text = tokenizer.render_chat(
            [
                {"role": "system", "content": _SYSTEM_MARK},
                {"role": "user", "content": _USER_MARK},
            ]
        )
        pieces = _cut(text, (_SYSTEM_MARK, _USER_MARK))
    except ContextError:
        # Some templates refuse or move a system turn: the prefix then opens the user turn.
        text = tokenizer.render_chat([{"role": "user", "content": _SYSTEM_MARK + _USER_MARK}])
        before, _, after = _cut(text, (_SYSTEM_MARK, _USER_MARK))
        pieces = (before, "\n", after)
    opening, joint, tail = (tokenizer.encode_frame(piece) for piece in pieces)
    return Frame(opening, joint, tail)


def check_chunks_join(tokenizer: Tokenizer) -> str:
    """Check that separately tokenised chunks equal the whole text's tokens.

    Returns:
        Empty, or one line naming the texts for which it does not hold: the prompt is then
        still stable, but not what the model would see as one text.
    """
    apart = [token for text in _PROBES for token in tokenizer.encode_text(text)]
    if apart == list(tokenizer.encode_text("".join(_PROBES))):
        return ""
    return "tokenizer: chunks tokenised one by one differ from the whole text's tokens"


def _cut(text: str, marks: tuple[str, str]) -> tuple[str, str, str]:
    if any(text.count(mark) != 1 for mark in marks):
        raise ContextError("tokenizer: chat template does not keep each message once")
    before, rest = text.split(marks[0])
    if marks[1] not in rest:
        raise ContextError("tokenizer: chat template reorders the messages")
    between, after = rest.split(marks[1])
    return before, between, after
