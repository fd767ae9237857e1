"""Failures of a store's disk and files, recognised by what caused them."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from typing import Final

_FULL: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)
"""The second is what SQLite raises if the index of its log finds no room."""
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_disk_full(error: BaseException) -> bool:
    """Return whether an error says, itself or by its cause, that a disk is full.

    >>> is_disk_full(OSError(errno.ENOSPC, "No space left on device"))
    True
    """
    return any(
        (isinstance(each, OSError) and each.errno in (errno.ENOSPC, errno.EDQUOT))
        or (isinstance(each, sqlite3.Error) and getattr(each, "sqlite_errorcode", None) in _FULL)
        or type(each).__name__ == "DiskFull"  # PostgreSQL's, whose driver may not be installed
        for each in causes(error)
    )


def is_damage(error: BaseException) -> bool:
    """Return whether an error says, itself or by its cause, that a database file is damaged."""
    return any(
        isinstance(each, sqlite3.Error) and (getattr(each, "sqlite_errorcode", None) or 0) & 0xFF in _DAMAGED
        for each in causes(error)
    )


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, what it was raised from, and so on."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
