"""Kills during maintenance: during a backup, a restore, and the archiving of events."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psycopg

from tests.chaos.campaign import STORES, Scenario, Workshop
from tests.chaos.load import STUDY, Event, Ledger, Load, create_studies, fill_study
from tests.chaos.report import Outcome
from tests.chaos.service_process import ChaosError, environment, pasto_command, run_pasto
from tests.chaos.verification import count_unknown, verify_replay, verify_service

STORED_EVENTS = 24_000
ROUNDS = 4
ARCHIVED_EVENTS = 8_000
"""Events that each turn archives."""
SAMPLE_EVENTS = 5_000
"""Acknowledged events that each restored store must have."""
COMPACTED_EVENTS = 40_000
BYTES_PER_EVENT = 25
ROUNDS_BYTES = 300_000
"""Allowance for everything except events: rounds, policies, empty pages."""
LATE_SECONDS = 0.6
"""Longer than the campaign's studies wait for late events, so that a round is final."""
ATTEMPTS_PER_KILL = 3
"""A command may end before it is killed; it is then run again, up to this often."""


def kill_backups(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Kill `pasto store backup` under load: a backup is complete or absent, and the next one succeeds."""
    rng, ledger, folder = workshop.random("backup"), Ledger(), workshop.folder()
    node = workshop.node(workshop.store(outcome.store)).start()
    create_studies(node)
    fill_study(node, ledger, events=STORED_EVENTS, rounds=ROUNDS)
    with Load([node], ledger, seed=workshop.seed, senders=1, assigners=1):
        seconds = _time_backup(node.store, folder / "first.db")
        for turn in workshop.turns(ATTEMPTS_PER_KILL * repetitions):
            if outcome.repetitions == repetitions:
                break
            target = folder / f"{turn}.db"
            words = "store", "backup", str(target), "--store", node.store
            outcome.repetitions += kill_command(words, _is_begun(target), rng.uniform(0, seconds))
            if target.exists():
                check = run_pasto("store", "restore", str(target), "--store", str(folder / f"restored-{turn}"))
                outcome.require(check.returncode == 0, f"a killed backup left a damaged file: {check.stderr}")
        known = dict(ledger.acknowledged)
        outcome.require(outcome.repetitions > 0, "no kill hit a backup at work")
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
    store = workshop.store(outcome.store)
    seconds = time_command(("store", "restore", str(folder / "whole.db"), "--store", store), _is_written(store))
    for _ in workshop.turns(ATTEMPTS_PER_KILL * repetitions):
        if outcome.repetitions == repetitions:
            break
        store = workshop.store(outcome.store)
        words = "store", "restore", str(folder / "whole.db"), "--store", store
        outcome.repetitions += kill_command(words, _is_written(store), rng.uniform(0, seconds))
        run_pasto(*words)  # refused if the killed run had finished: the store then has everything
        _verify_restored(workshop, outcome, store, rng.sample(events, SAMPLE_EVENTS))
    outcome.require(outcome.repetitions > 0, "no kill hit a restore at work")


def kill_archiving(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Kill the service while it archives: archived again, each event is known once and the replay is identical."""
    rng, ledger = workshop.random("archive"), Ledger()
    node = workshop.node(workshop.store(outcome.store), "--archive", str(workshop.folder())).start()
    create_studies(node)
    for turn in workshop.turns(ATTEMPTS_PER_KILL * repetitions):
        if outcome.repetitions == repetitions:
            break
        fill_study(node, ledger, events=ARCHIVED_EVENTS, rounds=2, first=turn * ARCHIVED_EVENTS)
        with ThreadPoolExecutor(1) as pool:
            archiving = pool.submit(_archive, node.url)
            time.sleep(rng.uniform(0.005, 0.15))
            node.kill()
            outcome.repetitions += archiving.result() == 0  # no answer: it was working
        node.start()
    outcome.require(outcome.repetitions > 0, "no kill hit the archiving at work")
    answer = _archive(node.url)
    outcome.require(answer == 200, f"archiving after the kills answered {answer}")
    verify_service(outcome, node, ledger)
    node.close()


def archive_and_compact(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Archive most events and compact the store: only the ids that detect repeats may remain; replay is identical."""
    ledger = Ledger()
    node = workshop.node(workshop.store(outcome.store), "--archive", str(workshop.folder())).start()
    create_studies(node)
    empty = _file_bytes(node.store)
    for turn in workshop.turns(repetitions):
        fill_study(node, ledger, events=COMPACTED_EVENTS, rounds=2, first=turn * COMPACTED_EVENTS)
        time.sleep(LATE_SECONDS)
        with node.client(120) as client:
            client.post(f"/v1/studies/{STUDY}/rounds/close", json={}).raise_for_status()
            client.post(f"/v1/studies/{STUDY}/events/archive", json={}).raise_for_status()
        node.stop()
        compact = run_pasto("store", "compact", "--store", node.store)
        outcome.require(compact.returncode == 0, f"store compact failed: {compact.stderr.strip().splitlines()[-1:]}")
        allowed = BYTES_PER_EVENT * len(ledger.acknowledged) + ROUNDS_BYTES
        remaining = _file_bytes(node.store) - empty
        per_event = remaining / len(ledger.acknowledged)
        outcome.require(remaining <= allowed, f"{per_event:.0f} bytes an event remain; needed {BYTES_PER_EVENT}")
        outcome.repetitions += 1
        node.start()
    verify_service(outcome, node, ledger)
    node.close()


def kill_command(words: tuple[str, ...], is_begun: Callable[[], bool], seconds: float) -> bool:
    """Kill a `pasto` command this long after it began its work; return whether it was still running."""
    process = _start_command(words, is_begun)
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True
    return False


def time_command(words: tuple[str, ...], is_begun: Callable[[], bool]) -> float:
    """Run a `pasto` command to its end; return the seconds from the beginning of its work."""
    process = _start_command(words, is_begun)
    began = time.monotonic()
    if process.wait(timeout=120) != 0:
        raise ChaosError(f"pasto {' '.join(words[:2])} failed")
    return time.monotonic() - began


def _start_command(words: tuple[str, ...], is_begun: Callable[[], bool]) -> subprocess.Popen[bytes]:
    """Start a command and wait until it works."""
    process = subprocess.Popen(
        pasto_command(*words), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 60
    while process.poll() is None and not is_begun():
        if time.monotonic() > until:
            process.kill()
            process.wait()
            raise ChaosError(f"pasto {' '.join(words[:2])} did not begin its work within 60 s")
        time.sleep(0.0005)
    return process


def _time_backup(store: str, target: Path) -> float:
    return time_command(("store", "backup", str(target), "--store", store), _is_begun(target))


def _is_begun(target: Path) -> Callable[[], bool]:
    """Return a predicate: is there an unfinished or a finished backup file?"""
    return lambda: target.exists() or any(target.parent.glob(f".{target.name}.*"))


def _is_written(store: str) -> Callable[[], bool]:
    """Return a predicate: does another process write this store?"""
    if "://" not in store:
        return (Path(store) / "pasto.db-wal").exists

    def has_transaction() -> bool:
        with psycopg.connect(store, autocommit=True) as connection:
            found = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() AND query LIKE 'COPY%'"
            ).fetchone()
            return found is not None and found[0] > 0

    return has_transaction


def _file_bytes(store: str) -> int:
    return sum(file.stat().st_size for file in Path(store).glob("pasto.db*"))


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
    Scenario("maintenance", "kill -9 in a backup", kill_backups, 10, 1, STORES),
    Scenario("maintenance", "kill -9 in a restore", kill_restores, 6, 1, STORES),
    Scenario("maintenance", "kill -9 in archiving", kill_archiving, 8, 1, STORES),
    Scenario("maintenance", "archive and compact", archive_and_compact, 2, 1),
)
