"""Side files of an embedded database: its mark, its disk reserve, and the watch on the database file itself.

The mark holds the last sequences that the store acknowledged. It shows if the database lost writes, for example because
an older copy was put in its place.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from pasto.errors import UnsafeStoreError
from pasto.store import statements
from pasto.store.disk_reserve import RESERVE, DiskReserve
from pasto.store.sqlite_connections import FILE, is_sound

log = logging.getLogger("pasto.store")
MARK: Final = "pasto.mark"
"""Name of the file in the directory of a store."""
MARK_BYTES: Final = 256
"""Fixed length of the file: it is overwritten in place, which works on a full disk too."""
REFILL_SECONDS: Final = 1.0
"""Time between two attempts to fill the reserve."""


class MarkRecord(NamedTuple):
    """Numbers that never decrease in a sound store."""

    events: int = 0
    """Sequence of the last event."""
    audit: int = 0
    """Sequence of the last audit line."""
    keys: int = 0
    """Number of all keys, revoked ones too."""
    missing_after: int = 0
    missing_until: int = 0
    """Events in (missing_after, missing_until] were acknowledged, and missing when the store was opened."""

    def find_losses(self, stored: MarkRecord) -> list[str]:
        """Return sentences about acknowledged rows that a store does not have.

        >>> MarkRecord(events=9, keys=1).find_losses(MarkRecord(events=7, keys=1))[0][:54]
        'events up to 9 were acknowledged, the store ends at 7:'
        """
        causes = (
            "the write-ahead log (pasto.db-wal) was shortened or an older copy of the file restored; if that was done "
            f"on purpose, delete {MARK}"
        )
        losses = []
        if stored.events < self.events:
            losses.append(f"events up to {self.events} were acknowledged, the store ends at {stored.events}: {causes}")
        if self.missing_until:
            losses.append(
                f"events up to {self.missing_until} were acknowledged, the store ended at {self.missing_after} when it "
                f"was last opened: {causes}"
            )
        if stored.audit < self.audit:
            losses.append(
                f"{self.audit} audit lines were acknowledged, the store ends at line {stored.audit}: {causes}"
            )
        if stored.keys < self.keys:
            losses.append(f"{self.keys} keys were made, the store holds {stored.keys}: {causes}")
        return losses


_TEMPLATE: Final = "{" + ", ".join(f'"{name}": %d' for name in MarkRecord._fields) + "}"


def read_stored(connection: sqlite3.Connection) -> MarkRecord:
    """Return the numbers of a database, to compare them with its mark."""
    (events,) = connection.execute(statements.LAST_SEQUENCE).fetchone()
    (audit,) = connection.execute("SELECT coalesce(max(sequence), 0) FROM audit_log").fetchone()
    (keys,) = connection.execute("SELECT count(*) FROM api_keys").fetchone()
    return MarkRecord(int(events), int(audit), int(keys))


class StoreMark:
    """Mark file of one directory, written after each commit; a commit without its mark is not an error."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None
        self.record = read_mark(path)

    def advance(self, *, events: int = 0, audit: int = 0, keys: int = 0) -> None:
        """Record a commit."""
        last = self.record
        self._write(
            last._replace(events=max(events, last.events), audit=max(audit, last.audit), keys=max(keys, last.keys))
        )

    def begin(self, stored: MarkRecord) -> list[str]:
        """Compare a store with its mark when it is opened; returns sentences about missing rows."""
        last = self.record
        losses = last.find_losses(stored)
        stored = stored._replace(audit=max(stored.audit, last.audit), keys=max(stored.keys, last.keys))
        if stored.events < last.events:
            after = min(stored.events, last.missing_after or stored.events)
            stored = stored._replace(missing_after=after, missing_until=max(last.events, last.missing_until))
        else:
            stored = stored._replace(missing_after=last.missing_after, missing_until=last.missing_until)
        self._write(stored)
        return losses

    def reset(self, stored: MarkRecord) -> None:
        """Set the mark to the numbers of a store that was restored or created on purpose."""
        self._write(stored)

    def close(self) -> None:
        """Close the file."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _write(self, record: MarkRecord) -> None:
        if record == self.record and self._handle is not None:
            return
        text = (_TEMPLATE % record).ljust(MARK_BYTES - 1) + "\n"
        with suppress(OSError):  # no disk space, or no file: the next commit writes it
            if self._handle is None:
                self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self._handle, text.encode("ascii"), 0)
            self.record = record


def read_mark(path: Path) -> MarkRecord:
    """Read a mark; zeros if there is none. A mark that cannot be read counts as that of a store with keys."""
    try:
        text = path.read_text(encoding="ascii")
    except FileNotFoundError:
        return MarkRecord()
    except (OSError, ValueError):
        return MarkRecord(keys=1)
    if not text.strip():
        return MarkRecord()
    try:
        return MarkRecord(**{name: int(value) for name, value in json.loads(text).items()})
    except (ValueError, TypeError, AttributeError):
        return MarkRecord(keys=1)


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
