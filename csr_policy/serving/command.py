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
"""How a vLLM server is started: its command line and environment, as one pure function.

The flags and why they are there:

- `--enable-prefix-caching`: the package stands on it. `--enable-prompt-tokens-details` reports the
  cached tokens of every reply. `--enable-scale-out` opens `/inference/v1/generate`, which takes
  and gives token ids and so spares the server from decoding the whole prompt each time.
- `--max-logprobs 128`: that endpoint refuses more than 20 labels otherwise.
- `--generation-config vllm`: else the model's own sampling defaults (a repetition penalty, for
  one) would bend the choice between the labels.
- On the CPU: `--enforce-eager` and `TORCH_COMPILE_DISABLE` (compiling costs minutes at start and
  3 to 20 s in the first request), float32, the KV pool in bytes (`VLLM_CPU_KVCACHE_SPACE` knows
  whole GiB only, and the pool's pages are really taken), and the worker inside the engine process
  (`uni`), which saves a process, 0.5 GB and a third of the start. vLLM offers that only with
  `VLLM_ENABLE_V1_MULTIPROCESSING=0` there, because it cannot set up OpenMP for itself then; the
  variables below do.
- `VLLM_WORKER_MULTIPROC_METHOD=spawn`: spawned processes import `vllm_main.py` again and end with
  their parent; forked ones would not.
"""

import json
import math
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from csr_policy.serving import vllm_main

VLLM_PYTHON_VARIABLE = "CSR_POLICY_VLLM_PYTHON"
SERVED_MODEL_NAME = "csr_policy"
KV_BLOCK_TOKENS_CPU = 128
_FLOAT32_BYTES = 4
_MAX_LABELS = 128


class ServerError(RuntimeError):
    """A server cannot be started, or has ended; the message is one line."""


def default_executable() -> str:
    """Name the Python that has vLLM: `$CSR_POLICY_VLLM_PYTHON`, else this one."""
    return os.environ.get(VLLM_PYTHON_VARIABLE) or sys.executable


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """One vLLM server.

    Attributes:
        model: Folder of the model; on GPUs a model name also does.
        port: TCP port.
        name: What messages call the server.
        host: Address it listens on.
        api_key: Key that `/v1` and `/inference` ask for; None for none. Travels by environment.
        served_model_name: Name that requests give; empty keeps vLLM's own.
        max_model_len: Longest prompt plus reply in tokens; 0 takes the model's.
        gpus: Indices for CUDA_VISIBLE_DEVICES; empty serves on the CPU.
        tensor_parallel_size: GPUs that share the model; 0 takes all of `gpus`.
        gpu_memory_utilization: Share of each GPU's memory that vLLM takes.
        cores: Processors that a CPU server is confined to; empty leaves it free.
        kv_tokens: Tokens that the CPU's KV pool holds; 0 takes twice `max_model_len`, for the
            live version and the one being warmed.
        dtype: Weights' type; empty takes float32 on the CPU and vLLM's choice on GPUs.
        keep_alive_s: Idle time after which a connection is closed; None keeps vLLM's 5 s.
        executable: Python that has vLLM, or the `vllm` command. Only the former is protected
            against being orphaned.
        owner_pid: Process, the server's parent, that the server ends with; None for nobody.
        extra_arguments: More arguments of `vllm serve`; they win over those set here.
    """

    model: str
    port: int
    name: str = "engine"
    host: str = "127.0.0.1"
    api_key: str | None = field(default=None, repr=False)
    served_model_name: str = SERVED_MODEL_NAME
    max_model_len: int = 0
    gpus: tuple[int, ...] = ()
    tensor_parallel_size: int = 0
    gpu_memory_utilization: float = 0.9
    cores: tuple[int, ...] = ()
    kv_tokens: int = 0
    dtype: str = ""
    keep_alive_s: int | None = None
    executable: str = field(default_factory=default_executable)
    owner_pid: int | None = None
    extra_arguments: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """Base URL of the server, as the engines' clients take it."""
        return f"http://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What the KV pool's size follows from.

    Attributes:
        max_tokens: Positions of the model.
        kv_bytes_per_token: Keys and values of all layers for one token in float32.
    """

    max_tokens: int
    kv_bytes_per_token: int


def model_shape(model: str) -> ModelShape:
    """Read a model folder's config.json.

    Raises:
        ServerError: There is no such folder, or it does not describe a decoder.
    """
    path = Path(model).expanduser() / "config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        heads = int(config["num_attention_heads"])
        head_tokens = int(config.get("head_dim") or int(config["hidden_size"]) // heads)
        kv_heads = int(config.get("num_key_value_heads") or heads)
        layers = int(config["num_hidden_layers"])
        positions = int(config["max_position_embeddings"])
    except OSError as error:
        raise ServerError(
            f"model: cannot read {path} ({error.strerror}); expected a model's folder"
        ) from error
    except (KeyError, TypeError, ValueError) as error:
        raise ServerError(f"model: {path} does not describe a decoder ({error!r})") from error
    return ModelShape(positions, 2 * layers * kv_heads * head_tokens * _FLOAT32_BYTES)


def server_command(options: ServerOptions) -> tuple[list[str], dict[str, str]]:
    """Build a server's command line and the variables that its environment needs.

    Returns:
        The arguments, program first, and the variables to add to the environment.

    Raises:
        ServerError: A CPU server's model folder cannot be read, or its KV pool is smaller than
            its longest prompt.
    """
    arguments = [*_program(options), "--host", options.host, "--port", str(options.port)]
    if options.served_model_name:
        arguments += ["--served-model-name", options.served_model_name]
    arguments += ["--enable-prefix-caching", "--enable-prompt-tokens-details"]
    arguments += ["--enable-scale-out", "--max-logprobs", str(_MAX_LABELS)]
    arguments += ["--generation-config", "vllm", "--disable-uvicorn-access-log"]
    environment = {"VLLM_NO_USAGE_STATS": "1"}
    if Path(options.model).expanduser().is_dir():
        environment["HF_HUB_OFFLINE"] = "1"
    if options.api_key:
        environment["VLLM_API_KEY"] = options.api_key
    if options.keep_alive_s is not None:
        environment["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"] = str(options.keep_alive_s)
    if _is_python(options.executable):
        environment["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
        if options.owner_pid is not None:
            environment[vllm_main.OWNER_VARIABLE] = str(options.owner_pid)
    device_arguments, device_environment = _gpu(options) if options.gpus else _cpu(options)
    arguments += [*device_arguments, *options.extra_arguments]
    return arguments, environment | device_environment


def _program(options: ServerOptions) -> list[str]:
    if _is_python(options.executable):
        return [options.executable, vllm_main.__file__, "--model", options.model]
    return [options.executable, "serve", options.model]


def _is_python(executable: str) -> bool:
    return Path(executable).name.startswith("python")


def _gpu(options: ServerOptions) -> tuple[list[str], dict[str, str]]:
    shared_by = options.tensor_parallel_size or len(options.gpus)
    arguments = ["--gpu-memory-utilization", str(options.gpu_memory_utilization)]
    arguments += ["--tensor-parallel-size", str(shared_by), "--dtype", options.dtype or "auto"]
    if options.max_model_len:
        arguments += ["--max-model-len", str(options.max_model_len)]
    return arguments, {"CUDA_VISIBLE_DEVICES": ",".join(map(str, options.gpus))}


def _cpu(options: ServerOptions) -> tuple[list[str], dict[str, str]]:
    shape = model_shape(options.model)
    longest = options.max_model_len or shape.max_tokens
    kv_tokens = options.kv_tokens or 2 * longest
    if longest > shape.max_tokens:
        raise ServerError(
            f"max_model_len: is {longest}; expected at most the model's {shape.max_tokens}"
        )
    if kv_tokens < longest:
        raise ServerError(f"kv_tokens: is {kv_tokens}; expected at least max_model_len, {longest}")
    # vLLM keeps one block for itself.
    blocks = math.ceil(kv_tokens / KV_BLOCK_TOKENS_CPU) + 1
    kv_bytes = blocks * KV_BLOCK_TOKENS_CPU * shape.kv_bytes_per_token
    arguments = ["--enforce-eager", "--dtype", options.dtype or "float32"]
    arguments += ["--max-model-len", str(longest), "--kv-cache-memory-bytes", str(kv_bytes)]
    arguments += ["--distributed-executor-backend", "uni"]
    threads = str(len(options.cores) or 1)
    environment = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "TORCH_COMPILE_DISABLE": "1",
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "TOKENIZERS_PARALLELISM": "false",
    }
    if options.cores:
        cores = ",".join(map(str, options.cores))
        # Where vLLM runs a separate worker after all, it binds its threads by the second one.
        environment |= {vllm_main.CORES_VARIABLE: cores, "VLLM_CPU_OMP_THREADS_BIND": cores}
    return arguments, environment
