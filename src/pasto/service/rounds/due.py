"""When a round is over: by time, or by how many exposures it has seen."""

from __future__ import annotations

import time
from collections.abc import Callable

from pasto.service.accounting import exposures, latest
from pasto.service.board import Standing
from pasto.service.details import Details
from pasto.service.rounds.ages import Ages
from pasto.service.rounds.looks import look_due
from pasto.service.spec import Spec
from pasto.store import Store, StudyRow

RECOUNT = 30.0
"""Seconds after which a round is counted again, though too few events seem to have come."""


def crowded(spec: Spec, row: StudyRow, now: float) -> bool:
    """Whether as many rounds wait for events as can be kept, and none can be learned: then the open one must go on.

    One more would push out the policy of the oldest, and with it all that was measured under it.
    """
    waiting = [one for one in Details.from_text(row.details).waiting if one.missing is None or one.is_held]
    if len(waiting) < spec.room:
        return False
    return all(one.is_held or one.closed_at + spec.rounds.maturity > now for one in waiting)


class Due:
    """Tells the rounds that are over.

    Counting exposures reads a round's events, so it is done only when enough may have come since the last count.
    """

    def __init__(self, store: Store, ages: Ages, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._ages = ages
        self._monotonic = monotonic
        self._counted: dict[int, tuple[int, int, int, float]] = {}
        """By study: version, exposures counted, the last event then, and when."""

    def over(self, standing: Standing) -> bool:
        """Whether a study's open round should be closed now."""
        row, rounds = standing.row, standing.spec.rounds
        if row.state != "learning":
            return look_due(standing, self._ages.now(row))
        now = self._ages.now(row)
        if rounds.every is not None:
            over = now - row.opened_at >= rounds.every
        else:
            over = rounds.exposures is not None and self._full(standing, rounds.exposures)
        return over and not crowded(standing.spec, row, now)

    def _full(self, standing: Standing, wanted: int) -> bool:
        row = standing.row
        last, now = latest(self._store), self._monotonic()
        known = self._counted.get(row.number)
        if known is not None and known[0] == row.version:
            _, count, seen, at = known
            if last - seen < wanted - count and now - at < RECOUNT:
                return False
        policy = self._store.policy(row.number, row.version)
        after = 0 if policy is None else policy.after
        count = exposures(self._store, row.number, row.version, after, wanted)
        self._counted[row.number] = (row.version, count, last, now)
        return count >= wanted
