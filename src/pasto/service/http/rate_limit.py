"""Rate limit: the events per second that one API key may send, as a token bucket.

Rate limiters for ASGI count requests before the body is read. Here a batch costs as many tokens as it has events.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import ceil

BURST_SECONDS = 10.0
"""Seconds of unused events that a key can accumulate."""
MAX_KEYS = 10_000
"""Keys with a stored bucket; full buckets are dropped beyond that."""


class RateLimit:
    """Token buckets of keys.

    A batch is accepted if its key has any tokens left, and may make the balance negative. So a batch larger than the
    bucket is accepted, and the key then waits longer.

    >>> now = [0.0]
    >>> limit = RateLimit(100, clock=lambda: now[0])
    >>> limit.wait_seconds("ab12"), limit.take("ab12", 1500), limit.wait_seconds("ab12")
    (0, None, 6)
    >>> now[0] = 6.0
    >>> limit.wait_seconds("ab12")
    0
    """

    def __init__(self, per_second: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_second
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def wait_seconds(self, key: str) -> int:
        """Return the whole seconds until a key may send again; 0 if it may now."""
        tokens = self._tokens(key)
        return 0 if not self._rate or tokens > 0 else ceil(-tokens / self._rate) + 1

    def take(self, key: str, events: int) -> None:
        """Charge a key for a batch."""
        if not self._rate:
            return
        if len(self._buckets) >= MAX_KEYS and key not in self._buckets:
            full = self._rate * BURST_SECONDS
            self._buckets = {name: bucket for name, bucket in self._buckets.items() if self._tokens(name) < full}
        self._buckets[key] = (self._tokens(key) - events, self._clock())

    def _tokens(self, key: str) -> float:
        full = self._rate * BURST_SECONDS
        tokens, at = self._buckets.get(key, (full, 0.0))
        return min(full, tokens + (self._clock() - at) * self._rate)
