"""Watch on a database's files: a file removed or replaced while it is open would take what is written with it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class FileProblem(NamedTuple):
    """What happened to a database's files."""

    text: str
    is_shorter: bool = False
    """Whether the file is the right one, and shorter than it was."""


class FileWatch:
    """Identity of a database file and its write-ahead log, and the size that the file had at least.

    Only names are looked at: to open and close the file once more would end SQLite's locks on it.
    """

    def __init__(self, database: Path) -> None:
        self._database = str(database)
        self._log = f"{database}-wal"
        status = os.stat(self._database)  # noqa: PTH116 -- after each commit, so the faster one
        self._identity = (status.st_dev, status.st_ino)
        self._log_identity: tuple[int, int] | None = None
        self._size = status.st_size

    def problem(self) -> FileProblem | None:
        """Return what happened to the files; None if they are the ones that were opened."""
        try:
            status = os.stat(self._database)  # noqa: PTH116 -- after each commit, so the faster one
        except OSError as error:
            return FileProblem(f"the database file was removed or cannot be reached ({error.strerror})")
        if (status.st_dev, status.st_ino) != self._identity:
            return FileProblem("the database file was replaced by another one")
        if status.st_size < self._size:
            return FileProblem("the database file was emptied or shortened", is_shorter=True)
        self._size = status.st_size
        try:
            log = os.stat(self._log)  # noqa: PTH116 -- after each commit, so the faster one
        except OSError as error:
            if self._log_identity is None:
                return None  # nothing was written yet
            return FileProblem(f"the write-ahead log was removed or cannot be reached ({error.strerror})")
        if self._log_identity is None:
            self._log_identity = (log.st_dev, log.st_ino)
        elif (log.st_dev, log.st_ino) != self._log_identity:
            return FileProblem("the write-ahead log was replaced by another one")
        return None

    def accept_size(self) -> None:
        """Take the file's present size for the right one."""
        self._size = os.stat(self._database).st_size  # noqa: PTH116 -- after each commit, so the faster one
