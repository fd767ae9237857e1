"""The store in one directory, or in memory: SQLite with one writing connection."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pasto.errors import StoreError
from pasto.store import statements
from pasto.store.plan import Batch, Credit, Place, plan, uncredited
from pasto.store.relational import RelationalStore
from pasto.store.rows import Appended
from pasto.store.schema import pending
from pasto.store.writer import Writer

T = TypeVar("T")

FILE = "pasto.db"
"""The database's name in its directory."""

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

    def __init__(self, directory: Path | None, *, clock: Callable[[], float] = time.time) -> None:
        self._where = "memory:" if directory is None else str(directory)
        self._clock = clock
        self._connections: _Pool | _Shared
        if directory is None:
            self._connection = _connect("file::memory:")
            self._connections = _Shared(self._connection)
        else:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = (directory / FILE).absolute()
            path.touch(mode=0o600)
            self._connection = _connect(path.as_uri())
            self._connections = _Pool(path)
        migrate(self._connection, self._where)
        self._last = self._last_sequence()
        self._writer = Writer(self._append)

    def close(self) -> None:
        """Write what is waiting, then let go of everything."""
        self._writer.close()
        self._connections.close()
        self._connection.close()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection for one short read-only transaction, of Python's database interface (DB-API 2)."""
        with self._connections.borrow() as connection:
            yield connection

    def high_water(self, study: int) -> int:
        """The last sequence of the store, behind which no event of this study can still appear."""
        # Sequences are handed out by the one writer in the order of its commits.
        with self.reading() as connection:
            return int(connection.execute(statements.LAST_SEQUENCE).fetchone()[0])

    def backup(self, target: Path) -> None:
        """Write everything into one new file, while others go on writing."""
        raise NotImplementedError

    def restore(self, source: Path) -> None:
        """Fill an empty store from a backup."""
        raise NotImplementedError

    def check(self) -> Iterable[str]:
        """Look for damage, and tell each finding in a sentence."""
        raise NotImplementedError

    def _writing(self, action: Callable[[Any], T]) -> T:
        def run() -> T:
            with self._transaction():
                return action(self._connection)

        return self._writer.perform(run)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """One transaction of the writing connection; called in the writing thread."""
        with self._connections.held():
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            except sqlite3.IntegrityError:
                raise
            except sqlite3.Error as error:
                raise StoreError(f"{self._where} could not be written: {error}; nothing was kept of it") from error
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def _append(self, batches: Sequence[Batch]) -> Sequence[Appended]:
        """Write a group of batches in one transaction."""
        now = self._clock()
        units = uncredited(batches)
        count = sum(len(batch.events) for batch in batches)
        kept: set[Place] = set()
        with self._transaction():
            credits = self._credits(units)
            while True:
                planned = plan(
                    batches,
                    last=self._last,
                    sequences=range(self._last + 1, self._last + 1 + count),
                    received_at=now,
                    kept=kept,
                    credits=credits,
                )
                self._connection.execute("SAVEPOINT events")
                try:
                    self._connection.executemany(statements.ADD_EVENT, planned.events)
                except sqlite3.IntegrityError:
                    # Some id was kept before: only now is it worth asking which.
                    if kept:
                        raise
                    self._connection.execute("ROLLBACK TO events")
                    kept = self._kept(batches)
                else:
                    break
            self._connection.executemany(statements.SET_LATEST, planned.latest)
            self._connection.executemany(statements.SET_TALLY, planned.tallies)
        self._last += len(planned.events)
        return planned.answers

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

    def _last_sequence(self) -> int:
        return int(self._connection.execute(statements.LAST_SEQUENCE).fetchone()[0])


def migrate(connection: sqlite3.Connection, where: str) -> None:
    """Bring the tables up to date, each step in one transaction."""
    known = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'meta'").fetchone()[0]
    version = 0
    if known:
        version = int(connection.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()[0])
    for number, step in pending("sqlite", version, where):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in step:
                connection.execute(statement)
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('schema', ?)", (str(number),))
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def _connect(address: str) -> sqlite3.Connection:
    """A connection set up as every writer's is: acknowledged means on the disk."""
    connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False, timeout=10.0)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "cache_size = -65536"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


class _Pool:
    """Read-only connections to a file, opened as needed: they see what is committed and can change nothing."""

    def __init__(self, path: Path) -> None:
        self._address = f"{path.as_uri()}?mode=ro"
        self._free: list[sqlite3.Connection] = []
        self._process = os.getpid()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nothing to wait for: readers and the writer do not meet."""
        yield

    @contextmanager
    def borrow(self) -> Iterator[sqlite3.Connection]:
        """A connection inside a transaction."""
        if os.getpid() != self._process:
            raise StoreError("this store was opened before the process forked; open it in the child instead")
        try:
            connection = self._free.pop()
        except IndexError:
            connection = sqlite3.connect(
                self._address, uri=True, isolation_level=None, check_same_thread=False, timeout=10.0
            )
            connection.execute("PRAGMA query_only = ON")
        try:
            connection.execute("BEGIN")
            yield connection
        finally:
            connection.execute("ROLLBACK")
            self._free.append(connection)

    def close(self) -> None:
        """Close them all."""
        while self._free:
            self._free.pop().close()


class _Shared:
    """The one connection that a database in memory has: whoever uses it has it alone."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lock = threading.RLock()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep readers out while writing."""
        with self._lock:
            yield

    @contextmanager
    def borrow(self) -> Iterator[sqlite3.Connection]:
        """The connection inside a transaction, unable to write."""
        with self._lock:
            if self._connection.in_transaction:
                yield self._connection
                return
            self._connection.execute("PRAGMA query_only = ON")
            self._connection.execute("BEGIN")
            try:
                yield self._connection
            finally:
                self._connection.execute("ROLLBACK")
                self._connection.execute("PRAGMA query_only = OFF")

    def close(self) -> None:
        """Nothing of its own to close."""
