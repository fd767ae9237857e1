"""What a study costs when it is old: closing a round, and looking at it, at round 100 and at round 10,000."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from pasto.bench.benchmark import Benchmark, Report
from pasto.bench.long_study import HOUR, NAME, UNITS, Clock, crowd, grow, opened
from pasto.errors import StoreError
from pasto.sim import Progress

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
    "its answer and books": f"{PAGE}/answer",
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
) -> Report:
    """Seconds of every close and page at two ages, and of a report whose size is promised."""
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
    return Report(
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
    """Of each study the first close after a start, and the median of those behind it, the studies in turn.

    Closes differ, for now and then the learner looks for its scales anew; and in turn, whatever else the machine does
    falls on all of them alike.
    """
    services = [opened(place, clock) for place, clock in zip(places, clocks, strict=True)]
    taken: list[list[float]] = [[] for _ in services]
    for _ in range(CLOSES + 1):
        for service, clock, kept in zip(services, clocks, taken, strict=True):
            crowd(service, units, METRICS)
            clock.now += HOUR
            kept.append(_timed(partial(service.close_round, NAME, who="bench")))
    for service in services:
        service.report(NAME)  # leaves a note of the books, as a service does that has run all the while
        service.shutdown()
    return [(kept[0], median(kept[1:])) for kept in taken]


def _looks(directory: Path, clock: Clock, units: int) -> dict[str, tuple[float, float]]:
    """Every page, the first time and after one more close."""
    from pasto.dashboard import Dashboard
    from pasto.service.http.application import Application
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
    application.context.threads.shutdown()
    service.shutdown()
    return {what: (taken[0], taken[1]) for what, taken in found.items()}


async def _ask(application: Any, path: str) -> None:
    """One page, without a network."""
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
    """The whole report of a study with five metrics, by a service that has just started."""
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
    summary="closing and looking at a study of 10,000 rounds, beside one of 100",
    run=lambda progress, quick: measure((100, 1_000), 200, progress=progress) if quick else measure(progress=progress),
)
