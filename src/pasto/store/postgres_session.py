"""PostgreSQL session: transactions that run exactly once, even if the connection breaks."""

from __future__ import annotations

import importlib
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pasto.errors import MissingExtraError, StoreError, UnsafeStoreError
from pasto.store.schema import list_pending

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

LOCKS: Final = 0x7061_7374
"""Class of the advisory locks: number 0 protects the schema, the others the studies of that number."""

_BY_INDEX: Final = {"enable_hashjoin": "off", "enable_mergejoin": "off", "enable_seqscan": "off", "jit": "off"}
"""Planner settings of the writer, which looks up few rows in large tables: it must use the indices."""
_CONNECTION: Final = {
    "application_name": "pasto",
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}

_SET: Final = "SELECT set_config(name, %s, false) FROM pg_settings WHERE name = %s AND source <> 'client'"
"""Changes a setting, unless the address or PGOPTIONS set it."""


def driver() -> Any:
    """Return the psycopg module; MissingExtraError if it is not installed."""
    try:
        return importlib.import_module("psycopg")
    except ImportError as error:
        raise MissingExtraError("a store on PostgreSQL needs psycopg", "postgres") from error


def connect(url: str, **settings: str) -> psycopg.Connection[Any]:
    """Connect with these settings of the server; only a `transaction()` commits.

    Settings in the address, such as time limits or the search path, take precedence.
    """
    given = driver().conninfo.conninfo_to_dict(url)
    connection: psycopg.Connection[Any] = driver().connect(autocommit=True, **{**_CONNECTION, **given})
    for name, value in settings.items():
        connection.execute(_SET, (value, name))
    return connection


def migrate(url: str) -> None:
    """Upgrade the tables in one transaction, one node after the other."""
    with connect(url) as connection, connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s, 0)", (LOCKS,))
        version = 0
        table = connection.execute("SELECT to_regclass('meta')").fetchone()
        if table is not None and table[0] is not None:
            row = connection.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()
            version = int(row[0]) if row else 0
        for number, step in list_pending("postgres", version, "the database"):
            for statement in step:
                connection.execute(statement.encode())
            connection.execute(
                "INSERT INTO meta (name, value) VALUES ('schema', %s) "
                "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                (str(number),),
            )


class PostgresSession:
    """Writing connection of one thread, opened again if it breaks.

    Every transaction writes its number to a row of the session. If the connection breaks during a commit, that row
    shows whether the commit succeeded. (Transaction ids of the server do not: after a crash they are used again.)
    """

    def __init__(self, url: str, *, retry_seconds: float) -> None:
        self._url = url
        self._retry_seconds = retry_seconds
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
        """Run an action in one transaction, and again if the connection was lost before the commit.

        If it was lost during the commit, the outcome is read first, so nothing runs twice. Raises StoreError if the
        server does not come back in time.
        """
        deadline = time.monotonic() + self._retry_seconds
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
                        f"the database refused to write: {_first_line(error)}; nothing of it is stored"
                    ) from error
                if committing and self._is_committed(deadline):
                    return result
                problem = error
            else:
                return result
            if time.monotonic() + wait > deadline:
                raise StoreError(
                    f"the database cannot be reached: {_first_line(problem)}; nothing of it is stored"
                ) from problem
            time.sleep(wait)
            wait = min(2 * wait, 1.0)

    def vacuum(self) -> None:
        """Free the space of deleted rows for new ones."""
        try:
            if self._connection.closed:
                self._connection = self._connect()
            self._connection.execute("VACUUM (ANALYZE) events, event_ids")
        except driver().Error as error:
            raise StoreError(f"the database could not be compacted: {_first_line(error)}; nothing changed") from error

    def _is_committed(self, deadline: float) -> bool:
        """Return whether the last transaction was committed, if the server never answered its commit."""
        while True:
            with suppress(*self._lost):
                if self._connection.closed:
                    self._connection = self._connect()
                # If the server still commits, this waits until it is done: the transaction locks the row till then.
                row = self._connection.execute(
                    "SELECT value FROM meta WHERE name = %s FOR UPDATE", (self._name,)
                ).fetchone()
                return row is not None and row[0] == str(self._number)
            if time.monotonic() > deadline:
                raise StoreError(
                    "the connection broke during a commit and the server did not come back; it may be stored or not"
                )
            time.sleep(0.1)

    def _connect(self) -> psycopg.Connection[Any]:
        limit = f"{max(1, round(1000 * self._retry_seconds))}ms"
        connection = connect(self._url, idle_in_transaction_session_timeout="60s", lock_timeout=limit, **_BY_INDEX)
        # Acknowledged means on the server's disk, even if the server is configured otherwise.
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
        return connection


class ReadOnlySession:
    """Session of a process that only reads: every write raises StoreError."""

    def transact(self, action: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Raise StoreError."""
        raise StoreError("the database was opened for reading only; nothing of it is stored")

    def vacuum(self) -> None:
        """Raise StoreError."""
        raise StoreError("the database was opened for reading only; nothing changed")

    def close(self) -> None:
        """Do nothing: there is no connection."""


class ReadOnlyPool:
    """Read-only connections; the server ends queries that take too long."""

    def __init__(self, url: str, *, query_timeout: str) -> None:
        self._url = url
        self._query_timeout = query_timeout
        self._lost = (driver().OperationalError, driver().InterfaceError)
        self._free: list[psycopg.Connection[Any]] = []
        self._closed = False

    @contextmanager
    def open_transaction(self, isolation: str = "REPEATABLE READ") -> Iterator[psycopg.Connection[Any]]:
        """Open a read-only transaction on a free connection."""
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
        """Close every connection; one in use is closed when it is returned."""
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
            except self._lost:  # it broke while it was idle
                connection.close()
            else:
                return connection
        connection = connect(
            self._url, statement_timeout=self._query_timeout, idle_in_transaction_session_timeout="10min"
        )
        connection.execute(begin)
        return connection


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def describe_open_error(error: BaseException) -> UnsafeStoreError:
    """Return the error for a failed first connection, without the address, which may hold a password."""
    return UnsafeStoreError(f"the database cannot be opened: {_first_line(error)}")
