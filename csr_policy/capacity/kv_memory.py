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
"""KV memory: from a model's config.json to bytes a token, blocks and GiB."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from csr_policy.capacity.errors import CapacityError, nearest

GIB = 1 << 30
_BYTES = {
    "float32": 4,
    "float": 4,
    "float16": 2,
    "half": 2,
    "bfloat16": 2,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "int8": 1,
}
_OTHER_STATE = ("mamba", "linear_attention", "recurrent", "gated_delta", "ssm")


@dataclass(frozen=True, slots=True)
class KvMemory:
    """Size of the keys and values of one token, on one GPU.

    Attributes:
        bytes_per_token: On each GPU.
        block_tokens: Tokens a block.
        gpus: Tensor-parallel size.
        description: How it was computed.
    """

    bytes_per_token: int
    block_tokens: int
    gpus: int
    description: str

    @property
    def bytes_per_block(self) -> int:
        """On each GPU."""
        return self.bytes_per_token * self.block_tokens

    def blocks(self, gib_per_gpu: float) -> int:
        """N that fits the memory set aside on each GPU."""
        return math.floor(gib_per_gpu * GIB / self.bytes_per_block)

    def gib(self, blocks: int) -> float:
        """Memory on each GPU for N blocks."""
        return blocks * self.bytes_per_block / GIB


def read_kv_memory(
    path: Path, *, block_tokens: int, dtype: str = "auto", tensor_parallel: int = 1
) -> KvMemory:
    """Size the KV cache of a model from its folder or config.json.

    Args:
        path: Folder or file.
        block_tokens: Tokens a block.
        dtype: Of the KV cache; auto takes the model's.
        tensor_parallel: GPUs that share each layer.

    Raises:
        CapacityError: The file or a field is missing, or the model keeps a state that does
            not grow with the prompt, which this arithmetic does not cover.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CapacityError(f"model: cannot read {str(file)!r} ({error.strerror})") from None
    except json.JSONDecodeError as error:
        raise CapacityError(f"model: {str(file)!r} is no JSON ({error.msg})") from None
    if not isinstance(config, dict):
        raise CapacityError(f"model: {str(file)!r} is no object; expected a config.json")
    return kv_memory(
        config, block_tokens=block_tokens, dtype=dtype, tensor_parallel=tensor_parallel
    )


def kv_memory(
    config: dict[str, Any], *, block_tokens: int, dtype: str = "auto", tensor_parallel: int = 1
) -> KvMemory:
    """Size the KV cache from the fields of a config.json; see `read_kv_memory`."""
    config = {**config, **config.get("text_config", {})}
    if block_tokens < 1 or tensor_parallel < 1:
        raise CapacityError(
            f"model: {block_tokens} tokens a block on {tensor_parallel} GPUs; expected 1 or more"
        )
    _refuse_other_states(config)
    layers = _field(config, "num_hidden_layers", "n_layer", "num_layers")
    element = _element_bytes(config, dtype)
    if "kv_lora_rank" in config:
        # Latent attention: one compressed vector a token and layer, on every GPU alike.
        width = int(config["kv_lora_rank"]) + int(config.get("qk_rope_head_dim", 0))
        per_token = layers * width * element
        text = f"{layers} layers x {width} latent x {element} B"
        return KvMemory(per_token, block_tokens, tensor_parallel, text)
    heads = _field(config, "num_attention_heads", "n_head")
    kv_heads = int(config.get("num_key_value_heads") or heads)
    dim = int(config.get("head_dim") or 0)
    if not dim:
        dim = _field(config, "hidden_size", "n_embd") // heads
    # Fewer heads than GPUs are copied, more are split.
    on_each = max(1, -(-kv_heads // tensor_parallel))
    per_token = 2 * layers * on_each * dim * element
    text = f"2 x {layers} layers x {on_each} KV heads x {dim} x {element} B"
    return KvMemory(per_token, block_tokens, tensor_parallel, text)


def _refuse_other_states(config: dict[str, Any]) -> None:
    kinds = {str(kind) for kind in config.get("layer_types") or []}
    kinds.add(str(config.get("model_type", "")))
    other = sorted(k for k in kinds if any(word in k.lower() for word in _OTHER_STATE))
    if other:
        raise CapacityError(
            f"model: has {other[0]!r} layers, whose state is not a KV block a token; "
            "expected attention in all layers"
        )


def _field(config: dict[str, Any], *names: str) -> int:
    for name in names:
        if name in config:
            value = config[name]
            if not isinstance(value, int) or value < 1:
                raise CapacityError(f"model: {name} is {value!r}; expected a positive integer")
            return value
    raise CapacityError(f"model: config has no {names[0]!r}; expected a config.json of a model")


def _element_bytes(config: dict[str, Any], dtype: str) -> int:
    if dtype == "auto":
        dtype = str(config.get("torch_dtype") or config.get("dtype") or "bfloat16")
    name = dtype.removeprefix("torch.")
    if name not in _BYTES:
        raise CapacityError(f"dtype: {name!r} is unknown; {nearest(name, _BYTES)}")
    return _BYTES[name]
