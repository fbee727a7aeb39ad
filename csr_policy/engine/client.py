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
"""One engine, asked.

Any thread may call any method; each request has its own connection while it
lasts. Nothing is retried here but a dead kept-alive connection: whether a
decision is asked again is the caller's choice, made against its deadline.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from csr_policy.context.prompt import TokenPrompt
from csr_policy.engine.connection import Address, ConnectionPool, Exchange
from csr_policy.engine.errors import EngineDeadlineError, EngineError, EngineProtocolError
from csr_policy.engine.protocol import (
    Endpoint,
    Reply,
    Sampling,
    Scoring,
    Usage,
    parse_json,
    parse_reply,
    parse_usage,
    refusal,
    request_parts,
)
from csr_policy.settings import EngineSettings


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an engine said of itself.

    Attributes:
        model: Name it serves.
        usable_tokens: Longest prompt it takes with one token of reply (max_model_len - 1).
        endpoint: Token-in endpoint to use.
        scoring: How labels are scored there.
        block_tokens: Tokens in a KV-cache block; 0 where it does not say.
        kv_cache_tokens: Tokens its KV cache holds; 0 where it does not say.
    """

    model: str
    usable_tokens: int
    endpoint: Endpoint
    scoring: Scoring = Scoring.RAW
    block_tokens: int = 0
    kv_cache_tokens: int = 0


@dataclass(frozen=True, slots=True)
class FirstToken:
    """The one token of a decision, with its scores.

    Attributes:
        reply: Scores by label token, counts.
        ttft_s: From handing the query to the client to the token in hand, seconds.
    """

    reply: Reply
    ttft_s: float


@dataclass(frozen=True, slots=True)
class FreeText:
    """A reply of several tokens.

    Attributes:
        ids: Its token ids, without the one that ended it.
        usage: Token counts.
        ttft_s: Until the first token, seconds.
    """

    ids: tuple[int, ...]
    usage: Usage
    ttft_s: float


class EngineClient:
    """Requests to one vLLM server."""

    def __init__(self, name: str, url: str, settings: EngineSettings, api_key: str | None) -> None:
        """Nothing is sent yet.

        Raises:
            ValueError: The certificate file cannot be read.
        """
        self.name = name
        self.url = url.rstrip("/")
        self._salt = settings.cache_salt
        address = Address(self.url, settings.connect_timeout_s, settings.tls_ca_file)
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._pool = ConnectionPool(address, headers)

    def get(self, path: str, timeout_s: float) -> bytes:
        """GET a path.

        Raises:
            EngineError: See `connection` and `protocol.refusal`.
        """
        reply = self._pool.exchange("GET", path, (), time.monotonic() + timeout_s)
        if reply.status != 200:
            raise refusal(reply.status, reply.body)
        return reply.body

    def post_json(self, path: str, document: dict[str, Any], timeout_s: float) -> bytes:
        """POST a small document.

        Raises:
            EngineError: See `connection` and `protocol.refusal`.
        """
        body = json.dumps(document).encode()
        reply = self._pool.exchange("POST", path, (body,), time.monotonic() + timeout_s)
        if reply.status != 200:
            raise refusal(reply.status, reply.body)
        return reply.body

    def first_token(
        self, info: EngineInfo, prompt: TokenPrompt, labels: tuple[int, ...], deadline_s: float
    ) -> FirstToken:
        """Ask for one token among the labels, with the probability of each.

        Args:
            info: What the engine said of itself.
            prompt: The whole prompt.
            labels: Token ids to choose from; empty to compute the prompt and no more.
            deadline_s: When it must be over, on `time.monotonic`; then the request is
                cancelled.

        Raises:
            EngineError: One of `engine.errors`, by what went wrong.
        """
        sampling = Sampling(labels=labels, scoring=info.scoring)
        started_s = time.monotonic()
        parts = request_parts(info.endpoint, info.model, self._salt, prompt, sampling)
        reply = self._pool.exchange("POST", info.endpoint, parts, deadline_s)
        ttft_s = time.monotonic() - started_s
        if reply.status != 200:
            raise refusal(reply.status, reply.body)
        return FirstToken(parse_reply(info.endpoint, reply.body), ttft_s)

    def free_text(
        self,
        info: EngineInfo,
        prompt: TokenPrompt,
        *,
        max_tokens: int,
        stop_ids: tuple[int, ...],
        deadline_s: float,
        decode: Callable[[str], tuple[int, ...]],
    ) -> FreeText:
        """Ask for a reply of several tokens, token by token.

        Args:
            info: What the engine said of itself.
            prompt: The whole prompt.
            max_tokens: Longest reply.
            stop_ids: Token ids that end it.
            deadline_s: When it must be over, on `time.monotonic`.
            decode: Text to ids, for a server that streams text alone.

        Raises:
            EngineError: One of `engine.errors`, by what went wrong.
        """
        sampling = Sampling(max_tokens=max_tokens, stop_ids=stop_ids, stream=True)
        started_s = time.monotonic()
        parts = request_parts(info.endpoint, info.model, self._salt, prompt, sampling)
        exchange = self._pool.send("POST", info.endpoint, parts, deadline_s)
        try:
            result = _read_stream(exchange, started_s, decode)
        except TimeoutError as error:
            self._pool.abandon(exchange)
            raise EngineDeadlineError("no whole reply by the deadline") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._pool.abandon(exchange)
            raise EngineProtocolError(f"reply broke off ({error})") from error
        except EngineError:
            self._pool.abandon(exchange)
            raise
        self._pool.finish(exchange)
        stop = set(stop_ids)
        return FreeText(
            tuple(token for token in result.ids if token not in stop), result.usage, result.ttft_s
        )

    def forget_address(self) -> None:
        """Have the engine's name looked up again at the next connection."""
        self._pool.forget_address()

    def close(self) -> None:
        """End everything under way; may be called from any thread."""
        self._pool.close()


def _read_stream(
    exchange: Exchange, started_s: float, decode: Callable[[str], tuple[int, ...]]
) -> FreeText:
    if exchange.response.status != 200:
        raise refusal(exchange.response.status, exchange.response.read())
    ids: list[int] = []
    text = ""
    usage: Usage | None = None
    ttft_s = float("nan")
    for event in _events(exchange):
        if event.get("usage"):
            usage = parse_usage(event)
        for choice in event.get("choices", ()):
            if ttft_s != ttft_s:
                ttft_s = time.monotonic() - started_s
            if choice.get("token_ids") is not None:
                ids.extend(int(token) for token in choice["token_ids"])
            else:
                text += choice.get("text") or ""
    if usage is None:
        raise EngineProtocolError("reply ended without its token counts")
    return FreeText(tuple(ids) or decode(text), usage, ttft_s)


def _events(exchange: Exchange) -> Iterator[dict[str, Any]]:
    for line in exchange.response:
        payload = line.strip().removeprefix(b"data:").strip()
        if payload == b"[DONE]":
            exchange.response.read()
            return
        if payload:
            event = parse_json(payload)
            if "error" in event:
                raise EngineProtocolError(f"reply broke off ({event['error']})")
            yield event
