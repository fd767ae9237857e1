"""Embedded store: exclusive use of its directory, and failures of its files."""

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from pasto.errors import StoreBusyError, StoreError, UnsafeStoreError
from pasto.store import EXPOSURE, AppendResult, AuditRow, EventRow, Store, StudyRow, open_store
from pasto.store.ingest_plan import EventBatch
from pasto.store.schema import migrations
from pasto.store.sqlite_connections import StoreDirectory, connect, prepare
from pasto.store.sqlite_store import SqliteStore
from pasto.store.write_queue import WriteQueue

Opened = Callable[[str], Store]


def exposures(*ids: str) -> list[EventRow]:
    return [EventRow(identity, EXPOSURE, "ann", 1, "learner", 0) for identity in ids]


def create(store: Store) -> int:
    row = StudyRow("feed", 0, 1, "draft", "{}", 1, 0, 0, 0.0, 0.0)
    return store.create_study(row, AuditRow(0.0, "ann", "create", "")).number


def list_event_ids(store: Store) -> list[str]:
    with store.read_transaction() as connection:
        return [row[0] for row in connection.execute("SELECT id FROM events ORDER BY sequence")]


def test_only_its_owner_reads_it(tmp_path: Path, opened: Opened) -> None:
    previous = os.umask(0)
    try:
        store = opened(str(tmp_path / "deep" / "data"))
        store.append_events(create(store), exposures("1")).result()
    finally:
        os.umask(previous)
    assert (tmp_path / "deep" / "data").stat().st_mode & 0o777 == 0o700
    files = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "deep" / "data").iterdir()}
    names = ["pasto.db", "pasto.db-shm", "pasto.db-wal", "pasto.lock", "pasto.mark", "pasto.reserve"]
    assert files == dict.fromkeys(names, 0o600)


def test_a_file_left_open_to_others_is_closed_to_them(tmp_path: Path, opened: Opened) -> None:
    opened(str(tmp_path)).close()
    (tmp_path / "pasto.db").chmod(0o644)
    opened(str(tmp_path))
    assert (tmp_path / "pasto.db").stat().st_mode & 0o777 == 0o600


def test_everything_is_there_after_closing(tmp_path: Path, opened: Opened) -> None:
    first = opened(str(tmp_path))
    number = create(first)
    futures = [first.append_events(number, exposures(str(index))) for index in range(50)]
    first.close()
    assert all(future.result().new == (True,) for future in futures)
    second = opened(str(tmp_path))
    assert list_event_ids(second) == [str(index) for index in range(50)]
    assert second.append_events(number, exposures("7", "50")).result() == AppendResult((False, True), 51)


def test_what_is_deleted_is_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "pasto.db"
    connection = connect(f"file:{file}")
    connection.execute("PRAGMA secure_delete = OFF")  # as in some builds of SQLite
    prepare(connection, "here")
    connection.execute("INSERT INTO meta (name, value) VALUES ('cache/unit', 'a forgotten unit')")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert b"a forgotten unit" in file.read_bytes()
    connection.execute("DELETE FROM meta WHERE name = 'cache/unit'")
    connection.close()
    assert b"a forgotten unit" not in file.read_bytes()


def test_it_is_open_once(tmp_path: Path, opened: Opened) -> None:
    store = opened(str(tmp_path))
    with pytest.raises(UnsafeStoreError, match=rf"\({os.getpid()}\).*--url"):
        open_store(str(tmp_path))
    code = f"from pasto.store import open_store\nopen_store({str(tmp_path)!r})"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert other.returncode != 0
    assert f"({os.getpid()})" in other.stderr
    create(store)
    store.close()
    assert len(opened(str(tmp_path)).list_studies()) == 1


def test_a_lock_of_a_dead_process_does_not_block_others(tmp_path: Path, opened: Opened) -> None:
    code = f"import os\nfrom pasto.store import open_store\nopen_store({str(tmp_path)!r})\nos.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert opened(str(tmp_path)).list_studies() == []


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "9p"])
def test_network_file_systems_are_refused(tmp_path: Path, kind: str) -> None:
    mounts = (
        f"/dev/vda / ext4 rw 0 0\nserver:/x {tmp_path}/far\\040away {kind} rw 0 0\ntmpfs {tmp_path}/near tmpfs rw 0 0\n"
    )
    with pytest.raises(UnsafeStoreError, match=rf"network file system \({kind}\).*PostgreSQL"):
        StoreDirectory(tmp_path / "far away" / "data", mounts=mounts)
    for fine in (tmp_path / "near", tmp_path / "far"):
        StoreDirectory(fine, mounts=mounts).release()


def test_a_place_that_cannot_hold_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnsafeStoreError, match="cannot hold a store"):
        open_store(str(tmp_path / "file"))


def test_a_forked_child_cannot_use_it(tmp_path: Path, opened: Opened) -> None:
    store = opened(str(tmp_path))
    number = create(store)
    found = multiprocessing.get_context("fork").Queue()

    def child() -> None:
        outcomes = []
        for call in (store.list_studies, lambda: store.append_events(number, []), lambda: store.revoke_key("a", 1.0)):
            try:
                call()
            except StoreError as error:
                outcomes.append(str(error))
        store.close()
        found.put(outcomes)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    outcomes = found.get(timeout=60)
    process.join()
    assert len(outcomes) == 3
    assert all("forked" in text for text in outcomes)
    assert store.append_events(number, exposures("1")).result().new == (True,)


def test_a_child_that_outlives_its_parent_does_not_keep_it_locked(tmp_path: Path, opened: Opened) -> None:
    code = (
        f"import os, signal, sys\nfrom pasto.store import open_store\nstore = open_store({str(tmp_path)!r})\n"
        "if os.fork():\n    signal.pause()\n"
        "print(os.getpid(), flush=True)\nsys.stdin.read()\nos._exit(0)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        child = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        os.kill(child, 0)
        opened(str(tmp_path))


def test_tables_of_a_newer_version_are_refused(tmp_path: Path) -> None:
    open_store(str(tmp_path)).close()
    newer = len(migrations("sqlite")) + 1
    connection = sqlite3.connect(tmp_path / "pasto.db")
    connection.execute("UPDATE meta SET value = ? WHERE name = 'schema'", (str(newer),))
    connection.commit()
    connection.close()
    for _ in range(2):
        with pytest.raises(UnsafeStoreError, match=f"newer PASTO .*version {newer}"):
            open_store(str(tmp_path))


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pasto.db").write_bytes(b"not a database at all" * 1000)
    with pytest.raises(UnsafeStoreError, match="backup"):
        open_store(str(tmp_path))


def test_damage_inside_the_file_is_found(tmp_path: Path, opened: Opened) -> None:
    store = opened(str(tmp_path))
    number = create(store)
    for start in range(0, 2000, 100):
        store.append_events(number, exposures(*(f"{i:050d}" for i in range(start, start + 100)))).result()
    store.close()
    content = bytearray((tmp_path / "pasto.db").read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle + 100 : middle + 2000] = bytes(1900)
    (tmp_path / "pasto.db").write_bytes(content)
    again = opened(str(tmp_path))
    assert any("damaged" in finding for finding in again.check_integrity())


def test_a_full_disk_is_reported_and_writing_continues(tmp_path: Path) -> None:
    # The log may grow no further: writing fails at the commit, as on a disk that is full.
    code = f"""
import resource
from pasto.errors import StoreError
from pasto.store import EXPOSURE, AuditRow, EventRow, StudyRow, open_store

store = open_store({str(tmp_path)!r})
row = StudyRow("feed", 0, 1, "draft", "{{}}", 1, 0, 0, 0.0, 0.0)
number = store.create_study(row, AuditRow(0.0, "a", "b", "")).number
batch = lambda k: [EventRow(f"{{k}}/{{i}}", EXPOSURE, f"u{{i}}", 1, "learner", 0) for i in range(200)]
assert all(store.append_events(number, batch(0)).result().new)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
for free_bytes in range(0, 60_000, 4_000):
    import os
    size = os.path.getsize({str(tmp_path)!r} + "/pasto.db-wal")
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + free_bytes, hard))
    try:
        answer = store.append_events(number, batch(free_bytes + 1)).result()
    except StoreError as error:
        print("refused", error)
        try:
            long = f"x{{free_bytes}}" * 20_000
            store.create_study(StudyRow(long, 0, 1, "draft", "{{}}", 1, 0, 0, 0.0, 0.0), AuditRow(0.0, "a", "b", ""))
        except StoreError as error:
            print("refused", error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert all(store.append_events(number, batch(free_bytes + 1)).result().new), "a refused batch was stored"
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert all(answer.new)
    assert not any(store.append_events(number, batch(free_bytes + 1)).result().new)
assert list(store.check_integrity()) == []
assert len(store.list_studies()) == 1
store.close()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("refused") >= 4


def test_readers_see_one_moment_while_others_write(tmp_path: Path, opened: Opened) -> None:
    store = opened(str(tmp_path))
    number = create(store)
    store.append_events(number, exposures("1")).result()
    with store.read_transaction() as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (1,)
        store.append_events(number, exposures("2", "3")).result()
        assert store.read_high_water(number) == 3
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (1,)
    assert list_event_ids(store) == ["1", "2", "3"]


def test_too_much_waiting_is_refused_whole() -> None:
    go_on = threading.Event()
    written: list[str] = []

    def append(batches: object) -> list[AppendResult]:
        go_on.wait()
        assert isinstance(batches, list)
        written.extend(event.id for batch in batches for event in batch.events)
        return [AppendResult((True,) * len(batch.events), 0) for batch in batches]

    writer = WriteQueue(append, max_queued=10)
    futures: list[Future[AppendResult]] = []
    refused = 0
    for number in range(20):
        try:
            futures.append(writer.append(EventBatch(1, exposures(f"{number}/1", f"{number}/2"))))
        except StoreBusyError:
            refused += 1
    assert refused >= 13
    go_on.set()
    for future in futures:
        future.result()
    assert writer.append(EventBatch(1, exposures(*map(str, range(30))))).result().new == (True,) * 30
    writer.close()
    assert len(written) == len(set(written)) == 2 * len(futures) + 30


def test_batches_that_wait_are_written_together(tmp_path: Path) -> None:
    groups: list[int] = []

    class CountingStore(SqliteStore):
        def _append(self, batches: object) -> list[AppendResult]:
            assert isinstance(batches, list)
            groups.append(len(batches))
            return list(super()._append(batches))

    store = CountingStore(tmp_path)
    number = create(store)
    started, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        started.set()
        go_on.wait()

    holder = threading.Thread(target=store._writer.perform, args=(hold,))
    holder.start()
    started.wait()
    futures = [store.append_events(number, exposures(str(index))) for index in range(100)]
    go_on.set()
    holder.join()
    assert [future.result().last for future in futures] == list(range(1, 101))
    assert groups == [100]
    store.close()
