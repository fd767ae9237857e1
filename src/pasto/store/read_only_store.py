"""Looking at a store without holding it: to copy or check it while a service writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from pasto.errors import UnsafeStoreError
from pasto.store import open_store
from pasto.store.backup import write_backup
from pasto.store.integrity_check import find_damage
from pasto.store.rows import StoreSize
from pasto.store.schema import migrations
from pasto.store.sqlite_connections import FILE, connect, measure_size, version_of
from pasto.store.store_mark import MARK, read_mark, read_stored


class ReadOnlyStore(Protocol):
    """What can be done with a store that another process may be writing."""

    def write_backup(self, target: Path) -> None:
        """Write everything into one new file."""
        ...

    def check_integrity(self) -> Iterable[str]:
        """Look for damage, and tell each finding in a sentence."""
        ...

    def find_risks(self) -> Iterable[str]:
        """Return what keeps damage from being noticed, each in a sentence."""
        ...

    def measure_size(self) -> StoreSize:
        """Return how much it holds and how much room that takes."""
        ...


class StoreSnapshot:
    """An embedded store through a connection that only reads."""

    def __init__(self, directory: Path) -> None:
        file = directory / FILE
        if not file.is_file():
            raise UnsafeStoreError(f"there is no store in {str(directory)!r}; name another with --store")
        self._file = file
        self._connection = connect(f"{file.absolute().as_uri()}?mode=ro")
        self._where = str(directory)

    def write_backup(self, target: Path) -> None:
        """Write everything into one new file, while others go on writing."""
        write_backup(target, self._connection.backup)

    def check_integrity(self) -> Iterator[str]:
        """Look for damage, and tell each finding in a sentence."""
        mark = read_mark(self._file.parent / MARK)  # before the database: a service may go on writing both
        self._connection.execute("BEGIN")
        try:
            version, today = version_of(self._connection), len(migrations("sqlite"))
            if version < today:
                raise UnsafeStoreError(
                    f"{self._where} has tables of version {version}, and a check needs version {today}; open the store "
                    "once with this PASTO, as `pasto study list` does, and check again"
                )
            yield from mark.findings(read_stored(self._connection))
            yield from find_damage(self._connection)
        except sqlite3.DatabaseError as error:
            raise UnsafeStoreError(f"{self._where} is no store, or one too damaged to read: {error}") from error
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def find_risks(self) -> Iterable[str]:
        """Return nothing: the rows of an embedded store have checksums."""
        return ()

    def measure_size(self) -> StoreSize:
        """Return how much it holds and how much room that takes."""
        try:
            return measure_size(self._connection)
        except sqlite3.DatabaseError as error:
            raise UnsafeStoreError(
                f"the sizes of {self._where} cannot be read: {error}; a store of an older PASTO is brought up to date "
                "when a service starts on it"
            ) from error

    def close(self) -> None:
        """Let go of it."""
        self._connection.close()


@contextmanager
def open_read_only(where: str) -> Iterator[ReadOnlyStore]:
    """The store at an address, to look at only; a service may go on writing it.

    >>> with open_read_only("nowhere"):
    ...     pass
    Traceback (most recent call last):
        ...
    pasto.errors.UnsafeStoreError: there is no store in 'nowhere'; name another with --store
    """
    store = open_store(where) if "://" in where or where == "memory:" else StoreSnapshot(Path(where))
    try:
        yield store
    finally:
        store.close()
