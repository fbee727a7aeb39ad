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
"""One state chunk `x_t`: a text that became tokens and never changes."""

from __future__ import annotations

from dataclasses import dataclass

from csr_policy.context.errors import ChunkRefusedError
from csr_policy.context.tokens import TokenIds, Tokenizer

_CUT_MARK = " …[cut {} of {} tokens]"
_MARK_ROOM_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Chunk:
    """One observation, thought or action result (section III-D).

    Attributes:
        index: Place in the log, from 0, without gaps.
        stamp_ns: When it was observed, nanoseconds.
        source: Name of the observation, or `action`, `reply`, `action_result`.
        keep: Pinned: an eviction carries it over in the head.
        text: What the tokens say, without the closing newline.
        ids: Token ids of `text` and one newline.
    """

    index: int
    stamp_ns: int
    source: str
    keep: bool
    text: str
    ids: TokenIds[int]

    @property
    def tokens(self) -> int:
        """Length in tokens."""
        return len(self.ids)


def chunk_text(text: str, source: str, stamp_ns: int, epoch_ns: int) -> str:
    """Put time and source before the stripped text: `12.3 odom: x 1.2 m`.

    The time counts from the log's first chunk: short, and the same on a replay.

    Raises:
        ChunkRefusedError: Nothing is left after stripping.
    """
    stripped = text.strip()
    if not stripped:
        raise ChunkRefusedError(f"chunk from {source!r}: is empty; expected text")
    return f"{(stamp_ns - epoch_ns) / 1e9:.1f} {source}: {stripped}"


def encode_chunk(tokenizer: Tokenizer, text: str, max_tokens: int) -> tuple[str, TokenIds[int]]:
    """Tokenise a chunk by itself: its text and one newline, cut where it is too long.

    The newline is what makes the ids of separately tokenised chunks equal those of the
    whole text.

    Returns:
        The text as it was encoded, and its ids, at most `max_tokens` of them.
    """
    ids = tokenizer.encode_text(text + "\n")
    if len(ids) <= max_tokens:
        return text, ids
    budget = max(1, max_tokens - _MARK_ROOM_TOKENS)
    mark = _CUT_MARK.format(len(ids) - budget, len(ids))
    while True:
        kept = tokenizer.decode(ids[:budget]).rstrip("\ufffd").rstrip()
        shorter = tokenizer.encode_text(kept + mark + "\n")
        if len(shorter) <= max_tokens or budget == 1:
            return kept + mark, shorter
        budget = max(1, budget - (len(shorter) - max_tokens))
