"""Disk errors: full disks and damaged files, recognised in the causes of a failure of the store."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from typing import Final

_FULL: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)
"""SQLite raises the second if the index of its write-ahead log does not fit on the disk."""
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_disk_full(error: BaseException) -> bool:
    """Return whether an error or one of its causes is a full disk.

    >>> is_disk_full(OSError(errno.ENOSPC, "No space left on device"))
    True
    """
    return any(
        (isinstance(each, OSError) and each.errno in (errno.ENOSPC, errno.EDQUOT))
        or (isinstance(each, sqlite3.Error) and getattr(each, "sqlite_errorcode", None) in _FULL)
        or type(each).__name__ == "DiskFull"  # PostgreSQL's, whose driver may not be installed
        for each in iterate_causes(error)
    )


def is_damage(error: BaseException) -> bool:
    """Return whether an error or one of its causes is a damaged database file."""
    return any(
        isinstance(each, sqlite3.Error) and (getattr(each, "sqlite_errorcode", None) or 0) & 0xFF in _DAMAGED
        for each in iterate_causes(error)
    )


def iterate_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, then the error that it was raised from, and so on."""
    visited: set[int] = set()
    while error is not None and id(error) not in visited:
        visited.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
