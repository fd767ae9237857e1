"""Side files of an embedded database: its mark, its disk reserve, and the watch on the database file itself."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Final, NamedTuple

from pasto.errors import UnsafeStoreError
from pasto.store.disk_reserve import RESERVE, DiskReserve
from pasto.store.loss_detection import MARK, MarkRecord, StoreMark
from pasto.store.sqlite_connections import FILE, is_sound

log = logging.getLogger("pasto.store")
REFILL_SECONDS: Final = 1.0
"""Time between two attempts to fill the reserve."""


class FileProblem(NamedTuple):
    """Change of the database files while they were open."""

    text: str
    is_shorter: bool = False
    """True if the file is the right one, and shorter than before."""


class FileWatch:
    """Identity of a database file and its write-ahead log, and the smallest size that the file may have.

    It reads only names: to open and close the file once more would end SQLite's locks on it.
    """

    def __init__(self, database: Path) -> None:
        self._database = str(database)
        self._log = f"{database}-wal"
        status = os.stat(self._database)  # noqa: PTH116 -- after each commit, so the faster one
        self._identity = (status.st_dev, status.st_ino)
        self._log_identity: tuple[int, int] | None = None
        self._size = status.st_size

    def find_problem(self) -> FileProblem | None:
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
        """Accept the present size of the file."""
        self._size = os.stat(self._database).st_size  # noqa: PTH116 -- after each commit, so the faster one


class SideFiles:
    """Files next to the database in its directory; used by the writing thread, except for `find_problem`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._watch: FileWatch | None = None
        self._refill_at = 0.0
        self.mark = StoreMark(directory / MARK)
        self.reserve = DiskReserve(directory / RESERVE)

    def begin(self, stored: MarkRecord, *, is_restoring: bool) -> None:
        """Compare an opened database with its mark; UnsafeStoreError if its keys are lost.

        Without keys, every user of this machine would be an administrator.
        """
        self._watch = FileWatch(self._directory / FILE)
        last = self.mark.record
        if is_restoring:
            return
        if last.keys and not stored.keys:
            raise UnsafeStoreError(
                f"{self._directory} held a store with keys, and {FILE} is missing or holds none now; restore a backup "
                f"with `pasto store restore FILE --store {self._directory}`, or delete {self._directory / MARK} to "
                "begin a store that every user of this machine may administer"
            )
        if stored == MarkRecord():
            if last.events or last.audit:
                log.warning("%s was missing or empty, so a new store was created", self._directory / FILE)
            self.mark.reset(stored)
            return
        for finding in self.mark.begin(stored):
            log.warning("%s: %s", self._directory, finding)

    def find_problem(self) -> str | None:
        """Return what happened to the database files while they were open; None if they are unchanged."""
        if self._watch is None:
            return None
        problem = self._watch.find_problem()
        if problem is None:
            return None
        # A file that another program compacted is shorter and sound; a truncated one is not sound.
        if problem.is_shorter and is_sound(self._directory / FILE):
            self._watch.accept_size()
            return None
        return problem.text

    def refill_reserve(self) -> None:
        """Fill the reserve if it is short, at most once in REFILL_SECONDS."""
        if self.reserve.is_short and time.monotonic() >= self._refill_at:
            self._refill_at = time.monotonic() + REFILL_SECONDS
            self.reserve.refill()

    def close(self) -> None:
        """Close the files."""
        self.mark.close()
        self.reserve.close()
