"""A study of ten thousand rounds in a minute: a few are truly run, and the rest are copies of them in the store."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from pasto.assign.document import write
from pasto.service.service import Service
from pasto.store import EXPOSURE, METRIC, EventRow, Store, StudyRow, open_store
from pasto.store.checksums import COLUMNS

NAME = "long"
SEEDS = 6
"""Rounds that are truly run; the others repeat them in turn."""
UNITS = 2_000
"""Of a round."""
HOUR = 3600.0
BORN = 1_700_000_000.0


def document(candidates: int, metrics: int = 3) -> dict[str, Any]:
    """A study file with so many candidates and metrics, one of them a ratio."""
    measured: dict[str, Any] = {
        f"m{place}": {"event": "watch", "value": f"v{place}", "per_unit": "sum", "cap": 100}
        for place in range(metrics - 1)
    }
    measured["like_rate"] = {"ratio": [{"event": "like", "per_unit": "count"}, {"event": "watch", "per_unit": "count"}]}
    return {
        "name": NAME,
        "unit": "user",
        "baseline": {"weight": 0},
        "parameters": {"weight": list(range(candidates))},
        "metrics": measured,
        "goal": {"maximize": "m0"},
        "guardrails": [
            {"keep": "like_rate", "at_least": "-5%", "floor": "-60%"},
            {"keep": "m0", "at_least": 1, "floor": 0.5},
        ],
        "traffic": {"control": 0.1},
        "rounds": {"every": "1h"},
    }


class Clock:
    """A clock that is set by hand."""

    now = BORN

    def __call__(self) -> float:
        """Which time it is."""
        return self.now


def opened(directory: Path, clock: Clock) -> Service:
    """The service over a store that was made here."""
    return Service(open_store(str(directory)), clock=clock, monotonic=clock)


def grow(directory: Path, *, rounds: int, candidates: int, metrics: int = 3, units: int = UNITS) -> Clock:
    """Make a store with a study in its round `rounds`; its past tells the same as if it had been run."""
    clock = Clock()
    service = opened(directory, clock)
    service.create(document(candidates, metrics), who="bench", seed=7)
    service.change(NAME, "start", who="bench")
    for _ in range(min(SEEDS, rounds - 1)):
        crowd(service, units, metrics)
        clock.now += HOUR
        service.close_round(NAME, who="bench")
    row = _row(service.store)
    service.shutdown()
    if row.round < rounds:
        connection = sqlite3.connect(directory / "pasto.db", isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("BEGIN")
            _lengthen(connection, row, rounds)
            connection.execute("COMMIT")
        finally:
            connection.close()
    clock.now = BORN + HOUR * (rounds - 1)
    return clock


def crowd(service: Service, units: int, metrics: int = 3) -> None:
    """Units of the open round come, and are measured."""
    policy = service.board.current(NAME)
    row = _row(service.store)
    rng = np.random.default_rng(policy.version)
    waiting = []
    for first in range(0, units, 500):
        events = []
        for number in range(first, min(first + 500, units)):
            unit = f"{policy.version}/{number}"
            cell = policy.draw(unit)
            place = policy.version, cell.arm, cell.candidate
            fields = {f"v{at}": float(value) for at, value in enumerate(rng.exponential(10.0, metrics - 1))}
            events.append(EventRow(f"e{unit}", EXPOSURE, unit, *place))
            events.append(EventRow(f"w{unit}", METRIC, unit, *place, "watch", json.dumps(fields)))
            if rng.random() < 0.3:
                events.append(EventRow(f"l{unit}", METRIC, unit, *place, "like", "{}"))
        waiting.append(service.store.append(row.number, events))
    for future in waiting:
        future.result()


def _row(store: Store) -> StudyRow:
    row = store.study(NAME)
    assert row is not None  # noqa: S101 -- created here
    return row


def _lengthen(connection: sqlite3.Connection, row: StudyRow, rounds: int) -> None:
    """Write the rounds from the study's open one on, up to `rounds`, which is then the open one."""
    known = row.round - 1
    last = int(connection.execute("SELECT max(sequence) FROM events").fetchone()[0])
    width = last // known
    """Sequences that a copied round takes, in which one event stands for all: so many would take all day."""
    closes = [
        (json.loads(observed), checksum)
        for observed, checksum in connection.execute("SELECT observed, learner_checksum FROM closes ORDER BY round")
    ]
    policies = connection.execute("SELECT text, learned FROM policies ORDER BY version").fetchall()
    audits = [
        (action, json.loads(detail))
        for action, detail in connection.execute(
            "SELECT action, detail FROM audit WHERE action = 'close' ORDER BY sequence"
        )
    ]
    study = row.number

    def at(number: int) -> int:
        """The last event before a round."""
        return last + width * (number - row.round)

    def closed() -> Iterator[tuple[Any, ...]]:
        for number in range(row.round, rounds):
            told, checksum = closes[number % known]
            again = [{**one, "round": number, "after": at(number)} for one in told["rounds"]]
            text = json.dumps({**told, "rounds": again}, separators=(",", ":"))
            yield study, number, number, at(number + 1), text, checksum, number + 1, BORN + HOUR * number

    def published() -> Iterator[tuple[Any, ...]]:
        for number in range(row.round + 1, rounds + 1):
            text, learned = policies[-1 if number == rounds else number % known]
            fields = json.loads(text)
            del fields["sha256"]
            text = write({**fields, "version": number, "round": number, "salt": f"{NAME}/{number}"})
            checksum = sha256(text.encode()).hexdigest()
            yield study, number, number, learned, text, checksum, at(number), BORN + HOUR * (number - 1)

    def audited() -> Iterator[tuple[Any, ...]]:
        for number in range(row.round, rounds):
            action, detail = audits[number % known]
            told = {**detail, "closed": number, "round": number + 1, "version": number + 1}
            yield study, BORN + HOUR * number, "scheduler", action, "due", json.dumps(told)

    def came() -> Iterator[tuple[Any, ...]]:
        for number in range(row.round, rounds):
            yield at(number + 1), study, f"c{number}", 0, f"c{number}", number, "learner", number % 7, 0, 0.0

    for table, rows in (("closes", closed()), ("policies", published())):
        insert = f"INSERT INTO {table} ({COLUMNS[table]}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 -- our own names
        connection.executemany(insert, rows)
    connection.executemany(
        "INSERT INTO audit (study, at, who, action, reason, detail) VALUES (?, ?, ?, ?, ?, ?)", audited()
    )
    connection.executemany(
        "INSERT INTO events (sequence, study, id, kind, unit, version, arm, candidate, excluded, received_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        came(),
    )
    connection.execute(
        "UPDATE studies SET round = ?, version = ?, opened_at = ?, generation = generation + ? WHERE number = ?",
        (rounds, rounds, BORN + HOUR * (rounds - 1), rounds, study),
    )
