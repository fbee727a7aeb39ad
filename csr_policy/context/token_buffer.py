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
"""A growing sequence of token ids that is always ready to be sent.

A query at 120K tokens would spend more on encoding the prompt than a good GPU
spends on the forward pass. So each id is written once as JSON (`17,`) into
fixed blocks, and a query takes views of those blocks: nothing is encoded or
copied again. Blocks are never resized, which is what lets a view outlive the
next append.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from csr_policy.context.tokens import TokenIds, token_ids

_BLOCK_BYTES = 1 << 17


class TokenBuffer:
    """Append-only token ids with their JSON text.

    Not thread-safe: appends and snapshots are made under the state lock. A snapshot may be
    read from any thread afterwards, while appends go on.
    """

    def __init__(self, ids: Iterable[int] = ()) -> None:
        """Start with some ids."""
        self._ids = token_ids()
        self._ends = token_ids()  # JSON offset behind each token
        self._blocks: list[bytearray] = []
        self._written = 0
        self.extend(ids)

    def __len__(self) -> int:
        """Tokens held."""
        return len(self._ids)

    def extend(self, ids: Iterable[int]) -> None:
        """Append ids; costs O(len(ids))."""
        new = token_ids(ids)
        if not new:
            return
        pieces = [b"%d," % token for token in new]
        ends = accumulate(map(len, pieces), initial=self._written)
        next(ends)
        self._ends.extend(ends)
        self._ids.extend(new)
        self._write(b"".join(pieces))

    def ids(self, start: int = 0, stop: int | None = None) -> TokenIds[int]:
        """A copy of the ids from `start` up to `stop`."""
        return self._ids[start:stop]

    def json(self, tokens: int | None = None) -> tuple[memoryview, ...]:
        """Views of the JSON text of the first `tokens` ids, each followed by a comma.

        Raises:
            ValueError: More tokens are asked for than are held.
        """
        count = len(self) if tokens is None else tokens
        if not 0 <= count <= len(self):
            raise ValueError(f"json: {count} of {len(self)} tokens")
        left = self._ends[count - 1] if count else 0
        views = []
        for block in self._blocks:
            if left <= 0:
                break
            take = min(left, _BLOCK_BYTES)
            views.append(memoryview(block)[:take].toreadonly())
            left -= take
        return tuple(views)

    def _write(self, text: bytes) -> None:
        view = memoryview(text)
        while view:
            offset = self._written % _BLOCK_BYTES
            if offset == 0:
                self._blocks.append(bytearray(_BLOCK_BYTES))
            part = view[: _BLOCK_BYTES - offset]
            self._blocks[-1][offset : offset + len(part)] = part
            self._written += len(part)
            view = view[len(part) :]


def json_ids(ids: Iterable[int]) -> bytes:
    """JSON text of ids between commas, without one at the end."""
    return b",".join([b"%d" % token for token in ids])
