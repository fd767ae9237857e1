"""Fast path of the assign route: one unit, answered before the endpoint.

Deciding takes 2 microseconds, the endpoint 12, and uvicorn's parser, task, scope and response another 18. A plain
request for one unit of a known study is answered here: without uvicorn if it arrives in one piece, otherwise as an ASGI
application. All other requests and all errors are left to the endpoint, so that the responses are the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from email.utils import formatdate
from time import perf_counter, time
from typing import Any

import msgspec

from pasto.service.http.auth import Caller
from pasto.service.http.body import Receive, RequestHeaders, read_json
from pasto.service.http.policies import ASSIGN_REQUEST, decide_unit
from pasto.service.http.request import Context, Endpoint, Scope, Send
from pasto.service.http.responses import JSON
from pasto.store import KeyRow

PREFIX = b"/v1/studies/"
"""Path of the assign route up to the study's name."""
MAX_BODY_DIGITS = 4
"""Digits of the Content-Length of a body that is read here, because a unit has at most 256 characters."""
MAX_WAITING_EVENTS = 25_000
"""Events in the write queue above which decisions are delayed; the store rejects events at twice as many."""
SLOW_DOWN_SECONDS = 0.01
"""Seconds of that delay. Without it, decisions are made faster than their exposures are written."""


class FastAssign:
    """ASGI application for plain requests to POST /v1/studies/{name}/assign; others go to the endpoint."""

    suffix = b"/assign"

    def __init__(self, endpoint: Endpoint, context: Context) -> None:
        self._endpoint = endpoint
        self._route = endpoint.route
        self._context = context
        self._max_concurrent = context.settings.max_concurrent
        self._body_limit = context.settings.body_limit
        self._head = b""
        """Start of a response, valid for the second `_head_second`."""
        self._head_second = 0

    def answer(self, address: bytes, headers: dict[bytes, bytes], body: bytes) -> bytes | None:
        """Return the response to a complete POST request; None if uvicorn must serve it."""
        if not (address.startswith(PREFIX) and address.endswith(self.suffix)):
            return None
        name = address[len(PREFIX) : -len(self.suffix)].decode("latin-1")
        if not self._is_plain(name, headers) or self._context.store.queued_events > MAX_WAITING_EVENTS:
            return None
        started = perf_counter()
        try:
            caller = self._context.authenticator.admit(headers, self._route.scopes, name)
            decision = self._decide(name, caller, body)
        except Exception:  # the endpoint raises it again, and responds or logs it
            return None
        if decision is None:
            return None
        second = int(time())
        if second != self._head_second:
            self._head_second = second
            self._head = _head(second)
        response = b"%b%d\r\n\r\n%b" % (self._head, len(decision), decision)
        self._context.metrics.count_request(self._route.method, self._route.path, 200, perf_counter() - started)
        return response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Decide for one unit, or pass the request to the endpoint."""
        name: str = scope["path_params"]["name"]
        context = self._context
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if not self._is_plain(name, headers):
            await self._endpoint(scope, receive, send)
            return
        started = perf_counter()
        if context.store.queued_events > MAX_WAITING_EVENTS:
            await asyncio.sleep(SLOW_DOWN_SECONDS)
        message: MutableMapping[str, Any] | None = None
        context.active_requests += 1
        try:
            caller = context.authenticator.admit(headers, self._route.scopes, name)
            message = await receive()
            decision = None if message["more_body"] else self._decide(name, caller, message["body"])
        except Exception:  # the endpoint raises it again, and responds or logs it
            decision = None
        finally:
            context.active_requests -= 1
        if decision is None:
            await self._endpoint(scope, receive if message is None else _replay(message, receive), send)
            return
        response_headers = (*JSON, (b"content-length", b"%d" % len(decision)))
        await send({"type": "http.response.start", "status": 200, "headers": response_headers})
        await send({"type": "http.response.body", "body": decision})
        context.metrics.count_request(self._route.method, self._route.path, 200, perf_counter() - started)

    def _is_plain(self, name: str, headers: RequestHeaders) -> bool:
        """Return whether a request is for a known study, and has a short body of plain JSON."""
        return (
            name in self._context.known_studies
            and 0 < len(headers.get(b"content-length", b"")) <= MAX_BODY_DIGITS
            and headers.get(b"content-type", b"application/json") == b"application/json"
            and b"content-encoding" not in headers
            and self._context.active_requests < self._max_concurrent
        )

    def _decide(self, name: str, caller: Caller, body: bytes) -> bytes | None:
        """Return the response body for one unit; None if the request is for several. Raise as the endpoint does."""
        context = self._context
        if len(body) > self._body_limit:
            return None
        assign_request = read_json(body, ASSIGN_REQUEST, context.settings.depth_limit)
        if assign_request.unit is msgspec.UNSET or assign_request.units is not msgspec.UNSET:
            return None
        prefix = caller.prefix if isinstance(caller, KeyRow) else None
        return decide_unit(context, name, context.service.policy_cache.drawn(name), assign_request, prefix)


def _head(second: int) -> bytes:
    """Return the start of a response, with the headers and their order as uvicorn sends them."""
    headers = ((b"date", formatdate(second, usegmt=True).encode()), *JSON)
    return b"HTTP/1.1 200 OK\r\n%bcontent-length: " % b"".join(b"%b: %b\r\n" % header for header in headers)


def _replay(first: MutableMapping[str, Any], receive: Receive) -> Receive:
    """Return a `receive` that first returns a message that was already received."""
    messages = [first]

    async def receive_again() -> MutableMapping[str, Any]:
        return messages.pop() if messages else await receive()

    return receive_again
