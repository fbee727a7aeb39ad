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
"""Is this engine fit to serve? Asked once at start, and after every loss.

A server that answers its health check may still refuse, recompute everything
or score nothing. So readiness is a decision of the real shape, made twice: the
second one must come from the cache.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from csr_policy.context.prompt import TokenPrompt
from csr_policy.engine.client import EngineClient, EngineInfo, FirstToken
from csr_policy.engine.errors import (
    EngineAuthError,
    EngineError,
    EngineMismatchError,
    EngineProtocolError,
    EngineRefusedError,
)
from csr_policy.engine.protocol import Endpoint, Scoring, parse_json
from csr_policy.engine.scores import distribution
from csr_policy.settings import EndpointChoice, EngineSettings

_CHARACTERS = [chr(code) for code in range(33, 127)]
TOKENIZER_SAMPLE = (
    "12.3 odom: x -4.56 m, Grüße ✓ {brace}\n\t  <|im_end|> Zwölf\n"
    + "".join(_CHARACTERS)
    + " ".join(_CHARACTERS)
)
"""Text on which two tokenizers will not agree by chance: every character alone, too."""

_QUICK_S = 10.0


def discover(
    client: EngineClient,
    settings: EngineSettings,
    encode: Callable[[str], Sequence[int]],
    probe: TokenPrompt,
    labels: tuple[int, ...],
) -> EngineInfo:
    """Ask an engine what it is, and check that it fits the policy.

    Args:
        client: The engine.
        settings: Model name and endpoint, where the user fixed them.
        encode: The policy's tokenizer, control tokens read, no BOS.
        probe: A short prompt of the real shape.
        labels: Label tokens of the action set.

    Returns:
        What it is, with the endpoint and the scoring that were seen to work.

    Raises:
        EngineMismatchError: It works, but not for this policy.
        EngineError: It does not answer as it should.
    """
    model, usable = _model(client, settings.model)
    _check_tokenizer(client, model, encode)
    block, kv_tokens = _cache_config(client)
    choices = {
        EndpointChoice.AUTO: (Endpoint.GENERATE, Endpoint.COMPLETIONS),
        EndpointChoice.GENERATE: (Endpoint.GENERATE,),
        EndpointChoice.COMPLETIONS: (Endpoint.COMPLETIONS,),
    }[settings.endpoint]
    for number, endpoint in enumerate(choices):
        info = EngineInfo(model, usable, endpoint, block_tokens=block, kv_cache_tokens=kv_tokens)
        try:
            return _with_scoring(client, info, probe, labels, settings.warm_up_timeout_s)
        except EngineAuthError:
            raise
        except EngineRefusedError as error:
            # A server may cap the scores of generate (--max-logprobs) below the label count.
            elsewhere = error.status in (403, 404, 405) or "max allowed" in str(error)
            if not elsewhere or number + 1 == len(choices):
                raise
    raise AssertionError("one endpoint returns or raises")


def prime(
    client: EngineClient,
    info: EngineInfo,
    prompt: TokenPrompt,
    labels: tuple[int, ...],
    timeout_s: float,
) -> FirstToken:
    """Make a decision twice; the second must be served from the cache.

    Raises:
        EngineMismatchError: Nothing came from the cache: prefix caching is off, or the
            engine does not report it.
        EngineError: The engine failed.
    """
    client.first_token(info, prompt, labels, time.monotonic() + timeout_s)
    second = client.first_token(info, prompt, labels, time.monotonic() + timeout_s)
    cached = second.reply.usage.cached_tokens
    if cached is None:
        raise EngineMismatchError(
            f"{client.url} does not report cached tokens; "
            "expected the server flag --enable-prompt-tokens-details"
        )
    if info.block_tokens and cached < (prompt.tokens - 1) // info.block_tokens * info.block_tokens:
        raise EngineMismatchError(
            f"{client.url} took {cached} of {prompt.tokens} repeated tokens from its cache; "
            "expected prefix caching on and room for the prompt"
        )
    return second


def _model(client: EngineClient, wanted: str) -> tuple[str, int]:
    document = parse_json(client.get("/v1/models", _QUICK_S))
    try:
        served = {str(entry["id"]): entry for entry in document["data"]}
        name = wanted or next(iter(served))
        if name not in served:
            raise EngineMismatchError(
                f"engine.model: {client.url} serves {sorted(served)}, not {name!r}"
            )
        return name, int(served[name]["max_model_len"]) - 1
    except (KeyError, TypeError, ValueError, StopIteration) as error:
        raise EngineProtocolError(
            f"{client.url}/v1/models lacks a model with max_model_len; expected a vLLM server"
        ) from error


def _check_tokenizer(
    client: EngineClient, model: str, encode: Callable[[str], Sequence[int]]
) -> None:
    request: dict[str, Any] = {
        "model": model,
        "prompt": TOKENIZER_SAMPLE,
        "add_special_tokens": False,
    }
    try:
        theirs = parse_json(client.post_json("/tokenize", request, _QUICK_S))["tokens"]
    except EngineAuthError:
        raise
    except (EngineRefusedError, KeyError):
        return  # a server without /tokenize cannot be compared
    if list(theirs) != list(encode(TOKENIZER_SAMPLE)):
        raise EngineMismatchError(
            f"tokenizer: differs from the one that {client.url} serves; "
            "expected the folder of the served model"
        )


def _cache_config(client: EngineClient) -> tuple[int, int]:
    """(block size, KV-cache tokens); 0 for what the server does not say."""
    try:
        metrics = client.get("/metrics", _QUICK_S).decode("utf-8", errors="replace")
    except EngineRefusedError:
        return 0, 0
    line = next((x for x in metrics.splitlines() if x.startswith("vllm:cache_config_info{")), "")
    found = dict(re.findall(r'(\w+)="([^"]*)"', line))

    def number(name: str) -> int:
        text = found.get(name, "")
        return int(text) if text.isdigit() else 0

    block = number("block_size")
    return block, number("kv_cache_size_tokens") or number("num_gpu_blocks") * block


def _with_scoring(
    client: EngineClient,
    info: EngineInfo,
    probe: TokenPrompt,
    labels: tuple[int, ...],
    timeout_s: float,
) -> EngineInfo:
    """Find out how the engine scores every label, since unknown fields are ignored silently."""
    problem: EngineError | None = None
    for scoring in Scoring:
        candidate = EngineInfo(
            info.model,
            info.usable_tokens,
            info.endpoint,
            scoring,
            info.block_tokens,
            info.kv_cache_tokens,
        )
        try:
            token = client.first_token(candidate, probe, labels, time.monotonic() + timeout_s)
            distribution(labels, token.reply.logprobs)
        except EngineMismatchError as error:
            problem = error
        else:
            return candidate
    raise EngineMismatchError(f"{client.url}: {problem}; or --logprobs-mode processed_logprobs")
