"""Request log: one line per request. Lines about rejected requests are limited, because anyone can cause them."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

log = logging.getLogger("pasto.http")
WINDOW_SECONDS = 60.0
MAX_REJECTED_LINES = 100
"""Lines about rejected requests per window and status."""
MIN_REJECTED_STATUS = 400
"""Lowest status of a rejected request."""


class RequestLog:
    """Log of requests. Rejected requests above the limit are counted, and summarized after each window.

    >>> requests = RequestLog()
    >>> requests.suppressed
    {}
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, limit: int = MAX_REJECTED_LINES) -> None:
        self._clock = clock
        self._limit = limit
        self._began = clock()
        self._rejected: Counter[int] = Counter()
        """Rejected requests of this window, by status."""
        self._suppressed: Counter[int] = Counter()

    @property
    def suppressed(self) -> Mapping[int, int]:
        """Number of lines not logged since the process started, by status."""
        return dict(self._suppressed)

    def write(self, method: str, path: str, status: int, **details: Any) -> None:
        """Log a request, except a rejected one above the limit."""
        if status >= MIN_REJECTED_STATUS:
            self.summarize()
            self._rejected[status] += 1
            if self._rejected[status] > self._limit:
                self._suppressed[status] += 1
                return
        log.info("%s %s", method, path, extra={"status": status, **details})

    def summarize(self, *, now: bool = False) -> None:
        """Log the number of suppressed lines if the window is over, or if `now` is true."""
        seconds = self._clock() - self._began
        if seconds < WINDOW_SECONDS and not now:
            return
        for status, count in sorted(self._rejected.items()):
            if count > self._limit:
                details = {"status": status, "suppressed": count - self._limit, "seconds": round(seconds, 1)}
                log.warning("rejected requests were not logged one by one", extra=details)
        self._began += seconds
        self._rejected.clear()
