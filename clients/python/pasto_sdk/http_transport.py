"""HTTP with the standard library: kept connections, no redirects, and no answer slower than its deadline."""

from __future__ import annotations

import contextlib
import http.client
import io
import os
import socket
import ssl
import threading
import time
from typing import BinaryIO, cast
from urllib.parse import urlsplit

from pasto_sdk.transport import Request, Response

LARGEST = 64_000_000
"""Bytes of an answer; a policy of a hundred thousand candidates is a fifth of it."""


class HttpTransport:
    """Sends requests over HTTP or HTTPS, one kept connection for each thread.

    A redirect is returned as it came, for following it could carry the key to a stranger. `context` is for services
    with certificates of their own; without one, those of the system are trusted.

    >>> transport = HttpTransport()
    >>> transport.close()
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._context = context
        self._closed = False
        self._kept = threading.local()
        self._open: set[_Connection] = set()
        self._forsaken: list[_Connection] = []

    def __call__(self, request: Request) -> Response:
        """Send a request; once more where a kept connection turns out to have been given up by the other side."""
        if self._closed:
            raise ConnectionError("the transport is closed")
        parts = urlsplit(request.url)
        target = (parts.scheme, parts.netloc)
        connection: _Connection | None = getattr(self._kept, "connection", None)
        if connection is not None and connection.target == target and connection.sock is not None:
            try:
                return self._exchange(connection, request)
            except (ConnectionError, ssl.SSLEOFError):
                if self._closed:
                    raise
                # Nothing was answered, and everything we ask can be asked twice.
        connection = self._kept.connection = self._connection(target)
        return self._exchange(connection, request)

    def close(self) -> None:
        """End every connection; whoever waits for an answer stops waiting."""
        self._closed = True
        for connection in list(self._open):
            connection.end()
            if not connection.busy:
                connection.close()
                self._open.discard(connection)

    def forsake(self) -> None:
        """Let go of connections that another process goes on using: what a child does after a fork.

        Only their descriptors: a reader that was at work in the other process is locked for ever in this one, and
        whoever closed it would wait for ever. So it is kept, and never touched again.
        """
        for connection in self._open:
            connection.forsake()
        self._forsaken.extend(self._open)
        self._open = set()
        self._kept = threading.local()

    def _connection(self, target: tuple[str, str]) -> _Connection:
        if target[0] == "https" and self._context is None:
            self._context = ssl.create_default_context()
        return _Connection(target, self._context)

    def _exchange(self, connection: _Connection, request: Request) -> Response:
        parts = urlsplit(request.url)
        path = parts.path + ("?" + parts.query if parts.query else "")
        connection.deadline = time.monotonic() + request.timeout
        self._open.add(connection)
        connection.busy = True
        keep = False
        try:
            connection.request(request.method, path, body=request.body or None, headers=dict(request.headers))
            answer = connection.getresponse()
            try:
                body = answer.read(LARGEST + 1)
                if len(body) > LARGEST:
                    raise http.client.HTTPException(f"the answer is larger than {LARGEST} bytes")
                if answer.length:
                    raise http.client.IncompleteRead(body, answer.length)
                keep = not answer.will_close
                return Response(answer.status, dict(answer.headers.items()), body)
            finally:
                answer.close()
        finally:
            connection.busy = False
            if not keep or self._closed:
                connection.close()
                self._open.discard(connection)


class _Connection(http.client.HTTPConnection):
    """A connection on which nothing waits beyond its deadline."""

    def __init__(self, target: tuple[str, str], context: ssl.SSLContext | None) -> None:
        secure = target[0] == "https"
        self.default_port = http.client.HTTPS_PORT if secure else http.client.HTTP_PORT
        super().__init__(target[1])
        self.target = target
        self.deadline = 0.0
        self.busy = False
        """Whether somebody waits for an answer on it, who will close it."""
        self._context = context if secure else None

    def connect(self) -> None:
        """Open the connection within the deadline."""
        plain = socket.create_connection((self.host, self.port), timeout=remaining_seconds(self.deadline))
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                plain = self._context.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise
        self.sock = cast(socket.socket, _TimedConnection(plain, self))

    def end(self) -> None:
        """Wake whoever reads from it."""
        timed = self.sock
        if timed is not None:
            timed.shutdown(socket.SHUT_RDWR)

    def forsake(self) -> None:
        """Close this process's descriptor of it, and nothing else."""
        if isinstance(self.sock, _TimedConnection):
            self.sock.forsake()


class _TimedConnection:
    """As much of a socket as an HTTP connection uses, each call limited to what is left of the deadline."""

    def __init__(self, plain: socket.socket, connection: _Connection) -> None:
        self._plain = plain
        self._connection = connection

    def sendall(self, data: bytes) -> None:
        self._plain.settimeout(remaining_seconds(self._connection.deadline))
        self._plain.sendall(data)

    def makefile(self, mode: str) -> BinaryIO:
        return io.BufferedReader(_DeadlineReader(self._plain, self._connection))

    def shutdown(self, how: int) -> None:
        with contextlib.suppress(OSError):  # The other side may have been faster.
            self._plain.shutdown(how)

    def close(self) -> None:
        self._plain.close()

    def forsake(self) -> None:
        descriptor = self._plain.detach()
        if descriptor >= 0:
            os.close(descriptor)


class _DeadlineReader(io.RawIOBase):
    """What a socket receives; a slow drip that keeps every single wait short still meets the deadline."""

    def __init__(self, plain: socket.socket, connection: _Connection) -> None:
        self._plain = plain
        self._raw = cast(io.RawIOBase, plain.makefile("rb", buffering=0))
        self._connection = connection

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int | None:
        self._plain.settimeout(remaining_seconds(self._connection.deadline))
        return self._raw.readinto(buffer)  # type: ignore[arg-type]

    def close(self) -> None:
        self._raw.close()
        super().close()


def remaining_seconds(deadline: float) -> float:
    """Seconds until a deadline; raises where it has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the service did not answer in time")
    return left
