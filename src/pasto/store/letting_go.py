"""Deletion in a store while others write: archived events, forgotten units, exposures that credit nothing any more.

Everything is done a little at a time, so that whoever writes events hardly waits. There is no index by unit: it would
take a third off the rate at which events are taken in, for the sake of a question that is rarely asked; so a unit's
events are looked for by readers, whom no writer waits for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from pasto.store import statements
from pasto.store.rows import ArchivedRow, AuditRow

T = TypeVar("T")

ARCHIVED_AT_ONCE = 2_000
"""Sequences whose archived events are deleted in one transaction."""
COUNTED_POLICIES = 64
"""Policies whose archived exposures are counted apart, the latest ones."""
SOUGHT_AT_ONCE = 500_000
"""Sequences that are looked through for a unit in one transaction, which only reads."""
TRIMMED_AT_ONCE = 2_000
"""Units whose latest exposures are looked at together."""


class LettingGo(ABC):
    """The part of a store on an SQL database that makes room."""

    @abstractmethod
    def high_water(self, study: int) -> int:
        """The last sequence of the store, behind which no event of this study can still appear."""

    @abstractmethod
    def _writing(self, action: Callable[[Any], T], *, use_reserve: bool = False) -> T:
        """Do something with the writing connection, in one transaction of its own."""

    @abstractmethod
    def _do(self, connection: Any, statement: str, values: Sequence[Any] = ()) -> Any:
        """Execute a statement."""

    @abstractmethod
    def _all(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """The rows of a question."""

    @abstractmethod
    def _add_audit(self, connection: Any, study: int, rows: Iterable[AuditRow]) -> None:
        """Write lines of the audit log."""

    def archived(self, study: int, version: int, after: int, until: int) -> int:
        """Delete a policy's events in (after, until], which the archive holds; their ids and counts stay."""
        done = 0
        for start in range(after, until, ARCHIVED_AT_ONCE):
            values = (study, version, start, min(start + ARCHIVED_AT_ONCE, until))
            if self._all(statements.HAS_ARCHIVED, values):
                done += self._writing(partial(self._delete_archived, until=until, values=values))
        if done:
            self._writing(partial(self._merge_old_counts, study=study))
        return done

    def archived_events(self, study: int, after: int, until: int) -> list[ArchivedRow]:
        """Return the records of deleted events that may lie in a span of the log."""
        return [ArchivedRow(*row) for row in self._all(statements.ARCHIVED_EVENTS, (study, until, after))]

    def events_of(self, study: int, unit: str) -> list[tuple[int, int]]:
        """Where a unit's events are: their sequences, and the policy of each, 0 for none."""
        found: list[tuple[int, int]] = []
        last = self.high_water(study)
        for start in range(0, last, SOUGHT_AT_ONCE):
            rows = self._all(statements.EVENTS_OF, (study, start, min(start + SOUGHT_AT_ONCE, last), unit))
            found += [(int(sequence), int(version)) for sequence, version in rows]
        return found

    def forget(self, study: int, unit: str, audit: AuditRow, sequences: Iterable[int] | None = None) -> int:
        """Let go of all that is kept of a unit but its events' ids and bookkeeping, and write that down."""
        known = [sequence for sequence, _ in self.events_of(study, unit)] if sequences is None else sequences

        def write(connection: Any) -> int:
            self._do(connection, statements.FORGET_LATEST, (study, unit))
            count = 0
            for sequence in known:
                count += self._changed(connection, statements.FORGET_EVENT, (sequence, study, unit))
            self._add_audit(connection, study, [audit])
            return count

        return self._writing(write)

    def trim(self, study: int, version: int) -> int:
        """Let go of the latest exposures under policies before a version: nothing is credited to them any more."""
        done, after = 0, ""
        while True:
            (last, old) = self._all(statements.OLD_LATEST, (version, study, after, TRIMMED_AT_ONCE))[0]
            if last is None:
                return done
            if old:
                values = (study, after, last, version)
                done += self._writing(partial(self._changed, statement=statements.TRIM_LATEST, values=values))
            after = str(last)

    def _delete_archived(self, connection: Any, until: int, values: tuple[int, ...]) -> int:
        """Delete events, and add them to the counts in the same transaction."""
        self._do(connection, statements.COUNT_ARCHIVED, values)
        self._do(connection, statements.COUNT_ARCHIVED_SOURCES, values)
        self._do(connection, statements.COUNT_ARCHIVED_SENDERS, values)
        self._do(connection, statements.ADD_ARCHIVED_ROUND, (until, *values))
        return self._changed(connection, statements.DELETE_ARCHIVED, values)

    def _merge_old_counts(self, connection: Any, study: int) -> None:
        (newest,) = self._do(connection, statements.NEWEST_COUNT, (study,)).fetchone()
        values = (study, newest - COUNTED_POLICIES)
        self._do(connection, statements.MERGE_OLD_COUNTS, values)
        self._do(connection, statements.DELETE_OLD_COUNTS, values)

    def _changed(self, connection: Any, statement: str, values: Sequence[Any]) -> int:
        return int(self._do(connection, statement, values).rowcount)
