"""How long to wait after a failure: longer each time, never long, and never all clients at once."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

FIRST = 2.0
CAP = 30.0
"""Seconds: nobody waits longer, so that a service that is back is found within half a minute."""
LEAST = 1.0
"""Seconds between two requests of one kind, whatever happens."""


class Backoff:
    """Counts failures in a row; each waits between half and the whole of twice the one before.

    >>> backoff = Backoff(random=lambda: 1.0)
    >>> [backoff.failed() for _ in range(6)]
    [2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    >>> backoff.succeeded()
    >>> backoff.failed(retry_after="5")
    5.0
    """

    def __init__(self, random: Callable[[], float] | None = None) -> None:
        self._random = random or Random().random  # noqa: S311 -- jitter is no secret
        self.failures = 0

    def jitter(self) -> float:
        """A factor between 0.8 and 1, for whatever many clients would else do at the same moment."""
        return 0.8 + 0.2 * self._random()

    def failed(self, retry_after: str = "") -> float:
        """Seconds to wait now; what the service asks for in Retry-After is granted up to the cap."""
        longest = min(CAP, FIRST * 2.0 ** min(self.failures, 10))
        self.failures += 1
        wait = longest * (1 + self._random()) / 2
        return max(wait, min(float(retry_after), CAP)) if retry_after.isdecimal() else wait

    def succeeded(self) -> None:
        """Begin anew."""
        self.failures = 0
