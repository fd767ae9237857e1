"""Killed store: acknowledged events survive the kill of the process, and none is there twice."""

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pasto.store import open_store

# Append without end from two threads, each batch half new and half sent before, and print acknowledged ones.
WORKER = """
import os, sys, threading
from pasto.store import EXPOSURE, METRIC, AuditRow, EventRow, StudyRow, open_store

where, life = sys.argv[1:]
store = open_store(where)
row = StudyRow("feed", 0, 1, "draft", "{}", 1, 0, 0, 0.0, 0.0)
study = store.read_study("feed") or store.create_study(row, AuditRow(0.0, "ann", "create", ""))

def work(name):
    before, number = [], 0
    while True:
        number += 1
        fresh = [EventRow(f"{life}/{name}/{number}/{i}", EXPOSURE, f"u{i}", 1, "learner", 0) for i in range(10)]
        fresh += [EventRow(f"{life}/{name}/{number}/m{i}", METRIC, f"u{i}", None, None, None, "w") for i in range(10)]
        new = store.append_events(study.number, fresh + before).result().new
        assert new == (True,) * 20 + (False,) * len(before)
        os.write(1, f"{life}/{name}/{number}\\n".encode())
        before = fresh

os.write(1, b"ready\\n")
for name in "ab":
    threading.Thread(target=work, args=(name,), daemon=True).start()
threading.Event().wait()
"""


def run_and_kill(where: str, life: int, wait: float) -> set[str]:
    """Run the process for a while, kill it, and return its acknowledged batches."""
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, where, str(life)], stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        threading.Timer(wait, os.kill, (worker.pid, signal.SIGKILL)).start()
        lines = worker.stdout.read().splitlines()
        worker.wait()
    return set(lines)


@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.services)])
def test_acknowledged_events_survive_and_count_once(tmp_path: Path, kills: int) -> None:
    survive(str(tmp_path), kills)


@pytest.mark.services
def test_acknowledged_events_survive_and_count_once_on_a_server(postgres_url: str) -> None:
    survive(postgres_url, 20)


def survive(where: str, kills: int) -> None:
    chance = random.Random(kills)
    acknowledged: set[str] = set()
    for life in range(kills):
        acknowledged |= run_and_kill(where, life, chance.uniform(0.0, 0.15))
    store = open_store(where)
    try:
        with store.read_transaction() as connection:
            ids = [row[0] for row in connection.execute("SELECT id FROM events")]
        assert len(ids) == len(set(ids))
        assert len(acknowledged) > kills
        assert {f"{batch}/{place}" for batch in acknowledged for place in range(10)} <= set(ids)
        assert {f"{batch}/m{place}" for batch in acknowledged for place in range(10)} <= set(ids)
        # A batch is complete or absent.
        batches = {identity.rpartition("/")[0] for identity in ids}
        assert len(ids) == 20 * len(batches)
        assert list(store.check_integrity()) == []
    finally:
        store.close()
