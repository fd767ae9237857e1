"""A connection to the service: uvicorn's, made prompt, sparing with packets, and with a short way for decisions."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pasto.service.http.answers import CLOSE, problem
from pasto.service.http.express import Express

SHORT = 65_536
"""Bytes of a body that may come the short way."""
_told = problem(408, "too_slow", "the request did not arrive in time", headers=CLOSE)
TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\n%b\r\ncontent-length: %d\r\n\r\n%b" % (
    b"\r\n".join(b"%b: %b" % each for each in _told.headers),
    len(_told.body),
    _told.body,
)


class Whole:
    """A connection's way out: an answer's head waits for the first of its body, so that both leave in one packet."""

    __slots__ = ("_head", "_protocol", "_told", "_transport")

    def __init__(self, transport: asyncio.Transport, protocol: HttpToolsProtocol) -> None:
        self._transport = transport
        self._protocol = protocol
        self._told: object = None
        """The request whose head was seen last."""
        self._head = b""

    def write(self, data: bytes) -> None:
        """Send, unless it is a head."""
        cycle = self._protocol.cycle
        if self._head:
            data, self._head = self._head + data, b""
        elif cycle is not None and cycle is not self._told and cycle.response_started:  # an interim 100 comes earlier
            self._told, self._head = cycle, data
            return
        self._transport.write(data)

    def flush(self) -> None:
        """Send a head that no body followed."""
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def close(self) -> None:
        """Send what waits, and end."""
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Connection(HttpToolsProtocol):
    """A connection that must say in time what it wants; uvicorn alone would wait for it for ever.

    A request that `express` takes is answered as soon as its last byte is there, with no task in between. Whatever
    it does not take, and whatever comes while another request of the connection is in work, goes uvicorn's way.
    """

    patience: ClassVar[float] = 30.0
    express: ClassVar[Express | None] = None
    _timer: asyncio.TimerHandle | None = None
    _whole = False
    """Whether the last request begun has come to its end."""
    _short: bytes | None = None
    """What came so far of the body of a request that goes the short way."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
        super().connection_made(transport)
        self.transport = Whole(transport, self)  # type: ignore[assignment]
        self._timer = self.loop.call_later(self.patience, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._rest()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what arrived, and wait for the rest of it only so long."""
        super().data_received(data)
        if self._whole:
            if self._timer is not None:
                self._rest()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.patience, self._give_up)

    def on_message_begin(self) -> None:
        """A request begins, so the connection is not idle, though it may have been answered a moment ago."""
        self._whole = False
        self._unset_keepalive_if_required()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Choose the way that a request goes."""
        if self.express is not None and self._calm() and self.express.takes(self.parser.get_method(), self.url):
            self._short = b""
        else:
            super().on_headers_complete()
        self.headers = []  # what comes behind a chunked body is no header of the request, whose scope has them all

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        if self._short is None:
            super().on_body(body)
            return
        self._short += body
        if len(self._short) > SHORT:
            self._turn_back()

    def on_message_complete(self) -> None:
        """A request is whole."""
        self._whole = True
        if self._short is not None:
            assert self.express is not None  # noqa: S101 -- it took the request
            said = self.express.answer(self.url, self.scope["headers"], self._short, self.server_state.default_headers)
            if said is not None:
                self._short = None
                self.transport.write(said)
                super().on_response_complete()
                return
            self._turn_back()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Send what waits, and look at the next request."""
        self.transport.flush()  # type: ignore[attr-defined]
        super().on_response_complete()
        if not self._whole:  # the next request has begun to arrive
            self._unset_keepalive_if_required()

    def shutdown(self) -> None:
        """End when nothing is under way any more; a request that came in part is waited for."""
        if self._short is not None:
            self._turn_back()
        super().shutdown()

    def _calm(self) -> bool:
        """Whether nothing else goes on here: no answer under way, none unread, no handshake asked for."""
        return (
            (self.cycle is None or self.cycle.response_complete)
            and not self.pipeline
            and not self.flow.write_paused
            and not self.expect_100_continue
            and not self.parser.should_upgrade()
            and self.parser.should_keep_alive()
            and self.parser.get_http_version() == "1.1"  # older callers must be told that it is kept, and are not
        )

    def _turn_back(self) -> None:
        """Send a request uvicorn's way after all."""
        body, self._short = self._short, None
        super().on_headers_complete()
        if body:
            super().on_body(body)

    def _give_up(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
                self.transport.write(TOO_SLOW)
            self.transport.close()

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
