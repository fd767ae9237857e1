"""Read-only store: copy or check a store while a service writes it."""

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
from pasto.store.sqlite_connections import FILE, connect, measure_size, read_version
from pasto.store.sqlite_side_files import MARK, read_mark, read_stored


class ReadOnlyStore(Protocol):
    """Operations on a store that another process may be writing."""

    def write_backup(self, target: Path) -> None:
        """Write everything into one new file."""
        ...

    def check_integrity(self) -> Iterable[str]:
        """Read every row, and yield each finding as a sentence."""
        ...

    def find_risks(self) -> Iterable[str]:
        """Return sentences about damage that `check_integrity` cannot find."""
        ...

    def measure_size(self) -> StoreSize:
        """Return the number of events and the disk space they take."""
        ...


class StoreSnapshot:
    """Embedded store, opened by a connection that only reads."""

    def __init__(self, directory: Path) -> None:
        file = directory / FILE
        if not file.is_file():
            raise UnsafeStoreError(f"there is no store in {str(directory)!r}; name another with --store")
        self._file = file
        self._connection = connect(f"{file.absolute().as_uri()}?mode=ro")
        self._where = str(directory)

    def write_backup(self, target: Path) -> None:
        """Write everything into one new file, while others write the store."""
        write_backup(target, self._connection.backup)

    def check_integrity(self) -> Iterator[str]:
        """Read every row, and yield each finding as a sentence."""
        mark = read_mark(self._file.parent / MARK)  # before the database: a service may write both meanwhile
        self._connection.execute("BEGIN")
        try:
            version, today = read_version(self._connection), len(migrations("sqlite"))
            if version < today:
                raise UnsafeStoreError(
                    f"{self._where} has tables of version {version}, and a check needs version {today}; open the store "
                    "once with this PASTO, as `pasto study list` does, and check again"
                )
            yield from mark.find_losses(read_stored(self._connection))
            yield from find_damage(self._connection)
        except sqlite3.DatabaseError as error:
            raise UnsafeStoreError(f"{self._where} is not a store, or too damaged to read: {error}") from error
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def find_risks(self) -> Iterable[str]:
        """Return nothing: the rows have checksums."""
        return ()

    def measure_size(self) -> StoreSize:
        """Return the number of events and the disk space they take."""
        try:
            return measure_size(self._connection)
        except sqlite3.DatabaseError as error:
            raise UnsafeStoreError(
                f"the sizes of {self._where} cannot be read: {error}; a store of an older PASTO is brought up to date "
                "when a service starts on it"
            ) from error

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@contextmanager
def open_read_only(address: str) -> Iterator[ReadOnlyStore]:
    """Open the store at an address for reading only; a service may write it meanwhile.

    >>> with open_read_only("missing"):
    ...     pass
    Traceback (most recent call last):
        ...
    pasto.errors.UnsafeStoreError: there is no store in 'missing'; name another with --store
    """
    is_file = "://" not in address and address != "memory:"
    store = StoreSnapshot(Path(address)) if is_file else open_store(address)
    try:
        yield store
    finally:
        store.close()
