"""Measurement benchmark: cost of PASTO's query, compared with a hand-written one on the same files."""

from __future__ import annotations

import importlib.util
import random
import resource
import tempfile
from collections.abc import Callable, Sequence
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

from pasto.errors import StoreError
from pasto.metrics import Column, Moments, measure
from pasto.metrics.measurement import measure_tables
from pasto.metrics.sources.files import open_duckdb, open_spark
from pasto.metrics.sources.team_tables import EventTable, ExposureTable, TeamTables
from pasto.metrics.sql.assignment import assignment_query
from pasto.sim import Progress
from pasto.store import EXPOSURE, METRIC, EventRow, open_store
from pasto_research.bench.benchmark import Benchmark, BenchmarkReport
from pasto_research.bench.http_load import DOCUMENT, served
from pasto_sdk.policy import PublishedPolicy

Spent = tuple[float, float]
"""Seconds by the clock, and of this process's cores."""


def timed(work: Callable[[], Any]) -> tuple[Spent, Any]:
    """Return the time that a piece of work takes, and its result."""
    began, busy = perf_counter(), process_time()
    found = work()
    return (perf_counter() - began, process_time() - busy), found


def time_alternately(raw: Callable[[], Any], own: Callable[[], Any], turns: int = 3) -> tuple[Spent, Spent, Any, Any]:
    """Return the median seconds of both, in turn after one turn to warm up, and their results.

    >>> time_alternately(lambda: "raw", lambda: "own")[2:]
    ('raw', 'own')
    """
    pairs = [(timed(raw), timed(own)) for _ in range(turns + 1)]
    (_, by_hand), (_, result) = pairs[-1]
    return (
        _median([first[0] for first, _ in pairs[1:]]),
        _median([second[0] for _, second in pairs[1:]]),
        by_hand,
        result,
    )


def _median(spent: Sequence[Spent]) -> Spent:
    return median(wall for wall, _ in spent), median(core for _, core in spent)


def row(work: str, size: int, own: Spent, raw: Spent | None = None, bytes_each: float | None = None) -> dict[str, Any]:
    """Return a row of the report.

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
    """Return every unit's candidate of many, drawn in DuckDB on two cores."""
    policy = served(candidates)
    people = f"(SELECT printf('user-%09d', range) AS unit FROM range({units})) AS people"  # noqa: S608 -- a number
    query = f"SELECT count(*), sum(candidate) FROM ({assignment_query(policy, 'duckdb').query(people)})"  # noqa: S608
    with open_duckdb({}, threads=2) as connection:
        connection.execute(query).fetchall()
        spent, _ = timed(lambda: connection.execute(query).fetchall())
    return row(
        f"draw of {candidates:,} candidates in DuckDB", units, spent, bytes_each=len(policy.text.encode()) / candidates
    )


BATCH = 10_000
"""Events taken in together."""


def measure_store(size: int) -> list[dict[str, Any]]:
    """Measure the rates of an embedded store, from one study of `size` events, four per unit."""
    from pasto.service.service import Service

    with tempfile.TemporaryDirectory(prefix="pasto-bench-") as folder:
        store = open_store(folder)
        service = Service(store)
        try:
            service.create(DOCUMENT, who="bench")
            service.change("bench", "start", who="bench")
            taken = _taken(service, size)
            with store.read_transaction() as connection:
                pages, each = (connection.execute(f"PRAGMA page_{what}").fetchone()[0] for what in ("count", "size"))
            snapshot = service.policy_cache.snapshot("bench")
            number, columns = snapshot.row.number, snapshot.spec.columns
            query = "SELECT unit, kind, name, fields FROM events WHERE version = 1"
            with store.read_transaction() as connection:
                raw, own, *_ = time_alternately(
                    lambda: connection.execute(query).fetchall(),
                    lambda: measure(
                        connection, store.dialect, study=number, version=1, after=0, until=10**12, columns=columns
                    ),
                )
            closed, _ = timed(lambda: service.close_round("bench", who="bench"))
            archived, archive = timed(lambda: service.archive_events("bench", who="bench"))
            compacted, _ = timed(store.compact)
            remain = store.measure_size()
            files = sum(path.stat().st_size for path in Path(folder).rglob("*.parquet"))
            forgotten, _ = timed(lambda: service.erase_unit("bench", "user-7", who="bench"))
        finally:
            service.shutdown()
    return [
        row("take in, embedded store", size, taken, bytes_each=pages * each / size),
        row("measure, embedded store", size, own, raw),
        row("close of a round, embedded store", size, closed),
        row("archive, embedded store", archive.events, archived, bytes_each=files / max(1, archive.events)),
        row("compact, what remains of archived events", remain.ids, compacted, bytes_each=remain.bytes_an_event),
        row("forget a unit, archive included", size, forgotten),
    ]


def _taken(service: Any, size: int) -> Spent:
    """Time the ingest of events with random ids of 32 characters, in batches; making them does not count."""
    draw, policy = random.Random(7), service.policy_cache.current("bench")  # noqa: S311 -- ids only
    number = service.policy_cache.snapshot("bench").row.number
    wall = core = 0.0
    for first in range(0, size // 4, BATCH // 4):
        events = []
        for user in range(first, min(first + BATCH // 4, size // 4)):
            unit = f"user-{user}"
            cell = policy.draw(unit)
            place = (unit, policy.version, cell.arm, cell.candidate)
            ids = [f"{draw.getrandbits(128):032x}" for _ in range(4)]
            events.append(EventRow(ids[0], EXPOSURE, *place))
            events.append(EventRow(ids[1], METRIC, *place, "watch", f'{{"seconds":{user % 97}.5}}'))
            events.append(EventRow(ids[2], METRIC, *place, "watch", f'{{"seconds":{user % 31}.25}}'))
            events.append(EventRow(ids[3], METRIC, *place, "like"))
        spent, _ = timed(service.store.append_events(number, events).result)
        wall, core = wall + spent[0], core + spent[1]
    return wall, core


FEW = 10_000_000
"""Events up to which a measurement is repeated."""

CANDIDATES = 50

EVENTS_A_UNIT = 10

COLUMNS = (
    Column("watch_time", "watch", "seconds", "sum", 0.0, 7200.0),
    Column("likes", "like", None, "count"),
)

TABLES = TeamTables(ExposureTable("seen"), (EventTable("deeds", version="version"),))

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
    draws: int = 1_000_000,
    progress: Progress | None = None,
) -> BenchmarkReport:
    """Measure rounds of several sizes in DuckDB, one on Spark where it is installed, and the way of an embedded store.

    >>> [row["work"] for row in run((2_000,), embedded=4_000, spark=0, draws=100).rows][:3]
    ['measure in DuckDB, two cores, 4 GiB', 'draw of 1,000 candidates in DuckDB', 'take in, embedded store']
    """
    rows: list[dict[str, Any]] = []
    steps = len(sizes) + 2
    for place, size in enumerate(sizes):
        if progress is not None:
            progress("measure", place, steps)
        with tempfile.TemporaryDirectory(prefix="pasto-bench-") as folder:
            policy = served(CANDIDATES, control=0.1)
            _apart(Path(folder), policy, size)
            row, moments = _duckdb(Path(folder), policy, size)
            rows.append(row)
            if size == spark and importlib.util.find_spec("pyspark") is not None:
                rows.append(_spark(Path(folder), policy, size, moments))
    if progress is not None:
        progress("measure", steps - 2, steps)
    rows.append(drawn(draws))
    rows += measure_store(embedded)
    if progress is not None:
        progress("measure", steps, steps)
    growth = ""
    if len(sizes) > 1:
        (first, last) = (
            next(row for row in rows if row["events"] == size)["seconds"] for size in (sizes[0], sizes[-1])
        )
        growth = f" {sizes[-1]:,} events took {last / first:.1f} times as long as {sizes[0]:,}."
    return BenchmarkReport(
        "Measuring rounds, and what events go through before and after: seconds, and events a second",
        tuple(rows),
        note=f"{EVENTS_A_UNIT} events a unit over {CANDIDATES} candidates, two metrics. By hand is one pass over the "
        "same files that takes the logged arm on trust; PASTO draws each unit's candidate again and sums around the "
        "means. In the embedded store by hand is the bare reading of the same rows. Medians of up to three turns. Core "
        "seconds and peak memory are of this process, so Spark's are not in them. Bytes are an event's; in the draw "
        f"a candidate's in the policy.{growth}",
    )


def _duckdb(folder: Path, policy: PublishedPolicy, size: int) -> tuple[dict[str, Any], tuple[Moments, ...]]:
    names = {"seen": f"{folder}/seen.parquet", "deeds": f"{folder}/deeds.parquet"}
    with open_duckdb(names, threads=2, memory="4GiB", spill=str(folder / "spill")) as connection:
        raw, own, expected, found = time_alternately(
            lambda: connection.execute(RAW).fetchall(),
            lambda: measure_tables(connection, "duckdb", TABLES, policy, COLUMNS),
            1 if size > FEW else 3,
        )
    _check(expected, found)
    return row("measure in DuckDB, two cores, 4 GiB", size, own, raw), found


def _spark(folder: Path, policy: PublishedPolicy, size: int, reference: tuple[Moments, ...]) -> dict[str, Any]:
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
        open_spark(session, {"seen": f"{folder}/seen.parquet", "deeds": f"{folder}/deeds.parquet"})
        raw, own, expected, found = time_alternately(
            lambda: session.sql(RAW).collect(), lambda: measure_tables(session, "spark", TABLES, policy, COLUMNS), 1
        )
    finally:
        session.stop()
    _check([tuple(line) for line in expected], found)
    _same(found, reference)
    return {**row("measure on Spark, local[2]", size, own, raw), "core s": None, "events/core s": None}


def _same(measured: tuple[Moments, ...], expected: tuple[Moments, ...]) -> None:
    """Check that two engines measured the same, to nine digits."""
    for cell, expected_cell in zip(measured, expected, strict=True):
        if (cell.arm, cell.candidate, cell.units) != (expected_cell.arm, expected_cell.candidate, expected_cell.units):
            raise AssertionError("Spark found other cells than DuckDB")
        for value, expected_value in zip(
            (*cell.mean, *chain(*cell.cross)), (*expected_cell.mean, *chain(*expected_cell.cross)), strict=True
        ):
            if abs(value - expected_value) > 1e-9 * max(1.0, abs(expected_value)):
                raise AssertionError(f"Spark measured {value} where DuckDB measured {expected_value}")


def _check(raw: list[Any], own: tuple[Moments, ...]) -> None:
    """Check that both ways measured the same."""
    by_cell = {(row[0], row[1]): row for row in raw}
    if len(by_cell) != len(own):
        raise AssertionError("the query by hand found other cells")
    for cell in own:
        row = by_cell[cell.arm, cell.candidate]
        if row[2] != cell.units or abs(float(row[4]) - cell.mean[1]) > 1e-9 * cell.mean[1]:
            raise AssertionError(f"the query by hand disagrees in cell {cell.arm} {cell.candidate}")


def _apart(folder: Path, policy: PublishedPolicy, size: int) -> None:
    """Make the files; many in another process, whose memory is not to be counted."""
    if size < FEW:
        _write(folder, policy, size)
        return
    made = get_context("spawn").Process(target=_lake, args=(folder, policy.text, size))
    made.start()
    made.join()
    if made.exitcode:
        raise StoreError(f"the files to be measured could not be made: the process ended with code {made.exitcode}")


def _lake(folder: Path, text: str, size: int) -> None:
    """Write exposures and events of every unit, in random order, as two Parquet files."""
    _write(folder, PublishedPolicy.from_text(text), size)


def _write(folder: Path, policy: PublishedPolicy, size: int) -> None:

    units = size // EVENTS_A_UNIT
    with open_duckdb({}, threads=2, memory="4GiB", spill=str(folder / "spill")) as connection:
        people = f"(SELECT printf('user-%09d', range) AS unit FROM range({units})) AS people"  # noqa: S608
        drawn = assignment_query(policy, "duckdb").query(people)
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
    summary="cost of measuring (DuckDB, Spark, embedded), compared with queries by hand; drawing, ingest, archiving",
    run=lambda progress, quick: (
        run((1_000_000,), embedded=100_000, spark=0, draws=100_000, progress=progress)
        if quick
        else run(progress=progress)
    ),
)
