"""What it costs to measure a round: PASTO's query beside one written by hand, on the same files."""

from __future__ import annotations

import importlib.util
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

from pasto.assign import Published, publish
from pasto.bench.benchmark import Benchmark, Report
from pasto.measure import Column, Moments, measure
from pasto.measure.sources.files import duckdb_over, spark_over
from pasto.measure.sources.measuring import measure_tables
from pasto.measure.sources.tables import EventTable, ExposureTable, Tables
from pasto.sim import Progress
from pasto.store import EventRow, open_store
from pasto.store.rows import EXPOSURE, METRIC

Spent = tuple[float, float]
"""Seconds by the clock, and of this process's cores."""
CANDIDATES = 50
EVENTS_A_UNIT = 10
COLUMNS = (
    Column("watch_time", "watch", "seconds", "sum", 0.0, 7200.0),
    Column("likes", "like", None, "count"),
)
TABLES = Tables(ExposureTable("seen"), (EventTable("deeds", version="version"),))
RAW = """
SELECT arm, candidate, count(*), avg(s), avg(n), var_samp(s), var_samp(n), covar_samp(s, n) FROM (SELECT
    arm, candidate, coalesce(s, 0) AS s, coalesce(n, 0) AS n FROM (
    SELECT unit, any_value(arm) AS arm, any_value(candidate) AS candidate FROM seen WHERE version = 7 GROUP BY unit
) AS seen LEFT JOIN (
    SELECT unit, sum(CASE WHEN name = 'watch' THEN seconds END) AS s, count(CASE WHEN name = 'like' THEN 1 END) AS n
    FROM deeds WHERE version = 7 GROUP BY unit
) AS deeds USING (unit)) AS units GROUP BY arm, candidate
"""
"""One pass over the same files, written by hand, which trusts the exposures' arm and candidate."""


def run(
    sizes: tuple[int, ...] = (10_000_000, 50_000_000),
    *,
    embedded: int = 1_000_000,
    spark: int = 10_000_000,
    progress: Progress | None = None,
) -> Report:
    """Measure rounds of several sizes in DuckDB, one on Spark where it is installed, and one in an embedded store.

    >>> [row["engine"] for row in run((2_000,), embedded=1_000, spark=0).rows]
    ['DuckDB, two cores, 4 GiB', 'embedded store']
    """
    rows: list[dict[str, Any]] = []
    steps = len(sizes) + bool(spark) + bool(embedded)
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="pasto-bench-") as folder:
            policy = _policy()
            _lake(Path(folder), policy, size)
            rows.append(_duckdb(Path(folder), policy, size))
            if size == spark and importlib.util.find_spec("pyspark") is not None:
                rows.append(_spark(Path(folder), policy, size))
        if progress is not None:
            progress("measure", len(rows), steps)
    rows.append(_embedded(embedded))
    if progress is not None:
        progress("measure", steps, steps)
    return Report(
        "Measuring one round: seconds, and events a second",
        tuple(rows),
        note=f"{EVENTS_A_UNIT} events a unit over {CANDIDATES} candidates, two metrics. By hand is one pass over the "
        "same files that takes the logged arm on trust; PASTO draws each unit's candidate again and sums around the "
        "means. Medians of three. Core seconds and peak memory are of this process, so Spark's are not in them.",
    )


def _duckdb(folder: Path, policy: Published, size: int) -> dict[str, Any]:
    names = {"seen": f"{folder}/seen.parquet", "deeds": f"{folder}/deeds.parquet"}
    with duckdb_over(names, threads=2, memory="4GiB", spill=str(folder / "spill")) as connection:
        raw, own = _beside(
            lambda: connection.execute(RAW).fetchall(),
            lambda: measure_tables(connection, "duckdb", TABLES, policy, COLUMNS),
        )
        _check(connection.execute(RAW).fetchall(), measure_tables(connection, "duckdb", TABLES, policy, COLUMNS))
    return _row("DuckDB, two cores, 4 GiB", size, own, raw)


def _spark(folder: Path, policy: Published, size: int) -> dict[str, Any]:
    from pyspark.sql import SparkSession

    session: Any = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.driver.memory", "3g")
        .getOrCreate()
    )
    try:
        session.sparkContext.setLogLevel("OFF")
        spark_over(session, {"seen": f"{folder}/seen.parquet", "deeds": f"{folder}/deeds.parquet"})
        raw, own = _beside(
            lambda: session.sql(RAW).collect(), lambda: measure_tables(session, "spark", TABLES, policy, COLUMNS)
        )
        _check(
            [tuple(r) for r in session.sql(RAW).collect()], measure_tables(session, "spark", TABLES, policy, COLUMNS)
        )
    finally:
        session.stop()
    return _row("Spark, local[2]", size, own, raw)


def _embedded(size: int) -> dict[str, Any]:
    """A round in an embedded store, beside the bare reading of its rows."""
    policy = _policy()
    units = size // EVENTS_A_UNIT
    with tempfile.TemporaryDirectory(prefix="pasto-bench-") as folder:
        store = open_store(folder)
        try:
            for start in range(0, units, 1000):
                batch: list[EventRow] = []
                for number in range(start, min(start + 1000, units)):
                    unit = f"user-{number:09d}"
                    cell = policy.draw(unit)
                    where = (unit, 7, cell.arm, cell.candidate)
                    batch.append(EventRow(f"e{number}", EXPOSURE, *where))
                    for place in range(EVENTS_A_UNIT - 1):
                        fields = f'{{"seconds":{(number * 7919 + place * 104729) % 100_000 / 1000}}}'
                        name = "watch" if place % 3 else "like"
                        batch.append(EventRow(f"m{number}/{place}", METRIC, *where, name, fields))
                store.append(1, batch).result()
            query = "SELECT unit, kind, name, fields FROM events WHERE version = 7"
            with store.reading() as connection:
                raw, own = _beside(
                    lambda: connection.execute(query).fetchall(),
                    lambda: measure(
                        connection, store.dialect, study=1, version=7, after=0, until=10**12, columns=COLUMNS
                    ),
                )
        finally:
            store.close()
    return _row("embedded store", size, own, raw)


def _row(engine: str, size: int, own: Spent, raw: Spent) -> dict[str, Any]:
    return {
        "engine": engine,
        "events": size,
        "seconds": round(own[0], 2),
        "by hand": round(raw[0], 2),
        "events/s": int(size / own[0]),
        "core s": round(own[1], 2),
        "core s by hand": round(raw[1], 2),
        "of by hand": f"{raw[0] / own[0]:.0%}",
        "peak GiB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }


def _beside(raw: Callable[[], object], own: Callable[[], object], rounds: int = 3) -> tuple[Spent, Spent]:
    """Median seconds of both, in turn, after one round of each to warm up."""
    spent: tuple[list[Spent], list[Spent]] = ([], [])
    for _ in range(rounds + 1):
        for work, times in zip((raw, own), spent, strict=True):
            began, busy = perf_counter(), process_time()
            work()
            times.append((perf_counter() - began, process_time() - busy))
    first, second = ((median(wall), median(core)) for wall, core in (zip(*times[1:], strict=True) for times in spent))
    return first, second


def _check(raw: list[Any], own: tuple[Moments, ...]) -> None:
    """Both ways measured the same."""
    by_cell = {(row[0], row[1]): row for row in raw}
    if len(by_cell) != len(own):
        raise AssertionError("the query by hand found other cells")
    for cell in own:
        row = by_cell[cell.arm, cell.candidate]
        if row[2] != cell.units or abs(float(row[4]) - cell.mean[1]) > 1e-9 * cell.mean[1]:
            raise AssertionError(f"the query by hand disagrees in cell {cell.arm} {cell.candidate}")


def _policy() -> Published:
    share = 0.9 / CANDIDATES
    return publish(
        study="bench",
        version=7,
        round=7,
        state="learning",
        mode="shuffled",
        salt="bench/7",
        candidates={k: (f"candidate {k}", {}) for k in range(CANDIDATES)},
        baseline=0,
        shares=[("control", 0, 0.1), *(("learner", k, share) for k in range(CANDIDATES))],
        valid_from=0,
        expires_after=60,
    )


def _lake(folder: Path, policy: Published, size: int) -> None:
    """Exposures of every unit and its events, in no order, as two Parquet files."""
    from pasto.measure.assignment import assigned

    units = size // EVENTS_A_UNIT
    with duckdb_over({}, threads=2, memory="4GiB", spill=str(folder / "spill")) as connection:
        people = f"(SELECT printf('user-%09d', range) AS unit FROM range({units})) AS people"  # noqa: S608
        drawn = assigned(policy, "duckdb").query(people)
        connection.execute(
            f"COPY (SELECT unit, 7 AS version, arm, candidate FROM ({drawn})) TO '{folder}/seen.parquet'"  # noqa: S608
        )
        connection.execute(
            f"""COPY (SELECT printf('user-%09d', hash(range) % {units}) AS unit, 7 AS version,
                CASE WHEN range % 3 = 0 THEN 'like' ELSE 'watch' END AS name,
                CASE WHEN range % 3 > 0 THEN round(hash(range + 1) % 1000000 / 1000, 3) END AS seconds
            FROM range({size - units})) TO '{folder}/deeds.parquet'"""  # noqa: S608
        )


BENCHMARK = Benchmark(
    name="measure",
    summary="measuring a round in DuckDB, on Spark and in an embedded store, beside queries by hand",
    run=lambda progress, quick: (
        run((1_000_000,), embedded=100_000, spark=0, progress=progress) if quick else run(progress=progress)
    ),
)
