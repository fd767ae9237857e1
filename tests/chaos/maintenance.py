"""Kills during maintenance: while a backup is written, while it is restored, and while events are archived."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.chaos.campaign import STORES, Scenario, Workshop
from tests.chaos.load import STUDY, Event, Ledger, Load, create_studies, fill_study
from tests.chaos.report import Outcome
from tests.chaos.service_process import ChaosError, environment, pasto_command, run_pasto
from tests.chaos.verification import count_unknown, verify_replay, verify_service

STORED_EVENTS = 24_000
ROUNDS = 4
ARCHIVED_EVENTS = 8_000
"""Events of each turn that there are to archive."""
SAMPLE_EVENTS = 5_000
"""Acknowledged events that are looked for in each restored store; the last one is searched for all."""
KILL_WITHIN_SECONDS = 0.08
"""The longest wait between the first written byte and the kill."""


def kill_backups(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Kill `pasto store backup` under load: a backup is there whole or not at all, and the next one succeeds."""
    rng, ledger, folder = workshop.random("backup"), Ledger(), workshop.folder()
    node = workshop.node(workshop.store(outcome.store)).start()
    create_studies(node)
    fill_study(node, ledger, events=STORED_EVENTS, rounds=ROUNDS)
    with Load([node], ledger, seed=workshop.seed, senders=1, assigners=1):
        for turn in range(repetitions):
            target = folder / f"{turn}.db"
            words = "store", "backup", str(target), "--store", node.store
            outcome.repetitions += kill_command(words, _is_begun(target), rng)
            if target.exists():
                check = run_pasto("store", "restore", str(target), "--store", str(folder / f"restored-{turn}"))
                outcome.require(
                    check.returncode == 0, f"a killed backup left a file that cannot be restored: {check.stderr}"
                )
        known = dict(ledger.acknowledged)
        backup = run_pasto("store", "backup", str(folder / "whole.db"), "--store", node.store)
        outcome.require(backup.returncode == 0, f"the backup after the kills failed: {backup.stderr}")
    verify_service(outcome, node, ledger)
    node.close()
    restored = workshop.store(outcome.store)
    restore = run_pasto("store", "restore", str(folder / "whole.db"), "--store", restored)
    outcome.require(restore.returncode == 0, f"the backup after the kills cannot be restored: {restore.stderr}")
    _verify_restored(workshop, outcome, restored, list(known.values()))


def kill_restores(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Kill `pasto store restore`: run again it either succeeds, or the first run had finished."""
    rng, ledger, folder = workshop.random("restore"), Ledger(), workshop.folder()
    with workshop.serving(workshop.store("sqlite")) as node:
        create_studies(node)
        fill_study(node, ledger, events=STORED_EVENTS, rounds=ROUNDS)
        backup = run_pasto("store", "backup", str(folder / "whole.db"), "--store", node.store)
        outcome.require(backup.returncode == 0, f"the backup failed: {backup.stderr}")
    outcome.acknowledged = len(ledger.acknowledged)
    events = list(ledger.acknowledged.values())
    for turn in range(repetitions):
        store = workshop.store(outcome.store)
        words = "store", "restore", str(folder / "whole.db"), "--store", store
        is_begun = (Path(store) / "pasto.db-wal").exists if outcome.store == "sqlite" else _after(rng.uniform(0.6, 1.2))
        outcome.repetitions += kill_command(words, is_begun, rng)
        run_pasto(*words)  # refused if the killed run had finished: the store then holds everything
        is_last = turn == repetitions - 1
        _verify_restored(workshop, outcome, store, events if is_last else rng.sample(events, SAMPLE_EVENTS))


def kill_archiving(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Kill the service while it archives: archived again, each event is known once and the replay is identical."""
    rng, ledger = workshop.random("archive"), Ledger()
    node = workshop.node(workshop.store(outcome.store), "--archive", str(workshop.folder())).start()
    create_studies(node)
    for turn in range(repetitions):
        fill_study(node, ledger, events=ARCHIVED_EVENTS, rounds=2, first=turn * ARCHIVED_EVENTS)
        archiving = threading.Thread(target=_archive, args=(node.url,))
        archiving.start()
        time.sleep(rng.uniform(0.005, 0.15))
        node.kill()
        archiving.join()
        outcome.repetitions += 1
        node.start()
    answer = _archive(node.url)
    outcome.require(answer == 200, f"archiving after the kills answered {answer}")
    verify_service(outcome, node, ledger)
    node.close()


def kill_command(words: tuple[str, ...], is_begun: Callable[[], bool], rng: random.Random) -> bool:
    """Run a `pasto` command and kill it shortly after it began its work; return whether it was still running."""
    process = subprocess.Popen(
        pasto_command(*words), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 60
    while process.poll() is None and not is_begun():
        if time.monotonic() > until:
            process.kill()
            raise ChaosError(f"pasto {' '.join(words[:2])} did not begin its work within 60 s")
        time.sleep(0.0005)
    time.sleep(rng.uniform(0, KILL_WITHIN_SECONDS))
    is_running = process.poll() is None
    process.kill()
    process.wait()
    return is_running


def _is_begun(target: Path) -> Callable[[], bool]:
    """Return a test for the unfinished file of a backup, or the finished one."""
    return lambda: target.exists() or any(target.parent.glob(f".{target.name}.*"))


def _after(seconds: float) -> Callable[[], bool]:
    until = time.monotonic() + seconds
    return lambda: time.monotonic() > until


def _archive(url: str) -> int:
    try:
        return httpx.post(f"{url}/v1/studies/{STUDY}/events/archive", json={}, timeout=120).status_code
    except httpx.TransportError:
        return 0


def _verify_restored(workshop: Workshop, outcome: Outcome, store: str, events: list[Event]) -> None:
    with workshop.serving(store) as node, node.client(120) as client:
        if client.get(f"/v1/studies/{STUDY}").status_code != 200:
            outcome.lost += len(events)
            outcome.broken.append("a restored store does not hold the study")
            return
        outcome.lost += count_unknown(client, events)
        verify_replay(outcome, client)


SCENARIOS = (
    Scenario("maintenance", "kill -9 in a backup", kill_backups, 6, 1, STORES),
    Scenario("maintenance", "kill -9 in a restore", kill_restores, 4, 1, STORES),
    Scenario("maintenance", "kill -9 in archiving", kill_archiving, 6, 1, STORES),
)
