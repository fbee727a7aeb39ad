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
"""Primes a server: the readiness that counts is a decision from the cache.

`/health` answers before the first request has paid for what vLLM sets up lazily, and tells
nothing about the prefix cache. So a server is ready when it has answered two requests of a
decision's shape (token ids in, one token out, a log-probability for every label) and the second
found the first one's tokens cached. The cache salt is new each time: a priming can neither hit
nor disturb what a robot keeps there.
"""

import http.client
import json
import secrets
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from csr_policy.serving.command import ServerError

GENERATE_PATH = "/inference/v1/generate"
COMPLETIONS_PATH = "/v1/completions"
_PROMPT_TOKENS = 300
"""More than two of the CPU's blocks of 128 tokens, so that a hit can be seen."""
_FIRST_TOKEN_ID = 100
_LABEL_IDS = (100, 101)


@dataclass(frozen=True, slots=True)
class Priming:
    """What priming saw.

    Attributes:
        path: Endpoint that was asked.
        first_s: Time of the first request, with all that is set up lazily.
        cached_s: Time of the second request.
        prompt_tokens: Length of the prompt.
        cached_tokens: Tokens that the second request found cached.
    """

    path: str
    first_s: float
    cached_s: float
    prompt_tokens: int
    cached_tokens: int


def healthy(url: str, timeout_s: float = 1.0) -> bool:
    """Tell whether the server answers that it is in good health."""
    try:
        status, _ = _exchange(url, "GET", "/health", None, None, timeout_s)
    except (OSError, http.client.HTTPException):
        return False
    return status == 200


def prime(
    url: str, *, api_key: str | None, timeout_s: float, prompt_tokens: int = _PROMPT_TOKENS
) -> Priming:
    """Ask one decision twice and see the second come from the cache.

    Args:
        url: Base URL of the server.
        api_key: Its key, or None.
        timeout_s: Longest time for each of the requests.
        prompt_tokens: Length of the prompt, above the server's block size.

    Raises:
        ServerError: The server refused, or the second request was not cached.
    """
    salt = secrets.token_urlsafe(24)
    prompt = [_FIRST_TOKEN_ID + index % 500 for index in range(prompt_tokens)]
    path, first_s, _ = _decide(url, api_key, prompt, salt, timeout_s)
    path, cached_s, cached_tokens = _decide(url, api_key, prompt, salt, timeout_s, path)
    if not cached_tokens:
        raise ServerError(
            f"{url} does not report cached tokens for a repeated prompt; "
            "expected --enable-prefix-caching and --enable-prompt-tokens-details"
        )
    return Priming(path, first_s, cached_s, prompt_tokens, cached_tokens)


def _decide(
    url: str,
    api_key: str | None,
    prompt: list[int],
    salt: str,
    timeout_s: float,
    path: str = GENERATE_PATH,
) -> tuple[str, float, int]:
    body = _generate_body if path == GENERATE_PATH else _completions_body
    started_s = time.perf_counter()
    try:
        status, reply = _exchange(url, "POST", path, body(prompt, salt), api_key, timeout_s)
    except (OSError, http.client.HTTPException) as error:
        raise ServerError(f"{url} does not answer ({error or type(error).__name__})") from error
    elapsed_s = time.perf_counter() - started_s
    if status in (403, 404) and path == GENERATE_PATH:
        return _decide(url, api_key, prompt, salt, timeout_s, COMPLETIONS_PATH)
    if status == 401:
        raise ServerError(f"{url} refuses the API key (401)")
    if status != 200:
        raise ServerError(f"{url} refuses a decision ({status}: {_message(reply)})")
    usage = json.loads(reply).get("usage") or {}
    details = usage.get("prompt_tokens_details") or {}
    return path, elapsed_s, int(details.get("cached_tokens") or 0)


def _generate_body(prompt: list[int], salt: str) -> dict[str, Any]:
    sampling = _sampling() | {"logprobs": len(_LABEL_IDS), "detokenize": False}
    return {"token_ids": prompt, "cache_salt": salt, "sampling_params": sampling}


def _completions_body(prompt: list[int], salt: str) -> dict[str, Any]:
    return {"prompt": prompt, "cache_salt": salt, "logprobs": 0} | _sampling()


def _sampling() -> dict[str, Any]:
    labels = list(_LABEL_IDS)
    return {
        "max_tokens": 1,
        "temperature": 0,
        "allowed_token_ids": labels,
        "logprob_token_ids": labels,
    }


def _exchange(
    url: str,
    method: str,
    path: str,
    body: dict[str, Any] | None,
    api_key: str | None,
    timeout_s: float,
) -> tuple[int, bytes]:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.netloc, timeout=timeout_s)
    headers = {"Content-Type": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    try:
        connection.request(method, path, json.dumps(body) if body else None, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _message(reply: bytes) -> str:
    try:
        error = json.loads(reply)["error"]
        text = error["message"] if isinstance(error, dict) else error
    except (ValueError, KeyError, TypeError):
        text = reply.decode(errors="replace")
    return " ".join(str(text).split())[:300]
