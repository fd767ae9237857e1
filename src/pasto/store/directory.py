"""The directory an embedded store lives in: private, on this machine's own disk, and open once."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from pathlib import Path
from typing import Final

from pasto.errors import StoreRefused

FILE: Final = "pasto.db"
"""The database's name in its directory."""
LOCK: Final = "pasto.lock"
"""Locked, and carrying the process's number, while a store is open."""

_NETWORK: Final = frozenset(
    {"9p", "afs", "ceph", "cifs", "coda", "davfs", "gcsfuse", "gfs2", "glusterfs", "goofys", "gpfs", "lustre", "ncpfs"}
    | {"nfs", "nfs4", "rclone", "s3fs", "smb", "smb2", "smb3", "smbfs", "sshfs"}
)
_MOUNTS: Final = Path("/proc/self/mounts")


class Directory:
    """A directory held by this process: nobody else can open it until it is released.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     held = Directory(Path(folder) / "data")
    ...     name = held.database.name
    ...     held.release()
    >>> name
    'pasto.db'
    """

    def __init__(self, path: Path, *, mounts: str | None = None) -> None:
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path = path.resolve()
            _refuse_network(self.path, _read_mounts() if mounts is None else mounts)
            self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreRefused(
                f"{path} cannot hold a store: {error.strerror}; name a directory you may write"
            ) from error
        try:
            self._hold()
            self._prepare()
        except BaseException:
            os.close(self._lock)
            raise
        _held.add(self._lock)

    @property
    def database(self) -> Path:
        """The file with everything in it."""
        return self.path / FILE

    def release(self) -> None:
        """Let others open it."""
        if self._lock in _held:
            _held.discard(self._lock)
            os.close(self._lock)

    def _hold(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise StoreRefused(f"{self.path} cannot be locked: {error.strerror}; use a local disk") from error
            holder = os.pread(self._lock, 20, 0).decode("ascii", "replace").strip()
            raise StoreRefused(
                f"{self.path} is open in another process{f' ({holder})' if holder else ''}; a service is running on "
                "it: ask that one with --url, or stop it first"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode("ascii"), 0)

    def _prepare(self) -> None:
        """Make the file before SQLite does: it and its log are for their owner's eyes only."""
        handle = os.open(self.database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(handle, 0o600)
        finally:
            os.close(handle)


def _read_mounts() -> str:
    return _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape") if _MOUNTS.exists() else ""


def _refuse_network(path: Path, mounts: str) -> None:
    """Locks and shared memory do not hold across machines: an SQLite file there would be lost in the end."""
    kind, longest = "", -1
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[1]))
        # Of several mounts on one point the last hides the others.
        if path.is_relative_to(point) and len(point.parts) >= longest:
            kind, longest = fields[2], len(point.parts)
    if kind.removeprefix("fuse.") in _NETWORK:
        raise StoreRefused(
            f"{path} is on a network file system ({kind}), where an SQLite file is not safe; "
            "use a local disk, or PostgreSQL for several machines"
        )


_held: set[int] = set()


def _let_go_in_child() -> None:
    """A child that was forked must not keep the directory locked after its parent has ended."""
    while _held:
        with contextlib.suppress(OSError):
            os.close(_held.pop())


os.register_at_fork(after_in_child=_let_go_in_child)
