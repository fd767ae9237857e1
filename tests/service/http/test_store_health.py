"""Store health: the service and `/readyz` with a store that is full, lost or damaged."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pasto.errors import StoreError, UnsafeStoreError
from pasto.service.api_keys import ApiKeys
from pasto.service.http.store_health import StoreHealth
from pasto.store import open_store
from pasto.store.disk_errors import is_disk_full
from pasto.store.disk_reserve import RESERVE_BYTES

if TYPE_CHECKING:
    from tests.service.http.conftest import Serve, Site

METRIC = {"type": "metric", "unit": "ann", "name": "like"}
READY = {"status": "ok"}


class FullDisk:
    """Connection whose commits find a full disk, unless the reserve file was deleted."""

    def __init__(self, store: Any) -> None:
        self._connection = store._connection
        self._reserve = store._files.reserve
        self.is_full = True
        store._connection = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *values: Any) -> Any:
        if statement == "COMMIT" and self.is_full and self._reserve.bytes > 0:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return self._connection.execute(statement, *values)


def send(site: Site, identity: str) -> Any:
    return site.client.post("/v1/studies/feed/events", json=[{**METRIC, "id": identity}])


def started(serve: Serve, folder: Path) -> Site:
    """Serve a store in a directory, with a study and without a cache of the store's health."""
    site = serve(store=str(folder), retry_after=7)
    site.running.application.context.store_health.cache_seconds = 0.0
    site.study()
    assert send(site, "first").json()["accepted"] == 1
    assert site.client.get("/readyz").json() == READY
    return site


def test_a_full_disk_lets_only_a_pause_and_a_revocation_through(serve: Serve, tmp_path: Path) -> None:
    site = started(serve, tmp_path)
    admin = site.client.post("/v1/keys", json={"name": "ops", "scopes": ["admin"]}).json()
    site.client.headers["authorization"] = f"Bearer {admin['key']}"
    leaked = site.client.post("/v1/keys", json={"name": "leaked", "scopes": ["read"]}).json()
    disk = FullDisk(site.running.service.store)

    refused = send(site, "second")
    assert (refused.status_code, refused.json()["error"]["code"]) == (507, "storage_full")
    assert refused.headers["retry-after"] == "7"
    ready = site.client.get("/readyz")
    assert ready.status_code == 503
    assert "disk is full" in ready.json()["problems"][0]

    paused = site.client.patch("/v1/studies/feed", json={"action": "pause", "hold": "baseline", "reason": "harm"})
    assert (paused.status_code, paused.json()["state"]) == (200, "paused")
    lines = site.client.get("/v1/studies/feed/audit").json()["audit"]
    assert (lines[-1]["action"], lines[-1]["reason"]) == ("pause", "harm")
    assert site.client.delete(f"/v1/keys/{leaked['prefix']}").status_code == 200
    bearer = {"authorization": f"Bearer {leaked['key']}"}
    assert site.client.get("/v1/studies", headers=bearer).status_code == 401

    # Only this test uses the reserve, which was created again.
    assert (tmp_path / "pasto.reserve").stat().st_size == RESERVE_BYTES
    assert site.client.patch("/v1/studies/feed", json={"action": "resume", "reason": "no"}).status_code == 507
    assert site.client.post("/v1/keys", json={"name": "new", "scopes": ["read"]}).status_code == 507
    assert send(site, "third").status_code == 507
    assert site.client.get("/readyz").status_code == 503

    disk.is_full = False
    assert site.client.get("/readyz").json() == READY
    assert send(site, "second").json()["accepted"] == 1


def test_only_a_change_into_a_pause_may_use_the_reserve(serve: Serve, tmp_path: Path) -> None:
    site = started(serve, tmp_path)
    used: list[tuple[str, bool]] = []
    store: Any = site.running.service.store
    commit = store.update_study

    def spy(before: Any, after: Any, **parts: Any) -> bool:
        used.append((after.state, parts.get("use_reserve", False)))
        return bool(commit(before, after, **parts))

    store.update_study = spy
    service = site.running.service
    service.close_round("feed", who="ann")
    service.change("feed", "pause", who="ann", reason="harm")
    service.change("feed", "resume", who="ann", reason="again")
    assert used == [("learning", False), ("paused", True), ("learning", False)]


@pytest.mark.parametrize("harm", ["removed", "replaced", "emptied", "log removed"])
def test_a_file_that_is_lost_under_the_service_acknowledges_nothing(serve: Serve, tmp_path: Path, harm: str) -> None:
    site = started(serve, tmp_path)
    store: Any = site.running.service.store
    file = tmp_path / "pasto.db"
    if harm == "removed":
        file.unlink()
    elif harm == "replaced":
        copy = tmp_path / "copy"
        copy.write_bytes(file.read_bytes())
        copy.replace(file)
    elif harm == "emptied":
        # First into the main file: data only in the log would be lost with the log.
        store._writer.perform(lambda: store._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall())
        assert send(site, "checkpointed").status_code == 200
        with file.open("r+b") as opened:
            opened.truncate(0)
    else:
        (tmp_path / "pasto.db-wal").unlink()
    answer = send(site, "second")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
    ready = site.client.get("/readyz")
    assert ready.status_code == 503
    assert "removed, replaced or emptied while the service was running" in ready.json()["problems"][0]
    assert str(tmp_path) not in ready.text


def test_a_file_that_is_put_back_continues(serve: Serve, tmp_path: Path) -> None:
    site = started(serve, tmp_path)
    (tmp_path / "pasto.db").rename(tmp_path / "away")
    assert send(site, "second").status_code == 503
    (tmp_path / "away").rename(tmp_path / "pasto.db")
    assert send(site, "second").json()["accepted"] == 1
    assert site.client.get("/readyz").json() == READY


def test_a_damaged_page_at_the_start_is_not_ready(serve: Serve, tmp_path: Path) -> None:
    store: Any = open_store(str(tmp_path))
    store._write(lambda connection: connection.execute("CREATE TABLE spoilt (text TEXT)"))
    store._write(lambda connection: connection.execute("INSERT INTO spoilt VALUES (?)", ("x" * 200_000,)))
    store._write(lambda connection: connection.execute("INSERT INTO spoilt SELECT text FROM spoilt"))
    (root,) = store._connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'spoilt'").fetchone()
    store.close()
    content = bytearray((tmp_path / "pasto.db").read_bytes())
    content[(root - 1) * 4096 : root * 4096] = b"\xff" * 4096
    (tmp_path / "pasto.db").write_bytes(content)
    site = serve(store=str(tmp_path))
    ready = site.client.get("/readyz")
    assert ready.status_code == 503
    assert "damaged; run `pasto store check`" in ready.json()["problems"][0]
    assert site.client.get("/healthz").status_code == 200


def test_damage_that_a_request_meets_is_not_ready(serve: Serve, tmp_path: Path) -> None:
    site = started(serve, tmp_path)
    store: Any = site.running.service.store
    error = sqlite3.DatabaseError("database disk image is malformed")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT_INDEX
    with pytest.raises(Exception, match="malformed"), store.read_transaction():
        raise error
    assert "damaged" in site.client.get("/readyz").json()["problems"][0]


def test_a_lost_store_with_keys_does_not_open_without_a_key(serve: Serve, tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    ApiKeys(store).create("ops", ["admin"])
    store.close()
    (tmp_path / "pasto.db").unlink()
    with pytest.raises(UnsafeStoreError, match=r"held a store with keys.*restore a backup.*delete .*pasto.mark"):
        serve(store=str(tmp_path))


class CountingStore:
    """Store that counts its write checks; each finishes when the test allows it."""

    def __init__(self) -> None:
        self.tests: list[Future[None]] = []

    def list_keys(self) -> list[Any]:
        return []

    def check_writable(self) -> Future[None]:
        self.tests.append(Future())
        return self.tests[-1]


def test_callers_share_a_test_and_its_answer_for_a_second() -> None:
    store: Any = CountingStore()
    now = [100.0]
    health = StoreHealth(store, monotonic=lambda: now[0])

    async def ask() -> None:
        first = [asyncio.create_task(health.problems()) for _ in range(5)]
        while not store.tests and not first[0].done():
            await asyncio.sleep(0)
        store.tests[0].set_result(None)
        assert await asyncio.gather(*first) == [[]] * 5
        assert await health.problems() == []
        assert len(store.tests) == 1
        now[0] += 1.5
        second = asyncio.create_task(health.problems())
        while len(store.tests) < 2 and not second.done():
            await asyncio.sleep(0)
        store.tests[1].set_exception(OSError(28, "No space left on device"))
        assert "disk is full" in (await second)[0]

    asyncio.run(ask())


def test_the_first_search_for_damage_is_waited_for_and_can_be_ended() -> None:
    searching, ended = threading.Event(), threading.Event()

    class SlowStore(CountingStore):
        def find_damage(self, should_stop: Any) -> None:
            searching.set()
            while not should_stop():
                ended.wait(0.001)

    store: Any = SlowStore()
    health = StoreHealth(store)
    health.start()
    assert searching.wait(20)

    async def ask() -> None:
        asking = asyncio.create_task(health.problems())
        health.stop()
        while not store.tests and not asking.done():
            await asyncio.sleep(0)
        store.tests[0].set_result(None)
        assert await asking == []

    asyncio.run(ask())


def test_a_store_without_space_for_a_batch_is_not_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a small write that still fits into the log counts as ready."""
    store = open_store(str(tmp_path))
    try:
        store.check_writable().result()
        monkeypatch.setattr("pasto.store.sqlite_store.disk_usage", lambda path: SimpleNamespace(free=100_000))
        with pytest.raises(StoreError, match="the disk is full") as caught:
            store.check_writable().result()
        assert is_disk_full(caught.value)
    finally:
        store.close()
