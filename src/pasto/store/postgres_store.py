"""The store on PostgreSQL: several nodes on one database."""

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
from pasto.store.backup import TABLES, insert, opened_backup, select, write_backup
from pasto.store.ingest_plan import Credit, EventBatch, IngestPlan, Place, plan_ingest, uncredited
from pasto.store.integrity_check import COLUMNS, check_events
from pasto.store.postgres_session import LOCKS, PostgresSession, ReadingPool, ReadOnlySession, driver, refuse
from pasto.store.postgres_session import migrate as prepare
from pasto.store.rows import AppendResult, StoreSize
from pasto.store.session_secret import new_secret
from pasto.store.sql_store import SqlStore
from pasto.store.sqlite_connections import migrate
from pasto.store.write_queue import WriteQueue

T = TypeVar("T")

_CREDITS = (
    "SELECT latest_exposures.study, latest_exposures.unit, version, arm, candidate "
    "FROM unnest(%s::bigint[], %s::text[]) AS wanted (study, unit) JOIN latest_exposures USING (study, unit)"
)
_KEPT = "SELECT digest, content_checksum FROM event_ids WHERE digest = ANY(%s)"
# In the order of their keys, as every node writes them: two nodes never wait for each other in a circle.
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
_SESSION_NOTE = "secret/session"
"""The note of the secret that sessions are signed with; a backup copies no notes."""
_NUMBERS = "SELECT nextval('events_sequence_seq') FROM generate_series(1, %s)"


_NO_CHECKSUMS = (
    "the server has data_checksums off, so a flipped bit in a stored event may not be noticed; "
    "stop the server and run `pg_checksums --enable`, or create the cluster with `initdb --data-checksums`"
)


class PostgresStore(SqlStore):
    """Everything in one database; each node writes through one connection and its own thread.

    Appending holds a study's lock in common with other nodes while its sequences are on their way, and `high_water`
    takes it alone: when that returns, no smaller sequence is still to come. A server that went away is waited for, up
    to `patience` seconds a write; a question may take the server as long as `reading_limit`.
    """

    dialect = "postgres"

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], float] = time.time,
        patience: float = 30.0,
        reading_limit: str = "60s",
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
                self._session = PostgresSession(url, patience=patience)
            except errors.Error as error:
                raise refuse(error) from error
        self._readers = ReadingPool(url, limit=reading_limit)
        self._writer = WriteQueue(self._append)

    def close(self) -> None:
        """Write what is waiting, then let go of everything."""
        if self._writer.close():
            self._readers.close()
            self._session.close()

    @contextmanager
    def read_transaction(self) -> Iterator[Any]:
        """A connection for one short read-only transaction, of Python's database interface (DB-API 2)."""
        self._writer.require_open()
        try:
            with self._readers.reading() as connection:
                yield connection
        except self._failure as error:
            raise StoreError(f"the database could not be read: {error}") from error

    def read_session_secret(self) -> str:
        """Return the secret that sessions are signed with: the same on every node, made if there is none."""
        if not (found := self._all(statements.NOTE, (_SESSION_NOTE,))):
            values = (_SESSION_NOTE, new_secret())  # another node may have been first
            self._writing(lambda connection: self._do(connection, statements.ADD_NOTE, values))
            found = self._all(statements.NOTE, (_SESSION_NOTE,))
        return str(found[0][0])

    def read_high_water(self, study: int) -> int:
        """The last sequence of the store, behind which no event of this study can still appear."""
        self._writer.require_open()
        try:
            # Each statement must see what was committed before it began, not before the lock was asked for.
            with self._readers.reading("READ COMMITTED") as connection:
                connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", (LOCKS, study))
                row = connection.execute(statements.LAST_SEQUENCE).fetchone()
        except self._failure as error:
            raise StoreError(f"the database could not be read: {error}") from error
        return int(row[0]) if row else 0

    def write_backup(self, target: Path) -> None:
        """Write everything into one new file, while others go on writing."""
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
        with opened_backup(source) as backup:

            def write(connection: Any) -> None:
                for table in TABLES:
                    if connection.execute(f"{select(table)} LIMIT 1").fetchone():
                        raise StoreError("the database is not empty; restore into a new one")
                for table, columns in TABLES.items():
                    with connection.cursor().copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
                        for row in backup.execute(select(table)):
                            copy.write_row((*row[:-1], None) if table == "events" else row)
                for table, column in (("audit_log", "sequence"), ("studies", "number")):
                    connection.execute(
                        f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), max({column})) "  # noqa: S608 -- our own names
                        f"FROM {table} HAVING count(*) > 0"
                    )
                self._do(connection, statements.DELETE_NOTE, (_SESSION_NOTE,))
                (last,) = connection.execute(statements.LAST_SEQUENCE).fetchone()
                if last:
                    connection.execute("SELECT setval('events_sequence_seq', %s)", (last,))

            self._writing(write)

    def check_integrity(self) -> Iterator[str]:
        """Look for damage, and tell each finding in a sentence."""
        with self.read_transaction() as connection:
            # The server gives the fields of events back in a form of its own, so their rows have no checksum of ours.
            sealed = [table for table in COLUMNS if table != "events"]
            yield from check_events(lambda statement: _rows(connection, statement), sealed=sealed)

    def find_risks(self) -> list[str]:
        """Return a sentence if the server would not notice a flipped bit in a stored event."""
        with self.read_transaction() as connection:
            (setting,) = connection.execute("SHOW data_checksums").fetchone()
        return [] if setting == "on" else [_NO_CHECKSUMS]

    def measure_size(self) -> StoreSize:
        """Return how much it holds and how much room that takes; reads the whole table of ids."""
        with self.read_transaction() as connection:
            (size,) = connection.execute(_SIZE, (list(TABLES),)).fetchone()
            ids, archived = connection.execute(statements.SIZES).fetchone()
        return StoreSize(int(size), None, int(ids), int(archived))

    def compact(self) -> None:
        """Make the room of deleted rows free for new ones, and give back what is at the end of a table."""
        self._writer.perform(self._session.vacuum)

    @staticmethod
    def _sql(statement: str) -> str:
        return statement.replace("?", "%s")

    def check_writable(self) -> Future[None]:
        """Commit a transaction; each one writes the session's own row."""
        return self._writer.submit(lambda: self._session.transact(lambda connection: None))

    def find_damage(self, should_stop: Callable[[], bool] = lambda: False) -> str | None:
        """Leave damage to the server's own checks."""
        return None

    def _writing(self, action: Callable[[Any], T], *, use_reserve: bool = False) -> T:
        return self._writer.perform(lambda: self._session.transact(action))

    def _append(self, batches: Sequence[EventBatch]) -> Sequence[AppendResult]:
        """Write a group of batches in one transaction."""
        return self._session.transact(lambda connection: self._write(connection, batches).answers)

    def _write(self, connection: Any, batches: Sequence[EventBatch]) -> IngestPlan:
        for study in sorted({batch.study for batch in batches}):
            connection.execute("SELECT pg_advisory_xact_lock_shared(%s, %s)", (LOCKS, study))
        count = sum(len(batch.events) for batch in batches)
        numbers = [row[0] for row in connection.execute(_NUMBERS, (count,)).fetchall()]
        credits: dict[Place, Credit] = {row[:2]: row[2:] for row in _named(connection, _CREDITS, uncredited(batches))}
        kept: dict[bytes, int | None] = {}
        while True:
            planned = plan_ingest(
                batches,
                last=numbers[0] - 1 if numbers else 0,
                sequences=numbers,
                received_at=float(self._clock()),
                kept=kept,
                credits=credits,
            )
            if self._move(connection, planned):
                break
            # Some id was kept before: only now is it worth asking which.
            digests = list({digest for batch in batches for digest, _ in batch.identities})
            kept = dict(connection.execute(_KEPT, (digests,)).fetchall())
        if planned.latest:
            connection.execute(_SET_LATEST, [list(column) for column in zip(*planned.latest, strict=True)])
        for tally in sorted(planned.tallies):
            self._do(connection, statements.SET_TALLY, tally)
        for reason in planned.rejected_reasons:
            self._do(connection, statements.ADD_REJECTED_REASON, reason)
        for sender in planned.rejected_numbers:
            self._do(connection, statements.ADD_REJECTED_NUMBERS, sender)
        for key in planned.rejected_keys:
            self._do(connection, statements.ADD_REJECTED_KEY, key)
        return planned

    def _move(self, connection: Any, planned: IngestPlan) -> bool:
        """Write the events; False, and none of them, where some id is in use."""
        if not planned.events:
            return True
        connection.execute("SAVEPOINT events")
        if connection.execute(_ADD_IDS, [list(column) for column in zip(*planned.ids, strict=True)]).rowcount == len(
            planned.ids
        ):
            with connection.cursor().copy(_ADD_EVENTS) as copy:
                for row in planned.events:
                    copy.write_row(row[:-1])  # no checksum: the server changes the form of the fields
            return True
        connection.execute("ROLLBACK TO events")
        return False


def _named(connection: Any, statement: str, places: Sequence[Place]) -> list[Any]:
    """Rows of what is wanted."""
    if not places:
        return []
    rows: list[Any] = connection.execute(statement, ([p[0] for p in places], [p[1] for p in places])).fetchall()
    return rows


def _rows(connection: Any, statement: str) -> Iterator[Any]:
    """Rows one by one, without having them all at once."""
    with connection.cursor(name="pasto_rows") as cursor:
        cursor.itersize = 10_000
        cursor.execute(statement)
        yield from cursor
