"""Retention: moves events of learned rounds to the archive, deletes old archive files, and erases units."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from pasto.errors import OptionError, UnknownStudyError
from pasto.report.replay_report import ReplayReport
from pasto.service.archive import Archive, ArchiveResult
from pasto.service.rounds.replay import replay_study
from pasto.service.study_file import parse_spec
from pasto.service.study_state import StudyState, identity_of
from pasto.store import AuditRow, Store, StudyRow


@dataclass(frozen=True, slots=True)
class UnitErasure:
    """Number of erased events of a unit, and their rounds."""

    study: str
    events: int
    rounds: tuple[int, ...]


class Retention:
    """Retention of a store's events; every result is plain JSON.

    >>> import tempfile
    >>> from pasto.store import open_store
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = open_store("memory:")
    ...     Retention(store, Archive(folder)).archive("feed")
    Traceback (most recent call last):
    pasto.errors.UnknownStudyError: there is no study 'feed'; create it first, or check the name
    >>> store.close()
    """

    def __init__(self, store: Store, archive: Archive, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._archive = archive
        self._clock = clock

    def archive(self, name: str, *, older: float = 0.0) -> ArchiveResult:
        """Move the events of rounds that were learned `older` seconds ago to the archive; may be repeated."""
        before = self._clock() - older if older else math.inf
        row = self._row(name)
        with self._archive.alone():
            return self._archive.take(self._store, row, before)

    def drop(self, name: str, *, older: float) -> list[int]:
        """Delete archived events of rounds closed more than `older` seconds ago, and return the rounds."""
        if not older >= 0:
            raise OptionError(f"older must be a number of seconds, 0 or more, got {older!r}")
        row = self._row(name)
        with self._archive.alone():
            return self._archive.drop(self._store, row, self._clock() - older)

    def forget(self, name: str, unit: str, *, who: str, reason: str = "") -> UnitErasure:
        """Delete all data of a unit; aggregates stay. The audit log records how much was deleted, not of which unit.

        It returns when everything is deleted. If it fails, call it again.
        """
        if not unit:
            raise OptionError("a unit must have at least one character, got ''")
        row = self._row(name)
        with self._archive.alone():
            counts = Counter(self._archive.holding(identity_of(row), unit))
            events = self._store.find_unit_events(row.number, unit)
            counts.update(version for _, version in events)
            if counts:
                rounds = {str(version): counts[version] for version in sorted(counts)}
                detail = {"events": counts.total(), "rounds": rounds}
                line = AuditRow(self._clock(), who, "forget", reason, detail)
                # The audit line first: a crash before it would leave a difference that nothing explains.
                self._store.erase_unit(row.number, unit, line, [sequence for sequence, _ in events])
                self._archive.forget(identity_of(row), unit)
        return UnitErasure(name, counts.total(), tuple(sorted(version for version in counts if version)))

    def replay(self, name: str) -> ReplayReport:
        """Compute every policy again, archived rounds included, and compare each with the published one."""
        row = self._row(name)
        return replay_study(self._store, parse_spec(json.loads(row.study_file), stored=True), row, self._archive)

    def _row(self, name: str) -> StudyRow:
        row = self._store.read_study(name)
        if row is None:
            raise UnknownStudyError(f"there is no study {name!r}; create it first, or check the name")
        return row


def delete_old_exposures(store: Store, row: StudyRow) -> int:
    """Delete the latest exposures that no metric event can be credited to; returns their number.

    Credit goes to the served policy, and to those of rounds that wait for late events or can still be corrected.
    """
    state = StudyState.from_text(row.details)
    open_rounds = [entry.round for entry in state.waiting] + [entry.waiting.round for entry in state.correctable]
    served = row.version + (row.state == "archived")
    return store.delete_latest_exposures(row.number, min([served, *open_rounds]))
