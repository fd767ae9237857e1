"""What went wrong, for whoever asks: counted, kept, and logged once each."""

from __future__ import annotations

import itertools
import logging
from collections import Counter

LOG = logging.getLogger("pasto.sdk")

KEPT = 50
"""Different messages that are remembered; whatever comes after those is counted and not logged."""

UNLISTED = "reason not listed by the service"
"""The reason of an event that the service refused without one: it explains the first hundred of a batch."""


class ErrorLog:
    """Problems that a caller must not be bothered with, and an operator must be able to see.

    >>> journal = ErrorLog()
    >>> journal.note("the service answered 503")
    >>> journal.errors, journal.last
    (1, 'the service answered 503')
    """

    def __init__(self) -> None:
        self.errors = 0
        self.last: str | None = None
        self.refused: Counter[str] = Counter()
        """Events that the service, or the client itself, would not take, by reason."""
        self._told: set[str] = set()

    def note(self, message: str) -> None:
        """Count a problem, keep it as the last one, and log it the first time."""
        self.errors += 1
        self.last = message
        if message not in self._told and len(self._told) < KEPT:
            self._told.add(message)
            LOG.warning("%s", message)

    def refuse(self, reason: str) -> None:
        """Count an event that is not taken, by its reason."""
        reason = reason or UNLISTED
        self.refused[reason if reason in self.refused or len(self.refused) < KEPT else "other reasons"] += 1
        self.note(f"an event was refused: {reason}")


class CallCounter:
    """Counts calls of `tick`, each of which is one step of the interpreter and so never lost.

    >>> meter = CallCounter()
    >>> meter.tick(), meter.tick(), meter.read(), meter.read()
    (0, 1, 2, 2)
    """

    __slots__ = ("_readings", "tick")

    def __init__(self) -> None:
        self.tick = itertools.count().__next__
        self._readings = 0

    def read(self) -> int:
        """How often it ticked; reading ticks too, and is taken off."""
        count = self.tick() - self._readings
        self._readings += 1
        return count
