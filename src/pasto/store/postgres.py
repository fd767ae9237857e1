"""The store on PostgreSQL: several nodes on one database."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pasto.errors import StoreError
from pasto.store import statements
from pasto.store.backups import TABLES, insert, opened_backup, select, write_backup
from pasto.store.checking import findings
from pasto.store.connections import migrate
from pasto.store.plan import Batch, Credit, Place, Plan, plan, uncredited
from pasto.store.relational import RelationalStore
from pasto.store.rows import Appended
from pasto.store.session import LOCKS, ReadingPool, Session, driver, refuse
from pasto.store.session import migrate as prepare
from pasto.store.session_secret import new_secret
from pasto.store.writer import Writer

T = TypeVar("T")

_CREDITS = (
    "SELECT latest.study, latest.unit, version, arm, candidate "
    "FROM unnest(%s::bigint[], %s::text[]) AS wanted (study, unit) JOIN latest USING (study, unit)"
)
_KEPT = (
    "SELECT events.study, events.id "
    "FROM unnest(%s::bigint[], %s::text[]) AS wanted (study, id) JOIN events USING (study, id)"
)
# In the order of their keys, as every node writes them: two nodes never wait for each other in a circle.
_MOVE = "INSERT INTO events SELECT * FROM staging ORDER BY study, id ON CONFLICT (study, id) DO NOTHING"
_SET_LATEST = (
    "INSERT INTO latest (study, unit, version, arm, candidate, sequence) "
    "SELECT * FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::text[], %s::bigint[], %s::bigint[]) "
    "ON CONFLICT (study, unit) DO UPDATE SET version = excluded.version, arm = excluded.arm, "
    "candidate = excluded.candidate, sequence = excluded.sequence WHERE excluded.sequence > latest.sequence"
)
_SESSION_NOTE = "secret/session"
"""The note of the secret that sessions are signed with; a backup copies no notes."""
_NUMBERS = "SELECT nextval('events_sequence_seq') FROM generate_series(1, %s)"


class PostgresStore(RelationalStore):
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
    ) -> None:
        errors = driver()
        self._conflict = errors.errors.UniqueViolation
        self._failure: type[Exception] = errors.Error
        self._clock = clock
        try:
            prepare(url)
            self._session = Session(url, patience=patience)
        except errors.Error as error:
            raise refuse(error) from error
        self._readers = ReadingPool(url, limit=reading_limit)
        self._writer = Writer(self._append)

    def close(self) -> None:
        """Write what is waiting, then let go of everything."""
        if self._writer.close():
            self._readers.close()
            self._session.close()

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """A connection for one short read-only transaction, of Python's database interface (DB-API 2)."""
        self._writer.require_open()
        try:
            with self._readers.reading() as connection:
                yield connection
        except self._failure as error:
            raise StoreError(f"the database could not be read: {error}") from error

    def session_secret(self) -> str:
        """Return the secret that sessions are signed with: the same on every node, made if there is none."""
        if not (found := self._all(statements.NOTE, (_SESSION_NOTE,))):
            values = (_SESSION_NOTE, new_secret())  # another node may have been first
            self._writing(lambda connection: self._do(connection, statements.ADD_NOTE, values))
            found = self._all(statements.NOTE, (_SESSION_NOTE,))
        return str(found[0][0])

    def high_water(self, study: int) -> int:
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

    def backup(self, target: Path) -> None:
        """Write everything into one new file, while others go on writing."""
        with self.reading() as connection:

            def fill(file: sqlite3.Connection) -> None:
                migrate(file, str(target))
                file.execute("BEGIN")
                for table in TABLES:
                    file.executemany(insert(table), _rows(connection, select(table).replace("fields", "fields::text")))
                file.execute("COMMIT")

            write_backup(target, fill)

    def restore(self, source: Path) -> None:
        """Fill an empty store from a backup."""
        with opened_backup(source) as backup:

            def write(connection: Any) -> None:
                for table in TABLES:
                    if connection.execute(f"{select(table)} LIMIT 1").fetchone():
                        raise StoreError("the database is not empty; restore into a new one")
                for table, columns in TABLES.items():
                    with connection.cursor().copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
                        for row in backup.execute(select(table)):
                            copy.write_row(row)
                for table, column in (("events", "sequence"), ("audit", "sequence"), ("studies", "number")):
                    connection.execute(
                        f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), max({column})) "  # noqa: S608 -- our own names
                        f"FROM {table} HAVING count(*) > 0"
                    )
                self._do(connection, statements.DELETE_NOTE, (_SESSION_NOTE,))

            self._writing(write)

    def check(self) -> Iterator[str]:
        """Look for damage, and tell each finding in a sentence."""
        with self.reading() as connection:
            yield from findings(lambda statement: _rows(connection, statement))

    @staticmethod
    def _sql(statement: str) -> str:
        return statement.replace("?", "%s")

    def _writing(self, action: Callable[[Any], T]) -> T:
        return self._writer.perform(lambda: self._session.transact(action))

    def _append(self, batches: Sequence[Batch]) -> Sequence[Appended]:
        """Write a group of batches in one transaction."""
        return self._session.transact(lambda connection: self._write(connection, batches).answers)

    def _write(self, connection: Any, batches: Sequence[Batch]) -> Plan:
        for study in sorted({batch.study for batch in batches}):
            connection.execute("SELECT pg_advisory_xact_lock_shared(%s, %s)", (LOCKS, study))
        count = sum(len(batch.events) for batch in batches)
        numbers = [row[0] for row in connection.execute(_NUMBERS, (count,)).fetchall()]
        credits: dict[Place, Credit] = {row[:2]: row[2:] for row in _named(connection, _CREDITS, uncredited(batches))}
        kept: set[Place] = set()
        while True:
            planned = plan(
                batches,
                last=numbers[0] - 1 if numbers else 0,
                sequences=numbers,
                received_at=self._clock(),
                kept=kept,
                credits=credits,
            )
            if self._move(connection, planned):
                break
            # Some id was kept before: only now is it worth asking which.
            ids = {(batch.study, event.id): None for batch in batches for event in batch.events}
            kept = {row[:2] for row in _named(connection, _KEPT, list(ids))}
        if planned.latest:
            connection.execute(_SET_LATEST, [list(column) for column in zip(*planned.latest, strict=True)])
        for tally in sorted(planned.tallies):
            self._do(connection, statements.SET_TALLY, tally)
        for reason in planned.rejected_reasons:
            self._do(connection, statements.ADD_REJECTED_REASON, reason)
        for sender in planned.rejected_numbers:
            self._do(connection, statements.ADD_REJECTED_NUMBERS, sender)
        return planned

    def _move(self, connection: Any, planned: Plan) -> bool:
        """Write the events; False, and none of them, where some id is in use."""
        if not planned.events:
            return True
        connection.execute("SAVEPOINT events")
        with connection.cursor() as cursor:
            with cursor.copy("COPY staging FROM STDIN") as copy:
                for row in planned.events:
                    copy.write_row(row)
            if cursor.execute(_MOVE).rowcount == len(planned.events):
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
