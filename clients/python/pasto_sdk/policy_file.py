"""Policy file: the last good policy on disk, for a process that starts while the service is unavailable.

The file is written under another name, synced, and renamed, so that it is never half written. Its first line holds the
SHA-256 of the rest, so that any damage is found.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pasto_sdk.errors import PolicyError

FORMAT = "pasto-policy-1"
MIN_ABANDONED_SECONDS = 600.0
"""Age at which a temporary file belongs to a process that died."""


@dataclass(frozen=True, slots=True)
class SavedPolicy:
    """Content of a policy file."""

    text: str
    contact: float
    """When the service last confirmed the policy, in seconds since 1970."""


def user_folder() -> Path | None:
    """Return the cache folder of this user; None if the user has no home."""
    try:
        if sys.platform == "win32":
            return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "pasto" / "Cache"
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "pasto"
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pasto"
    except RuntimeError:
        return None


def policy_path(folder: str | os.PathLike[str], url: str, study: str) -> Path:
    """Return the file of one study at one address.

    >>> policy_path("cache", "https://pasto.example", "feed").name
    'policy-979c0995997ce735'
    """
    return Path(folder) / f"policy-{hashlib.sha256(f'{url} {study}'.encode()).hexdigest()[:16]}"


def save_policy(file: Path, policy: SavedPolicy) -> None:
    """Write the file as a whole, readable by this user only; raise OSError if that fails."""
    body = f"{policy.contact!r}\n{policy.text}".encode()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, name = tempfile.mkstemp(prefix=f"{file.name}.", suffix=".part", dir=file.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(f"{FORMAT} {hashlib.sha256(body).hexdigest()}\n".encode() + body)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(file.parent)


def load_policy(file: Path) -> SavedPolicy:
    """Read the file; raise FileNotFoundError if it is missing and PolicyError if it is damaged."""
    first, _, body = file.read_bytes().partition(b"\n")
    name, _, digest = first.partition(b" ")
    if name != FORMAT.encode():
        raise PolicyError(
            f"{file} is not a policy file of this release; it is ignored, and replaced by the next policy"
        )
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise PolicyError(f"{file} is damaged; it is ignored, and replaced by the next policy")
    contact, _, text = body.decode().partition("\n")
    if not math.isfinite(float(contact)):
        raise PolicyError(
            f"{file} has the time {contact}, which is not finite; it is ignored, and replaced by the next policy"
        )
    return SavedPolicy(text, float(contact))


def delete_old_policies(file: Path) -> None:
    """Delete temporary files of processes that died while writing."""
    with contextlib.suppress(OSError):
        for part in file.parent.glob(f"{file.name}.*.part"):
            if time.time() - part.stat().st_mtime > MIN_ABANDONED_SECONDS:
                part.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the rename durable, if the system can sync a folder."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
