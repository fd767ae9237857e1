"""SQLite store: in one directory or in memory, with one writing connection."""

from __future__ import annotations

import errno
import json
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from shutil import disk_usage
from typing import Any, TypeVar

from pasto.errors import StoreDamagedError, StoreError, StoreLostError, UnsafeStoreError
from pasto.store import statements
from pasto.store.backup import TABLES, insert, open_backup, select, write_backup
from pasto.store.dashboard_sessions import delete_secret, load_secret, new_secret
from pasto.store.disk_errors import is_damage, is_disk_full
from pasto.store.ingest_plan import Credit, EventBatch, IngestPlan, StudyUnit, find_uncredited_units, plan_ingest
from pasto.store.integrity_check import find_damage, stored_checksum
from pasto.store.rows import AppendResult, StoreSize
from pasto.store.sql_store import SqlStore
from pasto.store.sqlite_connections import (
    FILE,
    WAL_AUTOCHECKPOINT,
    ConnectionPool,
    SharedConnection,
    StoreDirectory,
    connect,
    measure_size,
    prepare,
)
from pasto.store.sqlite_side_files import MarkRecord, SideFiles, read_stored
from pasto.store.write_queue import WriteQueue

T = TypeVar("T")

# CROSS JOIN makes the planner look up each unit in the index instead of scanning the table.
_CREDITS = (
    "SELECT latest_exposures.unit, version, arm, candidate FROM json_each(?) AS wanted "
    "CROSS JOIN latest_exposures ON latest_exposures.study = ? AND latest_exposures.unit = wanted.value"
)
_CONTENT_CHECKSUM = "SELECT content_checksum FROM event_ids WHERE digest = ?"

_HEARTBEAT = "heartbeat"
_HEARTBEAT_BYTES = 8192
_MIN_FREE_BYTES = 1 << 20
"""Free disk space below which a store is not ready: a large batch may need more."""
_STEPS_BETWEEN_STOPS = 100_000
"""Steps of SQLite's virtual machine after which a long check asks whether to stop."""


class SqliteStore(SqlStore):
    """Store in one SQLite file, written by one thread and read by any.

    >>> store = SqliteStore(None)
    >>> store.list_studies()
    []
    >>> store.close()
    """

    dialect = "sqlite"
    _conflict = sqlite3.IntegrityError
    _readers: ConnectionPool | SharedConnection

    def __init__(
        self,
        directory: Path | None,
        *,
        clock: Callable[[], float] = time.time,
        connect: Callable[[str], sqlite3.Connection] = connect,
        is_restoring: bool = False,
        read_only: bool = False,
    ) -> None:
        self._where = "memory:" if directory is None else str(directory)
        self._session_secret: str | None = None
        self._clock = clock
        self._directory: StoreDirectory | None = None
        self._folder: Path | None = None
        self._files: SideFiles | None = None
        self._damage: str | None = None
        self._heartbeats = 0
        with ExitStack() as undo:
            if directory is None:
                self._connection = self._open(connect, "file::memory:")
            elif read_only:
                self._folder = directory.resolve()
                self._connection = self._open_read_only(connect, self._folder / FILE)
            else:
                self._directory = StoreDirectory(directory)
                undo.callback(self._directory.release)
                self._folder = self._directory.path
                self._files = files = SideFiles(self._directory.path)
                undo.callback(files.close)
                address = self._directory.database.as_uri()
                self._connection = self._open_file(connect, address, files, is_restoring=is_restoring)
            undo.pop_all()
        self._readers = (
            SharedConnection(self._connection) if self._folder is None else ConnectionPool(self._folder / FILE)
        )
        self._writer = WriteQueue(self._append)

    @property
    def directory(self) -> Path | None:
        """Directory of the database; None in memory."""
        return self._folder

    def close(self) -> None:
        """Write the queued events, then close every connection and file."""
        if self._writer.close():
            self._readers.close()
            self._connection.close()
            if self._files is not None:
                self._files.close()
            if self._directory is not None:
                self._directory.release()

    @contextmanager
    def read_transaction(self) -> Iterator[sqlite3.Connection]:
        """Open a read-only transaction on a connection of Python's database interface (DB-API 2)."""
        self._writer.require_open()
        self._require_files()
        try:
            with self._readers.open_transaction() as connection:
                yield connection
        except sqlite3.Error as error:
            self._record_damage(error)
            raise StoreError(f"{self._where} could not be read: {error}") from error

    def read_session_secret(self) -> str:
        """Return the secret that signs sessions; in memory it lasts as long as the store."""
        if self._session_secret is None:
            self._session_secret = new_secret() if self.directory is None else load_secret(self.directory)
        return self._session_secret

    def read_high_water(self, study: int) -> int:
        """Return the last sequence of the store: every later event of this study gets a greater one."""
        # The one writer assigns sequences in the order of its commits.
        with self.read_transaction() as connection:
            return int(connection.execute(statements.LAST_SEQUENCE).fetchone()[0])

    def write_backup(self, target: Path) -> None:
        """Write everything into one new file, while others write the store."""
        with self.read_transaction() as connection:
            write_backup(target, connection.backup)

    def restore_backup(self, source: Path) -> None:
        """Fill an empty store from a backup."""
        with open_backup(source) as backup:

            def write(connection: sqlite3.Connection) -> None:
                for table in TABLES:
                    if connection.execute(f"{select(table)} LIMIT 1").fetchone():
                        raise StoreError(f"{self._where} is not empty; restore into a new place")
                for table in TABLES:
                    rows = backup.execute(select(table))
                    connection.executemany(insert(table), _sealed(rows) if table == "events" else rows)

            self._write(write)
            if self._files is not None:
                self._files.mark.reset(self._writer.perform(self._read_mark))
        self._session_secret = None
        if self.directory is not None:
            delete_secret(self.directory)

    def check_integrity(self) -> Iterator[str]:
        """Read every row, and yield each finding as a sentence."""
        if self._files is not None:
            yield from self._files.mark.record.find_losses(self._writer.perform(self._read_mark))
        with self.read_transaction() as connection:
            yield from find_damage(connection)

    def measure_size(self) -> StoreSize:
        """Return the number of events and the disk space they take; reads the whole table of ids."""
        with self.read_transaction() as connection:
            return measure_size(connection)

    def compact(self) -> None:
        """Rewrite the file without free pages; events wait meanwhile."""

        def run() -> None:
            with self._readers.block_readers():
                try:
                    self._connection.execute("VACUUM")
                    self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                except sqlite3.Error as error:
                    raise StoreError(
                        f"{self._where} could not be compacted: {error}; nothing changed. Compacting needs as much "
                        "free disk space as the store has."
                    ) from error

        self._writer.perform(run)

    def check_writable(self) -> Future[None]:
        """Write a few pages and commit them."""
        return self._writer.submit(self._write_heartbeat)

    def find_damage(self, should_stop: Callable[[], bool] = lambda: False) -> str | None:
        """Check the structure of the file, and return the damage, or None; a store in memory has none."""
        if self._directory is not None:
            with self.read_transaction() as connection:
                connection.set_progress_handler(should_stop, _STEPS_BETWEEN_STOPS)
                try:
                    (finding,) = connection.execute("PRAGMA quick_check(1)").fetchone()
                finally:
                    connection.set_progress_handler(None, 0)
            if finding != "ok":
                self._damage = str(finding)
        return self._damage

    def _write(self, action: Callable[[Any], T], *, use_reserve: bool = False) -> T:
        def run() -> T:
            with self._transaction():
                result = action(self._connection)
            self._mark_stored()
            return result

        def run_with_reserve() -> T:
            try:
                return run()
            except StoreError as error:
                if self._files is None or not is_disk_full(error):
                    raise
                # In the writing thread, so no event can take the space in between. Without checkpoints meanwhile,
                # because these would take it too.
                self._connection.execute("PRAGMA wal_autocheckpoint = 0")
                try:
                    with self._files.reserve.released():
                        return run()
                finally:
                    self._connection.execute(f"PRAGMA {WAL_AUTOCHECKPOINT}")

        return self._writer.perform(run_with_reserve if use_reserve else run)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run a transaction of the writing connection; called in the writing thread."""
        with self._readers.block_readers():
            try:
                self._require_files()
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
                self._require_files()  # a commit to a removed file is not acknowledged
            except (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError):
                raise  # the values do not fit the tables
            except sqlite3.Error as error:
                self._record_damage(error)
                raise StoreError(f"{self._where} could not be written: {error}; nothing of it is stored") from error
            finally:
                if self._connection.in_transaction:
                    with suppress(sqlite3.Error):  # the first error is the one to report
                        self._connection.execute("ROLLBACK")

    def _append(self, batches: Sequence[EventBatch]) -> Sequence[AppendResult]:
        """Write a group of batches in one transaction."""
        with self._transaction():
            last = int(self._connection.execute(statements.LAST_SEQUENCE).fetchone()[0])
            plan = self._add_events(batches, last)
            self._connection.executemany(statements.SET_LATEST_EXPOSURE, plan.latest_exposures)
            self._connection.executemany(statements.SET_SENDER_COUNTS, plan.sender_counts)
            self._connection.executemany(statements.ADD_REJECTIONS_BY_REASON, plan.rejections_by_reason)
            self._connection.executemany(statements.ADD_REJECTIONS_BY_SOURCE, plan.rejections_by_source)
            self._connection.executemany(statements.ADD_REJECTIONS_BY_KEY, plan.rejections_by_key)
        if self._files is not None:
            self._files.mark.advance(events=plan.results[-1].last)
            self._files.refill_reserve()
        return plan.results

    def _open(self, connect: Callable[[str], sqlite3.Connection], address: str) -> sqlite3.Connection:
        """Connect, and upgrade the tables."""
        connection: sqlite3.Connection | None = None
        try:
            connection = connect(address)
            prepare(connection, self._where)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, sqlite3.Error):
                raise UnsafeStoreError(f"{self._where} cannot be read: {error}; restore a backup elsewhere") from error
            raise
        return connection

    def _open_read_only(self, connect: Callable[[str], sqlite3.Connection], file: Path) -> sqlite3.Connection:
        """Connect to a file that another process holds and keeps up to date."""
        try:
            return connect(f"{file.as_uri()}?mode=ro")
        except sqlite3.Error as error:
            raise UnsafeStoreError(f"{self._where} cannot be read: {error}; start a service on it first") from error

    def _open_file(
        self, connect: Callable[[str], sqlite3.Connection], address: str, files: SideFiles, *, is_restoring: bool
    ) -> sqlite3.Connection:
        """Connect to the file, and compare it with the mark file."""
        try:
            connection = self._open(connect, address)
        except UnsafeStoreError as error:
            if not is_disk_full(error):
                raise
            with files.reserve.released():  # to open a database needs a little space, and a pause needs the database
                connection = self._open(connect, address)
        try:
            files.begin(read_stored(connection), is_restoring=is_restoring)
        except BaseException:
            connection.close()
            raise
        return connection

    def _read_mark(self) -> MarkRecord:
        return read_stored(self._connection)

    def _mark_stored(self) -> None:
        if self._files is not None:
            stored = self._read_mark()
            self._files.mark.advance(events=stored.events, audit=stored.audit, keys=stored.keys)

    def _write_heartbeat(self) -> None:
        """Write as much as a small batch; called in the writing thread."""
        if self._damage is not None:
            raise StoreDamagedError(
                f"{self._where} is damaged: {self._damage}; run `pasto store check`, and restore a backup"
            )
        if self._directory is not None and disk_usage(self._directory.path).free < _MIN_FREE_BYTES:
            # A small write may still fit into the write-ahead log, whose length is fixed; a batch would not.
            raise StoreError(f"{self._where} has no free space: the disk is full") from OSError(
                errno.ENOSPC, "disk full"
            )
        self._heartbeats += 1
        text = f"{self._heartbeats:016d}" * (_HEARTBEAT_BYTES // 16)
        with self._transaction():
            self._connection.execute(statements.SET_META, (_HEARTBEAT, text))
        if self._files is not None:
            self._files.refill_reserve()

    def _require_files(self) -> None:
        """Raise StoreLostError if the file on the disk is not the open one."""
        problem = None if self._files is None else self._files.find_problem()
        if problem is not None:
            raise StoreLostError(
                f"{self._where}: {problem} while the store was open; nothing more is acknowledged. Stop the service, "
                "put the file back or restore a backup, and start it again"
            )

    def _record_damage(self, error: BaseException) -> None:
        if self._damage is None and is_damage(error):
            self._damage = str(error)

    def _add_events(self, batches: Sequence[EventBatch], last: int) -> IngestPlan:
        count = sum(len(batch.events) for batch in batches)
        credits = self._read_credits(find_uncredited_units(batches))
        now = float(self._clock())

        def make_plan(stored: Mapping[bytes, int | None]) -> IngestPlan:
            numbers = range(last + 1, last + 1 + count)
            return plan_ingest(batches, last=last, sequences=numbers, received_at=now, stored=stored, credits=credits)

        self._connection.execute("SAVEPOINT events")
        try:
            plan = make_plan(stored={})
            self._connection.executemany(statements.ADD_ID, plan.ids)
        except sqlite3.IntegrityError:
            # Some id was stored before: read which.
            self._connection.execute("ROLLBACK TO events")
            plan = make_plan(stored=self._read_stored_ids(batches))
            self._connection.executemany(statements.ADD_ID, plan.ids)
        self._connection.executemany(statements.ADD_EVENT, plan.events)
        return plan

    def _read_credits(self, units: Iterable[StudyUnit]) -> dict[StudyUnit, Credit]:
        return {(study, row[0]): row[1:] for study, row in self._look_up(_CREDITS, units)}

    def _read_stored_ids(self, batches: Iterable[EventBatch]) -> dict[bytes, int | None]:
        """Return the ids of a group that the store has, each with its content checksum."""
        stored: dict[bytes, int | None] = {}
        for digest in sorted({digest for batch in batches for digest, _ in batch.identities}):
            if (row := self._connection.execute(_CONTENT_CHECKSUM, (digest,)).fetchone()) is not None:
                stored[digest] = row[0]
        return stored

    def _look_up(self, statement: str, units: Iterable[StudyUnit]) -> Iterator[tuple[int, Any]]:
        """Yield the rows of some units, each with its study."""
        units_by_study: dict[int, list[str]] = defaultdict(list)
        for study, unit in units:
            units_by_study[study].append(unit)
        for study, names in units_by_study.items():
            for row in self._connection.execute(statement, (json.dumps(names), study)):
                yield study, row


def _sealed(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield events of a backup; those of an older version or from PostgreSQL get the checksum that they lack."""
    for *values, checksum in rows:
        yield (*values, stored_checksum("events", values) if checksum is None else checksum)
