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
"""A vLLM CPU server with a KV pool of a chosen number of blocks."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from csr_policy.capacity.errors import CapacityError
from csr_policy.capacity.server_replay import Server
from csr_policy.serving.command import ServerOptions
from csr_policy.serving.models import ModelError, tiny_model
from csr_policy.serving.pair import free_ports
from csr_policy.serving.server import ServerError, VllmServer

START_TIMEOUT_S = 300.0
_LEAST_TOKENS = 512
"""Priming asks for a few hundred tokens, whatever the conversations need."""


@contextmanager
def own_server(
    *,
    blocks: int,
    block_tokens: int,
    longest_tokens: int,
    model: Path | None,
    core: int | None,
    log: Path,
    say: Callable[[str], None],
) -> Iterator[Server]:
    """Start a server, and stop it in the end.

    Args:
        blocks: N; vLLM's null block comes on top.
        block_tokens: Tokens a block.
        longest_tokens: Longest prompt and reply.
        model: Model folder; None takes the tiny random one.
        core: Processor it is confined to.
        log: File of its output.
        say: Told of the progress.

    Raises:
        CapacityError: It cannot be started, or N does not hold the longest conversation.
    """
    if blocks * block_tokens < longest_tokens + 2:
        raise CapacityError(
            f"blocks: is {blocks}; expected the longest conversation to fit, "
            f"{-(-(longest_tokens + 2) // block_tokens)}"
        )
    try:
        server, key = _start(blocks, block_tokens, longest_tokens, model, core, log, say)
    except (ServerError, ModelError) as error:
        raise CapacityError(f"engine: {error}") from None
    try:
        yield Server(server.url, key)
    finally:
        server.stop()


def _start(
    blocks: int,
    block_tokens: int,
    longest_tokens: int,
    model: Path | None,
    core: int | None,
    log: Path,
    say: Callable[[str], None],
) -> tuple[VllmServer, str]:
    folder = model or tiny_model(progress=say)
    (port,) = free_ports(1)
    key = secrets.token_urlsafe(24)
    options = ServerOptions(
        model=str(folder),
        port=port,
        name="capacity",
        api_key=key,
        max_model_len=max(longest_tokens + 2, _LEAST_TOKENS),
        kv_tokens=blocks * block_tokens,
        cores=() if core is None else (core,),
        extra_arguments=(
            "--block-size",
            str(block_tokens),
            "--num-gpu-blocks-override",
            str(blocks + 1),
        ),
    )
    server = VllmServer(options, log)
    server.start()
    try:
        server.wait_ready(START_TIMEOUT_S, say)
    except BaseException:
        server.stop()
        raise
    return server, key
