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
"""vLLM's block pool block by block, for any stream of requests.

Slower than `block_lru` but without its assumptions: requests share any prefixes,
overlap in time, and may compute a block twice, in which case the pool holds two
copies of one hash, as vLLM's does.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class _Block:
    number: int
    users: int = 0
    key: Hashable | None = None


@dataclass(slots=True)
class PoolRequest:
    """A request in service: blocks it found, blocks it holds, tokens it stores."""

    found: int
    held: list[_Block]
    tokens: int


class BlockPool:
    """Blocks, their hashes, and the queue of released ones."""

    def __init__(self, blocks: int, *, block_tokens: int, tails_first: bool) -> None:
        """Start with an empty pool.

        Args:
            blocks: N, without vLLM's null block.
            block_tokens: Tokens a block.
            tails_first: Whether blocks without a hash are evicted first.
        """
        self._queue: OrderedDict[int, _Block] = OrderedDict(
            (number, _Block(number)) for number in range(blocks)
        )
        self._copies: dict[Hashable, dict[int, _Block]] = {}
        self._block_tokens = block_tokens
        self._tails_first = tails_first

    def arrive(self, keys: Sequence[Hashable], tokens: int) -> PoolRequest | None:
        """Serve a prompt; None where it does not fit.

        Args:
            keys: Hashes of the prompt's full blocks, each standing for its whole prefix.
            tokens: Length of the prompt; its last token is computed whatever is cached.
        """
        found: list[_Block] = []
        for key in keys[: (tokens - 1) // self._block_tokens]:
            copies = self._copies.get(key)
            if not copies:
                break
            found.append(next(iter(copies.values())))
        idle = sum(block.users == 0 for block in found)
        need = -(-tokens // self._block_tokens) - len(found)
        if need + idle > len(self._queue):
            return None
        for block in found:
            if block.users == 0:
                del self._queue[block.number]
            block.users += 1
        request = PoolRequest(len(found), found + self._take(need), tokens)
        self._hash(request, keys)
        return request

    def extend(self, request: PoolRequest, keys: Sequence[Hashable], tokens: int) -> bool:
        """Store `tokens` tokens more; false where they do not fit.

        Args:
            request: Who.
            keys: Hashes of all full blocks after that.
            tokens: How many.
        """
        need = -(-(request.tokens + tokens) // self._block_tokens) - len(request.held)
        if need > len(self._queue):
            return False
        request.tokens += tokens
        request.held.extend(self._take(need))
        self._hash(request, keys)
        return True

    def finish(self, request: PoolRequest) -> None:
        """Release a request's blocks, last first."""
        front: list[_Block] = []
        back: list[_Block] = []
        for block in reversed(request.held):
            block.users -= 1
            if block.users == 0:
                first = self._tails_first and block.key is None
                (front if first else back).append(block)
        for block in back:
            self._queue[block.number] = block
        for block in reversed(front):
            self._queue[block.number] = block
            self._queue.move_to_end(block.number, last=False)

    def _take(self, count: int) -> list[_Block]:
        taken = []
        for _ in range(count):
            _, block = self._queue.popitem(last=False)
            if block.key is not None:
                copies = self._copies[block.key]
                del copies[block.number]
                if not copies:
                    del self._copies[block.key]
                block.key = None
            block.users = 1
            taken.append(block)
        return taken

    def _hash(self, request: PoolRequest, keys: Sequence[Hashable]) -> None:
        begin = request.found
        for block, key in zip(request.held[begin:], keys[begin:], strict=False):
            if block.key is None:
                block.key = key
                self._copies.setdefault(key, {})[block.number] = block
