"""Disk reserve: space that lets a study be paused and a key be revoked on a full disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

RESERVE: Final = "pasto.reserve"
"""Name of the file in the directory of a store."""
RESERVE_BYTES: Final = 4 << 20
MIN_STEP_BYTES: Final = 16 << 10
"""Smallest piece of disk space that is allocated."""


class DiskReserve:
    """File of a few megabytes whose space is freed for one write, and allocated again after it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     reserve = DiskReserve(Path(folder) / "reserve", 65536)
    ...     before = reserve.bytes
    ...     with reserve.released():
    ...         during = reserve.bytes
    ...     reserve.close()
    >>> before, during
    (65536, 0)
    """

    def __init__(self, path: Path, size: int = RESERVE_BYTES) -> None:
        self._path = path
        self._size = size
        self._handle: int | None = None
        self.bytes = 0
        """Allocated space."""
        self.refill()

    @property
    def is_short(self) -> bool:
        """True if less space is allocated than wanted."""
        return self.bytes < self._size

    def refill(self) -> None:
        """Allocate the missing space, or as much of it as the disk has."""
        with suppress(OSError):  # the disk has no space even for a name; the next refill tries again
            if self._handle is None:
                self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                self.bytes = min(os.fstat(self._handle).st_size, self._size)
            step = self._size
            while self.bytes < self._size and step >= MIN_STEP_BYTES:
                piece = min(step, self._size - self.bytes)
                try:
                    _allocate(self._handle, self.bytes, piece)
                    self.bytes += piece
                except OSError:
                    os.ftruncate(self._handle, self.bytes)
                    step //= 2

    @contextmanager
    def released(self) -> Iterator[None]:
        """Free the space inside a `with` block; what is left of it is allocated again."""
        if self._handle is not None:
            os.ftruncate(self._handle, 0)
            self.bytes = 0
        try:
            yield
        finally:
            self.refill()

    def close(self) -> None:
        """Close the file; its space stays allocated."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _allocate(handle: int, offset: int, size: int) -> None:
    """Allocate disk space; to set the length of a file would not."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, offset, size)
    else:
        os.pwrite(handle, os.urandom(size), offset)
