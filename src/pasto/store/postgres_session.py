"""Transactions on PostgreSQL that are done exactly once, though the connection may break at any moment."""

from __future__ import annotations

import importlib
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pasto.errors import MissingExtraError, StoreError, UnsafeStoreError
from pasto.store.schema import pending

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

LOCKS: Final = 0x7061_7374
"""The family of our advisory locks: number 0 guards the tables themselves, the others are the studies'."""

_BY_INDEX: Final = {"enable_hashjoin": "off", "enable_mergejoin": "off", "enable_seqscan": "off", "jit": "off"}
"""A writer looks up few things among many: whatever the server believes of its tables, it shall use their indices."""
_CONNECTION: Final = {
    "application_name": "pasto",
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}

_SET: Final = "SELECT set_config(name, %s, false) FROM pg_settings WHERE name = %s AND source <> 'client'"
"""Unless the address, or PGOPTIONS, has set it."""


def driver() -> Any:
    """The psycopg module; MissingExtra where it is not installed."""
    try:
        return importlib.import_module("psycopg")
    except ImportError as error:
        raise MissingExtraError("a store on PostgreSQL needs psycopg", "postgres") from error


def connect(url: str, **settings: str) -> psycopg.Connection[Any]:
    """A connection with these settings of the server, which commits only what is inside a `transaction()`.

    What the address itself says, of time limits or where the tables are, comes before our own.
    """
    given = driver().conninfo.conninfo_to_dict(url)
    connection: psycopg.Connection[Any] = driver().connect(autocommit=True, **{**_CONNECTION, **given})
    for name, value in settings.items():
        connection.execute(_SET, (value, name))
    return connection


def migrate(url: str) -> None:
    """Bring a database's tables up to date, whole or not at all, one node after the other."""
    with connect(url) as connection, connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s, 0)", (LOCKS,))
        version = 0
        known = connection.execute("SELECT to_regclass('meta')").fetchone()
        if known is not None and known[0] is not None:
            row = connection.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()
            version = int(row[0]) if row else 0
        for number, step in pending("postgres", version, "the database"):
            for statement in step:
                connection.execute(statement.encode())
            connection.execute(
                "INSERT INTO meta (name, value) VALUES ('schema', %s) "
                "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                (str(number),),
            )


class PostgresSession:
    """The writing connection: made anew when it breaks, and used by one thread.

    Every transaction leaves its number in a row of the session's own. Where the line breaks during a commit that row
    tells what became of it. (The server's own numbers do not: after a crash they are given out again.)
    """

    def __init__(self, url: str, *, patience: float) -> None:
        self._url = url
        self._patience = patience
        self._errors = driver().errors
        self._lost = (driver().OperationalError, driver().InterfaceError)
        self._name = f"writer {uuid.uuid4().hex}"
        self._number = 0
        self._connection = self._connect()
        self._connection.execute("INSERT INTO meta (name, value) VALUES (%s, '0')", (self._name,))

    def close(self) -> None:
        """Close the connection."""
        with suppress(*self._lost):
            self._connection.execute("DELETE FROM meta WHERE name = %s", (self._name,))
        self._connection.close()

    def transact(self, action: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Do something in one transaction, again where the connection was lost before it was committed.

        Where it is lost while committing the answer is found out first, so nothing is done twice. Raises StoreError
        when the server does not come back in time.
        """
        deadline = time.monotonic() + self._patience
        wait = 0.05
        while True:
            self._number += 1
            committing = False
            try:
                if self._connection.closed:
                    self._connection = self._connect()
                with self._connection.transaction():
                    result = action(self._connection)
                    self._connection.execute(
                        "UPDATE meta SET value = %s WHERE name = %s", (str(self._number), self._name)
                    )
                    committing = True
            except (self._errors.DeadlockDetected, self._errors.SerializationFailure) as error:
                problem: Exception = error
            except self._lost as error:
                if not self._connection.closed:
                    raise StoreError(
                        f"the database refused to write: {_first_line(error)}; nothing was kept"
                    ) from error
                if committing and self._committed(deadline):
                    return result
                problem = error
            else:
                return result
            if time.monotonic() + wait > deadline:
                raise StoreError(
                    f"the database cannot be reached: {_first_line(problem)}; nothing was kept"
                ) from problem
            time.sleep(wait)
            wait = min(2 * wait, 1.0)

    def vacuum(self) -> None:
        """Make the room of deleted rows free for new ones."""
        try:
            if self._connection.closed:
                self._connection = self._connect()
            self._connection.execute("VACUUM (ANALYZE) events, event_ids")
        except driver().Error as error:
            raise StoreError(f"the database could not be compacted: {_first_line(error)}; it is as it was") from error

    def _committed(self, deadline: float) -> bool:
        """What became of the last transaction, whose commit was never answered."""
        while True:
            with suppress(*self._lost):
                if self._connection.closed:
                    self._connection = self._connect()
                # Should the server still be at it, this waits until it is done: the row is its own till then.
                row = self._connection.execute(
                    "SELECT value FROM meta WHERE name = %s FOR UPDATE", (self._name,)
                ).fetchone()
                return row is not None and row[0] == str(self._number)
            if time.monotonic() > deadline:
                raise StoreError("the database went away while it was committing; whether it did is not known")
            time.sleep(0.1)

    def _connect(self) -> psycopg.Connection[Any]:
        limit = f"{max(1, round(1000 * self._patience))}ms"
        connection = connect(self._url, idle_in_transaction_session_timeout="60s", lock_timeout=limit, **_BY_INDEX)
        # Acknowledged means on the server's disk, also where it is told to be quicker than that.
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
        return connection


class ReadOnlySession:
    """A session that refuses to write, for a process that only reads."""

    def transact(self, action: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Raise StoreError."""
        raise StoreError("the database was opened for reading only; nothing was kept")

    def vacuum(self) -> None:
        """Raise StoreError."""
        raise StoreError("the database was opened for reading only; it is as it was")

    def close(self) -> None:
        """Do nothing: there is no connection."""


class ReadingPool:
    """Connections that cannot write, and that the server frees when a question takes too long."""

    def __init__(self, url: str, *, limit: str) -> None:
        self._url = url
        self._limit = limit
        self._lost = (driver().OperationalError, driver().InterfaceError)
        self._free: list[psycopg.Connection[Any]] = []
        self._closed = False

    @contextmanager
    def reading(self, isolation: str = "REPEATABLE READ") -> Iterator[psycopg.Connection[Any]]:
        """A connection inside a read-only transaction."""
        connection = self._begin(isolation)
        try:
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

    def _begin(self, isolation: str) -> psycopg.Connection[Any]:
        begin = f"BEGIN ISOLATION LEVEL {isolation} READ ONLY".encode()
        while True:
            try:
                connection = self._free.pop()
            except IndexError:
                break
            try:
                connection.execute(begin)
            except self._lost:  # it broke while it was resting
                connection.close()
            else:
                return connection
        connection = connect(self._url, statement_timeout=self._limit, idle_in_transaction_session_timeout="10min")
        connection.execute(begin)
        return connection


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def refuse(error: BaseException) -> UnsafeStoreError:
    """What to say where the first connection fails, without the address: it may carry a password."""
    return UnsafeStoreError(f"the database cannot be opened: {_first_line(error)}")
