"""PostgreSQL store: several nodes on one database."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pasto.errors import StoreError
from pasto.store import statements
from pasto.store.backup import TABLES, insert, open_backup, select, write_backup
from pasto.store.dashboard_sessions import new_secret
from pasto.store.ingest_plan import Credit, EventBatch, IngestPlan, StudyUnit, find_uncredited_units, plan_ingest
from pasto.store.integrity_check import COLUMNS, check_events
from pasto.store.postgres_session import (
    LOCKS,
    PostgresSession,
    ReadOnlyPool,
    ReadOnlySession,
    describe_open_error,
    driver,
)
from pasto.store.postgres_session import migrate as prepare
from pasto.store.rows import AppendResult, StoreSize
from pasto.store.sql_store import SqlStore
from pasto.store.sqlite_connections import migrate
from pasto.store.write_queue import WriteQueue

T = TypeVar("T")

_CREDITS = (
    "SELECT latest_exposures.study, latest_exposures.unit, version, arm, candidate "
    "FROM unnest(%s::bigint[], %s::text[]) AS wanted (study, unit) JOIN latest_exposures USING (study, unit)"
)
_CONTENT_CHECKSUMS = "SELECT digest, content_checksum FROM event_ids WHERE digest = ANY(%s)"
# In the order of their keys on every node, so that two nodes never deadlock.
_ADD_IDS = (
    "INSERT INTO event_ids (digest, content_checksum) "
    "SELECT * FROM unnest(%s::bytea[], %s::bigint[]) ON CONFLICT DO NOTHING"
)
_ADD_EVENTS = (
    "COPY events (sequence, study, id, kind, unit, version, arm, candidate, name, fields, excluded, source, position, "
    "received_at, key_prefix) FROM STDIN"
)
_SIZE = "SELECT coalesce(sum(pg_total_relation_size(to_regclass(name))), 0)::bigint FROM unnest(%s::text[]) AS name"
_SET_LATEST = (
    "INSERT INTO latest_exposures (study, unit, version, arm, candidate, sequence) "
    "SELECT * FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::text[], %s::bigint[], %s::bigint[]) "
    "ON CONFLICT (study, unit) DO UPDATE SET version = excluded.version, arm = excluded.arm, "
    "candidate = excluded.candidate, sequence = excluded.sequence WHERE excluded.sequence > latest_exposures.sequence"
)
_SESSION_ROW = "secret/session"
"""Name of the session secret in the table `meta`, which backups leave out."""
_NUMBERS = "SELECT nextval('events_sequence_seq') FROM generate_series(1, %s)"


_NO_CHECKSUMS = (
    "the server has data_checksums off, so a flipped bit in a stored event may not be noticed; "
    "stop the server and run `pg_checksums --enable`, or create the cluster with `initdb --data-checksums`"
)


class PostgresStore(SqlStore):
    """Store in one PostgreSQL database; each node writes through one connection in its own thread.

    Nodes that append to a study share its advisory lock until they commit; `read_high_water` takes the lock alone.
    When that returns, no smaller sequence can still appear. A write waits up to `retry_seconds` for a server that is
    out of reach. `query_timeout` limits each query.
    """

    dialect = "postgres"

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], float] = time.time,
        retry_seconds: float = 30.0,
        query_timeout: str = "60s",
        read_only: bool = False,
    ) -> None:
        errors = driver()
        self._conflict = errors.errors.UniqueViolation
        self._failure: type[Exception] = errors.Error
        self._clock = clock
        self._session: PostgresSession | ReadOnlySession = ReadOnlySession()
        if not read_only:
            try:
                prepare(url)
                self._session = PostgresSession(url, retry_seconds=retry_seconds)
            except errors.Error as error:
                raise describe_open_error(error) from error
        self._readers = ReadOnlyPool(url, query_timeout=query_timeout)
        self._writer = WriteQueue(self._append)

    def close(self) -> None:
        """Write the queued events, then close every connection."""
        if self._writer.close():
            self._readers.close()
            self._session.close()

    @contextmanager
    def read_transaction(self) -> Iterator[Any]:
        """Open a read-only transaction on a connection of Python's database interface (DB-API 2)."""
        self._writer.require_open()
        try:
            with self._readers.open_transaction() as connection:
                yield connection
        except self._failure as error:
            raise StoreError(f"the database could not be read: {error}") from error

    def read_session_secret(self) -> str:
        """Return the secret that signs sessions, the same on every node; creates it if there is none."""
        if not (rows := self._query(statements.META, (_SESSION_ROW,))):
            values = (_SESSION_ROW, new_secret())  # another node may have been first
            self._write(lambda connection: self._execute(connection, statements.ADD_META, values))
            rows = self._query(statements.META, (_SESSION_ROW,))
        return str(rows[0][0])

    def read_high_water(self, study: int) -> int:
        """Return the last sequence of the store: every later event of this study gets a greater one."""
        self._writer.require_open()
        try:
            # Each statement must see what was committed before the statement began, not before the lock was requested.
            with self._readers.open_transaction("READ COMMITTED") as connection:
                connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", (LOCKS, study))
                row = connection.execute(statements.LAST_SEQUENCE).fetchone()
        except self._failure as error:
            raise StoreError(f"the database could not be read: {error}") from error
        return int(row[0]) if row else 0

    def write_backup(self, target: Path) -> None:
        """Write everything into one new file, while others write the store."""
        with self.read_transaction() as connection:

            def fill(file: sqlite3.Connection) -> None:
                migrate(file, str(target))
                file.execute("BEGIN")
                for table in TABLES:
                    file.executemany(insert(table), _rows(connection, select(table).replace("fields", "fields::text")))
                file.execute("COMMIT")

            write_backup(target, fill)

    def restore_backup(self, source: Path) -> None:
        """Fill an empty store from a backup."""
        with open_backup(source) as backup:

            def write(connection: Any) -> None:
                for table in TABLES:
                    if connection.execute(f"{select(table)} LIMIT 1").fetchone():
                        raise StoreError("the database is not empty; a backup is restored into a new one")
                for table, columns in TABLES.items():
                    with connection.cursor().copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
                        for row in backup.execute(select(table)):
                            copy.write_row((*row[:-1], None) if table == "events" else row)
                for table, column in (("audit_log", "sequence"), ("studies", "number")):
                    connection.execute(
                        f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), max({column})) "  # noqa: S608 -- our own names
                        f"FROM {table} HAVING count(*) > 0"
                    )
                self._execute(connection, statements.DELETE_META, (_SESSION_ROW,))
                (last,) = connection.execute(statements.LAST_SEQUENCE).fetchone()
                if last:
                    connection.execute("SELECT setval('events_sequence_seq', %s)", (last,))

            self._write(write)

    def check_integrity(self) -> Iterator[str]:
        """Read every row, and yield each finding as a sentence."""
        with self.read_transaction() as connection:
            # JSONB changes the form of the fields of events, so their rows have no checksum.
            sealed = [table for table in COLUMNS if table != "events"]
            yield from check_events(lambda statement: _rows(connection, statement), sealed=sealed)

    def find_risks(self) -> list[str]:
        """Return a sentence if the server would not notice a flipped bit in a stored event."""
        with self.read_transaction() as connection:
            (setting,) = connection.execute("SHOW data_checksums").fetchone()
        return [] if setting == "on" else [_NO_CHECKSUMS]

    def measure_size(self) -> StoreSize:
        """Return the number of events and the disk space they take; reads the whole table of ids."""
        with self.read_transaction() as connection:
            (size,) = connection.execute(_SIZE, (list(TABLES),)).fetchone()
            ids, archived = connection.execute(statements.SIZES).fetchone()
        return StoreSize(int(size), None, int(ids), int(archived))

    def compact(self) -> None:
        """Free the space of deleted rows for new ones, and shorten tables with free space at their end."""
        self._writer.perform(self._session.vacuum)

    @staticmethod
    def _with_placeholders(statement: str) -> str:
        return statement.replace("?", "%s")

    def _lock_slices(self, connection: Any) -> None:
        """Let no other node change slices before this transaction ends."""
        connection.execute("LOCK TABLE layer_slices IN SHARE ROW EXCLUSIVE MODE")

    def check_writable(self) -> Future[None]:
        """Commit a transaction; each one writes the session's own row."""
        return self._writer.submit(lambda: self._session.transact(lambda connection: None))

    def find_damage(self, should_stop: Callable[[], bool] = lambda: False) -> str | None:
        """Leave damage to the server's own checks."""
        return None

    def _write(self, action: Callable[[Any], T], *, use_reserve: bool = False) -> T:
        return self._writer.perform(lambda: self._session.transact(action))

    def _append(self, batches: Sequence[EventBatch]) -> Sequence[AppendResult]:
        """Write a group of batches in one transaction."""
        return self._session.transact(lambda connection: self._write_batches(connection, batches).results)

    def _write_batches(self, connection: Any, batches: Sequence[EventBatch]) -> IngestPlan:
        for study in sorted({batch.study for batch in batches}):
            connection.execute("SELECT pg_advisory_xact_lock_shared(%s, %s)", (LOCKS, study))
        count = sum(len(batch.events) for batch in batches)
        numbers = [row[0] for row in connection.execute(_NUMBERS, (count,)).fetchall()]
        latest = _read_units(connection, _CREDITS, find_uncredited_units(batches))
        credits: dict[StudyUnit, Credit] = {row[:2]: row[2:] for row in latest}
        stored: dict[bytes, int | None] = {}
        while True:
            plan = plan_ingest(
                batches,
                last=numbers[0] - 1 if numbers else 0,
                sequences=numbers,
                received_at=float(self._clock()),
                stored=stored,
                credits=credits,
            )
            if self._add_events(connection, plan):
                break
            # Some id was stored before: read which.
            digests = list({digest for batch in batches for digest, _ in batch.identities})
            stored = dict(connection.execute(_CONTENT_CHECKSUMS, (digests,)).fetchall())
        if plan.latest_exposures:
            connection.execute(_SET_LATEST, [list(column) for column in zip(*plan.latest_exposures, strict=True)])
        for counts in sorted(plan.sender_counts):
            self._execute(connection, statements.SET_SENDER_COUNTS, counts)
        for reason in plan.rejections_by_reason:
            self._execute(connection, statements.ADD_REJECTIONS_BY_REASON, reason)
        for source in plan.rejections_by_source:
            self._execute(connection, statements.ADD_REJECTIONS_BY_SOURCE, source)
        for key in plan.rejections_by_key:
            self._execute(connection, statements.ADD_REJECTIONS_BY_KEY, key)
        return plan

    def _add_events(self, connection: Any, plan: IngestPlan) -> bool:
        """Write the new events; if some id is in use, write nothing and return False."""
        if not plan.events:
            return True
        connection.execute("SAVEPOINT events")
        if connection.execute(_ADD_IDS, [list(column) for column in zip(*plan.ids, strict=True)]).rowcount == len(
            plan.ids
        ):
            with connection.cursor().copy(_ADD_EVENTS) as copy:
                for row in plan.events:
                    copy.write_row(row[:-1])  # no checksum: JSONB changes the form of the fields
            return True
        connection.execute("ROLLBACK TO events")
        return False


def _read_units(connection: Any, statement: str, units: Sequence[StudyUnit]) -> list[Any]:
    """Return the rows of some units."""
    if not units:
        return []
    rows: list[Any] = connection.execute(
        statement, ([study for study, _ in units], [unit for _, unit in units])
    ).fetchall()
    return rows


def _rows(connection: Any, statement: str) -> Iterator[Any]:
    """Yield rows in portions, so that memory does not hold all of them."""
    with connection.cursor(name="pasto_rows") as cursor:
        cursor.itersize = 10_000
        cursor.execute(statement)
        yield from cursor
