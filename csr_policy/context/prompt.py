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
"""Building a prompt: `X_pre ⊕ head ⊕ chunks ⊕ suffix ⊕ task ⊕ tail`.

The prefix is built once, from configuration alone. What changes from query to
query is the dynamic part, which stands behind everything that is cached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from csr_policy.context.actions import ActionSet
from csr_policy.context.frame import Frame
from csr_policy.context.token_buffer import json_ids
from csr_policy.context.tokens import TokenIds, Tokenizer, token_ids
from csr_policy.settings import PrefixSettings


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """A whole prompt, ready for the socket.

    Attributes:
        parts: JSON text of the ids, in order; the first parts end with a comma.
        tokens: Length in tokens.
        static_tokens: Length of `X_static`, the part that stays cached.
    """

    parts: tuple[bytes | memoryview, ...]
    tokens: int
    static_tokens: int

    def ids(self) -> list[int]:
        """The token ids again, for records and tests."""
        return [int(part) for part in b"".join(self.parts).split(b",")]


def build_prefix(
    tokenizer: Tokenizer,
    frame: Frame,
    prefix: PrefixSettings,
    actions: ActionSet,
    descriptions: Sequence[str],
) -> TokenIds[int]:
    """Build `X_pre`: chat frame head, robot profile, behaviour, action list, examples."""
    sections = [
        prefix.robot_profile.strip(),
        prefix.behaviour.strip(),
        "Actions:\n" + actions.listing(descriptions),
    ]
    if prefix.examples:
        sections.append("Examples:\n" + "\n".join(text.strip() for text in prefix.examples))
    sections.append("Lines below are 'seconds source: what was seen', oldest first.")
    ids = token_ids(frame.opening)
    ids.extend(tokenizer.encode_text("\n\n".join(section for section in sections if section)))
    ids.extend(frame.joint)
    return ids


def dynamic_text(suffix: Mapping[str, str], task: str, closing: str) -> str:
    """`X_dyn` as text: what is true right now, then the instruction."""
    lines = [f"now {source}: {text.strip()}" for source, text in suffix.items() if text.strip()]
    lines.extend(part for part in (task.strip(), closing) if part)
    return "\n".join(lines)


def dynamic_ids(tokenizer: Tokenizer, frame: Frame, text: str) -> TokenIds[int]:
    """`X_dyn` and the frame's tail as ids."""
    ids = tokenizer.encode_text(text)
    ids.extend(frame.tail)
    return ids


def complete(
    static: tuple[memoryview, ...], static_tokens: int, dynamic: TokenIds[int]
) -> TokenPrompt:
    """Put the dynamic part behind the views of the static one.

    Args:
        static: JSON text of `X_static`, each id followed by a comma.
        static_tokens: Its length in tokens.
        dynamic: Ids behind it, at least one.
    """
    assert dynamic, "a prompt ends with the frame's tail"
    return TokenPrompt(
        parts=(*static, json_ids(dynamic)),
        tokens=static_tokens + len(dynamic),
        static_tokens=static_tokens,
    )
