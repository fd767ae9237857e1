"""Detection of lost writes: the last sequences that an embedded store acknowledged, in a file next to the database.

The file shows if the database lost writes, for example because an older copy was put in its place.
"""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from pasto.store import statements

MARK: Final = "pasto.mark"
"""Name of the file in the directory of a store."""
MARK_BYTES: Final = 256
"""Fixed length of the file: it is overwritten in place, which works on a full disk too."""


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
