"""SQL store: the operations that SQLite and PostgreSQL share, on the same tables by the same statements."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pasto.errors import ConflictError, StoreError, StudyExistsError
from pasto.store import statements
from pasto.store.dashboard_sessions import ENDED_PREFIX, EndedSession, plan_session_end
from pasto.store.ingest_plan import EventBatch, Row
from pasto.store.integrity_check import row_checksum
from pasto.store.protocol import Store
from pasto.store.rows import (
    INSTALLATION,
    NO_REJECTIONS,
    AppendResult,
    ArchivedSpan,
    AuditRow,
    CloseRow,
    EventRow,
    KeyRow,
    LayerSliceRow,
    OutboxRow,
    OutboxSize,
    PolicyRow,
    RejectedPositions,
    RejectionReason,
    Rejections,
    SenderCounts,
    StudyRow,
)
from pasto.store.write_queue import WriteQueue

T = TypeVar("T")

DELETE_SEQUENCES = 2_000
"""Sequences whose archived events are deleted in one transaction."""

SEPARATE_POLICIES = 64
"""Latest policies whose archived exposures are counted one by one; those of older policies are added up."""

SEARCH_SEQUENCES = 500_000
"""Sequences that one read-only transaction searches for events of a unit."""

DELETE_UNITS = 2_000
"""Units whose latest exposures are checked in one transaction."""

_CACHE_PREFIX = "cache/"
"""Prefix of cached values in the table `meta`, which holds settings of the store too."""


class SqlStore(Store):
    """Store on an SQL database; each kind of database adds how it connects, and how it appends events."""

    _conflict: type[Exception]
    """Error that the database raises if a key is in use."""
    _writer: WriteQueue

    @property
    def directory(self) -> Path | None:
        """None, unless the store is in a directory."""
        return None

    @abstractmethod
    def _write(self, action: Callable[[Any], T], *, use_reserve: bool = False) -> T:
        """Run an action with the writing connection, in one transaction."""

    @staticmethod
    def _with_placeholders(statement: str) -> str:
        """Return a statement with the placeholders of the database."""
        return statement

    def _execute(self, connection: Any, statement: str, values: Sequence[Any] = ()) -> Any:
        return connection.execute(self._with_placeholders(statement), values)

    def _count_changed(self, connection: Any, statement: str, values: Sequence[Any]) -> int:
        """Execute a statement, and return the number of rows that it changed."""
        return int(self._execute(connection, statement, values).rowcount)

    def _query(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return the rows of a query, read in a transaction of its own."""
        with self.read_transaction() as connection:
            rows: list[Row] = self._execute(connection, statement, values).fetchall()
        return rows

    def _add_audit(self, connection: Any, study: int, rows: Iterable[AuditRow]) -> None:
        for row in rows:
            detail = json.dumps(row.detail, separators=(",", ":"), default=dict)
            values = (study, float(row.at), row.who, row.action, row.reason, detail)
            self._execute(connection, statements.ADD_AUDIT, (*values, row_checksum(values)))

    # Studies

    def create_study(
        self,
        study: StudyRow,
        audit: AuditRow,
        *,
        rename_archived: str | None = None,
        layer_slice: LayerSliceRow | None = None,
    ) -> StudyRow:
        """Add a study and return it with its number; a name in use raises StudyExistsError."""

        def write(connection: Any) -> StudyRow:
            if rename_archived is not None:
                values = (rename_archived, study.name)
                detail = {"from": study.name, "to": rename_archived}
                for (renamed,) in self._execute(connection, statements.RENAME_ARCHIVED, values).fetchall():
                    self._add_audit(connection, int(renamed), [replace(audit, action="rename", detail=detail)])
            row = astuple(study)
            values = (row[0], *row[2:5], str(study.seed), *row[6:])
            number = int(self._execute(connection, statements.ADD_STUDY, values).fetchone()[0])
            if layer_slice is not None:
                self._set_slice(connection, number, layer_slice)
            self._add_audit(connection, number, [audit])
            return replace(study, number=number)

        try:
            return self._write(write)
        except self._conflict as error:
            raise StudyExistsError(f"there is a study {study.name!r} already; choose another name") from error

    def delete_draft(self, draft: StudyRow, name: str, audit: AuditRow) -> bool:
        """Delete a draft from every list, unless it changed after it was read; returns whether it was written."""
        values = (name, draft.generation + 1, draft.number, draft.generation)

        def write(connection: Any) -> bool:
            if self._execute(connection, statements.DELETE_DRAFT, values).rowcount != 1:
                return False
            self._add_audit(connection, draft.number, [audit])
            return True

        try:
            return self._write(write)
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
        messages: Sequence[OutboxRow] = (),
        layer_slice: LayerSliceRow | None = None,
        use_reserve: bool = False,
    ) -> bool:
        """Write a change of a study, unless another writer changed it after `before` was read."""
        number, generation = before.number, before.generation
        change = (after.state, after.study_file, after.round, after.version, after.opened_at, after.details)
        values = (generation + 1, *change, number, generation)

        def write(connection: Any) -> bool:
            if self._count_changed(connection, statements.CHANGE_STUDY, values) != 1:
                return False
            if layer_slice is not None:
                self._set_slice(connection, number, layer_slice)
            if policy is not None:
                self._execute(connection, statements.ADD_POLICY, _sealed(number, policy))
            if close is not None:
                self._execute(connection, statements.ADD_CLOSE, _sealed(number, close))
            if learner is not None:
                self._execute(connection, statements.SET_LEARNER_STATE, (number, learner))
            self._add_audit(connection, number, audit)
            for message in messages:
                self._execute(connection, statements.ADD_MESSAGE, astuple(message))
            return True

        try:
            return self._write(write, use_reserve=use_reserve)
        except (self._conflict, ConflictError):
            return False

    def _set_slice(self, connection: Any, study: int, layer_slice: LayerSliceRow) -> None:
        """Replace the slice of a study; ConflictError if it overlaps another one."""
        self._lock_slices(connection)
        self._execute(connection, statements.DELETE_SLICE, (study,))
        layer, unit, start, until, *_ = astuple(layer_slice)
        if start >= until:
            return
        if self._execute(connection, statements.TAKEN_SLICE, (layer, until, start)).fetchone() is not None:
            raise ConflictError(f"the slice from {start} until {until} of layer {layer!r} was just taken; try again")
        self._execute(connection, statements.ADD_SLICE, (study, layer, unit, start, until))

    def _lock_slices(self, connection: Any) -> None:
        """Let no other writer change slices before this transaction ends; an embedded store has one writer."""

    def list_layer_slices(self) -> list[LayerSliceRow]:
        """Return the slices of all studies that are neither archived nor deleted, by layer and start."""
        slices = [LayerSliceRow(*row) for row in self._query(statements.LAYER_SLICES)]
        return sorted(slices, key=lambda row: (row.layer, row.start))

    def read_study(self, name: str) -> StudyRow | None:
        """Return the study of a name, a deleted draft too."""
        rows = self._query(statements.STUDY, (name,))
        return _to_study(rows[0]) if rows else None

    def list_studies(self) -> list[StudyRow]:
        """Return every study by name, without deleted drafts."""
        # Sorted here: databases disagree about the order of text.
        return sorted(map(_to_study, self._query(statements.STUDIES)), key=lambda study: study.name)

    def read_generations(self) -> dict[str, tuple[int, int]]:
        """Return (number, generation) of every study by name."""
        rows = self._query(statements.GENERATIONS)
        return {str(name): (int(number), int(generation)) for name, number, generation in rows}

    def read_learner_state(self, study: int) -> str | None:
        """Return the learner's state after the last close, as text."""
        rows = self._query(statements.LEARNER_STATE, (study,))
        return str(rows[0][0]) if rows else None

    def read_policy(self, study: int, version: int) -> PolicyRow | None:
        """Return one published policy."""
        rows = self._query(statements.POLICY, (study, version))
        return PolicyRow(*rows[0]) if rows else None

    def list_policies(self, study: int, *, after: int = 0, limit: int = 1000) -> list[PolicyRow]:
        """Return published policies in order, with versions greater than `after`."""
        return [PolicyRow(*row) for row in self._query(statements.POLICIES, (study, after, limit))]

    def list_closes(self, study: int, *, after: int = 0, limit: int = 1000) -> list[CloseRow]:
        """Return closed rounds in order, with rounds greater than `after`."""
        return [CloseRow(*row) for row in self._query(statements.CLOSES, (study, after, limit))]

    def read_audit_log(self, study: int, *, after: int = 0, limit: int = 1000) -> list[AuditRow]:
        """Return audit lines of a study, or of the INSTALLATION, in order, with sequences greater than `after`."""
        rows = self._query(statements.AUDIT_LOG, (study, after, limit))
        return [
            AuditRow(at, who, action, reason, json.loads(detail), number)
            for at, who, action, reason, detail, number in rows
        ]

    # Events

    def append_events(
        self,
        study: int,
        events: Sequence[EventRow],
        counts: Sequence[SenderCounts] = (),
        rejections: Rejections = NO_REJECTIONS,
        key: str | None = None,
    ) -> Future[AppendResult]:
        """Append a batch; an event counts once by source and id for the life of the study."""
        return self._writer.append(EventBatch(study, events, counts, rejections, key))

    @property
    def queued_events(self) -> int:
        """Events that wait to be written."""
        return self._writer.queued_events

    def list_sender_counts(self, study: int, version: int) -> list[SenderCounts]:
        """Return the latest counts of each sender for one policy."""
        return sorted(SenderCounts(*row) for row in self._query(statements.SENDER_COUNTS, (study, version)))

    def list_rejections_by_reason(self, study: int) -> list[RejectionReason]:
        """Return the reasons for which events were rejected, with the number of events of each."""
        return sorted(RejectionReason(*row) for row in self._query(statements.REJECTIONS_BY_REASON, (study,)))

    def list_rejections_by_source(self, study: int) -> list[RejectedPositions]:
        """Return the rejected events of each numbered stream."""
        return sorted(RejectedPositions(*row) for row in self._query(statements.REJECTIONS_BY_SOURCE, (study,)))

    def count_rejections_by_key(self, study: int) -> dict[str, int]:
        """Return the number of rejected events of each API key, by its prefix."""
        return {str(prefix): int(events) for prefix, events in self._query(statements.REJECTIONS_BY_KEY, (study,))}

    # Deletion

    def delete_archived_events(self, study: int, version: int, after: int, until: int) -> int:
        """Delete a policy's events in (after, until], which the archive holds; their ids and counts stay."""
        deleted = 0
        for start in range(after, until, DELETE_SEQUENCES):
            values = (study, version, start, min(start + DELETE_SEQUENCES, until))
            if self._query(statements.HAS_ARCHIVED, values):
                deleted += self._write(partial(self._delete_archived, until=until, values=values))
        if deleted:
            self._write(partial(self._merge_old_counts, study=study))
        return deleted

    def list_archived_spans(self, study: int, after: int, until: int) -> list[ArchivedSpan]:
        """Return the spans of deleted events that may overlap (after, until], by policy."""
        return [ArchivedSpan(*row) for row in self._query(statements.ARCHIVED_SPANS, (study, until, after))]

    def find_unit_events(self, study: int, unit: str) -> list[tuple[int, int]]:
        """Return (sequence, policy version) of each event of a unit; the version is 0 if it has no policy."""
        events: list[tuple[int, int]] = []
        last = self.read_high_water(study)
        for start in range(0, last, SEARCH_SEQUENCES):
            rows = self._query(statements.UNIT_EVENTS, (study, start, min(start + SEARCH_SEQUENCES, last), unit))
            events += [(int(sequence), int(version)) for sequence, version in rows]
        return events

    def erase_unit(self, study: int, unit: str, audit: AuditRow, sequences: Iterable[int] | None = None) -> int:
        """Delete all data of a unit except the digests of its event ids and their counts; returns the events."""
        if sequences is None:
            sequences = [sequence for sequence, _ in self.find_unit_events(study, unit)]
        unit_sequences = sequences

        def write(connection: Any) -> int:
            self._execute(connection, statements.ERASE_LATEST_EXPOSURE, (study, unit))
            count = 0
            for sequence in unit_sequences:
                count += self._count_changed(connection, statements.ERASE_EVENT, (sequence, study, unit))
            self._add_audit(connection, study, [audit])
            return count

        return self._write(write)

    def delete_latest_exposures(self, study: int, version: int) -> int:
        """Delete the latest exposures under policies before a version; returns their number."""
        deleted, after = 0, ""
        while True:
            (last, old) = self._query(statements.COUNT_OLD_EXPOSURES, (version, study, after, DELETE_UNITS))[0]
            if last is None:
                return deleted
            if old:
                values = (study, after, last, version)
                deleted += self._write(
                    partial(self._count_changed, statement=statements.DELETE_OLD_EXPOSURES, values=values)
                )
            after = str(last)

    def _delete_archived(self, connection: Any, until: int, values: tuple[int, ...]) -> int:
        """Delete events, and add them to the counts of archived events."""
        self._execute(connection, statements.COUNT_ARCHIVED, values)
        self._execute(connection, statements.COUNT_ARCHIVED_SOURCES, values)
        self._execute(connection, statements.COUNT_ARCHIVED_SENDERS, values)
        self._execute(connection, statements.ADD_ARCHIVED_SPAN, (until, *values))
        return self._count_changed(connection, statements.DELETE_ARCHIVED, values)

    def _merge_old_counts(self, connection: Any, study: int) -> None:
        (newest,) = self._execute(connection, statements.NEWEST_COUNT, (study,)).fetchone()
        values = (study, newest - SEPARATE_POLICIES)
        self._execute(connection, statements.MERGE_OLD_COUNTS, values)
        self._execute(connection, statements.DELETE_OLD_COUNTS, values)

    # Keys

    def add_key(self, key: KeyRow, *, audit: Sequence[AuditRow] = ()) -> None:
        """Add a key; a prefix in use raises StoreError."""
        self._add_key(key, audit, lambda connection: None)

    def rotate_key(self, prefix: str, at: float, successor: KeyRow, *, audit: Sequence[AuditRow] = ()) -> None:
        """Add a key's successor, and revoke the key at a time to come."""
        self._add_key(
            successor, audit, lambda connection: self._execute(connection, statements.REVOKE_KEY, (at, prefix, at))
        )

    def revoke_key(self, prefix: str, at: float, *, audit: Sequence[AuditRow] = ()) -> bool:
        """Revoke a key at a time; False if there is no such key or it is revoked by then."""

        def write(connection: Any) -> bool:
            if self._execute(connection, statements.REVOKE_KEY, (at, prefix, at)).rowcount != 1:
                return False
            self._add_audit(connection, INSTALLATION, audit)
            return True

        return self._write(write, use_reserve=True)

    def _add_key(self, key: KeyRow, audit: Sequence[AuditRow], change_others: Callable[[Any], object]) -> None:
        row = astuple(replace(key, scopes=()))
        values = (*row[:3], json.dumps(key.scopes), *row[4:])

        def write(connection: Any) -> None:
            self._execute(connection, statements.ADD_KEY, values)
            change_others(connection)
            self._add_audit(connection, INSTALLATION, audit)

        try:
            self._write(write)
        except self._conflict as error:
            raise StoreError(f"there is a key {key.prefix!r} already; make another") from error

    def list_keys(self) -> list[KeyRow]:
        """Return every key, revoked ones included."""
        keys = [replace(KeyRow(*row), scopes=tuple(json.loads(row[3]))) for row in self._query(statements.API_KEYS)]
        return sorted(keys, key=lambda key: (key.created_at, key.prefix))

    # Sessions of the dashboard

    def end_session(self, key: str, until: int, session: str, now: float) -> None:
        """End a session of a key before it expires at `until`, and delete the records of expired sessions."""

        def write(connection: Any) -> None:
            rows = self._execute(connection, statements.META_NAMES, _prefix_range(ENDED_PREFIX)).fetchall()
            stored = [EndedSession.from_name(str(name)) for (name,) in rows]
            added, deleted = plan_session_end(stored, EndedSession(key, until, session), now)
            for record in deleted:
                self._execute(connection, statements.DELETE_META, (record.name,))
            self._execute(connection, statements.ADD_META, (added.name, ""))

        self._write(write)

    def is_session_ended(self, key: str, until: int, session: str) -> bool:
        """Return whether a session was ended, here or on another node."""
        start = EndedSession(key, until, "").name
        _, end = _prefix_range(f"{ENDED_PREFIX}{key}/")
        names = [str(name) for (name,) in self._query(statements.META_NAMES, (start, end))]
        return any(EndedSession.from_name(name).covers(session, until) for name in names)

    # Messages to webhooks

    def claim_message(self, webhook: str, now: float, until: float) -> OutboxRow | None:
        """Return the message of a webhook that has been due longest; None if none is due."""
        while (due := self._query(statements.DUE_MESSAGE, (webhook,))) and due[0][1] <= now:
            if (message := self._write(partial(self._claim_message, due=due[0], until=until))) is not None:
                return message
        return None

    def _claim_message(self, connection: Any, due: Row, until: float) -> OutboxRow | None:
        row = self._execute(connection, statements.CLAIM_MESSAGE, (until, *due)).fetchone()
        return None if row is None else OutboxRow(*row)

    def read_next_due(self, webhook: str) -> float | None:
        """Return the time at which the next message of a webhook is due; None if none waits."""
        rows = self._query(statements.DUE_MESSAGE, (webhook,))
        return float(rows[0][1]) if rows else None

    def postpone_message(self, message: OutboxRow, until: float) -> None:
        """Set the next attempt of a claimed message, unless it was claimed again since."""
        values = (until, message.id, message.attempts)
        self._write(lambda connection: self._execute(connection, statements.POSTPONE_MESSAGE, values))

    def delete_message(self, message: OutboxRow) -> None:
        """Delete a delivered message."""
        self._write(lambda connection: self._execute(connection, statements.DELETE_MESSAGE, (message.id,)))

    def delete_old_messages(self, before: float, describe: Callable[[OutboxRow], AuditRow]) -> list[OutboxRow]:
        """Delete the messages that were written before a time, each with an audit line of its study."""
        if all(size.oldest_at >= before for size in self.measure_outbox()):
            return []

        def write(connection: Any) -> list[OutboxRow]:
            rows = self._execute(connection, statements.DELETE_OLD_MESSAGES, (before,)).fetchall()
            deleted = [OutboxRow(*row) for row in rows]
            for message in deleted:
                self._add_audit(connection, message.study, [describe(message)])
            return deleted

        return self._write(write)

    def measure_outbox(self) -> list[OutboxSize]:
        """Return how many messages wait for each webhook."""
        return [OutboxSize(*row) for row in self._query(statements.OUTBOX_SIZES)]

    # Claims

    def claim(self, name: str, holder: str, now: float, until: float) -> bool:
        """Claim a piece of work until a time, or extend the holder's own claim; False if another holds it."""
        claimed = self._query(statements.CLAIM, (name,))
        if claimed and claimed[0][0] != holder and claimed[0][1] > now:  # most refusals need no transaction
            return False
        values = (name, holder, until, now)
        return self._write(lambda connection: self._count_changed(connection, statements.SET_CLAIM, values)) == 1

    def release_claim(self, name: str, holder: str) -> None:
        """End a claim, if it is the holder's own."""
        self._write(lambda connection: self._execute(connection, statements.DELETE_CLAIM, (name, holder)))

    # Settings

    def read_setting(self, name: str) -> str | None:
        """Return the setting of a name; None if it was never set."""
        rows = self._query(statements.SETTING, (name,))
        return str(rows[0][0]) if rows else None

    def write_setting(self, name: str, text: str, audit: AuditRow) -> None:
        """Replace a setting, with a line in the audit log of the installation, in one transaction."""

        def write(connection: Any) -> None:
            self._execute(connection, statements.SET_SETTING, (name, text))
            self._add_audit(connection, INSTALLATION, [audit])

        self._write(write)

    # Maintenance

    def find_risks(self) -> Iterable[str]:
        """Return nothing: the rows have checksums."""
        return ()

    # Cached values

    def read_cache(self, name: str) -> str | None:
        """Return the cached value of a name."""
        rows = self._query(statements.META, (_CACHE_PREFIX + name,))
        return str(rows[0][0]) if rows else None

    def write_cache(self, name: str, text: str, messages: Sequence[OutboxRow] = ()) -> None:
        """Replace the cached value of a name, and put messages into the outbox."""

        def write(connection: Any) -> None:
            self._execute(connection, statements.SET_META, (_CACHE_PREFIX + name, text))
            for message in messages:
                self._execute(connection, statements.ADD_MESSAGE, astuple(message))

        self._write(write)


def _sealed(study: int, row: PolicyRow | CloseRow) -> Row:
    """Return the values of a row that is written once, with its checksum; its last field is a time."""
    *values, at = astuple(row)
    sealed = (study, *values, float(at))
    return (*sealed, row_checksum(sealed))


def _prefix_range(prefix: str) -> tuple[str, str]:
    """Return the bounds [start, end) of all texts that begin with a prefix, which ends in a slash.

    >>> _prefix_range("cache/")
    ('cache/', 'cache0')
    """
    return prefix, f"{prefix[:-1]}0"


def _to_study(row: Any) -> StudyRow:
    return replace(StudyRow(*row), seed=int(row[5]))
