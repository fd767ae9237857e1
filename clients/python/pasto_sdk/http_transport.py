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

MAX_RESPONSE_BYTES = 64_000_000
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
        self._local = threading.local()
        self._open: set[_Connection] = set()
        self._released: list[_Connection] = []

    def __call__(self, request: Request) -> Response:
        """Send a request; repeat it once if the other side has closed a kept-alive connection."""
        if self._closed:
            raise ConnectionError("the transport is closed")
        parts = urlsplit(request.url)
        target = (parts.scheme, parts.netloc)
        connection: _Connection | None = getattr(self._local, "connection", None)
        if connection is not None and connection.target == target and connection.sock is not None:
            try:
                return self._exchange(connection, request)
            except (ConnectionError, ssl.SSLEOFError):
                if self._closed:
                    raise
                # There was no response, and every request may be repeated.
        connection = self._local.connection = self._connection(target)
        return self._exchange(connection, request)

    def close(self) -> None:
        """Close every connection; threads that wait for a response stop waiting."""
        self._closed = True
        for connection in list(self._open):
            connection.end()
            if not connection.busy:
                connection.close()
                self._open.discard(connection)

    def release_after_fork(self) -> None:
        """Release connections that the parent process still uses, in a child after a fork.

        Only their descriptors are closed: a reader that was active in the parent holds a lock for ever in the child,
        and closing it would block. So the objects stay, unused.
        """
        for connection in self._open:
            connection.release_after_fork()
        self._released.extend(self._open)
        self._open = set()
        self._local = threading.local()

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
                body = answer.read(MAX_RESPONSE_BYTES + 1)
                if len(body) > MAX_RESPONSE_BYTES:
                    raise http.client.HTTPException(f"the answer is larger than {MAX_RESPONSE_BYTES} bytes")
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
    """HTTP connection with a deadline for each exchange."""

    def __init__(self, target: tuple[str, str], context: ssl.SSLContext | None) -> None:
        secure = target[0] == "https"
        self.default_port = http.client.HTTPS_PORT if secure else http.client.HTTP_PORT
        super().__init__(target[1])
        self.target = target
        self.deadline = 0.0
        self.busy = False
        """True while a thread waits for a response; that thread closes it."""
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
        """Wake the thread that reads from it."""
        timed = self.sock
        if timed is not None:
            timed.shutdown(socket.SHUT_RDWR)

    def release_after_fork(self) -> None:
        """Close the descriptor of this process only."""
        if isinstance(self.sock, _TimedConnection):
            self.sock.release_after_fork()


class _TimedConnection:
    """Part of a socket that an HTTP connection uses; each call is limited to the time left."""

    def __init__(self, plain: socket.socket, connection: _Connection) -> None:
        self._plain = plain
        self._connection = connection

    def sendall(self, data: bytes) -> None:
        self._plain.settimeout(remaining_seconds(self._connection.deadline))
        self._plain.sendall(data)

    def makefile(self, mode: str) -> BinaryIO:
        return io.BufferedReader(_DeadlineReader(self._plain, self._connection))

    def shutdown(self, how: int) -> None:
        with contextlib.suppress(OSError):  # The other side may have closed it first.
            self._plain.shutdown(how)

    def close(self) -> None:
        self._plain.close()

    def release_after_fork(self) -> None:
        descriptor = self._plain.detach()
        if descriptor >= 0:
            os.close(descriptor)


class _DeadlineReader(io.RawIOBase):
    """Reader of a socket with one deadline for all reads, also if data arrives slowly."""

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
    """Return the seconds until a deadline; raise TimeoutError if it has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the service did not answer in time")
    return left
