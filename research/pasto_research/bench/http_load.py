"""A load of HTTP requests on one address: many connections, each sending the next request when it has its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, cast

from pasto.errors import StoreError
from pasto_sdk.policy import PublishedPolicy, publish_policy


@dataclass(frozen=True, slots=True)
class Load:
    """Result of an HTTP load.

    >>> Load(requests=100, seconds=2.0, latencies=(0.01, 0.02, 0.5)).rate
    50.0
    """

    requests: int
    seconds: float
    latencies: tuple[float, ...]
    """Seconds of each request, in ascending order."""

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds

    def quantile(self, share: float) -> float:
        """Return the latency, in seconds, that this share of the requests did not exceed."""
        return self.latencies[min(len(self.latencies) - 1, int(share * len(self.latencies)))]


class _LoadConnection(asyncio.Protocol):
    """One keep-alive connection that sends one request after another."""

    def __init__(self, next_request: Callable[[], tuple[bytes, float] | None], latencies: list[float]) -> None:
        self._next, self._latencies = next_request, latencies
        self._buffer = b""
        self._began = 0.0
        self._transport: asyncio.Transport | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        header = self._buffer[:head].lower()
        at = header.find(b"content-length:")
        length = int(header[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(self._buffer) < head + 4 + length:
            return
        if not header.startswith(b"http/1.1 20"):
            self._fail(f"the service answered {self._buffer[:300]!r}")
            return
        self._latencies.append(perf_counter() - self._began)
        self._buffer = b""
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(StoreError(f"the service closed the connection: {exc}"))

    def _send(self) -> None:
        assert self._transport is not None  # noqa: S101 -- connected
        following = self._next()
        if following is None:
            if not self.done.done():
                self.done.set_result(None)
            self._transport.close()
            return
        request, due = following
        now = perf_counter()
        self._began = due or now
        if due > now:
            asyncio.get_running_loop().call_later(due - now, self._transport.write, request)
        else:
            self._transport.write(request)

    def _fail(self, why: str) -> None:
        if not self.done.done():
            self.done.set_exception(StoreError(why))
        if self._transport is not None:
            self._transport.close()


def drive(
    host: str,
    port: int,
    requests: Callable[[int], bytes],
    *,
    count: int,
    connections: int = 32,
    rate: float | None = None,
) -> Load:
    """Send `count` requests over so many connections; `requests(i)` gives the i-th one, whole.

    With a rate each request is due at a moment of its own, and its latency counts from there, so that a request that
    has to wait for a connection is not taken for a fast one.
    """
    sent, first = 0, perf_counter()
    latencies: list[float] = []

    def following() -> tuple[bytes, float] | None:
        nonlocal sent
        if sent >= count:
            return None
        sent += 1
        return requests(sent - 1), 0.0 if rate is None else first + (sent - 1) / rate

    async def run() -> float:
        loop = asyncio.get_running_loop()
        nonlocal first
        began = first = perf_counter()
        made = [
            (await loop.create_connection(lambda: _LoadConnection(following, latencies), host, port))[1]
            for _ in range(connections)
        ]
        await asyncio.gather(*(connection.done for connection in made))
        return perf_counter() - began

    try:
        import uvloop
    except ImportError:
        seconds = asyncio.run(run())
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            seconds = runner.run(run())
    return Load(len(latencies), seconds, tuple(sorted(latencies)))


def post(path: str, body: bytes, *, host: str = "127.0.0.1", key: str | None = None) -> bytes:
    """Return a complete POST request of JSON.

    >>> post("/echo", b"{}").splitlines()[0]
    b'POST /echo HTTP/1.1'
    """
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    if key:
        lines.append(f"Authorization: Bearer {key}")
    return "\r\n".join([*lines, "", ""]).encode() + body


Message = MutableMapping[str, Any]


CANDIDATES = 100

DOCUMENT: dict[str, Any] = {
    "name": "bench",
    "unit": "user",
    "baseline": {"weight": 0},
    "parameters": {"weight": list(range(CANDIDATES))},
    "metrics": {
        "watch_time": {"event": "watch", "value": "seconds", "aggregate": "sum", "cap": 7200},
        "like_rate": {"ratio": [{"event": "like", "aggregate": "count"}, {"event": "watch", "aggregate": "count"}]},
    },
    "goal": {"maximize": "watch_time"},
    "guardrails": [{"metric": "like_rate", "at_least": 0.01}],
    "traffic": {"control": 0.1},
    "rounds": {"every": "1h"},
}


def served(candidates: int, *, control: float = 0.0) -> PublishedPolicy:
    """Return a policy with equal shares of `candidates` and a control.

    >>> len(served(3, control=0.1).cells)
    4
    """
    shares = [("learner", k, (1.0 - control) / candidates) for k in range(candidates)]
    return publish_policy(
        study="bench",
        version=7,
        round=7,
        state="learning",
        mode="shuffled",
        salt="bench/7",
        candidates={k: (f"candidate {k}", {}) for k in range(candidates)},
        baseline=0,
        shares=[("control", 0, control), *shares] if control else shares,
        valid_from=0,
        expires_after=60,
    )
