"""Files next to an embedded database: its mark, its disk reserve, and the watch on the database file itself."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Final

from pasto.errors import UnsafeStoreError
from pasto.store.disk_reserve import RESERVE, DiskReserve
from pasto.store.file_watch import FileWatch
from pasto.store.sqlite_connections import FILE, is_sound
from pasto.store.store_mark import MARK, MarkRecord, StoreMark

log = logging.getLogger("pasto.store")
REFILL_SECONDS: Final = 1.0
"""Time between two tries to get the reserve's room back."""


class SideFiles:
    """What lies next to the database in its directory; used by the writing thread, except for `problem`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._watch: FileWatch | None = None
        self._refill_at = 0.0
        self.mark = StoreMark(directory / MARK)
        self.reserve = DiskReserve(directory / RESERVE)

    def begin(self, stored: MarkRecord, *, is_restoring: bool) -> None:
        """Compare a database that was opened with its mark; StoreRefused if it has lost its keys.

        Without keys everybody on this machine would be an administrator.
        """
        self._watch = FileWatch(self._directory / FILE)
        known = self.mark.record
        if is_restoring:
            return
        if known.keys and not stored.keys:
            raise UnsafeStoreError(
                f"{self._directory} held a store with keys, and {FILE} is missing or holds none now; restore a backup "
                f"with `pasto store restore FILE --store {self._directory}`, or delete {self._directory / MARK} to "
                "begin a store that anybody on this machine may use"
            )
        if stored == MarkRecord():
            if known.events or known.audit:
                log.warning("%s was missing or empty, so a new store was begun", self._directory / FILE)
            self.mark.reset(stored)
            return
        for finding in self.mark.begin(stored):
            log.warning("%s: %s", self._directory, finding)

    def problem(self) -> str | None:
        """Return what happened to the database's files while it was open; None if they are as they were."""
        if self._watch is None:
            return None
        problem = self._watch.problem()
        if problem is None:
            return None
        # A file that was compacted from outside is shorter and sound; one that was cut off is not.
        if problem.is_shorter and is_sound(self._directory / FILE):
            self._watch.accept_size()
            return None
        return problem.text

    def refill_reserve(self) -> None:
        """Take the reserve's room again if it is short of it, now and then."""
        if self.reserve.is_short and time.monotonic() >= self._refill_at:
            self._refill_at = time.monotonic() + REFILL_SECONDS
            self.reserve.refill()

    def close(self) -> None:
        """Close the files."""
        self.mark.close()
        self.reserve.close()
