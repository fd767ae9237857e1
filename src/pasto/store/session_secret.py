"""The secret behind logins to the dashboard and signed exposures: of one installation, and in none of its backups."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import tempfile
from pathlib import Path
from typing import Final

FILE: Final = "session.secret"
"""Its name in the directory of an embedded store."""
_SECRET: Final = re.compile(r"[0-9a-f]{64}")
log = logging.getLogger("pasto.store")


def new_secret() -> str:
    """Return 256 random bits in hexadecimal.

    >>> len(new_secret())
    64
    """
    return secrets.token_hex(32)


def load_secret(folder: Path) -> str:
    """Return the secret in a store's directory, made if there is none; only its owner may read the file.

    If it cannot be written, a secret is returned that lasts as long as the process: its logins end with it.
    """
    file = folder / FILE
    try:
        found = file.read_text(encoding="ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        found = ""
    except OSError as error:
        log.warning("%s cannot be read, so logins to the dashboard end with this process: %s", file, error)
        return new_secret()
    if _SECRET.fullmatch(found):
        return found
    made = new_secret()
    try:
        _write(file, made)
    except OSError as error:
        log.warning("%s cannot be written, so logins to the dashboard end with this process: %s", file, error)
    return made


def delete_secret(folder: Path) -> None:
    """Delete the secret of a store's directory, which ends every login."""
    (folder / FILE).unlink(missing_ok=True)


def _write(file: Path, secret: str) -> None:
    """Write the file, whole or not at all."""
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
