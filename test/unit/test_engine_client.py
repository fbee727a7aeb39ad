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
"""The HTTP client: deadlines, dead connections, and what each refusal is called."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from scripted_engine import ScriptedEngine

from csr_policy.context.prompt import TokenPrompt
from csr_policy.context.token_buffer import json_ids
from csr_policy.engine.client import EngineClient, EngineInfo
from csr_policy.engine.errors import (
    EngineAuthError,
    EngineBusyError,
    EngineDeadlineError,
    EngineError,
    EngineProtocolError,
    EngineRefusedError,
    EngineUnreachableError,
    PromptTooLongError,
)
from csr_policy.engine.protocol import Endpoint, Scoring
from csr_policy.settings import EngineSettings

LABELS = (49, 50, 51)
PROMPT = TokenPrompt((json_ids(range(100, 140)),), 40, 40)
LONG_S = 30.0


def info(endpoint: Endpoint = Endpoint.GENERATE) -> EngineInfo:
    return EngineInfo("scripted", 8191, endpoint, Scoring.RAW, 16, 0)


def asked(url: str, wait_s: float = LONG_S, endpoint: Endpoint = Endpoint.GENERATE):  # type: ignore[no-untyped-def]
    client = EngineClient("engine_0", url, EngineSettings(), None)
    try:
        return client.first_token(info(endpoint), PROMPT, LABELS, time.monotonic() + wait_s)
    finally:
        client.close()


@contextmanager
def raw_server(behave: Callable[[socket.socket, int], None]) -> Iterator[str]:
    """A TCP server; `behave(connection, number)` is run for each connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def accept() -> None:
        number = 0
        while not stop.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=behave, args=(connection, number), daemon=True)
            thread.start()
            number += 1

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        stop.set()
        listener.close()


def read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)
    return body


@pytest.mark.parametrize("endpoint", list(Endpoint))
def test_every_label_is_scored_on_both_endpoints(
    make_engine: Callable[..., ScriptedEngine], endpoint: Endpoint
) -> None:
    engine = make_engine()
    token = asked(engine.url, endpoint=endpoint)
    assert set(token.reply.logprobs) == set(LABELS)
    assert token.reply.usage.prompt_tokens == 40
    assert engine.prompts == [list(range(100, 140))]


def test_a_slow_engine_ends_at_the_deadline(make_engine: Callable[..., ScriptedEngine]) -> None:
    engine = make_engine()
    engine.gate.clear()
    with pytest.raises(EngineDeadlineError, match="no reply by the deadline"):
        asked(engine.url, wait_s=0.05)


def test_a_trickling_reply_ends_at_the_deadline() -> None:
    stop = threading.Event()

    def trickle(connection: socket.socket, _: int) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not stop.wait(0.01):
            try:
                connection.sendall(b" ")
            except OSError:
                return

    with raw_server(trickle) as url, pytest.raises(EngineDeadlineError):
        asked(url, wait_s=0.2)
    stop.set()


def test_a_dead_kept_alive_connection_is_replaced_once() -> None:
    bodies: list[bytes] = []
    reply = (
        b'{"choices":[{"token_ids":[49],"logprobs":{"content":[{"token_id":49,"logprob":-1,'
        b'"top_logprobs":[{"token_id":50,"logprob":-2},{"token_id":51,"logprob":-3}]}]}}],'
        b'"usage":{"prompt_tokens":40,"completion_tokens":1}}'
    )

    def once_then_die(connection: socket.socket, _: int) -> None:
        bodies.append(read_request(connection))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(reply) + reply)
        connection.close()

    with raw_server(once_then_die) as url:
        client = EngineClient("engine_0", url, EngineSettings(), None)
        for _ in range(3):
            client.first_token(info(), PROMPT, LABELS, time.monotonic() + LONG_S)
        client.close()
    assert len(bodies) == 3 and len(set(bodies)) == 1


def test_a_fresh_connection_that_dies_is_not_asked_again() -> None:
    connections: list[int] = []

    def die(connection: socket.socket, number: int) -> None:
        connections.append(number)
        read_request(connection)
        connection.close()

    with raw_server(die) as url, pytest.raises(EngineUnreachableError):
        asked(url)
    assert connections == [0]


def test_a_reply_cut_in_its_body_is_not_used() -> None:
    def cut(connection: socket.socket, _: int) -> None:
        read_request(connection)
        connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"choices":[')
        connection.close()

    with raw_server(cut) as url, pytest.raises(EngineUnreachableError):
        asked(url)


def test_a_refused_connection_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(EngineUnreachableError, match="refused"):
        asked(f"http://127.0.0.1:{port}")


def test_closing_wakes_a_request_under_way(make_engine: Callable[..., ScriptedEngine]) -> None:
    engine = make_engine()
    engine.gate.clear()
    seen = threading.Event()
    engine.before = lambda path, body: seen.set()  # type: ignore[assignment, func-returns-value]
    client = EngineClient("engine_0", engine.url, EngineSettings(), None)
    caught: list[Exception] = []

    def ask() -> None:
        try:
            client.first_token(info(), PROMPT, LABELS, time.monotonic() + 600)
        except EngineError as error:
            caught.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    assert seen.wait(LONG_S)
    client.close()
    thread.join(LONG_S)
    assert not thread.is_alive() and isinstance(caught[0], EngineUnreachableError)


@pytest.mark.parametrize(
    ("status", "body", "kind", "line"),
    [
        (401, b'{"error":"Unauthorized"}', EngineAuthError, "is the API key right"),
        (503, b"", EngineBusyError, "HTTP 503: no message"),
        (429, b'{"detail":"queue full"}', EngineBusyError, "HTTP 429: queue full"),
        (
            400,
            b'{"error":{"message":"longer than the maximum model length of 9"}}',
            PromptTooLongError,
            "maximum model length",
        ),
        (500, b"<html>oops\nline</html>", EngineRefusedError, "HTTP 500: <html>oops line"),
        (200, b"{not json", EngineProtocolError, "reply is not JSON"),
        (200, b"[]", EngineProtocolError, "not a JSON object"),
        (200, b'{"choices":[]}', EngineProtocolError, "lacks what vLLM promises"),
        (200, b'{"choices":[{"token_ids":[1],"logprobs":null}]}', EngineProtocolError, "usage"),
    ],
)
def test_each_bad_reply_is_one_line_of_its_kind(
    make_engine: Callable[..., ScriptedEngine],
    status: int,
    body: bytes,
    kind: type[EngineError],
    line: str,
) -> None:
    engine = make_engine()
    engine.before = lambda path, request: (status, body)
    with pytest.raises(kind, match=line.replace("(", r"\(")) as caught:
        asked(engine.url)
    assert "\n" not in str(caught.value)


def test_the_key_is_sent(make_engine: Callable[..., ScriptedEngine]) -> None:
    headers: list[bytes] = []

    def look(connection: socket.socket, _: int) -> None:
        headers.append(connection.recv(65536))
        connection.close()

    with raw_server(look) as url:
        client = EngineClient("engine_0", url, EngineSettings(), "secret")
        with pytest.raises(EngineError):
            client.get("/v1/models", LONG_S)
    assert b"Authorization: Bearer secret" in headers[0]
