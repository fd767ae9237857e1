"""Two ways of doing the same work timed in turn, and a policy drawn in SQL."""

from __future__ import annotations

import resource
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter, process_time
from typing import Any

from pasto.bench.subjects import served
from pasto.measure.assignment import assigned
from pasto.measure.sources.files import duckdb_over

Spent = tuple[float, float]
"""Seconds by the clock, and of this process's cores."""


def timed(work: Callable[[], Any]) -> tuple[Spent, Any]:
    """What a piece of work takes, and what it gives."""
    began, busy = perf_counter(), process_time()
    found = work()
    return (perf_counter() - began, process_time() - busy), found


def beside(raw: Callable[[], Any], own: Callable[[], Any], turns: int = 3) -> tuple[Spent, Spent, Any, Any]:
    """Median seconds of both, in turn, after one turn of each to warm up; and what each gave.

    >>> beside(lambda: "raw", lambda: "own")[2:]
    ('raw', 'own')
    """
    pairs = [(timed(raw), timed(own)) for _ in range(turns + 1)]
    (_, by_hand), (_, mine) = pairs[-1]
    return _median([one[0] for one, _ in pairs[1:]]), _median([other[0] for _, other in pairs[1:]]), by_hand, mine


def _median(spent: Sequence[Spent]) -> Spent:
    return median(wall for wall, _ in spent), median(core for _, core in spent)


def row(work: str, size: int, own: Spent, raw: Spent | None = None, bytes_each: float | None = None) -> dict[str, Any]:
    """A line of the report.

    >>> row("count", 10, (2.0, 1.0))["events/core s"]
    10
    """
    return {
        "work": work,
        "events": size,
        "seconds": round(own[0], 3),
        "by hand": None if raw is None else round(raw[0], 3),
        "of by hand": None if raw is None else f"{raw[0] / own[0]:.0%}",
        "events/s": int(size / own[0]),
        "core s": round(own[1], 3),
        "events/core s": int(size / max(own[1], 1e-9)),
        "bytes each": None if bytes_each is None else round(bytes_each),
        "peak GiB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }


def drawn(units: int, candidates: int = 1_000) -> dict[str, Any]:
    """Every unit's candidate of many, drawn in DuckDB on two cores."""
    policy = served(candidates)
    people = f"(SELECT printf('user-%09d', range) AS unit FROM range({units})) AS people"  # noqa: S608 -- a number
    query = f"SELECT count(*), sum(candidate) FROM ({assigned(policy, 'duckdb').query(people)})"  # noqa: S608
    with duckdb_over({}, threads=2) as connection:
        connection.execute(query).fetchall()
        spent, _ = timed(lambda: connection.execute(query).fetchall())
    return row(
        f"draw of {candidates:,} candidates in DuckDB", units, spent, bytes_each=len(policy.text.encode()) / candidates
    )
