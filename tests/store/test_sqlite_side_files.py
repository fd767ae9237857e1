"""Side files of an embedded database: acknowledged events, reserved disk space, and the check of the database."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pasto.errors import StoreLostError, UnsafeStoreError
from pasto.store import EXPOSURE, AuditRow, EventRow, KeyRow, Store, StudyRow, open_store
from pasto.store.disk_reserve import DiskReserve
from pasto.store.read_only_store import open_read_only
from pasto.store.sqlite_connections import connect
from pasto.store.sqlite_side_files import MARK_BYTES, read_mark
from pasto.store.sqlite_store import SqliteStore

Opened = Callable[[str], Store]
KEY = KeyRow("ab12", "d" * 64, "ops", ("admin",), 1.0)


def create(store: Store) -> int:
    row = StudyRow("feed", 0, 1, "draft", "{}", 1, 0, 0, 0.0, 0.0)
    return store.create_study(row, AuditRow(0.0, "ann", "create", "")).number


def exposures(*ids: str) -> list[EventRow]:
    return [EventRow(identity, EXPOSURE, "ann", 1, "learner", 0) for identity in ids]


def findings(folder: Path) -> list[str]:
    with open_read_only(str(folder)) as store:
        return list(store.check_integrity())


def kill_after(folder: Path, batches: int) -> None:
    """Kill a process with this many acknowledged batches of ten events in its log."""
    code = f"""
import os
from pasto.store import EXPOSURE, AuditRow, EventRow, StudyRow, open_store
store = open_store({str(folder)!r})
row = StudyRow("feed", 0, 1, "draft", "{{}}", 1, 0, 0, 0.0, 0.0)
number = store.create_study(row, AuditRow(0.0, "ann", "create", "")).number
for batch in range({batches}):
    events = [EventRow(f"{{batch}}/{{i}}", EXPOSURE, "ann", 1, "learner", 0) for i in range(10)]
    store.append_events(number, events).result()
os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9


def test_a_shortened_log_is_named(tmp_path: Path, opened: Opened) -> None:
    kill_after(tmp_path, 20)
    for suffix in ("", "-wal", ".mark"):  # a check without findings, on a copy, because it may checkpoint the log
        source = tmp_path / ("pasto.mark" if suffix == ".mark" else f"pasto.db{suffix}")
        (tmp_path / "copy").mkdir(exist_ok=True)
        shutil.copy(source, tmp_path / "copy" / source.name)
    assert findings(tmp_path / "copy") == []
    log = tmp_path / "pasto.db-wal"
    os.truncate(log, log.stat().st_size // 2)
    (found,) = [each for each in findings(tmp_path) if "acknowledged" in each]
    assert found.startswith("events up to 200 were acknowledged, the store ends at ")
    assert "the write-ahead log (pasto.db-wal) was shortened or an older copy of the file restored" in found
    # The error still names it after a service opened the store and continued.
    store = opened(str(tmp_path))
    last = store.read_high_water(1)
    assert 0 < last < 200
    store.append_events(1, exposures(*(f"new {i}" for i in range(300)))).result()
    store.close()
    (found,) = findings(tmp_path)
    assert f"events up to 200 were acknowledged, the store ended at {last} when it was last opened" in found
    (tmp_path / "pasto.mark").unlink()
    assert findings(tmp_path) == []


def test_an_older_copy_is_named_and_a_restored_backup_is_not(tmp_path: Path, opened: Opened) -> None:
    folder = tmp_path / "data"
    store = opened(str(folder))
    number = create(store)
    store.add_key(KEY)
    store.append_events(number, exposures("1", "2")).result()
    store.write_backup(tmp_path / "backup.db")
    store.append_events(number, exposures("3", "4", "5")).result()
    store.close()
    assert findings(folder) == []
    (folder / "pasto.db").unlink()
    shutil.copy(tmp_path / "backup.db", folder / "pasto.db")
    assert any("events up to 5 were acknowledged, the store ends at 2" in each for each in findings(folder))
    (folder / "pasto.db").unlink()
    again = open_store(str(folder), is_restoring=True)
    again.restore_backup(tmp_path / "backup.db")
    again.close()
    assert findings(folder) == []
    assert list(opened(str(folder)).check_integrity()) == []


def test_a_store_that_lost_its_keys_is_refused_until_the_mark_is_deleted(tmp_path: Path, opened: Opened) -> None:
    store = opened(str(tmp_path))
    store.add_key(KEY)
    assert store.revoke_key(KEY.prefix, 2.0)
    store.close()
    for content in (None, b""):
        (tmp_path / "pasto.db").unlink()
        if content is not None:
            (tmp_path / "pasto.db").write_bytes(content)
        for _ in range(2):
            with pytest.raises(UnsafeStoreError, match=r"restore a backup.*or delete \S+pasto.mark"):
                open_store(str(tmp_path))
    (tmp_path / "pasto.mark").unlink()
    assert opened(str(tmp_path)).list_keys() == []


def test_a_failed_restore_leaves_the_mark(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "data"))
    store.add_key(KEY)
    store.close()
    (tmp_path / "data" / "pasto.db").unlink()
    (tmp_path / "text").write_text("not a database" * 1000)
    again = open_store(str(tmp_path / "data"), is_restoring=True)
    with pytest.raises(UnsafeStoreError, match="not a backup"):
        again.restore_backup(tmp_path / "text")
    again.close()
    with pytest.raises(UnsafeStoreError, match="held a store with keys"):
        open_store(str(tmp_path / "data"))


def test_a_store_without_keys_may_be_begun_again(tmp_path: Path, opened: Opened) -> None:
    store = opened(str(tmp_path))
    store.append_events(create(store), exposures("1", "2")).result()
    store.close()
    (tmp_path / "pasto.db").unlink()
    assert opened(str(tmp_path)).list_studies() == []
    assert findings(tmp_path) == []


@pytest.mark.parametrize("content", ["{", "[1]", '{"events": "many"}', '{"unknown": 1}', "\xff"])
def test_a_mark_that_cannot_be_read_counts_as_that_of_a_store_with_keys(
    tmp_path: Path, opened: Opened, content: str
) -> None:
    (tmp_path / "pasto.mark").write_text(content, encoding="latin-1")
    with pytest.raises(UnsafeStoreError, match="held a store with keys"):
        open_store(str(tmp_path))
    (tmp_path / "pasto.mark").write_text("")
    opened(str(tmp_path))


def test_the_mark_follows_every_commit_in_place(tmp_path: Path, opened: Opened) -> None:
    store = opened(str(tmp_path))
    inode = (tmp_path / "pasto.mark").stat().st_ino
    number = create(store)
    store.add_key(KEY)
    store.append_events(number, exposures("1", "2", "1")).result()
    record = read_mark(tmp_path / "pasto.mark")
    assert (record.events, record.audit, record.keys) == (2, 1, 1)
    status = (tmp_path / "pasto.mark").stat()
    assert (status.st_ino, status.st_size) == (inode, MARK_BYTES)
    assert json.loads((tmp_path / "pasto.mark").read_text())["events"] == 2


def test_a_file_compacted_from_outside_is_not_lost(tmp_path: Path, opened: Opened) -> None:
    store = opened(str(tmp_path))
    number = create(store)
    store.append_events(number, exposures(*(f"{i:0200d}" for i in range(500)))).result()
    store.write_cache("long", "x" * 500_000)
    store.write_cache("long", "x")
    with sqlite3.connect(tmp_path / "pasto.db") as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert store.append_events(number, exposures("a")).result().new == (True,)
    before = (tmp_path / "pasto.db").stat().st_size
    other.execute("VACUUM")
    other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()
    assert (tmp_path / "pasto.db").stat().st_size < before
    assert store.append_events(number, exposures("b")).result().new == (True,)
    (tmp_path / "pasto.db").unlink()
    with pytest.raises(StoreLostError, match="removed"):
        store.append_events(number, exposures("c")).result()
    with pytest.raises(StoreLostError, match="removed"):
        store.list_studies()


def test_the_reserve_takes_the_free_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free_bytes = 1 << 20
    allocate = os.posix_fallocate

    def limited(handle: int, offset: int, size: int) -> None:
        if offset + size > free_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        allocate(handle, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", limited)
    reserve = DiskReserve(tmp_path / "reserve", 4 << 20)
    assert reserve.bytes == free_bytes
    assert reserve.is_short
    with reserve.released():
        free_bytes = 300_000
        assert reserve.bytes == 0
    assert 250_000 < reserve.bytes <= 300_000
    free_bytes = 1 << 30
    reserve.refill()
    assert not reserve.is_short
    reserve.close()


def test_a_full_disk_does_not_keep_a_store_from_opening(tmp_path: Path, opened: Opened) -> None:
    opened(str(tmp_path)).close()
    held: list[int] = []

    def without_space(address: str) -> sqlite3.Connection:
        held.append((tmp_path / "pasto.reserve").stat().st_size)
        if held[-1]:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
            raise error
        return connect(address)

    store = SqliteStore(tmp_path, connect=without_space)
    assert held == [4 << 20, 0]
    assert (tmp_path / "pasto.reserve").stat().st_size == 4 << 20
    store.close()
