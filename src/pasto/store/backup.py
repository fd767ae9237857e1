"""Backups: one SQLite file with every table, of any kind of store and for any kind."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from pasto.errors import StoreError, UnsafeStoreError
from pasto.store.schema import migrations
from pasto.store.sqlite_connections import migrate, read_version

TABLES: Final = {
    "studies": "number, name, generation, state, study_file, seed, round, version, opened_at, created_at, details",
    "policies": "study, version, round, learner_version, document, checksum, after_sequence, published_at, "
    "row_checksum",
    "round_closes": "study, round, version, high_water, record, learner_checksum, next_version, closed_at, "
    "row_checksum",
    "learner_states": "study, state",
    "audit_log": "sequence, study, at, who, action, reason, detail, row_checksum",
    "api_keys": "prefix, digest, name, scopes, created_at, expires_at, revoked_at",
    "events": "sequence, study, id, kind, unit, version, arm, candidate, name, fields, excluded, source, position, "
    "received_at, key_prefix, row_checksum",
    "event_ids": "digest, content_checksum",
    "archived_spans": "study, version, until_sequence, events, first_sequence, last_sequence",
    "archived_event_counts": "study, version, kind, candidate, arm, excluded, numbered, events",
    "archived_source_counts": "study, source, events, first_position, last_position",
    "archived_sender_counts": "study, key_prefix, source, kind, events",
    "latest_exposures": "study, unit, version, arm, candidate, sequence",
    "sender_counts": "study, version, source, position, assigned, dropped",
    "rejections_by_reason": "study, kind, reason, events, first_at",
    "rejections_by_source": "study, source, events, first_position, last_position",
    "rejections_by_key": "study, key_prefix, events",
    "layer_slices": "study, layer, unit, start, until",
    "settings": "name, value",
    "outbox": "id, study, webhook, event, body, created_at, due_at, attempts",
}
"""Columns of every table in a backup; `meta` and `claims` are left out."""


def select(table: str) -> str:
    """Return the statement that reads a whole table.

    >>> select("learner_states")
    'SELECT study, state FROM learner_states'
    """
    return f"SELECT {TABLES[table]} FROM {table}"  # noqa: S608 -- our own names


def insert(table: str) -> str:
    """Return the statement that writes one row of a table.

    >>> insert("learner_states")
    'INSERT INTO learner_states (study, state) VALUES (?, ?)'
    """
    marks = ", ".join("?" for _ in TABLES[table].split(","))
    return f"INSERT INTO {table} ({TABLES[table]}) VALUES ({marks})"  # noqa: S608 -- our own names


def write_backup(target: Path, fill: Callable[[sqlite3.Connection], None]) -> None:
    """Write a backup atomically; `fill` writes into its empty database."""
    if target.exists():
        raise StoreError(f"{target} exists; a backup never overwrites a file. Choose another name")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise StoreError(f"no backup can be written in {target.parent}: {error.strerror}") from error
    partial = Path(name)
    try:
        with closing(sqlite3.connect(partial, isolation_level=None)) as connection:
            fill(connection)
            connection.execute("PRAGMA journal_mode = DELETE")
            _require_sound(connection, partial)
        os.fsync(handle)
        target.hardlink_to(partial)
        _sync_directory(target.parent)
    except FileExistsError:
        raise StoreError(f"{target} exists; a backup never overwrites a file. Choose another name") from None
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"the backup {target} could not be written: {error}") from error
    finally:
        os.close(handle)
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{partial}{suffix}").unlink(missing_ok=True)


@contextmanager
def open_backup(source: Path) -> Iterator[sqlite3.Connection]:
    """Open a backup with the tables of this version; the file itself is only read."""
    if not source.is_file():
        raise StoreError(f"there is no backup {source}")
    with tempfile.TemporaryDirectory(prefix="pasto-restore-") as folder:
        with closing(_read_only(source)) as connection:
            try:
                _require_sound(connection, source)
                version = read_version(connection)
            except sqlite3.Error as error:
                raise UnsafeStoreError(f"{source} is not a backup of a store: {error}") from error
            if version == 0:
                raise UnsafeStoreError(f"{source} is not a backup of a store: its tables are missing")
            if version == len(migrations("sqlite")):
                yield connection
                return
            upgraded = Path(folder) / "upgraded.db"
            with closing(sqlite3.connect(upgraded, isolation_level=None)) as copy:
                connection.backup(copy)
                migrate(copy, str(source))
        with closing(_read_only(upgraded)) as connection:
            yield connection


def _read_only(path: Path) -> sqlite3.Connection:
    address = f"{path.absolute().as_uri()}?mode=ro"
    return sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)


def _require_sound(connection: sqlite3.Connection, path: Path) -> None:
    finding = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if finding != "ok":
        raise UnsafeStoreError(f"{path} is damaged: {finding}")


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
