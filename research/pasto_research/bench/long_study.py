"""Long-study benchmark: cost of closing a round and of reading a study, at round 100 and at round 10,000."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from hashlib import sha256
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

from pasto.errors import StoreError
from pasto.service.service import Service
from pasto.sim import Progress
from pasto.store import EXPOSURE, METRIC, EventRow, Store, StudyRow, open_store
from pasto.store.integrity_check import COLUMNS
from pasto_research.bench.benchmark import Benchmark, BenchmarkReport
from pasto_sdk.policy_document import write_policy

NAME = "long"

SEEDS = 6
"""Rounds that are truly run; the others repeat them in turn."""

UNITS = 2_000
"""Of a round."""

HOUR = 3600.0

BORN = 1_700_000_000.0


def document(candidates: int, metrics: int = 3) -> dict[str, Any]:
    """Return a study file with given numbers of candidates and metrics, one of them a ratio."""
    measured: dict[str, Any] = {
        f"m{place}": {"event": "watch", "value": f"v{place}", "aggregate": "sum", "cap": 100}
        for place in range(metrics - 1)
    }
    measured["like_rate"] = {
        "ratio": [{"event": "like", "aggregate": "count"}, {"event": "watch", "aggregate": "count"}]
    }
    return {
        "name": NAME,
        "unit": "user",
        "baseline": {"weight": 0},
        "parameters": {"weight": list(range(candidates))},
        "metrics": measured,
        "goal": {"maximize": "m0"},
        "guardrails": [
            {"metric": "like_rate", "at_least": "-5%", "stop_at": "-60%"},
            {"metric": "m0", "at_least": 1, "stop_at": 0.5},
        ],
        "traffic": {"control": 0.1},
        "rounds": {"every": "1h"},
    }


class Clock:
    """A clock that is set by hand."""

    now = BORN

    def __call__(self) -> float:
        """Return the current time."""
        return self.now


def opened(directory: Path, clock: Clock) -> Service:
    """Return the service over a store that was made here."""
    return Service(open_store(str(directory)), clock=clock, monotonic=clock)


def grow(directory: Path, *, rounds: int, candidates: int, metrics: int = 3, units: int = UNITS) -> Clock:
    """Make a store with a study in its round `rounds`; its past equals that of a real run."""
    clock = Clock()
    service = opened(directory, clock)
    service.create(document(candidates, metrics), who="bench", seed=7)
    service.change(NAME, "start", who="bench")
    for _ in range(min(SEEDS, rounds - 1)):
        crowd(service, units, metrics)
        clock.now += HOUR
        service.close_round(NAME, who="bench")
    row = _study_row(service.store)
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
    """Send the units of the open round and their events."""
    policy = service.policy_cache.current(NAME)
    row = _study_row(service.store)
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
        waiting.append(service.store.append_events(row.number, events))
    for future in waiting:
        future.result()


def _study_row(store: Store) -> StudyRow:
    row = store.read_study(NAME)
    assert row is not None  # noqa: S101 -- created here
    return row


def _lengthen(connection: sqlite3.Connection, row: StudyRow, rounds: int) -> None:
    """Write the rounds from the study's open one on, up to `rounds`, which is then the open one."""
    last_closed = row.round - 1
    last = int(connection.execute("SELECT max(sequence) FROM events").fetchone()[0])
    width = last // last_closed
    """Sequences that a copied round takes, in which one event stands for all: so many would take all day."""
    closes = [
        (json.loads(observed), checksum)
        for observed, checksum in connection.execute("SELECT record, learner_checksum FROM round_closes ORDER BY round")
    ]
    policies = connection.execute("SELECT document, learner_version FROM policies ORDER BY version").fetchall()
    audits = [
        (action, json.loads(detail))
        for action, detail in connection.execute(
            "SELECT action, detail FROM audit_log WHERE action = 'close' ORDER BY sequence"
        )
    ]
    study = row.number

    def at(number: int) -> int:
        """Return the last event before a round."""
        return last + width * (number - row.round)

    def closed() -> Iterator[tuple[Any, ...]]:
        for number in range(row.round, rounds):
            close, checksum = closes[number % last_closed]
            again = [{**measured, "round": number, "after": at(number)} for measured in close["rounds"]]
            text = json.dumps({**close, "rounds": again}, separators=(",", ":"))
            yield study, number, number, at(number + 1), text, checksum, number + 1, BORN + HOUR * number

    def published() -> Iterator[tuple[Any, ...]]:
        for number in range(row.round + 1, rounds + 1):
            text, learned = policies[-1 if number == rounds else number % last_closed]
            fields = json.loads(text)
            del fields["sha256"]
            text = write_policy({**fields, "version": number, "round": number, "salt": f"{NAME}/{number}"})
            checksum = sha256(text.encode()).hexdigest()
            yield study, number, number, learned, text, checksum, at(number), BORN + HOUR * (number - 1)

    def audited() -> Iterator[tuple[Any, ...]]:
        for number in range(row.round, rounds):
            action, detail = audits[number % last_closed]
            close = {**detail, "closed": number, "round": number + 1, "version": number + 1}
            yield study, BORN + HOUR * number, "scheduler", action, "due", json.dumps(close)

    def came() -> Iterator[tuple[Any, ...]]:
        for number in range(row.round, rounds):
            yield at(number + 1), study, f"c{number}", 0, f"c{number}", number, "learner", number % 7, 0, 0.0

    for table, rows in (("round_closes", closed()), ("policies", published())):
        insert = f"INSERT INTO {table} ({COLUMNS[table]}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 -- our own names
        connection.executemany(insert, rows)
    connection.executemany(
        "INSERT INTO audit_log (study, at, who, action, reason, detail) VALUES (?, ?, ?, ?, ?, ?)", audited()
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


AGES = (100, 10_000)

CANDIDATES = 1_000

METRICS = 3

CLOSES = 20
"""Rounds that are truly closed at either age."""

PAGE = f"/studies/{NAME}"

PAGES = {
    "/, the list of studies": "/",
    "a study's page": PAGE,
    "its head, every few seconds": f"{PAGE}/head",
    "its answer and event counts": f"{PAGE}/answer",
    "its pictures": f"{PAGE}/series",
    "its trade-off": f"{PAGE}/tradeoff",
    "its log": f"{PAGE}/log",
    "the report as HTML": f"{PAGE}/report.html",
    "the report as JSON": f"/v1/studies/{NAME}/report",
    "pasto study show": f"/v1/studies/{NAME}",
    "/metrics": "/metrics",
}
"""What is looked at, and where it is."""


def measure(
    ages: tuple[int, int] = AGES, candidates: int = CANDIDATES, units: int = UNITS, *, progress: Progress | None = None
) -> BenchmarkReport:
    """Return seconds of every close and page at two ages, and of a report whose size is promised."""
    with ExitStack() as stack:
        places = [Path(stack.enter_context(TemporaryDirectory())) for _ in ages]
        clocks = []
        for place, age in zip(places, ages, strict=True):
            clocks.append(grow(place, rounds=age, candidates=candidates, metrics=METRICS, units=units))
        if progress is not None:
            progress("long", 1, 3)
        closing = _closes(places, clocks, units)
        found = [_looks(place, clock, units) for place, clock in zip(places, clocks, strict=True)]
    if progress is not None:
        progress("long", 2, 3)
    plain = _reported(min(100, ages[1]), min(100, candidates), units)
    if progress is not None:
        progress("long", 3, 3)
    rows = [_row("closing a round", closing[0], closing[1], ages, 1.5)]
    rows.append(
        {
            **dict.fromkeys(rows[0]),
            "what": "a report of 100 rounds, 100 candidates, 5 metrics",
            f"s at {ages[1]:,}": round(plain, 3),
            "asked": "≤ 2 s",
        }
    )
    rows += [_row(what, found[0][what], found[1][what], ages, None) for what in PAGES]
    return BenchmarkReport(
        f"A study of {candidates:,} candidates at rounds {ages[0]:,} and {ages[1]:,}: seconds",
        tuple(rows),
        f"Closes of {units:,} units are medians. Pages are asked without a network, after a close; the last column is "
        "the first page of its kind that a service just started gives at the greater age. The first report as HTML "
        "also loads what draws its figures.",
    )


def _row(
    what: str, young: tuple[float, float], old: tuple[float, float], ages: tuple[int, int], most: float | None
) -> dict[str, Any]:
    return {
        "what": what,
        f"s at {ages[0]:,}": round(young[1], 5),
        f"s at {ages[1]:,}": round(old[1], 5),
        "ratio": round(old[1] / young[1], 2),
        "first s": round(old[0], 5),
        "asked": "≤ 1 s" if most is None else f"ratio ≤ {most}",
    }


def _closes(places: Sequence[Path], clocks: Sequence[Clock], units: int) -> list[tuple[float, float]]:
    """Time the first close of each study after a start, and the median of the next ones, the studies in turn.

    Closes differ, because the learner sometimes fits its kernels again; and in turn, so that other work of the machine
    falls on all of them alike.
    """
    services = [opened(place, clock) for place, clock in zip(places, clocks, strict=True)]
    taken: list[list[float]] = [[] for _ in services]
    for _ in range(CLOSES + 1):
        for service, clock, seconds in zip(services, clocks, taken, strict=True):
            crowd(service, units, METRICS)
            clock.now += HOUR
            seconds.append(_timed(partial(service.close_round, NAME, who="bench")))
    for service in services:
        service.report(NAME)  # stores its event counts, as a service does that has run from the start
        service.shutdown()
    return [(seconds[0], median(seconds[1:])) for seconds in taken]


def _looks(directory: Path, clock: Clock, units: int) -> dict[str, tuple[float, float]]:
    """Time every page, the first time and after one more close."""
    from pasto.dashboard import Dashboard
    from pasto.service.http.app import Application
    from pasto.service.settings import Settings

    service = opened(directory, clock)
    application = Application(service, Settings(), pages=Dashboard(service, clock).routes)
    found: dict[str, list[float]] = {what: [] for what in PAGES}
    for _ in range(2):
        for what, path in PAGES.items():
            found[what].append(_timed(partial(asyncio.run, _ask(application, path))))
        crowd(service, units, METRICS)
        clock.now += HOUR
        service.close_round(NAME, who="bench")
    application.context.pools.shutdown()
    service.shutdown()
    return {what: (taken[0], taken[1]) for what, taken in found.items()}


async def _ask(application: Any, path: str) -> None:
    """Request one page, without a network."""
    place = "127.0.0.1"
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", place.encode())],
        "client": (place, 5),
        "server": (place, 80),
    }
    answered: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if "status" in message:
            answered.append(message["status"])

    await application(scope, receive, send)
    if answered != [200]:
        raise StoreError(f"{path} was answered with {answered}, and nothing can be measured there")


def _reported(rounds: int, candidates: int, units: int) -> float:
    """Time the complete report of a study with five metrics, by a service that has just started."""
    with TemporaryDirectory() as directory:
        clock = grow(Path(directory), rounds=rounds + 1, candidates=candidates, metrics=5, units=units)
        service = opened(Path(directory), clock)
        taken = _timed(lambda: service.report(NAME))
        service.shutdown()
    return taken


def _timed(work: Callable[[], Any]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began


BENCHMARK = Benchmark(
    name="long",
    summary="cost of closing and reading a study of 10,000 rounds, compared with one of 100",
    run=lambda progress, quick: measure((100, 1_000), 200, progress=progress) if quick else measure(progress=progress),
)
