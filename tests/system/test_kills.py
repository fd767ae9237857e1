"""Kills of a service at any instant: acknowledged events survive, none counts twice, and the replay is identical."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pasto.report.records import write_record
from pasto.service.service import Service
from pasto.store import open_store


@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.services)])
def test_nothing_acknowledged_is_lost_and_nothing_counts_twice(
    tmp_path: Path, quick: dict[str, Any], kills: int
) -> None:
    place = tmp_path / "store"
    service = Service(open_store(str(place)))
    service.create({**quick, "rounds": {"every": "1h", "accept_late": "500ms"}}, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    service.shutdown()
    lines = _run_and_kill(place, kills)
    acknowledged = [line.split() for line in lines]
    assert not [line for line in lines if line.startswith(("failed", "refused"))]
    acked = [int(words[1]) for words in acknowledged if words[0] == "acked"]
    closed = [int(words[1]) for words in acknowledged if words[0] == "closed"]
    assert len(acked) > kills
    assert len(closed) > kills // 4
    _check(place, acked, closed)


def _run_and_kill(place: Path, kills: int) -> list[str]:
    """Return all output of the killed services."""
    rng = random.Random(kills)
    command = [sys.executable, str(Path(__file__).with_name("killable_service.py")), str(place)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    lines: list[str] = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True, bufsize=1
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        for _ in range(kills):
            parent.stdin.write("go\n")
            child, wanted = 0, rng.randrange(0, 12)
            for line in parent.stdout:
                lines.append(line.strip())
                word = line.split()[0]
                if word == "born":
                    child = int(line.split()[1])
                elif word in ("alive", "acked", "closed"):
                    if wanted == 0:
                        time.sleep(rng.random() * 0.03)
                        os.kill(child, signal.SIGKILL)
                    wanted -= 1
                elif word == "dead":
                    break
        parent.stdin.close()
        lines += [line.strip() for line in parent.stdout]
    return lines


def _check(place: Path, acked: list[int], closed: list[int]) -> None:
    store = open_store(str(place))
    service = Service(store)
    try:
        with store.read_transaction() as connection:
            ids = [row[0] for row in connection.execute("SELECT id FROM events").fetchall()]
        assert len(ids) == len(set(ids))
        stored_ids = set(ids)
        lost = [
            f"{kind}/{n}/{u}" for n in acked for u in range(20) for kind in "em" if f"{kind}/{n}/{u}" not in stored_ids
        ]
        assert not lost
        last = max(int(name.split("/")[1]) for name in stored_ids)
        assert (
            len(stored_ids) == 40 * last
        )  # batches are sent again until they are accepted, so none is missing in between
        event_counts = write_record(service.report("feed"))["accounting"]["events"]
        assert event_counts["exposures"] + event_counts["metrics"] == len(stored_ids)
        rounds: list[int] = []
        corrected: list[int] = []
        while more := service.rounds("feed", after=len(rounds), limit=1000):
            rounds += [one.round for one in more]
            corrected += [number for one in more for number in one.corrected]
        assert corrected
        assert rounds == list(range(1, len(rounds) + 1))
        assert set(closed) <= set(rounds)
        assert service.show("feed").round == len(rounds) + 1
        assert write_record(service.replay("feed")) == {
            "identical": True,
            "rounds": len(rounds),
            "first_difference": None,
        }
    finally:
        service.shutdown()
