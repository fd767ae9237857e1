"""SQLite connections: one that writes, any number that only read, and the lock of the directory."""

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
from pasto.store.event_deduplication import compute_digest
from pasto.store.rows import StoreSize
from pasto.store.schema import list_pending

WAL_AUTOCHECKPOINT: Final = "wal_autocheckpoint = 8000"

PRAGMAS: Final = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "cache_size = -65536",
    WAL_AUTOCHECKPOINT,
    "secure_delete = ON",
)
"""Settings of the writing connection: commits are on the disk, the write-ahead log grows to 32 MB before a checkpoint,
and deleted rows are overwritten, so that an erased unit does not stay in the file."""

_OLDEST_SQLITE: Final = (3, 37, 0)

_LOCK_SECONDS: Final = 10.0
"""Time to wait for a lock of another connection; only opening and closing meet one."""


def connect(address: str) -> sqlite3.Connection:
    """Connect, for any thread, with transactions that begin and end explicitly."""
    return sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False, timeout=_LOCK_SECONDS)


def prepare(connection: sqlite3.Connection, where: str) -> None:
    """Make a connection the writing one, and upgrade its tables.

    There is one writing connection, and only it runs checkpoints: SQLite before 3.51.3 can lose data if two
    connections write or run a checkpoint at the same moment.
    """
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        needed = ".".join(map(str, _OLDEST_SQLITE))
        raise UnsafeStoreError(f"SQLite {needed} or newer is needed, and this Python has {sqlite3.sqlite_version}")
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    migrate(connection, where)


def read_version(connection: sqlite3.Connection) -> int:
    """Return the schema version; 0 if there are no tables."""
    if not connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'meta'").fetchone()[0]:
        return 0
    return int(connection.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()[0])


def migrate(connection: sqlite3.Connection, where: str) -> None:
    """Upgrade the tables, each migration in one transaction."""
    connection.create_function("event_digest", 3, compute_digest, deterministic=True)
    for number, migration in list_pending("sqlite", read_version(connection), where):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in migration:
                connection.execute(statement)
            connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES ('schema', ?)", (str(number),))
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def measure_size(connection: sqlite3.Connection) -> StoreSize:
    """Return the number of events of a database and the space they take."""
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    ids, archived = connection.execute(statements.SIZES).fetchone()
    return StoreSize(pages * size, free * size, ids, archived)


def is_sound(file: Path) -> bool:
    """Return whether a new connection finds the structure of a database sound."""
    try:
        with closing(connect(f"{file.as_uri()}?mode=ro")) as connection:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
    except sqlite3.Error:
        return False


class ConnectionPool:
    """Read-only connections to a file, opened as needed."""

    def __init__(self, path: Path) -> None:
        self._address = f"{path.as_uri()}?mode=ro"
        self._free: list[sqlite3.Connection] = []
        self._closed = False

    @contextmanager
    def block_readers(self) -> Iterator[None]:
        """Do nothing: readers do not block the writer."""
        yield

    @contextmanager
    def open_transaction(self) -> Iterator[sqlite3.Connection]:
        """Open a read-only transaction on a free connection."""
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
        """Close every connection; one in use is closed when it is returned."""
        self._closed = True
        while self._free:
            self._free.pop().close()


class SharedConnection:
    """The one connection of a database in memory, used by one thread at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lock = threading.RLock()

    @contextmanager
    def block_readers(self) -> Iterator[None]:
        """Block readers."""
        with self._lock:
            yield

    @contextmanager
    def open_transaction(self) -> Iterator[sqlite3.Connection]:
        """Open a read-only transaction on the connection."""
        with self._lock:
            if self._connection.in_transaction:  # nested in another read-only transaction
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
        """Do nothing: the store closes the connection."""


FILE: Final = "pasto.db"
"""Name of the database in its directory."""

LOCK: Final = "pasto.lock"
"""File that is locked while a store is open, and holds the process id."""

_NETWORK: Final = frozenset(
    {"9p", "afs", "ceph", "cifs", "coda", "davfs", "gcsfuse", "gfs2", "glusterfs", "goofys", "gpfs", "lustre", "ncpfs"}
    | {"nfs", "nfs4", "rclone", "s3fs", "smb", "smb2", "smb3", "smbfs", "sshfs"}
)

_MOUNTS: Final = Path("/proc/self/mounts")


class StoreDirectory:
    """Directory locked by this process: no other process can open it until it is released.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     directory = StoreDirectory(Path(folder) / "data")
    ...     name = directory.database.name
    ...     directory.release()
    >>> name
    'pasto.db'
    """

    def __init__(self, path: Path, *, mounts: str | None = None) -> None:
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path = path.resolve()
            _require_local_disk(self.path, _read_mounts() if mounts is None else mounts)
            self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UnsafeStoreError(
                f"{path} cannot hold a store: {error.strerror}; name a directory you may write"
            ) from error
        try:
            self._acquire()
            self._prepare()
        except BaseException:
            os.close(self._lock)
            raise
        _open_locks.add(self._lock)

    @property
    def database(self) -> Path:
        """The database file."""
        return self.path / FILE

    def release(self) -> None:
        """Unlock the directory."""
        if self._lock in _open_locks:
            _open_locks.discard(self._lock)
            os.close(self._lock)

    def _acquire(self) -> None:
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
        """Create the file before SQLite does, so that only its owner may read it and its log."""
        handle = os.open(self.database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(handle, 0o600)
        finally:
            os.close(handle)


def _read_mounts() -> str:
    return _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape") if _MOUNTS.exists() else ""


def _require_local_disk(path: Path, mounts: str) -> None:
    """Raise UnsafeStoreError on a network file system: locks and shared memory do not work across machines."""
    kind, longest = "", -1
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[1]))
        # Of several mounts on one point, the last hides the others.
        if path.is_relative_to(point) and len(point.parts) >= longest:
            kind, longest = fields[2], len(point.parts)
    if kind.removeprefix("fuse.") in _NETWORK:
        raise UnsafeStoreError(
            f"{path} is on a network file system ({kind}), where an SQLite file is not safe; "
            "use a local disk, or PostgreSQL for several machines"
        )


_open_locks: set[int] = set()


def _unlock_in_child() -> None:
    """Close the locks in a forked child, so that it does not hold them after its parent ends."""
    while _open_locks:
        with contextlib.suppress(OSError):
            os.close(_open_locks.pop())


os.register_at_fork(after_in_child=_unlock_in_child)
