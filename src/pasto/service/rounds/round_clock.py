"""When a round is over: by time, or by how many exposures it has seen."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

from pasto.service.event_ledger import exposures, latest
from pasto.service.lifecycle import PHASES
from pasto.service.policy_cache import StudySnapshot
from pasto.service.study_file import StudySpec
from pasto.service.study_state import StudyState
from pasto.store import Store, StudyRow


class StudyClock:
    """How late it is in each study, whatever is done to the wall clock meanwhile.

    A round lasts at least as long as a steady clock says since this process first saw it, so a wall clock set back
    delays nothing; one set forward ends the open round early, once.

    >>> from dataclasses import replace
    >>> row = StudyRow("feed", 1, 1, "learning", "{}", 7, 3, 3, opened_at=1000.0, created_at=0.0)
    >>> wall, steady = [1000.0], [50.0]
    >>> ages = StudyClock(lambda: wall[0], lambda: steady[0])
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


LATER = 20
"""A phase is looked at again once it has lasted a twentieth longer."""


def is_look_due(standing: StudySnapshot, now: float) -> bool:
    """Whether a phase should be looked at: at its horizon, and in between after every round's time.

    A look reads the whole phase, so its cost would grow with the square of the phase's length if they stayed frequent.
    """
    row, policy = standing.row, standing.policy
    if row.state not in PHASES or policy is None:
        return False
    horizon = StudyState.from_text(row.details).horizon
    if row.state == "confirming" and horizon is not None and row.opened_at < horizon <= now:
        return True
    if row.state == "deployed" and not standing.spec.guardrails:
        return False
    return now - row.opened_at >= max(standing.spec.rounds.interval_seconds, (now - policy.valid_from) / LATER)


RECOUNT = 30.0
"""Seconds after which a round is counted again, though too few events seem to have come."""


def too_many_maturing_rounds(spec: StudySpec, row: StudyRow, now: float) -> bool:
    """Whether as many rounds wait for events as can be kept, and none can be learned: then the open one must go on.

    One more would push out the policy of the oldest, and with it all that was measured under it.
    """
    waiting = [one for one in StudyState.from_text(row.details).waiting if one.missing is None or one.is_held]
    if len(waiting) < spec.max_maturing_rounds:
        return False
    return all(one.is_held or one.closed_at + spec.rounds.maturity > now for one in waiting)


class RoundDueCheck:
    """Tells the rounds that are over.

    Counting exposures reads a round's events, so it is done only when enough may have come since the last count.
    """

    def __init__(self, store: Store, ages: StudyClock, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._ages = ages
        self._monotonic = monotonic
        self._counted: dict[int, tuple[int, int, int, float]] = {}
        """By study: version, exposures counted, the last event then, and when."""

    def over(self, standing: StudySnapshot) -> bool:
        """Whether a study's open round should be closed now."""
        row, rounds = standing.row, standing.spec.rounds
        if row.state != "learning":
            return is_look_due(standing, self._ages.now(row))
        now = self._ages.now(row)
        if rounds.every is not None:
            over = now - row.opened_at >= rounds.every
        else:
            over = rounds.exposures is not None and self._full(standing, rounds.exposures)
        return over and not too_many_maturing_rounds(standing.spec, row, now)

    def _full(self, standing: StudySnapshot, wanted: int) -> bool:
        row = standing.row
        last, now = latest(self._store), self._monotonic()
        known = self._counted.get(row.number)
        if known is not None and known[0] == row.version:
            _, count, seen, at = known
            if last - seen < wanted - count and now - at < RECOUNT:
                return False
        policy = self._store.read_policy(row.number, row.version)
        after = 0 if policy is None else policy.after_sequence
        count = exposures(self._store, row.number, row.version, after, wanted)
        self._counted[row.number] = (row.version, count, last, now)
        return count >= wanted
