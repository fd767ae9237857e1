"""The last good policy on disk, for a process that starts while the service is away.

A file is always an old one or a new one, never half of either: written beside its place, forced to the disk, and moved
over. Its first line holds the SHA-256 of the rest, so that whatever else happens to it is found out.
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
ABANDONED = 600.0
"""Seconds after which a file that was never moved into its place belongs to a process that died."""


@dataclass(frozen=True, slots=True)
class SavedPolicy:
    """What a cache file holds."""

    text: str
    contact: float
    """When the service last confirmed the policy, in seconds since 1970."""


def user_folder() -> Path | None:
    """Where this user's programs keep what they can do without; None where the user has no home."""
    try:
        if sys.platform == "win32":
            return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "pasto" / "Cache"
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "pasto"
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pasto"
    except RuntimeError:
        return None


def policy_path(folder: str | os.PathLike[str], url: str, study: str) -> Path:
    """The file of one study at one address.

    >>> policy_path("cache", "https://pasto.example", "feed").name
    'policy-979c0995997ce735'
    """
    return Path(folder) / f"policy-{hashlib.sha256(f'{url} {study}'.encode()).hexdigest()[:16]}"


def save_policy(file: Path, kept: SavedPolicy) -> None:
    """Write the file, whole or not at all, readable by this user only; OSError where it cannot be."""
    body = f"{kept.contact!r}\n{kept.text}".encode()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, name = tempfile.mkstemp(prefix=f"{file.name}.", suffix=".part", dir=file.parent)
    beside = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as written:
            written.write(f"{FORMAT} {hashlib.sha256(body).hexdigest()}\n".encode() + body)
            written.flush()
            os.fsync(written.fileno())
        beside.replace(file)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    _sync_folder(file.parent)


def load_policy(file: Path) -> SavedPolicy:
    """What the file holds; FileNotFoundError where there is none, BadPolicy where it is not what was written."""
    first, _, body = file.read_bytes().partition(b"\n")
    name, _, digest = first.partition(b" ")
    if name != FORMAT.encode():
        raise PolicyError(f"{file} is no policy that this release wrote; it is ignored, and replaced by the next one")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise PolicyError(f"{file} is damaged; it is ignored, and replaced by the next policy")
    contact, _, text = body.decode().partition("\n")
    if not math.isfinite(float(contact)):
        raise PolicyError(f"{file} says it was confirmed at {contact}")
    return SavedPolicy(text, float(contact))


def delete_old_policies(file: Path) -> None:
    """Remove what processes left behind that died while they wrote."""
    with contextlib.suppress(OSError):
        for part in file.parent.glob(f"{file.name}.*.part"):
            if time.time() - part.stat().st_mtime > ABANDONED:
                part.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the move itself durable, where the system lets a folder be synced."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
