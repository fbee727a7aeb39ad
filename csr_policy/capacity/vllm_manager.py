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
"""vLLM's own KVCacheManager, driven directly: the truth the simulators are held to.

No model and no GPU: only the bookkeeping of blocks runs, thousands of requests a
second. vllm is imported when a manager is made, and only then.
"""

from __future__ import annotations

import importlib
import importlib.util
import struct
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from csr_policy.capacity.errors import CapacityError


def vllm_available() -> bool:
    """Whether vllm can be imported here."""
    return importlib.util.find_spec("vllm") is not None


@dataclass(slots=True)
class ManagedRequest:
    """A request in service."""

    found: int
    request: Any


class VllmManager:
    """The same calls as `simulator.block_pool.BlockPool`, answered by vLLM."""

    def __init__(self, blocks: int, *, block_tokens: int = 16, tails_first: bool = True) -> None:
        """Make a manager of N usable blocks.

        Args:
            blocks: N; vLLM keeps one block more for itself.
            block_tokens: Tokens a block.
            tails_first: True is this vLLM's own order; False puts released blocks in one
                queue, as vLLM up to 0.22 does.

        Raises:
            CapacityError: vllm is not installed here.
        """
        if not vllm_available():
            raise CapacityError("vllm: is not installed here; expected vllm beside csr_policy")
        core = importlib.import_module("vllm.v1.core.kv_cache_manager")
        interface = importlib.import_module("vllm.v1.kv_cache_interface")
        self._sampling: Any = importlib.import_module("vllm").SamplingParams(max_tokens=1)
        self._request: Any = importlib.import_module("vllm.v1.request").Request
        spec = interface.FullAttentionSpec(
            block_size=block_tokens,
            num_kv_heads=1,
            head_size=1,
            dtype=importlib.import_module("torch").float32,
        )
        self._manager: Any = core.KVCacheManager(
            interface.KVCacheConfig(
                num_blocks=blocks + 1,
                kv_cache_tensors=[],
                kv_cache_groups=[interface.KVCacheGroupSpec(["layer"], spec)],
            ),
            max_model_len=1 << 30,
            scheduler_block_size=block_tokens,
            hash_block_size=block_tokens,
        )
        self._block_tokens = block_tokens
        self._served = 0
        if not tails_first:
            _queue_all_as_recent(self._manager.block_pool)

    def arrive(self, keys: Sequence[Hashable], tokens: int) -> ManagedRequest | None:
        """Serve a prompt of `tokens` tokens whose full blocks have these keys."""
        self._served += 1
        request = self._request(
            request_id=str(self._served),
            prompt_token_ids=[0] * tokens,
            sampling_params=self._sampling,
            pooling_params=None,
            block_hasher=_Hasher(keys),
        )
        blocks, cached, _ = self._manager.get_computed_blocks(request)
        slots = self._manager.allocate_slots(request, tokens - cached, cached, blocks)
        if slots is None:
            return None
        request.num_computed_tokens = tokens
        return ManagedRequest(cached // self._block_tokens, request)

    def extend(self, request: ManagedRequest, keys: Sequence[Hashable], tokens: int) -> bool:
        """Store `tokens` tokens more, the reply's; false if there is no room."""
        inner = request.request
        inner._block_hasher.keys = keys
        # A reply's last token is never computed, but vLLM counts it.
        inner.append_output_token_ids([0] * (tokens + 1))
        return tokens == 0 or self._manager.allocate_slots(inner, tokens) is not None

    def finish(self, request: ManagedRequest) -> None:
        """Release a request's blocks."""
        self._manager.free(request.request)


class _Hasher:
    """Gives vLLM the block hashes we name, instead of hashing tokens."""

    def __init__(self, keys: Sequence[Hashable]) -> None:
        self.keys = keys

    def __call__(self, request: Any) -> list[bytes]:
        known = len(request.block_hashes)
        return [struct.pack("<q", hash(key)) * 2 for key in self.keys[known:]]


def _queue_all_as_recent(pool: Any) -> None:
    """Give a pool the release order of vLLM up to 0.22: one queue, in the order given."""

    def free_blocks(ordered_blocks: Any) -> None:
        released = list(ordered_blocks)
        for block in released:
            block.ref_cnt -= 1
        pool.free_block_queue.append_n(
            [block for block in released if block.ref_cnt == 0 and not block.is_null]
        )

    pool.free_blocks = free_blocks
