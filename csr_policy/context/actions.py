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
"""The action set: labels, and the one token that stands for each.

All actions of a set are coded alike. Words and letters mixed would bias the
choice, since a listed letter is far more probable than a word.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass

from csr_policy.context.errors import ContextError
from csr_policy.context.frame import Frame
from csr_policy.context.tokens import Tokenizer
from csr_policy.settings import MAX_ACTIONS, ActionCoding


@dataclass(frozen=True, slots=True)
class ActionSet:
    """Actions and their codes.

    Attributes:
        actions: Labels as published.
        codes: What the model answers: the label itself, or a letter.
        tokens: The token of each code, as the first of a reply.
        letters: True where the codes are letters.
    """

    actions: tuple[str, ...]
    codes: tuple[str, ...]
    tokens: tuple[int, ...]
    letters: bool

    def listing(self, descriptions: Sequence[str] = ()) -> str:
        """The action list as the prompt states it, one line an action."""
        lines = []
        for number, action in enumerate(self.actions):
            line = f"{self.codes[number]}: {action}" if self.letters else f"- {action}"
            if descriptions and descriptions[number]:
                line += f" ({descriptions[number]})"
            lines.append(line)
        return "\n".join(lines)

    @property
    def instruction(self) -> str:
        """What to answer, for the end of the task."""
        if self.letters:
            return "Answer with one letter of the action list."
        return "Answer with one action of the list, in one word."


def build_action_set(
    tokenizer: Tokenizer, frame: Frame, actions: Sequence[str], coding: ActionCoding
) -> ActionSet:
    """Code the actions so that each is one distinct token after the frame's tail.

    Args:
        tokenizer: The served model's.
        frame: Its chat frame; only the end of the tail matters.
        actions: Distinct labels.
        coding: letters, words, or auto for words where all of them are single tokens.

    Raises:
        ContextError: `words` is asked for and a label is not one token, or two start alike;
            or there are more actions than codes. One line.
    """
    if not 1 <= len(actions) <= MAX_ACTIONS:
        raise ContextError(f"actions: has {len(actions)} entries; expected 1 to {MAX_ACTIONS}")
    labels = tuple(actions)
    if coding is not ActionCoding.LETTERS:
        problem, tokens = _single_tokens(tokenizer, frame, labels)
        if not problem:
            return ActionSet(labels, labels, tokens, letters=False)
        if coding is ActionCoding.WORDS:
            raise ContextError(f"actions: {problem}; expected action_coding 'letters' or 'auto'")
    codes = _letter_codes(tokenizer, frame, len(labels))
    problem, tokens = _single_tokens(tokenizer, frame, codes)
    if problem:
        raise ContextError(f"actions: letters do not work with this tokenizer: {problem}")
    return ActionSet(labels, codes, tokens, letters=True)


def _single_tokens(
    tokenizer: Tokenizer, frame: Frame, codes: Sequence[str]
) -> tuple[str, tuple[int, ...]]:
    """Return (problem, ids): why the codes are not distinct single tokens, or their ids."""
    owners: dict[int, str] = {}
    for code in codes:
        encoded = tokenizer.encode_text(code)
        first = encoded[0] if encoded else -1
        if first in owners:
            return f"{owners[first]!r} and {code!r} start with the same token", ()
        if len(encoded) != 1:
            return f"{code!r} is {len(encoded)} tokens, not one", ()
        owners[first] = code
    return "", tuple(owners)


def _letter_codes(tokenizer: Tokenizer, frame: Frame, count: int) -> tuple[str, ...]:
    """A, B, ..., then two-letter codes that are one token, enough for `count` actions."""
    candidates = [*string.ascii_uppercase, *string.ascii_lowercase]
    candidates += [a + b for a in string.ascii_uppercase for b in string.ascii_uppercase]
    codes: list[str] = []
    for candidate in candidates:
        if len(codes) == count:
            break
        if len(tokenizer.encode_text(candidate)) == 1:
            codes.append(candidate)
    if len(codes) < count:
        raise ContextError(f"actions: only {len(codes)} letter codes for {count} actions")
    return tuple(codes)
