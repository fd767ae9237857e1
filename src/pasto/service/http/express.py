"""Decisions for one unit, answered straight from the connection.

A decision takes two microseconds; the messages, the task and the scope of an ASGI request take ten times that. So what
is in order is answered here, and anything else is left to the endpoint, which says what is wrong with it: whatever
both could answer, they answer alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter

import msgspec

from pasto.service.http.answers import JSON
from pasto.service.http.body import read_json
from pasto.service.http.calls import Context
from pasto.service.http.policies import UNITS, decided
from pasto.service.http.table import Route

Lines = Iterable[tuple[bytes, bytes]]


class Express:
    """Answers POST /v1/studies/{name}/assign for one unit."""

    def __init__(self, route: Route, context: Context) -> None:
        self._route = route
        self._context = context
        before, _, after = route.path.partition("{name}")
        self._before, self._after = before.encode(), after.encode()
        self._names: dict[bytes, str] = {}
        self._dated: Lines = ()
        self._head = b""

    def takes(self, method: bytes, url: bytes) -> bool:
        """Whether a request may be for it."""
        return url.endswith(self._after) and method == b"POST" and (url in self._names or self._knows(url))

    def answer(self, url: bytes, headers: Lines, body: bytes, dated: Lines) -> bytes | None:
        """A whole response, or None where the endpoint must look at it; `dated` are the server's own headers."""
        started = perf_counter()
        context, name = self._context, self._names[url]
        sent = dict(headers)
        if (
            sent.get(b"content-type", b"application/json") != b"application/json"
            or b"content-encoding" in sent
            or context.working >= context.settings.max_concurrent
        ):
            return None
        try:
            key = context.guard.admit(sent, self._route.scopes)
            asked = read_json(body, UNITS, context.settings.depth_limit)
            if asked.unit is msgspec.UNSET or asked.units is not msgspec.UNSET:
                return None
            prefix = None if key is None else key.prefix
            told = decided(context, name, context.service.board.current(name), asked.unit, prefix)
        except Exception:  # the endpoint meets it again, explains it, and logs what nobody foresaw
            return None
        if dated is not self._dated:
            lines = b"".join(b"%b: %b\r\n" % line for line in (*dated, *JSON))
            self._dated, self._head = dated, b"HTTP/1.1 200 OK\r\n%bcontent-length: " % lines
        context.meters.request(self._route, 200, perf_counter() - started)
        return b"%b%d\r\n\r\n%b" % (self._head, len(told), told)

    def _knows(self, url: bytes) -> bool:
        """Whether an address is that of a study met before, spelled plainly; then it is remembered."""
        name = url[len(self._before) : -len(self._after)].decode("latin-1")
        if not url.startswith(self._before) or name not in self._context.known:
            return False
        self._names[url] = name
        return True
