"""Opening a store by its address."""

from __future__ import annotations

from pathlib import Path

from pasto.store.protocol import Store
from pasto.store.sqlite_store import SqliteStore


def open_store(where: str, *, restoring: bool = False, read_only: bool = False) -> Store:
    """The store at an address: "memory:", a directory, or "postgresql://…".

    `restoring` opens a directory that has lost its store, to be filled from a backup. `read_only` opens a store that
    another process may be writing: writes raise StoreError.

    >>> store = open_store("memory:")
    >>> store.high_water(1)
    0
    >>> store.close()
    """
    if where.startswith(("postgresql://", "postgres://")):
        from pasto.store.postgres_store import PostgresStore  # only those who have a server have its driver

        return PostgresStore(where, read_only=read_only)
    return SqliteStore(None if where == "memory:" else Path(where), restoring=restoring, read_only=read_only)
