"""Decisions for one unit, answered in front of the endpoint.

Deciding takes two microseconds, the general endpoint six times that. A plain request for one unit of a known study is
answered here. Every other request, and every error, is left to the endpoint, so the two give the same answers.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from time import perf_counter
from typing import Any

import msgspec

from pasto.service.http.body import Receive, read_json
from pasto.service.http.policies import UNITS, decided
from pasto.service.http.request import Context, Endpoint, Scope, Send
from pasto.service.http.responses import JSON

MAX_BODY_DIGITS = 4
"""Digits of the Content-Length of a body that is read here: a unit takes at most 256 characters."""


class FastAssign:
    """ASGI application for POST /v1/studies/{name}/assign, which the endpoint serves in general."""

    def __init__(self, endpoint: Endpoint, context: Context) -> None:
        self._endpoint = endpoint
        self._route = endpoint.route
        self._context = context
        self._refused_from = context.settings.max_concurrent
        self._body_limit = context.settings.body_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Decide for one unit, or pass the request to the endpoint."""
        name: str = scope["path_params"]["name"]
        context = self._context
        headers: dict[bytes, bytes] = dict(scope["headers"])
        length = headers.get(b"content-length", b"")
        if (
            name not in context.known
            or not 0 < len(length) <= MAX_BODY_DIGITS
            or headers.get(b"content-type", b"application/json") != b"application/json"
            or b"content-encoding" in headers
            or context.working >= self._refused_from
        ):
            await self._endpoint(scope, receive, send)
            return
        started = perf_counter()
        message: MutableMapping[str, Any] | None = None
        context.working += 1
        try:
            key = context.guard.admit(headers, self._route.scopes)
            message = await receive()
            body: bytes = message["body"]
            if message["more_body"] or len(body) > self._body_limit:
                answer = None
            else:
                asked = read_json(body, UNITS, context.settings.depth_limit)
                if asked.unit is msgspec.UNSET or asked.units is not msgspec.UNSET:
                    answer = None
                else:
                    prefix = None if key is None else key.prefix
                    answer = decided(context, name, context.service.board.current(name), asked.unit, prefix)
        except Exception:  # the endpoint meets it again, and answers or logs it
            answer = None
        finally:
            context.working -= 1
        if answer is None:
            await self._endpoint(scope, receive if message is None else _replay(message, receive), send)
            return
        response_headers = (*JSON, (b"content-length", b"%d" % len(answer)))
        await send({"type": "http.response.start", "status": 200, "headers": response_headers})
        await send({"type": "http.response.body", "body": answer})
        context.meters.request(self._route, 200, perf_counter() - started)


def _replay(first: MutableMapping[str, Any], receive: Receive) -> Receive:
    """Return a `receive` that gives a message already received before the others."""
    messages = [first]

    async def receive_again() -> MutableMapping[str, Any]:
        return messages.pop() if messages else await receive()

    return receive_again
