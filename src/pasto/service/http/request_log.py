"""Request log: one line for each request, with a limit on lines about refused ones, which strangers can cause."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

log = logging.getLogger("pasto.http")
WINDOW_SECONDS = 60.0
MAX_REFUSED_LINES = 100
"""Lines about refused requests in a window, for each status."""
REFUSED = 400
"""The least status of a refused request."""


class RequestLog:
    """Logs requests; refused ones beyond the limit are counted, and summed up when their window is over.

    >>> requests = RequestLog()
    >>> requests.suppressed
    {}
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, limit: int = MAX_REFUSED_LINES) -> None:
        self._clock = clock
        self._limit = limit
        self._began = clock()
        self._refused: Counter[int] = Counter()
        """Refused requests of this window, by status."""
        self._suppressed: Counter[int] = Counter()

    @property
    def suppressed(self) -> Mapping[int, int]:
        """Lines that were not logged since the process began, by status."""
        return dict(self._suppressed)

    def write(self, method: str, path: str, status: int, **details: Any) -> None:
        """Log a request, unless it is one of too many that were refused."""
        if status >= REFUSED:
            self.summarize()
            self._refused[status] += 1
            if self._refused[status] > self._limit:
                self._suppressed[status] += 1
                return
        log.info("%s %s", method, path, extra={"status": status, **details})

    def summarize(self, *, now: bool = False) -> None:
        """Log how many lines were suppressed, if the window is over, or `now`; called from time to time."""
        seconds = self._clock() - self._began
        if seconds < WINDOW_SECONDS and not now:
            return
        for status, count in sorted(self._refused.items()):
            if count > self._limit:
                details = {"status": status, "suppressed": count - self._limit, "seconds": round(seconds, 1)}
                log.warning("refused requests were not logged one by one", extra=details)
        self._began += seconds
        self._refused.clear()
