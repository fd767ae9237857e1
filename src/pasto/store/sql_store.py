"""What the stores on SQL databases share: the same tables, read and written by the same statements."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pasto.errors import StoreError, StudyExistsError
from pasto.store import statements
from pasto.store.ingest_plan import EventBatch, Row
from pasto.store.integrity_check import row_checksum
from pasto.store.rows import (
    INSTALLATION,
    NO_REJECTIONS,
    AppendResult,
    ArchivedSpan,
    AuditRow,
    CloseRow,
    EventRow,
    KeyRow,
    PolicyRow,
    RejectedPositions,
    RejectionReason,
    Rejections,
    SenderCounts,
    StoreSize,
    StudyRow,
)
from pasto.store.write_queue import WriteQueue

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
    def read_high_water(self, study: int) -> int:
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

    def delete_archived_events(self, study: int, version: int, after: int, until: int) -> int:
        """Delete a policy's events in (after, until], which the archive holds; their ids and counts stay."""
        done = 0
        for start in range(after, until, ARCHIVED_AT_ONCE):
            values = (study, version, start, min(start + ARCHIVED_AT_ONCE, until))
            if self._all(statements.HAS_ARCHIVED, values):
                done += self._writing(partial(self._delete_archived, until=until, values=values))
        if done:
            self._writing(partial(self._merge_old_counts, study=study))
        return done

    def list_archived_spans(self, study: int, after: int, until: int) -> list[ArchivedSpan]:
        """Return the records of deleted events that may lie in a span of the log."""
        return [ArchivedSpan(*row) for row in self._all(statements.ARCHIVED_EVENTS, (study, until, after))]

    def find_unit_events(self, study: int, unit: str) -> list[tuple[int, int]]:
        """Where a unit's events are: their sequences, and the policy of each, 0 for none."""
        found: list[tuple[int, int]] = []
        last = self.read_high_water(study)
        for start in range(0, last, SOUGHT_AT_ONCE):
            rows = self._all(statements.EVENTS_OF, (study, start, min(start + SOUGHT_AT_ONCE, last), unit))
            found += [(int(sequence), int(version)) for sequence, version in rows]
        return found

    def erase_unit(self, study: int, unit: str, audit: AuditRow, sequences: Iterable[int] | None = None) -> int:
        """Let go of all that is kept of a unit but its events' ids and bookkeeping, and write that down."""
        known = [sequence for sequence, _ in self.find_unit_events(study, unit)] if sequences is None else sequences

        def write(connection: Any) -> int:
            self._do(connection, statements.FORGET_LATEST, (study, unit))
            count = 0
            for sequence in known:
                count += self._changed(connection, statements.FORGET_EVENT, (sequence, study, unit))
            self._add_audit(connection, study, [audit])
            return count

        return self._writing(write)

    def delete_latest_exposures(self, study: int, version: int) -> int:
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


T = TypeVar("T")

_CACHE = "cache/"
"""Before the names of notes, which the store's own settings lie beside."""

_ENDED = "ended_session/"
"""Before key, expiry and number of every session that was ended before it expired; `all` stands for any number."""

_ALL = "all"

MAX_ENDED_SESSIONS = 1000
"""Ended sessions of one key that are noted one by one."""


class SqlStore(LettingGo):
    """A store on an SQL database: what is left to each kind is how it connects and how it takes in events."""

    dialect: str
    _conflict: type[Exception]
    """What the database raises where a key is in use."""
    _writer: WriteQueue

    @property
    def directory(self) -> Path | None:
        """The directory it lives in, where others may put their own files beside it; None where there is none."""
        return None

    # What each kind does in its own way

    @abstractmethod
    def read_transaction(self) -> AbstractContextManager[Any]:
        """A connection for one short read-only transaction, of Python's database interface (DB-API 2)."""

    @abstractmethod
    def close(self) -> None:
        """Write what is waiting, then let go of everything."""

    @abstractmethod
    def read_high_water(self, study: int) -> int:
        """The last sequence of the store, behind which no event of this study can still appear."""

    @abstractmethod
    def write_backup(self, target: Path) -> None:
        """Write everything into one new file, while others go on writing."""

    @abstractmethod
    def restore_backup(self, source: Path) -> None:
        """Fill an empty store from a backup."""

    @abstractmethod
    def check_integrity(self) -> Iterable[str]:
        """Look for damage, and tell each finding in a sentence."""

    def find_risks(self) -> Iterable[str]:
        """Return what keeps damage from being noticed, each in a sentence."""
        return ()

    @abstractmethod
    def measure_size(self) -> StoreSize:
        """Return how much it holds and how much room that takes."""

    @abstractmethod
    def compact(self) -> None:
        """Give back, or free for new events, the room of what was deleted."""

    @abstractmethod
    def check_writable(self) -> Future[None]:
        """Write a few pages and commit them."""

    @abstractmethod
    def find_damage(self, should_stop: Callable[[], bool] = lambda: False) -> str | None:
        """Look through the structure of a database file, and return what is wrong."""

    @abstractmethod
    def _writing(self, action: Callable[[Any], T], *, use_reserve: bool = False) -> T:
        """Do something with the writing connection, in one transaction of its own."""

    @staticmethod
    def _sql(statement: str) -> str:
        """The statement with this database's placeholders."""
        return statement

    # Studies

    def create_study(self, study: StudyRow, audit: AuditRow, *, rename_archived: str | None = None) -> StudyRow:
        """Take in a new study and return it with its number; a name in use raises StudyExists."""

        def write(connection: Any) -> StudyRow:
            if rename_archived is not None:
                values = (rename_archived, study.name)
                detail = json.dumps({"from": study.name, "to": rename_archived}, separators=(",", ":"))
                for (renamed,) in self._do(connection, statements.RENAME_ARCHIVED, values).fetchall():
                    self._add_audit(connection, int(renamed), [replace(audit, action="rename", detail=detail)])
            row = astuple(study)
            values = (row[0], *row[2:5], str(study.seed), *row[6:])
            number = int(self._do(connection, statements.ADD_STUDY, values).fetchone()[0])
            self._add_audit(connection, number, [audit])
            return replace(study, number=number)

        try:
            return self._writing(write)
        except self._conflict as error:
            raise StudyExistsError(f"there is a study {study.name!r} already; choose another name") from error

    def delete_draft(self, draft: StudyRow, name: str, audit: AuditRow) -> bool:
        """Take a draft out of every list, if it is still as it was seen; returns whether it was written."""
        values = (name, draft.generation + 1, draft.number, draft.generation)

        def write(connection: Any) -> bool:
            if self._do(connection, statements.DELETE_DRAFT, values).rowcount != 1:
                return False
            self._add_audit(connection, draft.number, [audit])
            return True

        try:
            return self._writing(write)
        except self._conflict:
            return False

    def update_study(
        self,
        before: StudyRow,
        after: StudyRow,
        *,
        policy: PolicyRow | None = None,
        close: CloseRow | None = None,
        learner: str | None = None,
        audit: Sequence[AuditRow] = (),
        use_reserve: bool = False,
    ) -> bool:
        """Write a change of a study in one transaction, if `before` is still how it stands; else do nothing."""
        number, seen = before.number, before.generation
        change = (after.state, after.study_file, after.round, after.version, after.opened_at, after.details)

        def write(connection: Any) -> bool:
            if self._do(connection, statements.CHANGE_STUDY, (seen + 1, *change, number, seen)).rowcount != 1:
                return False
            if policy is not None:
                self._do(connection, statements.ADD_POLICY, _sealed(number, policy))
            if close is not None:
                self._do(connection, statements.ADD_CLOSE, _sealed(number, close))
            if learner is not None:
                self._do(connection, statements.SET_LEARNER, (number, learner))
            self._add_audit(connection, number, audit)
            return True

        try:
            return self._writing(write, use_reserve=use_reserve)
        except self._conflict:
            return False

    def read_study(self, name: str) -> StudyRow | None:
        """The study of that name as it stands."""
        rows = self._all(statements.STUDY, (name,))
        return _to_study(rows[0]) if rows else None

    def list_studies(self) -> list[StudyRow]:
        """Every study, by name."""
        # Sorted here: databases disagree about the order of text.
        return sorted(map(_to_study, self._all(statements.STUDIES)), key=lambda study: study.name)

    def read_generations(self) -> dict[str, tuple[int, int]]:
        """The number and generation of every study, by name."""
        return {str(name): (int(number), int(seen)) for name, number, seen in self._all(statements.GENERATIONS)}

    def read_learner_state(self, study: int) -> str | None:
        """The learner's state after the last close, as text."""
        rows = self._all(statements.LEARNER, (study,))
        return str(rows[0][0]) if rows else None

    def read_policy(self, study: int, version: int) -> PolicyRow | None:
        """One published policy."""
        rows = self._all(statements.POLICY, (study, version))
        return PolicyRow(*rows[0]) if rows else None

    def list_policies(self, study: int, *, after: int = 0, limit: int = 1000) -> list[PolicyRow]:
        """Published policies in order, from the version behind `after`."""
        return [PolicyRow(*row) for row in self._all(statements.POLICIES, (study, after, limit))]

    def list_closes(self, study: int, *, after: int = 0, limit: int = 1000) -> list[CloseRow]:
        """Closed rounds in order, from the round behind `after`."""
        return [CloseRow(*row) for row in self._all(statements.CLOSES, (study, after, limit))]

    def read_audit_log(self, study: int, *, after: int = 0, limit: int = 1000) -> list[AuditRow]:
        """Return the audit log of one study, or of the INSTALLATION, in order, from the sequence after `after`."""
        return [AuditRow(*row) for row in self._all(statements.AUDIT, (study, after, limit))]

    # Events

    def append_events(
        self,
        study: int,
        events: Sequence[EventRow],
        tallies: Sequence[SenderCounts] = (),
        rejections: Rejections = NO_REJECTIONS,
        key: str | None = None,
    ) -> Future[AppendResult]:
        """Keep a batch: counted once by id for the study's life, done when durable."""
        return self._writer.append(EventBatch(study, events, tallies, rejections, key))

    @property
    def queued_events(self) -> int:
        """How many events are waiting to be written."""
        return self._writer.waiting

    def list_sender_counts(self, study: int, version: int) -> list[SenderCounts]:
        """The latest tally of each sender for one policy."""
        return sorted(SenderCounts(*row) for row in self._all(statements.TALLIES, (study, version)))

    def list_rejections_by_reason(self, study: int) -> list[RejectionReason]:
        """Why events of a study were rejected, and how many for each reason."""
        return sorted(RejectionReason(*row) for row in self._all(statements.REJECTED_REASONS, (study,)))

    def list_rejections_by_source(self, study: int) -> list[RejectedPositions]:
        """The rejected events of each numbered stream."""
        return sorted(RejectedPositions(*row) for row in self._all(statements.REJECTED_NUMBERS, (study,)))

    def count_rejections_by_key(self, study: int) -> dict[str, int]:
        """Return how many events of each API key were rejected, by its prefix."""
        return {str(prefix): int(events) for prefix, events in self._all(statements.REJECTED_KEYS, (study,))}

    # Keys

    def add_key(self, key: KeyRow, *, audit: Sequence[AuditRow] = ()) -> None:
        """Store a new key and its audit lines in one transaction; a prefix in use raises StoreError."""
        self._add_key(key, audit, lambda connection: None)

    def rotate_key(self, prefix: str, at: float, successor: KeyRow, *, audit: Sequence[AuditRow] = ()) -> None:
        """Store a key's successor, revoke the key at a time to come and write the audit lines, in one transaction."""
        self._add_key(
            successor, audit, lambda connection: self._do(connection, statements.REVOKE_KEY, (at, prefix, at))
        )

    def revoke_key(self, prefix: str, at: float, *, audit: Sequence[AuditRow] = ()) -> bool:
        """Revoke a key; False where there is none, or it was revoked before, or will be sooner."""

        def write(connection: Any) -> bool:
            if self._do(connection, statements.REVOKE_KEY, (at, prefix, at)).rowcount != 1:
                return False
            self._add_audit(connection, INSTALLATION, audit)
            return True

        return self._writing(write, use_reserve=True)

    def _add_key(self, key: KeyRow, audit: Sequence[AuditRow], change_others: Callable[[Any], object]) -> None:
        row = astuple(replace(key, scopes=()))
        values = (*row[:3], json.dumps(key.scopes), *row[4:])

        def write(connection: Any) -> None:
            self._do(connection, statements.ADD_KEY, values)
            change_others(connection)
            self._add_audit(connection, INSTALLATION, audit)

        try:
            self._writing(write)
        except self._conflict as error:
            raise StoreError(f"there is a key {key.prefix!r} already; make another") from error

    def list_keys(self) -> list[KeyRow]:
        """Every key, revoked ones included."""
        found = [replace(KeyRow(*row), scopes=tuple(json.loads(row[3]))) for row in self._all(statements.KEYS)]
        return sorted(found, key=lambda key: (key.created_at, key.prefix))

    # Sessions of the dashboard

    @abstractmethod
    def read_session_secret(self) -> str:
        """Return the secret that sessions are signed with: the same on every node, made if there is none."""

    def end_session(self, key: str, until: int, session: str, now: float) -> None:
        """End a session of a key before it expires at `until`; what was noted of expired ones is deleted."""

        def write(connection: Any) -> None:
            rows = self._do(connection, statements.NOTE_NAMES, (_ENDED, _end_of(_ENDED))).fetchall()
            ended = [str(name).split("/") for (name,) in rows]
            expired = [one for one in ended if int(one[2]) <= now]
            same = [one for one in ended if int(one[2]) > now and one[1] == key]
            last, number = until, session
            if len(same) >= MAX_ENDED_SESSIONS:
                expired += same
                last, number = max(until, *(int(one[2]) for one in same)), _ALL
            for one in expired:
                self._do(connection, statements.DELETE_NOTE, ("/".join(one),))
            self._do(connection, statements.ADD_NOTE, (f"{_ENDED}{key}/{last:012d}/{number}", ""))

        self._writing(write)

    def is_session_ended(self, key: str, until: int, session: str) -> bool:
        """Return whether a session was ended, here or on another node."""
        place = f"{_ENDED}{key}/{until:012d}/"
        names = [str(name) for (name,) in self._all(statements.NOTE_NAMES, (place, _end_of(f"{_ENDED}{key}/")))]
        return any(name == place + session or name.endswith(f"/{_ALL}") for name in names)

    # Notes

    def read_cache(self, name: str) -> str | None:
        """What was last noted under a name."""
        found = self._all(statements.NOTE, (_CACHE + name,))
        return str(found[0][0]) if found else None

    def write_cache(self, name: str, text: str) -> None:
        """Keep a note in the place of the last one of that name."""
        self._writing(lambda connection: self._do(connection, statements.SET_NOTE, (_CACHE + name, text)))

    # Statements

    def _do(self, connection: Any, statement: str, values: Sequence[Any] = ()) -> Any:
        return connection.execute(self._sql(statement), values)

    def _all(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        with self.read_transaction() as connection:
            rows: list[Row] = self._do(connection, statement, values).fetchall()
        return rows

    def _add_audit(self, connection: Any, study: int, rows: Iterable[AuditRow]) -> None:
        for row in rows:
            values = (study, float(row.at), row.who, row.action, row.reason, row.detail)
            self._do(connection, statements.ADD_AUDIT, (*values, row_checksum(values)))


def _sealed(study: int, row: PolicyRow | CloseRow) -> Row:
    """Return the values of a row that is written once, with its checksum; its last field is a time."""
    *values, at = astuple(row)
    sealed = (study, *values, float(at))
    return (*sealed, row_checksum(sealed))


def _end_of(prefix: str) -> str:
    """Return the first text behind all those that begin with a prefix, which ends in a slash.

    >>> _end_of("cache/")
    'cache0'
    """
    return f"{prefix[:-1]}0"


def _to_study(row: Any) -> StudyRow:
    return replace(StudyRow(*row), seed=int(row[5]))
