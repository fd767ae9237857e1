"""Connections to an SQLite database: one that writes, any number that only read."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from pasto.errors import StoreRefused
from pasto.store import statements
from pasto.store.event_ids import compute_digest
from pasto.store.rows import StoreSize
from pasto.store.schema import pending

WAL_AUTOCHECKPOINT: Final = "wal_autocheckpoint = 8000"

PRAGMAS: Final = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "cache_size = -65536",
    WAL_AUTOCHECKPOINT,
    "secure_delete = ON",
)
"""Of the writing connection: what is committed is on the disk, the log grows to 32 MB before it is folded in, and what
is deleted is overwritten: not every SQLite does that by itself, and a forgotten unit would stay in the file."""

_OLDEST: Final = (3, 37, 0)
_PATIENCE: Final = 10.0
"""Seconds to wait for a lock; only opening and closing ever meet one."""


def connect(address: str) -> sqlite3.Connection:
    """A connection that any thread may use, where a transaction begins and ends when it is told to."""
    return sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False, timeout=_PATIENCE)


def prepare(connection: sqlite3.Connection, where: str) -> None:
    """Make a connection the writing one, and its tables today's.

    There is only ever one, which also alone folds the log into the file: SQLite before 3.51.3 can lose what two
    connections write or fold at the same moment.
    """
    if sqlite3.sqlite_version_info < _OLDEST:
        needed = ".".join(map(str, _OLDEST))
        raise StoreRefused(f"SQLite {needed} or newer is needed, and this Python has {sqlite3.sqlite_version}")
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    migrate(connection, where)


def version_of(connection: sqlite3.Connection) -> int:
    """The version of the tables; 0 where there are none."""
    if not connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'meta'").fetchone()[0]:
        return 0
    return int(connection.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()[0])


def migrate(connection: sqlite3.Connection, where: str) -> None:
    """Bring the tables up to date, each step whole or not at all."""
    connection.create_function("event_digest", 3, compute_digest, deterministic=True)
    for number, step in pending("sqlite", version_of(connection), where):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in step:
                connection.execute(statement)
            connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES ('schema', ?)", (str(number),))
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def measure_size(connection: sqlite3.Connection) -> StoreSize:
    """Return how much a database holds and how much room that takes."""
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    ids, archived = connection.execute(statements.SIZES).fetchone()
    return StoreSize(pages * size, free * size, ids, archived)


def is_sound(file: Path) -> bool:
    """Return whether a new connection finds nothing wrong with a database's structure."""
    try:
        with closing(connect(f"{file.as_uri()}?mode=ro")) as connection:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
    except sqlite3.Error:
        return False


class Pool:
    """Read-only connections to a file, opened as needed: they see what is committed and can change nothing."""

    def __init__(self, path: Path) -> None:
        self._address = f"{path.as_uri()}?mode=ro"
        self._free: list[sqlite3.Connection] = []
        self._closed = False

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Nothing to wait for: readers and the writer do not meet."""
        yield

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection inside a transaction."""
        try:
            connection = self._free.pop()
        except IndexError:
            connection = connect(self._address)
        try:
            connection.execute("BEGIN")
            yield connection
            connection.execute("ROLLBACK")
        except BaseException:
            connection.close()
            raise
        if self._closed:
            connection.close()
        else:
            self._free.append(connection)

    def close(self) -> None:
        """Close them all; one that is in use, when it comes back."""
        self._closed = True
        while self._free:
            self._free.pop().close()


class Shared:
    """The one connection that a database in memory has: whoever uses it has it alone."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lock = threading.RLock()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep readers out."""
        with self._lock:
            yield

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection inside a transaction, unable to write."""
        with self._lock:
            if self._connection.in_transaction:  # a reader that reads on
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
