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
"""Kept-alive HTTP connections with a deadline that holds for the whole exchange.

A socket timeout alone restarts with every byte, so a slow sender could hold a
decision for ever. Here every receive gets what is left until the deadline.
Closing an exchange's connection is also how a request is cancelled: vLLM
aborts it at the end of the current step.

Any thread may call `exchange`; each exchange owns its connection while it
lasts. `close` may be called from another thread and ends exchanges under way.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from csr_policy.engine.errors import EngineDeadlineError, EngineUnreachableError

Bytes = bytes | memoryview


class _Deadline:
    """When the exchange on a socket must be over, on the steady clock."""

    __slots__ = ("at_s",)

    def __init__(self) -> None:
        self.at_s = 0.0

    def left_s(self) -> float:
        left = self.at_s - time.monotonic()
        if left <= 0:
            raise TimeoutError("deadline passed")
        return left


class _PlainSocket(socket.socket):
    deadline: _Deadline

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        self.settimeout(self.deadline.left_s())
        return super().recv_into(buffer, nbytes, flags)


class _TlsSocket(ssl.SSLSocket):
    deadline: _Deadline

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        self.settimeout(self.deadline.left_s())
        return super().recv_into(buffer, nbytes, flags)


class _Connection(http.client.HTTPConnection):
    """One connection; `sock` obeys `deadline`."""

    def __init__(self, address: Address) -> None:
        super().__init__(address.host, address.port)
        self._address = address
        self.deadline = _Deadline()
        self.used = False

    def connect(self) -> None:
        timeout_s = min(self._address.connect_timeout_s, self.deadline.left_s())
        raw = self._address.open(timeout_s)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._address.tls is None:
            plain = _PlainSocket(raw.family, raw.type, raw.proto, fileno=raw.detach())
            plain.deadline = self.deadline
            self.sock = plain
        else:
            wrapped = self._address.tls.wrap_socket(raw, server_hostname=self._address.host)
            assert isinstance(wrapped, _TlsSocket)
            wrapped.deadline = self.deadline
            self.sock = wrapped

    def send_part(self, part: Bytes) -> None:
        assert self.sock is not None
        self.sock.settimeout(self.deadline.left_s())
        self.sock.sendall(part)

    def break_off(self) -> None:
        """Wake whatever waits on the socket; may be called from another thread."""
        sock = self.sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # closed already


class Address:
    """Where an engine is, with the name looked up once.

    A name look-up has no timeout, so the decision path must not make one: it reuses the
    last answer, and `forget` has the next `open` ask again.
    """

    def __init__(self, url: str, connect_timeout_s: float, tls_ca_file: str) -> None:
        """Read the URL.

        Raises:
            ValueError: The certificate file cannot be read.
        """
        parts = urlsplit(url)
        self.host = parts.hostname or ""
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self.path = parts.path.rstrip("/")
        self.connect_timeout_s = connect_timeout_s
        self.tls = _tls_context(tls_ca_file) if parts.scheme == "https" else None
        self._known: list[tuple[socket.AddressFamily, Any]] = []

    def forget(self) -> None:
        """Look the name up again at the next connection."""
        self._known = []

    def open(self, timeout_s: float) -> socket.socket:
        """Open a TCP connection.

        Raises:
            OSError: No address answers.
        """
        if not self._known:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            self._known = [(family, name) for family, _, _, _, name in found]
        failure: OSError | None = None
        for family, name in self._known:
            raw = socket.socket(family, socket.SOCK_STREAM)
            raw.settimeout(timeout_s)
            try:
                raw.connect(name)
            except OSError as error:
                raw.close()
                failure = error
            else:
                return raw
        raise failure or OSError(f"no address for {self.host}")


@dataclass(frozen=True, slots=True)
class HttpReply:
    """Status and body of one exchange."""

    status: int
    body: bytes


class Exchange:
    """A request that was sent; its reply is read by the caller, line by line or whole."""

    def __init__(self, connection: _Connection, response: http.client.HTTPResponse) -> None:
        """Own a connection until the reply is read."""
        self.connection = connection
        self.response = response


class ConnectionPool:
    """Connections to one engine."""

    def __init__(self, address: Address, headers: dict[str, str]) -> None:
        """Nothing is opened yet."""
        self._address = address
        self._headers = headers
        self._lock = threading.Lock()
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._closed = False

    def exchange(
        self, method: str, path: str, parts: Sequence[Bytes], deadline_s: float
    ) -> HttpReply:
        """Send a request and read the whole reply.

        Args:
            method: GET or POST.
            path: Path below the engine's URL.
            parts: Pieces of the body; sent as they are, without joining them.
            deadline_s: When all must be over, on `time.monotonic`.

        Raises:
            EngineDeadlineError: It was not; the request is cancelled.
            EngineUnreachableError: No connection, or it broke.
        """
        exchange = self.send(method, path, parts, deadline_s)
        try:
            body = exchange.response.read()
        except (TimeoutError, OSError, http.client.HTTPException, ValueError) as error:
            self.abandon(exchange)
            raise _translated(error) from error
        self.finish(exchange)
        return HttpReply(exchange.response.status, body)

    def send(self, method: str, path: str, parts: Sequence[Bytes], deadline_s: float) -> Exchange:
        """Send a request and read the reply's head; end with `finish` or `abandon`.

        A kept-alive connection may have died while it was idle: then, and only when not a
        byte of the reply came, the request is sent once more on a fresh one.
        """
        connection = self._take(deadline_s)
        try:
            return self._send_on(connection, method, path, parts)
        except (ConnectionError, http.client.RemoteDisconnected) as error:
            self._discard(connection)
            if not connection.used:
                raise _translated(error) from error
        except (TimeoutError, OSError, http.client.HTTPException, ValueError) as error:
            self._discard(connection)
            raise _translated(error) from error
        fresh = self._take(deadline_s, fresh=True)
        try:
            return self._send_on(fresh, method, path, parts)
        except (TimeoutError, OSError, http.client.HTTPException, ValueError) as error:
            self._discard(fresh)
            raise _translated(error) from error

    def finish(self, exchange: Exchange) -> None:
        """Give the connection back for the next request."""
        connection = exchange.connection
        with self._lock:
            self._busy.discard(connection)
            if not self._closed and not exchange.response.will_close:
                connection.used = True
                self._idle.append(connection)
                return
        connection.close()

    def abandon(self, exchange: Exchange) -> None:
        """Close the connection, which cancels the request on the engine."""
        self._discard(exchange.connection)

    def forget_address(self) -> None:
        """Have the engine's name looked up again."""
        self._address.forget()

    def close(self) -> None:
        """Close all connections; requests under way end as unreachable."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            busy = list(self._busy)
        for connection in idle:
            connection.close()
        for connection in busy:
            connection.break_off()

    def _send_on(
        self, connection: _Connection, method: str, path: str, parts: Sequence[Bytes]
    ) -> Exchange:
        connection.putrequest(method, self._address.path + path, skip_accept_encoding=True)
        for name, value in self._headers.items():
            connection.putheader(name, value)
        if parts:
            connection.putheader("Content-Type", "application/json")
            length = sum(len(part) for part in parts)
            connection.putheader("Content-Length", str(length))
        connection.endheaders(bytes(parts[0]) if parts else None)
        for part in parts[1:]:
            connection.send_part(part)
        return Exchange(connection, connection.getresponse())

    def _take(self, deadline_s: float, *, fresh: bool = False) -> _Connection:
        with self._lock:
            if self._closed:
                raise EngineUnreachableError("the client is closed")
            if fresh:
                stale, self._idle = self._idle, []
            else:
                stale = []
            connection = self._idle.pop() if self._idle else _Connection(self._address)
            self._busy.add(connection)
        for old in stale:
            old.close()
        connection.deadline.at_s = deadline_s
        return connection

    def _discard(self, connection: _Connection) -> None:
        with self._lock:
            self._busy.discard(connection)
        connection.close()


def _translated(error: Exception) -> EngineDeadlineError | EngineUnreachableError:
    if isinstance(error, TimeoutError):
        return EngineDeadlineError("no reply by the deadline")
    detail = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return EngineUnreachableError(" ".join(str(detail).split()))


def _tls_context(ca_file: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        raise ValueError(f"engine.tls_ca_file: cannot use {ca_file!r} ({error})") from error
    context.sslsocket_class = _TlsSocket
    return context
