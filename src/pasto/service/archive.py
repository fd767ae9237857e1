"""Archive: events of learned rounds as Parquet files by study and round, which any engine can read.

A file is written atomically, and only rewritten to erase a unit. The store deletes the events only when the file is
durable. After a crash at any moment, the next run finishes the work.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pasto.errors import OptionError, StoreError
from pasto.metrics import Column, CovariateWindow, Moments, measure
from pasto.service.close_record import CloseRecord
from pasto.service.covariate_window import count_forgotten, needed_from
from pasto.service.study_file import parse_spec
from pasto.service.study_state import identity_of
from pasto.store import CloseRow, Store, StudyRow

COPY_SEQUENCES = 10_000
"""Sequences whose events are copied together."""
MAX_MEMORY = "1GiB"
"""Memory limit for writing the events of a round; the rest goes to the disk."""

_TYPES = {
    "sequence": "BIGINT",
    "study": "BIGINT",
    "id": "VARCHAR",
    "kind": "BIGINT",
    "unit": "VARCHAR",
    "version": "BIGINT",
    "arm": "VARCHAR",
    "candidate": "BIGINT",
    "name": "VARCHAR",
    "fields": "VARCHAR",
    "excluded": "BIGINT",
    "source": "VARCHAR",
    "position": "BIGINT",
    "received_at": "DOUBLE",
}
_FILE = re.compile(r"events-(\d+)-(\d+)\.parquet")
_SHAPE = ", ".join(f"{name} {kind}" for name, kind in _TYPES.items())
_NOTHING = "SELECT " + ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, kind in _TYPES.items()) + " WHERE FALSE"


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """Archived files and events of a study, and the rounds whose archived events were deleted."""

    study: str
    files: int
    events: int
    deleted_rounds: tuple[int, ...] = ()


class Archive:
    """Folder of Parquet files: STUDY/round-N/events-AFTER-UNTIL.parquet, round 0 for events of no policy."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @classmethod
    def of_store(cls, store: Store) -> Archive | None:
        """Return the archive in the directory of an embedded store; None for other kinds, which need a setting."""
        return None if store.directory is None else cls(store.directory / "archive")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the archive for changes, also against other processes.

        Files that a crashed process left are deleted first: they may hold units that were erased since.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                for path in self.folder.glob("*/round-*/*.partial"):
                    path.unlink()
                shutil.rmtree(self._spill, ignore_errors=True)
                yield
            finally:
                os.close(handle)
        except OSError as error:
            raise StoreError(f"the archive in {self.folder} cannot be written: {error}") from error

    def take(self, store: Store, row: StudyRow, before: float = math.inf) -> ArchiveResult:
        """Move the events of rounds that were learned before a time out of the store; returns the files and events.

        Events that came too late to be learned stay in the store, and so do events that covariates of later rounds
        still read.
        """
        files, events, study = 0, 0, identity_of(row)
        for version, after, until in _spans(store, row, before):
            begun = max([after, *self._done(study, version)])
            if begun >= until:
                continue
            reached = max([begun, *(end for _, end in self._ends(study, version))])
            if until > reached:
                files += self._write(store, row, version, reached, until)
            events += store.delete_archived_events(row.number, version, begun, until)
            self._round(study, version).mkdir(mode=0o700, parents=True, exist_ok=True)
            (self._round(study, version) / f"done-{until}").touch()
        return ArchiveResult(row.name, files, events)

    def rounds(self, study: str) -> list[int]:
        """Return the rounds that have files, in order."""
        versions = (int(path.name.removeprefix("round-")) for path in self._place(study).glob("round-*"))
        return sorted(version for version in versions if self._files(study, version))

    def measure(
        self, row: StudyRow, version: int, after: int, until: int, columns: Sequence[Column]
    ) -> tuple[Moments, ...]:
        """Measure a round, bit for bit as an embedded store did."""
        with self._opened(self._files(identity_of(row), version)) as connection:
            return measure(
                connection, "archive", study=row.number, version=version, after=after, until=until, columns=columns
            )

    def measure_with_past(
        self,
        store: Store,
        row: StudyRow,
        version: int,
        after: int,
        until: int,
        columns: Sequence[Column],
        past: CovariateWindow,
    ) -> tuple[Moments, ...] | None:
        """Measure a round with covariates, from the files and the store; None if some events were deleted."""
        study = identity_of(row)
        files = [path for one in self.rounds(study) for path in self._files(study, one)]
        spans = f"(sequence > {past.after} AND sequence <= {past.until})"
        own = f"(version = {version} AND sequence > {after} AND sequence <= {until})"
        with self._opened(files) as connection:
            if not _is_whole(connection, store, row, past):
                return None
            connection.execute(f"CREATE TABLE seen ({_SHAPE})")
            _copy(connection, "seen", store, spans, (row.number,), past.after, past.until)
            _copy(connection, "seen", store, own, (row.number,), after, until)
            connection.execute(
                f"INSERT INTO seen FROM events WHERE study = ? AND ({spans} OR {own}) "  # noqa: S608 -- numbers
                "AND sequence NOT IN (SELECT sequence FROM seen)",
                [row.number],
            )
            connection.execute("DROP VIEW events")
            connection.execute("ALTER TABLE seen RENAME TO events")
            span = {"study": row.number, "version": version, "after": after, "until": until}
            return measure(connection, "archive", **span, columns=columns, before=past)

    def holding(self, study: str, unit: str) -> dict[int, int]:
        """Return the number of events of a unit, by round."""
        counts: Counter[int] = Counter()
        for path, count in self._holding(study, unit).items():
            counts[int(path.parent.name.removeprefix("round-"))] += count
        return dict(sorted(counts.items()))

    def forget(self, study: str, unit: str) -> int:
        """Rewrite every file with events of a unit without them; returns their number."""
        counts = self._holding(study, unit)
        for path in counts:
            with self._opened([path]) as connection:
                connection.execute("CREATE TABLE remaining AS SELECT * FROM events WHERE unit <> ?", [unit])
                _replace(connection, "remaining", path)
        return sum(counts.values())

    def drop(self, store: Store, row: StudyRow, before: float) -> list[int]:
        """Delete the files of rounds that were closed before a time, and return these rounds; aggregates stay."""
        closed = {close.round: close for close in _closes(store, row) if close.closed_at < before}
        reached = max((close.high_water for close in closed.values()), default=0)
        study = identity_of(row)
        for path in self._files(study, 0):  # of no round: as old as the rounds in which they came
            if (match := _FILE.fullmatch(path.name)) and int(match[2]) <= reached:
                path.unlink()
        old = [version for version in self.rounds(study) if version in closed]
        for version in old:
            for path in self._files(study, version):
                path.unlink()
        return old

    def _holding(self, study: str, unit: str) -> dict[Path, int]:
        """Return the number of events of a unit, by file; one query reads all of them."""
        files = [path for version in self.rounds(study) for path in self._files(study, version)]
        if not files:
            return {}
        query = "SELECT filename, count(*) FROM events WHERE unit = ? GROUP BY filename ORDER BY filename"
        with self._opened(files, ", filename = true") as connection:
            return {Path(name): int(count) for name, count in connection.execute(query, [unit]).fetchall()}

    def _write(self, store: Store, row: StudyRow, version: int, after: int, until: int) -> int:
        """Write one file of a policy's events in a span; returns 0 if there are none."""
        import duckdb

        config = {"threads": 1, "memory_limit": MAX_MEMORY, "temp_directory": str(self._spill)}
        try:
            with duckdb.connect(config=config) as connection:
                connection.execute(f"CREATE TABLE taken ({_SHAPE})")
                _copy(connection, "taken", store, "coalesce(version, 0) = ?", (row.number, version), after, until)
                if not connection.execute("SELECT count(*) FROM taken").fetchone()[0]:
                    return 0
                folder = self._round(identity_of(row), version)
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                _replace(connection, "taken", folder / f"events-{after}-{until}.parquet")
        except duckdb.Error as error:
            raise StoreError(f"the archive in {self.folder} cannot be written: {error}") from error
        return 1

    @contextmanager
    def _opened(self, files: Sequence[Path], options: str = "") -> Iterator[Any]:
        """Open DuckDB with a view of the events in files."""
        import duckdb

        with duckdb.connect(config={"autoload_known_extensions": False}) as connection:
            quoted = ", ".join("'" + str(path).replace("'", "''") + "'" for path in files)
            source = f"FROM read_parquet([{quoted}], hive_partitioning = false{options})" if files else _NOTHING
            try:
                connection.execute(f"CREATE VIEW events AS {source}")
                yield connection
            except duckdb.Error as error:
                raise StoreError(f"the archive in {self.folder} cannot be read: {error}") from error

    def _ends(self, study: str, version: int) -> list[tuple[int, int]]:
        """Return the spans of the files."""
        matches = (_FILE.fullmatch(path.name) for path in self._files(study, version))
        return [(int(match[1]), int(match[2])) for match in matches if match]

    def _done(self, study: str, version: int) -> list[int]:
        """Return the sequences up to which a round was archived and deleted from the store."""
        return [int(path.name.removeprefix("done-")) for path in self._round(study, version).glob("done-*")]

    def _files(self, study: str, version: int) -> list[Path]:
        return sorted(path for path in self._round(study, version).glob("*.parquet") if _FILE.fullmatch(path.name))

    @property
    def _spill(self) -> Path:
        """Folder for data of DuckDB that does not fit into memory."""
        return self.folder / ".spill"

    def _round(self, study: str, version: int) -> Path:
        return self._place(study) / f"round-{version:06d}"

    def _place(self, study: str) -> Path:
        if not re.fullmatch(r"[a-z0-9_-]{1,63}(@[0-9]+)?", study):
            raise OptionError(f"{study!r} is not a name of a study")
        return self.folder / study


def _copy(
    connection: Any, table: str, store: Store, where: str, bound: tuple[int, ...], after: int, until: int
) -> None:
    """Copy the store's events of a span to a table of DuckDB in portions; the study is the first bound value."""
    columns = ", ".join(_TYPES).replace("fields", "CAST(fields AS TEXT)")
    query = (
        f"SELECT {columns} FROM events WHERE study = ? AND {where} "  # noqa: S608 -- our own names
        "AND sequence > ? AND sequence <= ? AND unit <> '' ORDER BY sequence"
    )
    if store.dialect == "postgres":
        query = query.replace("?", "%s")
    for start in range(after, until, COPY_SEQUENCES):
        with store.read_transaction() as source:
            rows = source.execute(query, (*bound, start, min(start + COPY_SEQUENCES, until))).fetchall()
        if rows:
            columns_of = zip(_TYPES, zip(*rows, strict=True), strict=True)
            connection.register("batch", {name: np.array(column, dtype=object) for name, column in columns_of})
            connection.execute(f"INSERT INTO {table} SELECT * FROM batch")  # noqa: S608 -- our own names
            connection.unregister("batch")


def _is_whole(connection: Any, store: Store, row: StudyRow, past: CovariateWindow) -> bool:
    """Return whether the files hold every event of a past that the store has deleted."""
    for record in store.list_archived_spans(row.number, past.after, past.until):
        (count,) = connection.execute(
            "SELECT count(*) FROM events WHERE study = ? AND coalesce(version, 0) = ? AND sequence BETWEEN ? AND ?",
            [row.number, record.version, record.first, record.last],
        ).fetchone()
        if count < record.events:
            return False
    return count_forgotten(store, row, past) == 0


def _spans(store: Store, row: StudyRow, before: float) -> list[tuple[int, int, int]]:
    """Return (version, after, until) of every round that is final; version 0 for events without a policy.

    Only closes before a time count. A round that can still be corrected is measured again as a whole, so all of it
    stays in the store until it is final.
    """
    spans: list[tuple[int, int, int]] = []
    last = 0
    needed = min(before, needed_from(store, parse_spec(json.loads(row.study_file), stored=True), row))
    for close in _closes(store, row):
        if close.closed_at >= needed:
            break
        last = close.high_water
        record = CloseRecord.from_text(close.record)
        spans += [(entry.round, entry.after, last) for entry in record.rounds if not entry.is_correctable]
        spans += [(entry.round, entry.after, entry.until) for entry in record.final]
    return [*spans, (0, 0, last)] if spans else []


def _closes(store: Store, row: StudyRow) -> Iterator[CloseRow]:
    after = 0
    while rows := store.list_closes(row.number, after=after):
        yield from rows
        after = rows[-1].round


def _replace(connection: Any, table: str, target: Path) -> None:
    """Write a table as a file, atomically; the file is durable when this returns."""
    handle, name = tempfile.mkstemp(prefix=".", suffix=".partial", dir=target.parent)
    os.close(handle)
    partial = Path(name)
    try:
        quoted = name.replace("'", "''")
        connection.execute(f"COPY (FROM {table} ORDER BY sequence) TO '{quoted}' (FORMAT parquet, COMPRESSION zstd)")
        for path, then in ((partial, partial.replace), (target.parent, None), (target.parent.parent, None)):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if then is not None:
                then(target)
    finally:
        partial.unlink(missing_ok=True)
