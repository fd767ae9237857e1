"""Sessions of the dashboard: the secret that signs them and exposures, and the names of sessions that ended early."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

FILE: Final = "session.secret"
"""Name of the secret file in the directory of an embedded store; no backup holds it."""
ENDED_PREFIX: Final = "ended_session/"
"""Prefix of the names under which ended sessions are stored."""
MAX_ENDED_SESSIONS: Final = 1000
"""Ended sessions of one key that are stored one by one."""
_ALL_SESSIONS: Final = "all"
_SECRET: Final = re.compile(r"[0-9a-f]{64}")
log = logging.getLogger("pasto.store")


def new_secret() -> str:
    """Return 256 random bits in hexadecimal.

    >>> len(new_secret())
    64
    """
    return secrets.token_hex(32)


def load_secret(folder: Path) -> str:
    """Return the secret in a store's directory; creates it if there is none, readable by its owner only.

    If the file cannot be written, the secret lasts as long as the process, and so do its logins.
    """
    file = folder / FILE
    try:
        secret = file.read_text(encoding="ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        secret = ""
    except OSError as error:
        log.warning("%s cannot be read, so logins to the dashboard end with this process: %s", file, error)
        return new_secret()
    if _SECRET.fullmatch(secret):
        return secret
    secret = new_secret()
    try:
        _write(file, secret)
    except OSError as error:
        log.warning("%s cannot be written, so logins to the dashboard end with this process: %s", file, error)
    return secret


def delete_secret(folder: Path) -> None:
    """Delete the secret of a store's directory, which ends every login."""
    (folder / FILE).unlink(missing_ok=True)


def _write(file: Path, secret: str) -> None:
    """Write the file atomically."""
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)  # mode 0600
    partial = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as written:
            written.write(f"{secret}\n")
            written.flush()
            os.fsync(written.fileno())
        partial.replace(file)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


class EndedSession(NamedTuple):
    """Session that was ended before it expired; `session` is "all" for every session of the key until then."""

    key: str
    until: int
    session: str

    @property
    def name(self) -> str:
        """Name under which it is stored: names of one key sort by expiry.

        >>> EndedSession("ab12", 1700000000, "s1").name
        'ended_session/ab12/001700000000/s1'
        """
        return f"{ENDED_PREFIX}{self.key}/{self.until:012d}/{self.session}"

    @classmethod
    def from_name(cls, name: str) -> EndedSession:
        """Read a stored name."""
        _, key, until, session = name.split("/")
        return cls(key, int(until), session)

    def covers(self, session: str, until: int) -> bool:
        """Return whether it ends a session of its key that expires at `until`."""
        return self.session == _ALL_SESSIONS or (self.session == session and self.until == until)


def plan_session_end(
    stored: Iterable[EndedSession], ended: EndedSession, now: float
) -> tuple[EndedSession, list[EndedSession]]:
    """Return the record to add for an ended session, and the stored records to delete.

    Expired records are deleted. Too many of one key are replaced by one for all its sessions.
    """
    stored = list(stored)
    deleted = [record for record in stored if record.until <= now]
    same_key = [record for record in stored if record.until > now and record.key == ended.key]
    if len(same_key) >= MAX_ENDED_SESSIONS:
        deleted += same_key
        ended = EndedSession(ended.key, max(ended.until, *(record.until for record in same_key)), _ALL_SESSIONS)
    return ended, deleted
