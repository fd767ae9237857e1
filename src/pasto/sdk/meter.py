"""A counter that many threads may advance without a lock."""

from __future__ import annotations

import itertools


class Meter:
    """Counts calls of `tick`, each of which is one step of the interpreter and so never lost.

    >>> meter = Meter()
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
