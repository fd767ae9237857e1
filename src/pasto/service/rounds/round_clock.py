"""Round clock: decide that a round is over, by its length or by its number of exposures."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

from pasto.service.event_accounting import exposures, latest
from pasto.service.lifecycle import PHASES
from pasto.service.policy_cache import StudySnapshot
from pasto.service.study_file import StudySpec
from pasto.service.study_state import StudyState
from pasto.store import Store, StudyRow


class StudyClock:
    """Clock of each study that does not run backwards when the wall clock is changed.

    A round lasts at least as long as a monotonic clock has run since this process first read the round. A wall clock
    that is set back therefore delays nothing. One that is set forward ends the open round early, once.

    >>> from dataclasses import replace
    >>> row = StudyRow("feed", 1, 1, "learning", "{}", 7, 3, 3, opened_at=1000.0, created_at=0.0)
    >>> wall, steady = [1000.0], [50.0]
    >>> clock = StudyClock(lambda: wall[0], lambda: steady[0])
    >>> clock.now(row)
    1000.0
    >>> wall[0], steady[0] = -7200.0, 80.0
    >>> clock.now(row)
    1030.0
    """

    def __init__(self, clock: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._started: dict[int, tuple[int, float]] = {}
        """Open round by study, and the monotonic time at which it was first read."""
        self._lock = Lock()

    def now(self, row: StudyRow) -> float:
        """Return the wall-clock time, but at least the start of the open round plus its monotonic age."""
        steady = self._monotonic()
        with self._lock:
            started = self._started.get(row.number)
            if started is None or started[0] != row.round:
                started = self._started[row.number] = (row.round, steady)
        return max(self._clock(), row.opened_at + (steady - started[1]))


LOOKS_PER_LENGTH = 20
"""The next look at a phase comes after a twentieth of its length."""


def is_look_due(snapshot: StudySnapshot, now: float) -> bool:
    """Return whether a look at a phase is due: at its horizon, and before that after each round's time.

    A look reads the whole phase. Looks become rarer, because their cost would otherwise grow with the square of the
    phase's length.
    """
    row, policy = snapshot.row, snapshot.policy
    if row.state not in PHASES or policy is None:
        return False
    horizon = snapshot.state.horizon
    if row.state == "confirming" and horizon is not None and row.opened_at < horizon <= now:
        return True
    if row.state == "deployed" and not snapshot.spec.guardrails:
        return False
    return now - row.opened_at >= max(
        snapshot.spec.rounds.interval_seconds, (now - policy.valid_from) / LOOKS_PER_LENGTH
    )


RECOUNT_SECONDS = 30.0
"""Seconds after which exposures are counted again, even if too few events have arrived."""


def too_many_maturing_rounds(spec: StudySpec, row: StudyRow, now: float) -> bool:
    """Return whether the maximum number of rounds is maturing and none can be learned, so that no round may close.

    One more would remove the policy of the oldest round, and with it the round's measurements.
    """
    waiting = [entry for entry in StudyState.from_text(row.details).waiting if entry.missing is None or entry.is_held]
    if len(waiting) < spec.max_maturing_rounds:
        return False
    return all(entry.is_held or entry.closed_at + spec.rounds.maturity > now for entry in waiting)


class RoundDueCheck:
    """Check for rounds that are over.

    Counting exposures reads a round's events, so it is done only if enough may have arrived since the last count.
    """

    def __init__(self, store: Store, clock: StudyClock, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._ages = clock
        self._monotonic = monotonic
        self._counted: dict[int, tuple[int, int, int, float]] = {}
        """By study: version, counted exposures, last event, and time of the count."""
        self._due_since: dict[int, tuple[int, float]] = {}
        """By study: the round that is over, and the time since which it can be closed."""

    def over(self, snapshot: StudySnapshot) -> bool:
        """Return whether a study's open round should be closed now."""
        return self.measure_overdue(snapshot) is not None

    def measure_overdue(self, snapshot: StudySnapshot) -> float | None:
        """Return the seconds for which a study's open round should have been closed; None if it is not due."""
        row, rounds = snapshot.row, snapshot.spec.rounds
        now = self._ages.now(row)
        due_at = now
        if row.state != "learning":
            is_over = is_look_due(snapshot, now)
        elif rounds.every is not None:
            is_over, due_at = now - row.opened_at >= rounds.every, row.opened_at + rounds.every
        else:
            is_over = rounds.exposures is not None and self._full(snapshot, rounds.exposures)
        if not is_over:
            return None
        if row.state == "learning" and too_many_maturing_rounds(snapshot.spec, row, now):
            self._due_since[row.number] = row.round, now  # it is due from the time at which it may be closed
            return None
        number, since = self._due_since.get(row.number, (0, 0.0))
        if number != row.round:
            number, since = self._due_since[row.number] = row.round, due_at
        return max(0.0, now - since)

    def _full(self, snapshot: StudySnapshot, wanted: int) -> bool:
        row = snapshot.row
        last, now = latest(self._store), self._monotonic()
        known = self._counted.get(row.number)
        if known is not None and known[0] == row.version:
            _, count, counted_until, at = known
            if count >= wanted:
                return True
            if last - counted_until < wanted - count and now - at < RECOUNT_SECONDS:
                return False
        policy = self._store.read_policy(row.number, row.version)
        after = 0 if policy is None else policy.after_sequence
        count = exposures(self._store, row.number, row.version, after, wanted)
        self._counted[row.number] = (row.version, count, last, now)
        return count >= wanted
