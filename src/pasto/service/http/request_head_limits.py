"""Limits of request heads: their size, and the time that a connection may take for a request.

uvicorn with httptools reads request heads without any limit. `LimitedConnection` stands between the transport and
uvicorn's protocol, which it gets from uvicorn's configuration and calls only through `asyncio.Protocol`. It parses the
stream with httptools, and forwards each piece once it is within the limits; uvicorn then parses it a second time. A
POST request that arrives whole, when no other waits, is first offered to a `PostResponder`. If that answers, uvicorn
never sees the request, and needs no task, scope or second parse for it.

Measured with `bench/echo.py`, requests per second and memory after 3 s of endless header lines:

| server | requests/s | memory |
|---|---|---|
| uvicorn with httptools | 32,300 | 129 to 549 MB |
| uvicorn with h11 | 11,600 | constant |
| granian | 20,500 | constant |
| hypercorn | 7,500 | constant |

h11, granian and hypercorn limit the head, but are too slow, and none of them limits the time a body may take. Parsing
a request here costs 2.5 microseconds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, cast

import httptools

from pasto.service.http.body import Receive
from pasto.service.http.request import Scope, Send
from pasto.service.http.responses import encode_response, problem_response

if TYPE_CHECKING:
    from pasto.service.http.descriptor_limit import OpenConnections

MAX_HEAD_BYTES = 32_768
"""Bytes of a request's address, headers and trailers together."""
MAX_HEADERS = 100
"""Headers and trailers of a request together."""
MAX_URL_BYTES = 8_192
PIECE_BYTES = 16_384
"""Bytes checked at once; a head that does not end is noticed at most this much after `MAX_HEAD_BYTES`."""
LINGER_SECONDS = 1.0
"""Seconds for a refused caller to stop sending and read the answer."""
LINGER_BYTES = 262_144
"""Bytes a refused caller may still send meanwhile; they are dropped."""

IDLE, HEAD, BODY = range(3)
"""The part of a request that arrives next on a connection; plain numbers, because every request compares them."""

Application = Callable[[Scope, Receive, Send], Awaitable[None]]
ProtocolFactory = Callable[..., asyncio.Protocol]


class PostResponder(Protocol):
    """Responder to POST requests that arrive whole, in front of the application."""

    suffix: bytes
    """End of the addresses that it answers; other requests are not offered."""

    def answer(self, address: bytes, headers: dict[bytes, bytes], body: bytes) -> bytes | None:
        """Return the bytes of the whole response; None if the application must answer."""


BAD_REQUEST = encode_response(problem_response(400, "bad_request", "the request is not valid HTTP/1.1"))
TOO_SLOW = encode_response(problem_response(408, "timeout", "the request did not arrive in time"))
URL_TOO_LONG = encode_response(
    problem_response(
        414, "url_too_long", f"the address of a request may have {MAX_URL_BYTES} bytes; shorten its path or query"
    )
)
HEAD_TOO_LARGE = encode_response(
    problem_response(
        431,
        "head_too_large",
        f"a request may have {MAX_HEADERS} headers, and {MAX_HEAD_BYTES} bytes in its address and headers together; "
        "send fewer or shorter ones",
    )
)


class LimitedConnection(asyncio.Protocol):
    """A connection that forwards to an inner protocol what is within the limits.

    uvicorn calls it as it would call its own protocol. `TrackedApplication` reports which requests are answered.
    """

    def __init__(
        self,
        connections: OpenConnections,
        inner: ProtocolFactory,
        responder: PostResponder | None = None,
        *,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        **arguments: Any,
    ) -> None:
        self._connections = connections
        self._request_timeout = connections.request_timeout
        self._keep_alive = connections.keep_alive
        self._responder = responder
        self._loop = _loop or asyncio.get_running_loop()
        self._inner = inner(app_state={**app_state, "connection": self}, _loop=_loop, **arguments)
        self._parser = httptools.HttpRequestParser(self)
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as the inner parser does
        self._transport: asyncio.Transport = cast(Any, None)
        self._phase = HEAD  # the first request is due from the start
        self._head_bytes = 0
        self._url_bytes = 0
        self._headers = 0
        self._url = self._body = b""
        self._fields: dict[bytes, bytes] | None = None
        """Headers by their names in lower case, the last of equal names, if the responder may answer the request."""
        self._is_persistent = False
        """Whether the caller keeps the connection for another request; the parser knows only until the body begins."""
        self._begun = 0
        """Requests that began in the last piece."""
        self._inner_expires = inf
        """Time from which the next request must reach the inner protocol, or its timer closes the connection."""
        self._has_progress = False
        """Whether the parser found anything in the last piece."""
        self._unparsed_bytes = 0
        """Bytes since the parser found something."""
        self._header_counts: deque[int] = deque()
        """The number of headers of each request that the application has not yet begun to answer."""
        self._unanswered = 0
        """Requests whose head is complete, and which are not answered."""
        self._answers_early = False
        self._refusal = BAD_REQUEST
        self._dropped_bytes: int | None = None
        """Bytes dropped after a refusal; None before one."""
        self._unread_bytes: int | None = None
        """Bytes of answers that the caller does not read; None while it reads."""
        self._is_lost = False
        self._deadline: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    # From the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Expect the first request."""
        self._transport = cast(asyncio.Transport, transport)
        self._inner.connection_made(transport)
        self._set_deadline(self._request_timeout)
        self._connections.add(self, self._loop.time())

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything."""
        self._connections.remove(self)
        self._is_lost = True
        self._deadline = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._inner.connection_lost(exc)
        self._inner = self._parser = cast(Any, None)  # they refer to this connection, and would outlive it

    def data_received(self, data: bytes) -> None:
        """Check what arrived, and forward it."""
        if len(data) > PIECE_BYTES:
            for start in range(0, len(data), PIECE_BYTES):
                self.data_received(data[start : start + PIECE_BYTES])
            return
        if self._dropped_bytes is not None:
            self._dropped_bytes += len(data)
            if self._dropped_bytes > LINGER_BYTES:
                self._transport.abort()
            return
        self._has_progress = False
        self._begun = 0
        has_earlier = self._phase is BODY
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._begun = 0  # left to uvicorn, which answers as if no upgrade had been asked for
        except httptools.HttpParserError:
            self._refuse(self._refusal)
            return
        if self._has_progress:
            self._unparsed_bytes = 0
        else:
            self._unparsed_bytes += len(data)
            if self._head_bytes + self._unparsed_bytes > MAX_HEAD_BYTES:
                self._refuse(HEAD_TOO_LARGE)
                return
        if self._fields is not None:
            is_whole = self._begun == 1 and self._phase is IDLE and not has_earlier
            is_answered = is_whole and self._answer(self._fields)
            self._fields, self._body = None, b""
            if is_answered:
                return
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Forward that the caller sends no more."""
        return None if self._dropped_bytes is not None else self._inner.eof_received()

    def pause_writing(self) -> None:
        """Forward that the caller does not read its answers, and wait for it only so long."""
        self._unread_bytes = self._transport.get_write_buffer_size()
        if self._deadline is None:
            self._set_deadline(self._request_timeout)
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Forward that the caller reads again."""
        self._unread_bytes = None
        if self._phase is IDLE and self._unanswered:
            self._deadline = None
        self._inner.resume_writing()

    def _answer(self, headers: dict[bytes, bytes]) -> bool:
        """Answer the one request that the last piece consists of, if that can be done without the inner protocol."""
        if (
            self._responder is None
            or self._unanswered != 1
            or self._unread_bytes is not None
            or b"expect" in headers
            or self._parser.get_method() != b"POST"
            or self._parser.get_http_version() != "1.1"
            or not self._is_persistent
            or self._loop.time() >= self._inner_expires
        ):
            return False
        response = self._responder.answer(self._url, headers, self._body)
        if response is None:
            return False
        self._transport.write(response)
        self._header_counts.pop()
        self._unanswered = 0
        self._expect_request()
        return True

    # From the parser.

    def on_message_begin(self) -> None:
        """Count for a new request."""
        self._phase = HEAD
        self._has_progress = True
        self._begun += 1
        self._fields = None
        self._head_bytes = self._url_bytes = self._headers = 0
        self._set_deadline(self._request_timeout)

    def on_url(self, url: bytes) -> None:
        """Limit the address."""
        self._has_progress = True
        if self._responder is not None and not self._url_bytes and url.endswith(self._responder.suffix):
            self._url = url
            self._fields = {}
        self._url_bytes += len(url)
        self._head_bytes += len(url)
        if self._url_bytes > MAX_URL_BYTES:
            self._refusal = URL_TOO_LONG
            raise ValueError("too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Limit the headers, and the trailers of a chunked body."""
        self._has_progress = True
        self._headers += 1
        self._head_bytes += len(name) + len(value)
        if self._headers > MAX_HEADERS or self._head_bytes > MAX_HEAD_BYTES:
            self._refusal = HEAD_TOO_LARGE
            raise ValueError("too many")
        if self._fields is not None:
            self._fields[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Note how many headers the request has; its trailers are not among them."""
        self._phase = BODY
        self._has_progress = True
        if self._fields is not None:
            self._is_persistent = self._parser.should_keep_alive()
        self._header_counts.append(self._headers)
        self._unanswered += 1

    def on_body(self, body: bytes) -> None:
        """Note that the body goes on; it is one part if it has a length and arrives whole."""
        self._has_progress = True
        if self._fields is not None:
            self._body = body

    def on_message_complete(self) -> None:
        """Let the answer take its time."""
        self._phase = IDLE
        self._has_progress = True
        if self._unanswered:
            self._deadline = None
            self._connections.idle.pop(self, None)
        else:  # answered without its body
            self._expect_request()

    # From the application.

    def begin_request(self, scope: Scope) -> None:
        """Remove trailers from the headers of a request; uvicorn appends them to its list."""
        scope["headers"] = scope["headers"][: self._header_counts.popleft()]

    def answer_early(self) -> None:
        """Note that a request is being answered before it is complete."""
        self._answers_early = True

    def end_request(self) -> None:
        """Note that a request is answered."""
        self._unanswered -= 1
        self._answers_early = False
        if self._is_lost:
            return
        if self._transport.is_closing():
            self._set_deadline(self._request_timeout)  # for the caller to read the answer
        elif not self._unanswered:
            self._inner_expires = self._loop.time() + self._keep_alive
            self._expect_request()

    def _expect_request(self) -> None:
        idle = self._connections.idle
        idle.pop(self, None)
        idle[self] = None
        if self._phase is IDLE:
            self._set_deadline(self._keep_alive)

    # The end.

    def close(self, response: bytes = b"") -> None:
        """Close after a last response, if any; what the caller does not read within a second is dropped."""
        if response:
            self._transport.write(response)
        self._transport.close()
        self._set_deadline(LINGER_SECONDS)

    def _refuse(self, response: bytes) -> None:
        """Answer, and close when the caller had time to read the answer.

        A socket that is closed while the caller still sends resets the connection before the caller reads the answer.
        """
        self._dropped_bytes = 0
        if not self._may_answer():
            self.close()
            return
        self._transport.write(response)
        self._transport.resume_reading()
        if not self._unanswered:
            self._transport.write_eof()
        self._set_deadline(LINGER_SECONDS)

    def _may_answer(self) -> bool:
        """Return whether a response written now answers the request that is arriving, and no other."""
        return self._unanswered == (self._phase is BODY) and not self._answers_early

    def _set_deadline(self, seconds: float) -> None:
        """Replace the deadline; a timer that ends earlier is left to run, because most deadlines are replaced."""
        self._deadline = self._loop.time() + seconds
        if self._timer is not None:
            if self._timer_at <= self._deadline:
                return
            self._timer.cancel()
        self._timer_at = self._deadline
        self._timer = self._loop.call_later(seconds, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self._deadline is None:
            return
        remaining = self._deadline - self._loop.time()
        if remaining > 0:
            self._set_deadline(remaining)
        else:
            self._deadline = None
            self._expire()

    def _expire(self) -> None:
        unread = self._transport.get_write_buffer_size()
        if self._dropped_bytes is not None:
            self._transport.abort()
        elif self._unread_bytes is not None and unread < self._unread_bytes:  # it reads slowly
            self._unread_bytes = unread
            self._set_deadline(self._request_timeout)
        elif self._unread_bytes is not None or self._transport.is_closing():
            self._transport.abort()
        elif self._phase is IDLE or not self._may_answer():
            self.close()
        else:
            self.close(TOO_SLOW)


class TrackedApplication:
    """ASGI application that notifies each connection when its requests are answered."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or the start and end of the server."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        connection: LimitedConnection = scope["state"]["connection"]
        connection.begin_request(scope)
        try:
            await self._application(scope, receive, send)
        finally:
            connection.end_request()
