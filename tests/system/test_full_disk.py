"""Full disk under `pasto serve`: rejected requests, working ones, and the recovery."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pasto.service.api_keys import ApiKeys
from pasto.service.study_file import EXAMPLE
from pasto.store import open_store
from pasto.store.read_only_store import open_read_only

pytestmark = pytest.mark.services
SIZE = "24m"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a small file system of its own."""
    point = tmp_path / "disk"
    point.mkdir()
    mount, umount = shutil.which("mount"), shutil.which("umount")
    assert mount is not None
    assert umount is not None
    subprocess.run([mount, "-t", "tmpfs", "-o", f"size={SIZE},mode=700", "tmpfs", str(point)], check=True)
    yield point
    subprocess.run([umount, str(point)], check=True)


class ServiceProcess:
    """Process of `pasto serve`, with an administrator's client."""

    def __init__(self, store: Path, key: str) -> None:
        words = ["serve", "--port", "0", "--store", str(store)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pasto", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        found = re.search(r"on (http://\S+)", self.process.stdout.readline())
        assert found is not None
        self.client = httpx.Client(base_url=found[1], timeout=30, headers={"authorization": f"Bearer {key}"})

    def send(self, first: int, count: int) -> Any:
        events = [
            {"type": "metric", "id": f"e{k}", "unit": f"user {k}", "name": "like"} for k in range(first, first + count)
        ]
        return self.client.post("/v1/studies/feed/events", json=events)

    def ready(self, status: int) -> Any:
        """Wait until `/readyz` answers with a status: its answer is valid for one second."""
        for _ in range(300):
            answer = self.client.get("/readyz")
            if answer.status_code == status:
                return answer
            time.sleep(0.1)
        raise AssertionError(f"/readyz stays at {answer.status_code}: {answer.text}")

    def kill(self) -> None:
        self.client.close()
        self.process.kill()
        self.process.communicate()


def fill(ballast: Path) -> None:
    """Write until the disk is full."""
    with ballast.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue


def test_a_full_disk_refuses_events_and_lets_a_person_stop_harm(disk: Path) -> None:
    folder = disk / "store"
    store = open_store(str(folder))
    keys = ApiKeys(store)
    admin, leaked = keys.create("ops", ["admin"]), [keys.create(f"leaked {k}", ["read"]) for k in range(3)]
    store.close()
    served = ServiceProcess(folder, admin.key)
    acknowledged, number = 0, 0
    try:
        served.client.post("/v1/studies", content=EXAMPLE, headers={"content-type": "application/yaml"})
        served.client.patch("/v1/studies/feed", json={"action": "start"}).raise_for_status()
        for turn in range(3):
            assert served.ready(200).json() == {"status": "ok"}
            assert served.send(number, 500).json()["accepted"] == 500
            number += 500
            fill(disk / "ballast")
            # SQLite first uses its own free pages; then every event is refused.
            while (answer := served.send(number, 500)).status_code == 200:
                number += 500
            while (answer := served.send(number, 1)).status_code == 200:
                number += 1
            acknowledged = number
            for _ in range(20):
                answer = served.send(number, 1)
                assert (answer.status_code, answer.json()["error"]["code"]) == (507, "storage_full")
                assert int(answer.headers["retry-after"]) >= 1
            if turn == 1:  # and a service that starts on a full disk can do the same
                served.kill()
                served = ServiceProcess(folder, admin.key)
                assert served.send(number, 500).status_code == 507
            ready = served.ready(503)
            assert "disk is full" in ready.json()["problems"][0]
            paused = served.client.patch(
                "/v1/studies/feed", json={"action": "pause", "hold": "baseline", "reason": f"harm {turn}"}
            )
            assert (paused.status_code, paused.json()["state"]) == (200, "paused")
            lines = served.client.get("/v1/studies/feed/audit?limit=100").json()["audit"]
            assert (lines[-1]["action"], lines[-1]["reason"]) == ("pause", f"harm {turn}")
            assert served.client.delete(f"/v1/keys/{leaked[turn].prefix}").status_code == 200
            line = served.client.get("/v1/keys/audit").json()["audit"][-1]
            assert (line["action"], line["detail"]["prefix"]) == ("key revoked", leaked[turn].prefix)
            stolen = {"authorization": f"Bearer {leaked[turn].key}"}
            assert served.client.get("/v1/studies", headers=stolen).status_code == 401
            assert served.send(number, 500).status_code == 507, "the reserve is not for events"
            (disk / "ballast").unlink()
            served.client.patch("/v1/studies/feed", json={"action": "resume", "reason": "room"}).raise_for_status()
        assert served.send(number, 500).json()["accepted"] == 500
    finally:
        served.kill()
    with open_read_only(str(folder)) as found:
        assert list(found.check_integrity()) == []
    reopened = open_store(str(folder))
    with reopened.read_transaction() as connection:
        stored_ids = {identity for (identity,) in connection.execute("SELECT id FROM events WHERE kind = 1")}
    reopened.close()
    assert stored_ids >= {f"e{k}" for k in range(acknowledged + 500)}
