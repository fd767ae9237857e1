"""Connections to an SQLite database: one that writes, any number that only read."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from pasto.errors import UnsafeStoreError
from pasto.store import statements
from pasto.store.event_ids import compute_digest
from pasto.store.rows import StoreSize
from pasto.store.schema import pending

WAL_AUTOCHECKPOINT: Final = "wal_autocheckpoint = 8000"

PRAGMAS: Final = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "cache_size = -65536",
    WAL_AUTOCHECKPOINT,
    "secure_delete = ON",
)
"""Of the writing connection: what is committed is on the disk, the log grows to 32 MB before it is folded in, and what
is deleted is overwritten: not every SQLite does that by itself, and a forgotten unit would stay in the file."""

_OLDEST: Final = (3, 37, 0)

_PATIENCE: Final = 10.0
"""Seconds to wait for a lock; only opening and closing ever meet one."""


def connect(address: str) -> sqlite3.Connection:
    """A connection that any thread may use, where a transaction begins and ends when it is told to."""
    return sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False, timeout=_PATIENCE)


def prepare(connection: sqlite3.Connection, where: str) -> None:
    """Make a connection the writing one, and its tables today's.

    There is only ever one, which also alone folds the log into the file: SQLite before 3.51.3 can lose what two
    connections write or fold at the same moment.
    """
    if sqlite3.sqlite_version_info < _OLDEST:
        needed = ".".join(map(str, _OLDEST))
        raise UnsafeStoreError(f"SQLite {needed} or newer is needed, and this Python has {sqlite3.sqlite_version}")
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    migrate(connection, where)


def version_of(connection: sqlite3.Connection) -> int:
    """The version of the tables; 0 where there are none."""
    if not connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'meta'").fetchone()[0]:
        return 0
    return int(connection.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()[0])


def migrate(connection: sqlite3.Connection, where: str) -> None:
    """Bring the tables up to date, each step whole or not at all."""
    connection.create_function("event_digest", 3, compute_digest, deterministic=True)
    for number, step in pending("sqlite", version_of(connection), where):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in step:
                connection.execute(statement)
            connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES ('schema', ?)", (str(number),))
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def measure_size(connection: sqlite3.Connection) -> StoreSize:
    """Return how much a database holds and how much room that takes."""
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    ids, archived = connection.execute(statements.SIZES).fetchone()
    return StoreSize(pages * size, free * size, ids, archived)


def is_sound(file: Path) -> bool:
    """Return whether a new connection finds nothing wrong with a database's structure."""
    try:
        with closing(connect(f"{file.as_uri()}?mode=ro")) as connection:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
    except sqlite3.Error:
        return False


class ConnectionPool:
    """Read-only connections to a file, opened as needed: they see what is committed and can change nothing."""

    def __init__(self, path: Path) -> None:
        self._address = f"{path.as_uri()}?mode=ro"
        self._free: list[sqlite3.Connection] = []
        self._closed = False

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Nothing to wait for: readers and the writer do not meet."""
        yield

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection inside a transaction."""
        try:
            connection = self._free.pop()
        except IndexError:
            connection = connect(self._address)
        try:
            connection.execute("BEGIN")
            yield connection
            connection.execute("ROLLBACK")
        except BaseException:
            connection.close()
            raise
        if self._closed:
            connection.close()
        else:
            self._free.append(connection)

    def close(self) -> None:
        """Close them all; one that is in use, when it comes back."""
        self._closed = True
        while self._free:
            self._free.pop().close()


class SharedConnection:
    """The one connection that a database in memory has: whoever uses it has it alone."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lock = threading.RLock()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep readers out."""
        with self._lock:
            yield

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection inside a transaction, unable to write."""
        with self._lock:
            if self._connection.in_transaction:  # a reader that reads on
                yield self._connection
                return
            self._connection.execute("PRAGMA query_only = ON")
            self._connection.execute("BEGIN")
            try:
                yield self._connection
            finally:
                self._connection.execute("ROLLBACK")
                self._connection.execute("PRAGMA query_only = OFF")

    def close(self) -> None:
        """Nothing of its own to close."""


FILE: Final = "pasto.db"
"""The database's name in its directory."""

LOCK: Final = "pasto.lock"
"""Locked, and carrying the process's number, while a store is open."""

_NETWORK: Final = frozenset(
    {"9p", "afs", "ceph", "cifs", "coda", "davfs", "gcsfuse", "gfs2", "glusterfs", "goofys", "gpfs", "lustre", "ncpfs"}
    | {"nfs", "nfs4", "rclone", "s3fs", "smb", "smb2", "smb3", "smbfs", "sshfs"}
)

_MOUNTS: Final = Path("/proc/self/mounts")


class StoreDirectory:
    """A directory held by this process: nobody else can open it until it is released.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     held = StoreDirectory(Path(folder) / "data")
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
            raise UnsafeStoreError(
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
                raise UnsafeStoreError(f"{self.path} cannot be locked: {error.strerror}; use a local disk") from error
            holder = os.pread(self._lock, 20, 0).decode("ascii", "replace").strip()
            raise UnsafeStoreError(
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
        raise UnsafeStoreError(
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
