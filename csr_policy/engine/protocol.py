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
"""vLLM's token-in endpoints: request bodies and replies. Pure.

`/inference/v1/generate` takes and gives token ids and can skip the
detokenizer, which at long context costs more than a cached forward pass;
`/v1/completions` is what every server offers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from csr_policy.context.prompt import TokenPrompt
from csr_policy.engine.errors import (
    EngineAuthError,
    EngineBusyError,
    EngineProtocolError,
    EngineRefusedError,
    PromptTooLongError,
)

_TOKEN_NAME = "token_id:"


class Endpoint(StrEnum):
    """Path of a token-in endpoint."""

    GENERATE = "/inference/v1/generate"
    COMPLETIONS = "/v1/completions"


class Scoring(StrEnum):
    """How the labels' log-probabilities are asked for."""

    RAW = "raw"
    """`logprob_token_ids`: over the whole vocabulary, so their sum is the label mass."""
    PROCESSED = "processed"
    """Top log-probabilities after the mask; for servers that ignore the above."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """What to generate behind a prompt.

    Attributes:
        max_tokens: Longest reply in tokens.
        labels: Only these token ids, scored; empty for free text.
        scoring: How `labels` are scored.
        stop_ids: Token ids that end a free text.
        stream: Send each token as it comes.
    """

    max_tokens: int = 1
    labels: tuple[int, ...] = ()
    scoring: Scoring = Scoring.RAW
    stop_ids: tuple[int, ...] = ()
    stream: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request.

    Attributes:
        prompt_tokens: Length of the prompt.
        cached_tokens: Of those, taken from the prefix cache; None where it is not reported.
        reply_tokens: Length of the reply.
    """

    prompt_tokens: int
    cached_tokens: int | None
    reply_tokens: int


@dataclass(frozen=True, slots=True)
class Reply:
    """One parsed reply: the tokens, the first token's scores, the counts."""

    ids: tuple[int, ...]
    logprobs: Mapping[int, float]
    usage: Usage


def request_parts(
    endpoint: Endpoint, model: str, cache_salt: str, prompt: TokenPrompt, sampling: Sampling
) -> list[bytes | memoryview]:
    """Build a request body around the prompt's kept JSON, without copying it."""
    field = b"token_ids" if endpoint is Endpoint.GENERATE else b"prompt"
    options: dict[str, Any] = {"model": model}
    if cache_salt:
        options["cache_salt"] = cache_salt
    if sampling.stream:
        options |= {"stream": True, "stream_options": {"include_usage": True}}
    parameters = _sampling_parameters(endpoint, sampling)
    if endpoint is Endpoint.GENERATE:
        options["sampling_params"] = parameters
    else:
        options |= parameters
    closing = json.dumps(options, separators=(",", ":")).encode()
    return [b'{"%s":[' % field, *prompt.parts, b"]," + closing[1:]]


def parse_reply(endpoint: Endpoint, body: bytes) -> Reply:
    """Read a reply.

    Raises:
        EngineProtocolError: It is not JSON or lacks what vLLM promises.
    """
    document = parse_json(body)
    try:
        choice = document["choices"][0]
        if endpoint is Endpoint.GENERATE:
            ids = tuple(int(token) for token in choice["token_ids"])
            logprobs = _generate_logprobs(choice["logprobs"])
        else:
            ids, logprobs = _completions_logprobs(choice)
        return Reply(ids, logprobs, parse_usage(document))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise EngineProtocolError(
            f"reply of {endpoint} lacks what vLLM promises ({type(error).__name__}: {error})"
        ) from error


def parse_usage(document: Mapping[str, Any]) -> Usage:
    """Token counts of a reply."""
    usage = document["usage"]
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if details else None
    return Usage(
        prompt_tokens=int(usage["prompt_tokens"]),
        cached_tokens=None if cached is None else int(cached),
        reply_tokens=int(usage.get("completion_tokens") or 0),
    )


def parse_json(body: bytes) -> dict[str, Any]:
    """A JSON object.

    Raises:
        EngineProtocolError: It is something else.
    """
    try:
        document = json.loads(body)
    except ValueError as error:
        raise EngineProtocolError(f"reply is not JSON ({body[:60]!r})") from error
    if not isinstance(document, dict):
        raise EngineProtocolError(f"reply is not a JSON object ({body[:60]!r})")
    return document


def refusal(status: int, body: bytes) -> EngineRefusedError:
    """The error that an HTTP status other than 200 means."""
    message = _error_message(body)
    line = f"HTTP {status}: {message}"
    if status in (401, 403) and "unauthor" in message.lower():
        return EngineAuthError(f"{line} (is the API key right?)", status)
    if status in (429, 503):
        return EngineBusyError(line, status)
    if status in (400, 413) and "model" in message and "length" in message:
        return PromptTooLongError(line, status)
    return EngineRefusedError(line, status)


def _sampling_parameters(endpoint: Endpoint, sampling: Sampling) -> dict[str, Any]:
    parameters: dict[str, Any] = {"max_tokens": sampling.max_tokens, "temperature": 0}
    if endpoint is Endpoint.GENERATE:
        parameters["detokenize"] = False
    if sampling.stop_ids:
        parameters["stop_token_ids"] = list(sampling.stop_ids)
    if sampling.labels:
        labels = list(sampling.labels)
        parameters["allowed_token_ids"] = labels
        if sampling.scoring is Scoring.RAW:
            parameters["logprob_token_ids"] = labels
            parameters["logprobs"] = len(labels) if endpoint is Endpoint.GENERATE else 0
        else:
            parameters["logprobs"] = len(labels)
    if endpoint is Endpoint.COMPLETIONS and sampling.labels:
        parameters["return_tokens_as_token_ids"] = True
    return parameters


def _generate_logprobs(logprobs: Mapping[str, Any] | None) -> dict[int, float]:
    if not logprobs or not logprobs["content"]:
        return {}
    first = logprobs["content"][0]
    entries = [first, *first["top_logprobs"]]
    return {int(entry["token_id"]): _finite(entry["logprob"]) for entry in entries}


def _completions_logprobs(
    choice: Mapping[str, Any],
) -> tuple[tuple[int, ...], dict[int, float]]:
    logprobs = choice.get("logprobs")
    if not logprobs:
        return (), {}
    ids = tuple(int(name.removeprefix(_TOKEN_NAME)) for name in logprobs["tokens"])
    top = logprobs["top_logprobs"][0] if logprobs["top_logprobs"] else {}
    return ids, {int(k.removeprefix(_TOKEN_NAME)): _finite(v) for k, v in top.items()}


def _finite(value: Any) -> float:
    number = float(value)
    if math.isnan(number):
        raise ValueError("a log-probability is NaN")
    return number


def _error_message(body: bytes) -> str:
    try:
        document = json.loads(body)
        error = document.get("error", document.get("detail", document))
        message = error.get("message", error) if isinstance(error, dict) else error
    except (ValueError, AttributeError):
        message = body[:200].decode("utf-8", errors="replace")
    return " ".join(str(message).split())[:300] or "no message"
