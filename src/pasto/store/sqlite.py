"""The store in one directory, or in memory: SQLite with one writing connection."""

from __future__ import annotations

import json
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from pasto.errors import StoreError, StoreRefused
from pasto.store import statements
from pasto.store.backups import TABLES, insert, opened_backup, select, write_backup
from pasto.store.checking import damage
from pasto.store.connections import Pool, Shared, connect, prepare
from pasto.store.directory import Directory
from pasto.store.plan import Batch, Credit, Place, Plan, plan, uncredited
from pasto.store.relational import RelationalStore
from pasto.store.rows import Appended
from pasto.store.session_secret import delete_secret, load_secret, new_secret
from pasto.store.writer import Writer

T = TypeVar("T")

# Each wanted name is looked up in the index: CROSS JOIN forbids the planner to walk the table instead.
_CREDITS = (
    "SELECT latest.unit, version, arm, candidate FROM json_each(?) AS wanted "
    "CROSS JOIN latest ON latest.study = ? AND latest.unit = wanted.value"
)
_KEPT = (
    "SELECT events.id FROM json_each(?) AS wanted CROSS JOIN events ON events.study = ? AND events.id = wanted.value"
)


class SqliteStore(RelationalStore):
    """Everything in one file, written by one thread and read by any.

    >>> store = SqliteStore(None)
    >>> store.studies()
    []
    >>> store.close()
    """

    dialect = "sqlite"
    _conflict = sqlite3.IntegrityError
    _readers: Pool | Shared

    def __init__(
        self,
        directory: Path | None,
        *,
        clock: Callable[[], float] = time.time,
        connect: Callable[[str], sqlite3.Connection] = connect,
    ) -> None:
        self._where = "memory:" if directory is None else str(directory)
        self._session_secret: str | None = None
        self._clock = clock
        self._directory: Directory | None = None
        address = "file::memory:"
        with ExitStack() as undo:
            if directory is not None:
                self._directory = Directory(directory)
                undo.callback(self._directory.release)
                address = self._directory.database.as_uri()
            try:
                self._connection = connect(address)
                undo.callback(self._connection.close)
                prepare(self._connection, self._where)
            except sqlite3.Error as error:
                raise StoreRefused(f"{self._where} cannot be read: {error}; restore a backup elsewhere") from error
            undo.pop_all()
        self._readers = Shared(self._connection) if self._directory is None else Pool(self._directory.database)
        self._writer = Writer(self._append)

    @property
    def folder(self) -> Path | None:
        """The directory it lives in; None in memory."""
        return None if self._directory is None else self._directory.path

    def close(self) -> None:
        """Write what is waiting, then let go of everything."""
        if self._writer.close():
            self._readers.close()
            self._connection.close()
            if self._directory is not None:
                self._directory.release()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection for one short read-only transaction, of Python's database interface (DB-API 2)."""
        self._writer.require_open()
        try:
            with self._readers.reading() as connection:
                yield connection
        except sqlite3.Error as error:
            raise StoreError(f"{self._where} could not be read: {error}") from error

    def session_secret(self) -> str:
        """Return the secret that sessions are signed with; in memory it lasts as long as the store."""
        if self._session_secret is None:
            self._session_secret = new_secret() if self.folder is None else load_secret(self.folder)
        return self._session_secret

    def high_water(self, study: int) -> int:
        """The last sequence of the store, behind which no event of this study can still appear."""
        # Sequences are handed out by the one writer in the order of its commits.
        with self.reading() as connection:
            return int(connection.execute(statements.LAST_SEQUENCE).fetchone()[0])

    def backup(self, target: Path) -> None:
        """Write everything into one new file, while others go on writing."""
        with self.reading() as connection:
            write_backup(target, connection.backup)

    def restore(self, source: Path) -> None:
        """Fill an empty store from a backup."""
        with opened_backup(source) as backup:

            def write(connection: sqlite3.Connection) -> None:
                for table in TABLES:
                    if connection.execute(f"{select(table)} LIMIT 1").fetchone():
                        raise StoreError(f"{self._where} is not empty; restore into a new place")
                for table in TABLES:
                    connection.executemany(insert(table), backup.execute(select(table)))

            self._writing(write)
        self._session_secret = None
        if self.folder is not None:
            delete_secret(self.folder)

    def check(self) -> Iterator[str]:
        """Look for damage, and tell each finding in a sentence."""
        with self.reading() as connection:
            yield from damage(connection)

    def _writing(self, action: Callable[[Any], T]) -> T:
        def run() -> T:
            with self._transaction():
                return action(self._connection)

        return self._writer.perform(run)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """One transaction of the writing connection; called in the writing thread."""
        with self._readers.writing():
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            except (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError):
                raise  # what was given does not fit
            except sqlite3.Error as error:
                raise StoreError(f"{self._where} could not be written: {error}; nothing was kept of it") from error
            finally:
                if self._connection.in_transaction:
                    with suppress(sqlite3.Error):  # what went wrong first is what to tell
                        self._connection.execute("ROLLBACK")

    def _append(self, batches: Sequence[Batch]) -> Sequence[Appended]:
        """Write a group of batches in one transaction."""
        with self._transaction():
            last = int(self._connection.execute(statements.LAST_SEQUENCE).fetchone()[0])
            planned = self._add_events(batches, last)
            self._connection.executemany(statements.SET_LATEST, planned.latest)
            self._connection.executemany(statements.SET_TALLY, planned.tallies)
            self._connection.executemany(statements.ADD_REJECTED_REASON, planned.rejected_reasons)
            self._connection.executemany(statements.ADD_REJECTED_NUMBERS, planned.rejected_numbers)
        return planned.answers

    def _add_events(self, batches: Sequence[Batch], last: int) -> Plan:
        count = sum(len(batch.events) for batch in batches)
        credits = self._credits(uncredited(batches))
        now = self._clock()

        def planned(kept: Collection[Place]) -> Plan:
            numbers = range(last + 1, last + 1 + count)
            return plan(batches, last=last, sequences=numbers, received_at=now, kept=kept, credits=credits)

        self._connection.execute("SAVEPOINT events")
        try:
            first = planned(kept=())
            self._connection.executemany(statements.ADD_EVENT, first.events)
        except sqlite3.IntegrityError:
            # Some id was kept before: only now is it worth asking which.
            self._connection.execute("ROLLBACK TO events")
            second = planned(kept=self._kept(batches))
            self._connection.executemany(statements.ADD_EVENT, second.events)
            return second
        return first

    def _credits(self, units: Iterable[Place]) -> dict[Place, Credit]:
        return {(study, row[0]): row[1:] for study, row in self._look_up(_CREDITS, units)}

    def _kept(self, batches: Iterable[Batch]) -> set[Place]:
        ids = {(batch.study, event.id): None for batch in batches for event in batch.events}
        return {(study, row[0]) for study, row in self._look_up(_KEPT, ids)}

    def _look_up(self, statement: str, places: Iterable[Place]) -> Iterator[tuple[int, Any]]:
        """Rows of what is wanted, with the study each belongs to."""
        wanted: dict[int, list[str]] = defaultdict(list)
        for study, name in places:
            wanted[study].append(name)
        for study, names in wanted.items():
            for row in self._connection.execute(statement, (json.dumps(names), study)):
                yield study, row
