"""The time of a study: it never runs backwards, and a wall clock that was set back does not stop it."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

from pasto.store import StudyRow


class Ages:
    """How late it is in each study, whatever is done to the wall clock meanwhile.

    A round lasts at least as long as a steady clock says since this process first saw it, so a wall clock set back
    delays nothing; one set forward ends the open round early, once.

    >>> from dataclasses import replace
    >>> row = StudyRow("feed", 1, 1, "learning", "{}", 7, 3, 3, opened_at=1000.0, created_at=0.0)
    >>> wall, steady = [1000.0], [50.0]
    >>> ages = Ages(lambda: wall[0], lambda: steady[0])
    >>> ages.now(row)
    1000.0
    >>> wall[0], steady[0] = -7200.0, 80.0
    >>> ages.now(row)
    1030.0
    """

    def __init__(self, clock: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._seen: dict[int, tuple[int, float]] = {}
        self._lock = Lock()

    def now(self, row: StudyRow) -> float:
        """The study's time: the wall clock's, or what its open round must have lasted at least."""
        steady = self._monotonic()
        with self._lock:
            seen = self._seen.get(row.number)
            if seen is None or seen[0] != row.round:
                seen = self._seen[row.number] = (row.round, steady)
        return max(self._clock(), row.opened_at + (steady - seen[1]))
