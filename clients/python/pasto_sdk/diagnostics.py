"""Diagnostics of a client: problems, counted and logged once each, and a lock-free counter."""

from __future__ import annotations

import itertools
import logging
from collections import Counter

LOG = logging.getLogger("pasto.sdk")

MAX_MESSAGES = 50
"""Most different messages that are stored; later ones are counted and not logged."""

UNLISTED = "reason not listed by the service"
"""Reason of a rejected event without one: the service explains the first hundred of a batch."""


class ErrorLog:
    """Problems that must not reach the caller, and that an operator must see.

    >>> error_log = ErrorLog()
    >>> error_log.note("the service answered 503")
    >>> error_log.errors, error_log.last
    (1, 'the service answered 503')
    """

    def __init__(self) -> None:
        self.errors = 0
        self.last: str | None = None
        self.refused: Counter[str] = Counter()
        """Events that the service or the client rejected, by reason."""
        self._logged: set[str] = set()

    def note(self, message: str) -> None:
        """Count a problem, store it as the last one, and log it the first time."""
        self.errors += 1
        self.last = message
        if message not in self._logged and len(self._logged) < MAX_MESSAGES:
            self._logged.add(message)
            LOG.warning("%s", message)

    def refuse(self, reason: str) -> None:
        """Count a rejected event by its reason."""
        reason = reason or UNLISTED
        self.refused[reason if reason in self.refused or len(self.refused) < MAX_MESSAGES else "other reasons"] += 1
        self.note(f"an event was rejected: {reason}")


class CallCounter:
    """Counter of calls of `tick`; each call is one step of the interpreter, so none is lost.

    >>> counter = CallCounter()
    >>> counter.tick(), counter.tick(), counter.read(), counter.read()
    (0, 1, 2, 2)
    """

    __slots__ = ("_readings", "tick")

    def __init__(self) -> None:
        self.tick = itertools.count().__next__
        self._readings = 0

    def read(self) -> int:
        """Return how often it ticked, without the ticks of earlier reads."""
        count = self.tick() - self._readings
        self._readings += 1
        return count
