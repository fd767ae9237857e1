"""Mark next to an embedded store: what the store acknowledged, kept outside of the store's own files."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from pasto.store import statements

MARK: Final = "pasto.mark"
"""The file's name in the store's directory."""
MARK_BYTES: Final = 256
"""The file is written over in place and always as long, which a full disk allows too."""


class MarkRecord(NamedTuple):
    """Numbers that never fall in a sound store."""

    events: int = 0
    """The last event's sequence."""
    audit: int = 0
    """The last audit line's sequence."""
    keys: int = 0
    """How many keys were ever made."""
    missing_after: int = 0
    missing_until: int = 0
    """Events in (missing_after, missing_until] were acknowledged and gone when the store was opened."""

    def findings(self, stored: MarkRecord) -> list[str]:
        """Return what is missing in a store that holds less than was acknowledged, in sentences.

        >>> MarkRecord(events=9, keys=1).findings(MarkRecord(events=7, keys=1))[0][:54]
        'events up to 9 were acknowledged, the store ends at 7:'
        """
        causes = (
            "the write-ahead log (pasto.db-wal) was shortened or an older copy of the file restored; if that was done "
            f"on purpose, delete {MARK}"
        )
        found = []
        if stored.events < self.events:
            found.append(f"events up to {self.events} were acknowledged, the store ends at {stored.events}: {causes}")
        if self.missing_until:
            found.append(
                f"events up to {self.missing_until} were acknowledged, the store ended at {self.missing_after} when it "
                f"was last opened: {causes}"
            )
        if stored.audit < self.audit:
            found.append(f"{self.audit} audit lines were acknowledged, the store ends at line {stored.audit}: {causes}")
        if stored.keys < self.keys:
            found.append(f"{self.keys} keys were made, the store holds {stored.keys}: {causes}")
        return found


_TEMPLATE: Final = "{" + ", ".join(f'"{name}": %d' for name in MarkRecord._fields) + "}"


def read_stored(connection: sqlite3.Connection) -> MarkRecord:
    """Return the numbers of a database that its mark is compared with."""
    (events,) = connection.execute(statements.LAST_SEQUENCE).fetchone()
    (audit,) = connection.execute("SELECT coalesce(max(sequence), 0) FROM audit_log").fetchone()
    (keys,) = connection.execute("SELECT count(*) FROM api_keys").fetchone()
    return MarkRecord(int(events), int(audit), int(keys))


class StoreMark:
    """The mark of one directory, written after each commit; a commit without its mark is not an error."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None
        self.record = read_mark(path)

    def advance(self, *, events: int = 0, audit: int = 0, keys: int = 0) -> None:
        """Write down what was committed."""
        known = self.record
        self._write(
            known._replace(events=max(events, known.events), audit=max(audit, known.audit), keys=max(keys, known.keys))
        )

    def begin(self, stored: MarkRecord) -> list[str]:
        """Take up what a store holds when it is opened; the sentences are about what is missing in it."""
        known = self.record
        missing = known.findings(stored)
        stored = stored._replace(audit=max(stored.audit, known.audit), keys=max(stored.keys, known.keys))
        if stored.events < known.events:
            after = min(stored.events, known.missing_after or stored.events)
            stored = stored._replace(missing_after=after, missing_until=max(known.events, known.missing_until))
        else:
            stored = stored._replace(missing_after=known.missing_after, missing_until=known.missing_until)
        self._write(stored)
        return missing

    def reset(self, stored: MarkRecord) -> None:
        """Begin anew with what a store holds, because it was filled or begun on purpose."""
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
        with suppress(OSError):  # no room, or no file: the mark falls behind, and the next commit writes it
            if self._handle is None:
                self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self._handle, text.encode("ascii"), 0)
            self.record = record


def read_mark(path: Path) -> MarkRecord:
    """Read a mark; zeros if there is none. One that cannot be read counts as that of a store with keys."""
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
