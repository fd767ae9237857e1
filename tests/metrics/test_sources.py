"""Team sources: a team's own tables give the same measurements as the same events in PASTO's store."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psycopg
import pytest

from pasto.errors import OptionError
from pasto.metrics import Column, Condition, Moments
from pasto.metrics.engines.duckdb import measure
from pasto.metrics.measure_request import MeasureRequest
from pasto.metrics.measurement import measure_tables
from pasto.metrics.sources.files import open_duckdb, open_spark
from pasto.metrics.sources.team_tables import EventTable, ExposureTable, TeamTables
from pasto_sdk.policy import PublishedPolicy, publish_policy

POLICY = publish_policy(
    study="feed",
    version=7,
    round=7,
    state="learning",
    mode="shuffled",
    salt="feed/7",
    candidates={0: ("plain", {}), 1: ("it's bold", {}), 2: ("ünusual", {})},
    baseline=0,
    shares=[("control", 0, 0.2), ("learner", 0, 0.3), ("learner", 1, 0.3), ("learner", 2, 0.2)],
    valid_from=0,
    expires_after=60,
)
COLUMNS = (
    Column("watched", "watch", "seconds", "sum", 0.0, 60.0),
    Column("mean", "watch", "seconds", "mean"),
    Column("longest", "watch", "seconds", "max"),
    Column("last", "watch", "seconds", "last", by="at"),
    Column("likes", "like", None, "count"),
    Column("at home", "watch", None, "count", where=(Condition("surface", "=", ("home",)),)),
    Column(
        "alone", "watch", "seconds", "sum", where=(Condition("alone", "!=", (True,)), Condition("at", "<", (900.0,)))
    ),
    Column("any", "like", None, "any", 0.0, 1.0),
)
TABLES = TeamTables(
    ExposureTable("seen", unit="user", version="policy", candidate="shown", time="moment"),
    (EventTable("deeds", unit="who", name="deed", version="policy", fields={"seconds": "secs", "at": "moment"}),),
)
BY_TIME = TeamTables(
    ExposureTable("seen", unit="user", version="policy", time="moment"),
    (EventTable("deeds", unit="who", name="deed", time="moment", fields={"seconds": "secs", "at": "moment"}),),
)
SEEN = "CREATE TABLE seen (user_ TEXT, policy BIGINT, shown TEXT, moment BIGINT)".replace("user_", '"user"')
DEEDS = (
    "CREATE TABLE deeds (who TEXT, deed TEXT, policy BIGINT, moment BIGINT, secs DOUBLE PRECISION, surface TEXT, "
    "alone BOOLEAN)"
)
Row = tuple[Any, ...]


def rows(policy: PublishedPolicy, *, liars: bool = True) -> tuple[list[Row], list[Row]]:
    """Return exposures at even moments and later actions, of this policy and the next; some exposures are invalid."""
    rng = random.Random(11)
    exposures: list[Row] = []
    logged_events: list[Row] = []
    for place in range(300):
        unit = f"ünit {place}"
        drawn = policy.draw(unit).name
        began = rng.randrange(0, 1000, 2)
        later = began + 100
        exposures += [(unit, 7, drawn, began)] * rng.choice((1, 1, 2)) + [(unit, 8, "plain", later)]
        if liars and place % 10 == 0:
            exposures.append((f"liar {place}", 7, "no candidate", 2))
            logged_events.append((f"liar {place}", "like", 7, 3, None, None, None))
        for _ in range(rng.randrange(6)):
            moment = began + rng.randrange(1, 200, 2)
            version = 7 if moment < later else 8
            flag = rng.choice((True, False, None))
            watch = (rng.lognormvariate(2, 1), rng.choice(("home", "search", None)), flag)
            logged_event = ("watch", *watch) if rng.random() < 0.7 else ("like", None, None, None)
            logged_events.append((unit, logged_event[0], version, moment, *logged_event[1:]))
    return exposures, logged_events


def fill(connection: Any, mark: str, exposures: Sequence[Row], logged_events: Sequence[Row]) -> None:
    connection.execute(SEEN)
    connection.execute(DEEDS)
    cursor = connection.cursor()
    cursor.executemany(f"INSERT INTO seen VALUES ({', '.join([mark] * 4)})", exposures)  # noqa: S608
    cursor.executemany(f"INSERT INTO deeds VALUES ({', '.join([mark] * 7)})", logged_events)  # noqa: S608


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the tables as files."""
    folder = tmp_path_factory.mktemp("lake")
    with duckdb.connect() as connection:
        fill(connection, "?", *rows(POLICY))
        for name in ("seen", "deeds"):
            (folder / name).mkdir()
            connection.execute(f"COPY {name} TO '{folder}/{name}/part-0.parquet'")
            connection.execute(f"COPY {name} TO '{folder}/{name}.csv'")
    return folder


@pytest.fixture(scope="module")
def own() -> tuple[Moments, ...]:
    """Return the measurements of the same events in PASTO's own table."""
    exposures, logged_events = rows(POLICY, liars=False)
    with duckdb.connect() as connection:
        fill(connection, "?", exposures, logged_events)
        cells = [
            (unit, cell.arm, cell.candidate) for unit in {row[0] for row in exposures} for cell in [POLICY.draw(unit)]
        ]
        connection.execute("CREATE TABLE cells (unit TEXT, arm TEXT, candidate BIGINT)")
        connection.executemany("INSERT INTO cells VALUES (?, ?, ?)", cells)
        connection.execute(
            """CREATE TABLE events AS SELECT row_number() OVER () AS sequence, * FROM (
            SELECT 1 AS study, 0 AS kind, unit, policy AS version, arm, candidate, NULL::TEXT AS name,
                NULL::TEXT AS fields, 0 AS excluded FROM seen JOIN cells ON unit = "user"
            UNION ALL SELECT 1, 1, who, policy, NULL, NULL, deed,
                json_merge_patch('{}',
                    to_json({'seconds': secs, 'surface': surface, 'alone': alone, 'at': moment}))::TEXT, 0
            FROM deeds)"""
        )
        return measure(connection, MeasureRequest(1, 7, 0, 10**9, COLUMNS))


def agree(got: Sequence[Moments], want: Sequence[Moments]) -> None:
    assert [(cell.arm, cell.candidate, cell.units, cell.clipped) for cell in got] == [
        (cell.arm, cell.candidate, cell.units, cell.clipped) for cell in want
    ]
    assert len(got) == 4
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one.mean, other.mean, rtol=1e-12)
        np.testing.assert_allclose(one.cross, other.cross, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_files_in_duckdb(lake: Path, own: tuple[Moments, ...], kind: str) -> None:
    names = {name: f"{lake}/{name}" if kind == "parquet" else f"{lake}/{name}.csv" for name in ("seen", "deeds")}
    with open_duckdb(names, threads=2, memory="1GiB") as connection:
        agree(measure_tables(connection, "duckdb", TABLES, POLICY, COLUMNS), own)


def test_events_without_a_version_belong_to_the_latest_exposure(own: tuple[Moments, ...]) -> None:
    with duckdb.connect() as connection:
        fill(connection, "?", *rows(POLICY, liars=False))
        agree(measure_tables(connection, "duckdb", BY_TIME, POLICY, COLUMNS), own)


def test_a_table_for_each_event(lake: Path, own: tuple[Moments, ...]) -> None:
    fields = {"seconds": "secs", "at": "moment"}
    split = TeamTables(
        TABLES.exposures,
        tuple(
            EventTable(f"{e}s", unit="who", event=e, version="policy", fields=fields) for e in ("watch", "like", "x")
        ),
    )
    with open_duckdb({"seen": f"{lake}/seen", "deeds": f"{lake}/deeds"}) as connection:
        for event in ("watch", "like", "x"):
            connection.execute(f"CREATE VIEW {event}s AS SELECT * EXCLUDE (deed) FROM deeds WHERE deed = '{event}'")  # noqa: S608
        agree(measure_tables(connection, "duckdb", split, POLICY, COLUMNS), own)


@pytest.fixture
def database(postgres_server: Any) -> Iterator[Any]:
    url = postgres_server.fresh()
    with psycopg.connect(url) as connection:
        yield connection
    postgres_server.drop(url)


@pytest.mark.services
@pytest.mark.parametrize("tables", [TABLES, BY_TIME], ids=["by version", "by time"])
def test_tables_in_postgres(database: Any, own: tuple[Moments, ...], tables: TeamTables) -> None:
    fill(database, "%s", *rows(POLICY, liars=tables is TABLES))
    agree(measure_tables(database, "postgres", tables, POLICY, COLUMNS), own)


@pytest.mark.services
def test_a_hundred_columns_in_postgres(database: Any) -> None:
    many = tuple(Column(f"c{cap}", "watch", "seconds", "sum", 0.0, 1.0 + cap) for cap in range(100))
    exposures, logged_events = rows(POLICY)
    fill(database, "%s", exposures, logged_events)
    with duckdb.connect() as connection:
        fill(connection, "?", exposures, logged_events)
        agree(
            measure_tables(database, "postgres", TABLES, POLICY, many),
            measure_tables(connection, "duckdb", TABLES, POLICY, many),
        )


@pytest.mark.services
def test_files_on_spark(spark: Any, lake: Path, own: tuple[Moments, ...]) -> None:
    open_spark(spark, {"seen": f"{lake}/seen", "deeds": f"{lake}/deeds"})
    agree(measure_tables(spark, "spark", TABLES, POLICY, COLUMNS), own)
    open_spark(spark, {"seen": f"{lake}/seen.csv", "deeds": f"{lake}/deeds.csv"})
    agree(measure_tables(spark, "spark", TABLES, POLICY, COLUMNS), own)


SOON = Column("soon", "watch", "seconds", "sum", window=40.0)
BACK = Column("back", "watch", "seconds", "sum", lookback=60.0)
TIMED = (
    COLUMNS[0],
    SOON,
    Column("likes soon", "like", None, "count", window=90.0),
    BACK,
    Column("likes back", "like", None, "any", 0.0, 1.0, lookback=25.0),
)


def timed_rows() -> tuple[list[Row], list[Row]]:
    """Return `rows` with actions of an earlier policy before each exposure, and repeated exposures."""
    rng = random.Random(12)
    exposures, logged_events = rows(POLICY, liars=False)
    firsts = {unit: moment for unit, policy, _, moment in exposures if policy == 7}
    for unit, moment in firsts.items():
        exposures += [(unit, 7, POLICY.draw(unit).name, moment + 30), (unit, 6, "plain", moment - 90)]
        for version, at in ((7, moment), (7, moment + 40), (6, moment - 60)):  # exactly at the ends
            logged_events.append((unit, "watch", version, at, rng.lognormvariate(2, 1), None, None))
        for _ in range(rng.randrange(5)):
            logged_event = ("watch", rng.lognormvariate(2, 1)) if rng.random() < 0.7 else ("like", None)
            logged_events.append(
                (unit, logged_event[0], 6, moment - rng.randrange(1, 88, 2), logged_event[1], None, None)
            )
    logged_events.append(("nobody", "watch", 6, 1, 5.0, None, None))
    return exposures, logged_events


@cache
def timed_units(since: int = 7) -> dict[str, list[float]]:
    """Compute each unit's numbers, slowly."""
    exposures, logged_events = timed_rows()
    found: dict[str, list[float]] = {}
    for unit in {row[0] for row in exposures if row[1] == 7}:
        first = min(row[3] for row in exposures if row[:2] == (unit, 7))
        drawn_at = min(row[3] for row in exposures if row[0] == unit and since <= row[1] <= 7)
        own = [row for row in logged_events if row[0] == unit]
        numbers = []
        for column in TIMED:
            mine = [row for row in own if row[1] == column.event]
            if column.lookback is not None:
                mine = [row for row in mine if drawn_at - column.lookback <= row[3] < drawn_at]
            else:
                mine = [row for row in mine if row[2] == 7 and row[3] <= first + (column.window or 1e9)]
            number = sum(row[4] for row in mine) if column.value else float(len(mine))
            high = np.inf if column.high is None else column.high
            numbers.append(min(number, 1.0 if column.aggregate == "any" else high))
        found[unit] = numbers
    return found


def timed_agree(got: Sequence[Moments], units: dict[str, list[float]]) -> None:
    assert len(got) == 4
    drawn = {unit: (cell.arm, cell.candidate) for unit in units for cell in [POLICY.draw(unit)]}
    for cell in got:
        mine = [numbers for unit, numbers in units.items() if drawn[unit] == (cell.arm, cell.candidate)]
        table = np.array(mine)
        apart = table - table.mean(axis=0)
        assert cell.units == len(mine)
        np.testing.assert_allclose(cell.mean, table.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(cell.cross, apart.T @ apart, rtol=1e-9, atol=1e-9)


STAMPED = {
    "duckdb": "TIMESTAMP '2026-11-01' + to_seconds(moment)",
    "postgres": "TIMESTAMPTZ '2026-11-01' + moment * interval '1 second'",
}


def stamp(connection: Any, dialect: str) -> None:
    """Return times as timestamps instead of numbers of seconds."""
    for name in ("seen", "deeds"):
        connection.execute(f"CREATE TABLE stamped AS SELECT *, {STAMPED[dialect]} AS stamp FROM {name}")  # noqa: S608
        connection.execute(f"DROP TABLE {name}")
        connection.execute(f"ALTER TABLE stamped RENAME TO {name}")


def by(tables: TeamTables, time: str) -> TeamTables:
    events = tuple(replace(table, time=time) for table in tables.events)
    return TeamTables(replace(tables.exposures, time=time), events)


@pytest.fixture(scope="module")
def timed_lake() -> Iterator[Any]:
    """Write tables with times of both kinds."""
    with duckdb.connect() as connection:
        fill(connection, "?", *timed_rows())
        stamp(connection, "duckdb")
        yield connection


@pytest.mark.parametrize("time", ["moment", "stamp"])
@pytest.mark.parametrize("tables", [TABLES, BY_TIME], ids=["by version", "by time"])
def test_windows_and_covariates_in_duckdb(timed_lake: Any, tables: TeamTables, time: str) -> None:
    for since in (7, 6):
        got = measure_tables(timed_lake, "duckdb", by(tables, time), POLICY, TIMED, since=since)
        timed_agree(got, timed_units(since))


@pytest.mark.services
@pytest.mark.parametrize("time", ["moment", "stamp"])
@pytest.mark.parametrize("tables", [TABLES, BY_TIME], ids=["by version", "by time"])
def test_windows_and_covariates_in_postgres(database: Any, tables: TeamTables, time: str) -> None:
    fill(database, "%s", *timed_rows())
    stamp(database, "postgres")
    timed_agree(measure_tables(database, "postgres", by(tables, time), POLICY, TIMED), timed_units())


@pytest.mark.services
def test_windows_and_covariates_on_spark(spark: Any, timed_lake: Any, tmp_path: Path) -> None:
    for name in ("seen", "deeds"):
        timed_lake.execute(f"COPY {name} TO '{tmp_path}/{name}.parquet'")
    open_spark(spark, {name: f"{tmp_path}/{name}.parquet" for name in ("seen", "deeds")})
    for time in ("moment", "stamp"):
        timed_agree(measure_tables(spark, "spark", by(TABLES, time), POLICY, TIMED), timed_units())


def test_tables_without_times_have_neither_windows_nor_covariates(timed_lake: Any) -> None:
    for column in (SOON, BACK):
        with pytest.raises(OptionError, match="the table 'deeds' has no time"):
            measure_tables(timed_lake, "duckdb", TABLES, POLICY, (column,))
        named = replace(TABLES, events=(replace(TABLES.events[0], time="deed"),))
        with pytest.raises(OptionError, match="the column 'deed' of 'deeds', which holds VARCHAR"):
            measure_tables(timed_lake, "duckdb", named, POLICY, (column,))
        mixed = replace(TABLES, events=(replace(TABLES.events[0], time="stamp"),))
        with pytest.raises(OptionError, match="while 'moment' of 'seen' holds BIGINT; name columns of one kind"):
            measure_tables(timed_lake, "duckdb", mixed, POLICY, (column,))


def test_a_folder_of_parquet_and_csv_is_refused(tmp_path: Path) -> None:
    (tmp_path / "part-0.parquet").write_bytes(b"")
    (tmp_path / "part-1.csv").write_text("who,deed\nann,like\n")
    with pytest.raises(
        OptionError, match=r"both Parquet files \(part-0.parquet\) and CSV files \(part-1.csv\)"
    ) as refused:
        open_duckdb({"deeds": str(tmp_path)})
    assert "Write all of it as Parquet, or move the CSV files out" in str(refused.value)


@pytest.mark.parametrize("name", ["day=2/part.CSV", "part.csv.gz", "part.Parquet"])
def test_a_file_that_would_not_be_read_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "day=2").mkdir()
    for file in (name, "part-0.parquet", "_SUCCESS"):
        (tmp_path / file).write_bytes(b"")
    with pytest.raises(OptionError, match=f"holds {name}, which would not be read"):
        open_duckdb({"deeds": str(tmp_path)})


def test_unreadable_tables_are_reported(lake: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="holds no file of parquet or csv"):
        open_duckdb({"seen": str(tmp_path)})
    with pytest.raises(OptionError, match=r"end it in \.parquet or \.csv"):
        open_duckdb({"seen": f"{tmp_path}/x.json"})
    with open_duckdb({"seen": f"{lake}/seen", "deeds": f"{lake}/deeds"}) as connection:
        with pytest.raises(OptionError, match="the table 'deeds' has no 'price'; it has who, deed, policy"):
            measure_tables(connection, "duckdb", TABLES, POLICY, (Column("p", "buy", "price", "sum"),))
        bare = TeamTables(TABLES.exposures, (EventTable("deeds", unit="who", name="deed"),))
        with pytest.raises(OptionError, match="have neither a version nor a time"):
            measure_tables(connection, "duckdb", bare, POLICY, (Column("l", "like", None, "count"),))
        with pytest.raises(OptionError, match="there is no column to measure"):
            measure_tables(connection, "duckdb", TABLES, POLICY, ())
        with pytest.raises(OptionError, match="no engine reads tables of 'sqlite'"):
            measure_tables(connection, "sqlite", TABLES, POLICY, COLUMNS)
