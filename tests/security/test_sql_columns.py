"""SQL columns: a team's own tables with hostile column names are read, and no name becomes a statement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import psycopg
import pytest

from pasto.errors import OptionError
from pasto.metrics import Column
from pasto.metrics.measurement import measure_tables
from pasto.metrics.sources.team_tables import EventTable, ExposureTable, TeamTables
from pasto_sdk.policy import publish_policy

COLUMNS = (Column("plain", "watch", None, "count"),)
CANARY = "CREATE TABLE canary (n INT)"
POLICY = publish_policy(
    study="feed",
    version=7,
    round=7,
    state="learning",
    mode="sticky",
    salt="' || (SELECT 1) || '",
    candidates={0: ('it\'s "bold"; DROP TABLE canary; --', {}), 1: ("%(p0)s", {})},
    baseline=0,
    shares=[("control", 0, 0.5), ("learner", 0, 0.25), ("learner", 1, 0.25)],
    valid_from=0,
    expires_after=60,
)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def columns_named(payload: str) -> list[tuple[str, TeamTables, Column]]:
    """Yield measurements of tables in which one column after the other has the payload as its name."""
    count, total = Column("likes", payload, None, "count"), Column("total", "like", "seconds", "sum")
    return [
        (
            "unit",
            TeamTables(
                ExposureTable("seen", unit=payload, version="v"),
                (EventTable("deeds", unit=payload, event="like", version="v"),),
            ),
            Column("likes", "like", None, "count"),
        ),
        (
            "version",
            TeamTables(
                ExposureTable("seen", unit="u", version=payload, candidate="shown"),
                (EventTable("deeds", unit="u", name="name", version=payload),),
            ),
            Column("likes", "like", None, "count"),
        ),
        (
            "name",
            TeamTables(
                ExposureTable("seen", unit="u", version="v", time="t"),
                (EventTable("deeds", unit="u", name=payload, time="t"),),
            ),
            Column("likes", "like", None, "count"),
        ),
        (
            "time",
            TeamTables(
                ExposureTable("seen", unit="u", version="v", time=payload),
                (EventTable("deeds", unit="u", name="name", time=payload),),
            ),
            Column("likes", "like", None, "count"),
        ),
        (
            "field",
            TeamTables(
                ExposureTable("seen", unit="u", version="v"),
                (EventTable("deeds", unit="u", name="name", version="v", fields={"seconds": payload}),),
            ),
            total,
        ),
        (
            "event",
            TeamTables(
                ExposureTable("seen", unit="u", version="v"),
                (EventTable("deeds", unit="u", event=payload, version="v"),),
            ),
            count,
        ),
    ]


def own_tables(
    connection: Any, dialect: str, payload: str, mark: str, reset: Callable[[], Any], *, only: int | None = None
) -> None:
    """Check tables that really have a column of that name: the measurement is exact."""
    cell = POLICY.draw("ann")
    every = columns_named(payload)
    for place, tables, column in every if only is None else [every[only % len(every)]]:
        names = {"unit": "u", "version": "v", "name": "name", "time": "t", "field": "secs"}
        names = {role: payload if role == place else name for role, name in names.items()}
        exposure_columns = ", ".join(f"{quoted(names[n])} {kind}" for n, kind in (("unit", "TEXT"), ("version", "INT")))
        own_columns = f"{quoted(names['time'])} INT, {quoted(names['name'])} TEXT, {quoted(names['field'])} FLOAT"
        event_columns = f"{exposure_columns}, {own_columns}"
        raw(connection, f"CREATE TABLE seen ({exposure_columns}, {quoted(names['time'])} INT, shown TEXT)")
        raw(connection, f"CREATE TABLE deeds ({event_columns})")
        connection.execute(f"INSERT INTO seen VALUES ({', '.join([mark] * 4)})", ["ann", 7, 1, cell.name])  # noqa: S608
        connection.execute(f"INSERT INTO deeds VALUES ({', '.join([mark] * 5)})", ["ann", 7, 2, "like", 3.0])  # noqa: S608
        (found,) = measure_tables(connection, dialect, tables, POLICY, (column,))
        assert (found.arm, found.candidate, found.units) == (cell.arm, cell.candidate, 1), (place, payload)
        assert found.mean == (3.0 if place == "field" else 1.0,), (place, payload)
        reset()


def raw(connection: Any, text: str) -> None:
    """Run a statement of this test itself; without bound values a percent sign is literal."""
    connection.execute(text.encode() if isinstance(connection, psycopg.Connection) else text)


def short(payload: str) -> bool:
    """Return true if a database allows a column of that name: PostgreSQL cuts names off at 63 bytes."""
    return len(payload.encode()) <= 63


@pytest.mark.parametrize("is_whole", [False, pytest.param(True, marks=pytest.mark.services)])
def test_duckdb_reads_columns_of_any_name(is_whole: bool, payloads: list[str]) -> None:
    with duckdb.connect() as connection:
        connection.execute(CANARY)

        def reset() -> None:
            connection.execute("DROP TABLE seen; DROP TABLE deeds")

        for turn, payload in enumerate(filter(short, payloads)):
            own_tables(connection, "duckdb", payload, "?", reset, only=None if is_whole else turn)
        assert connection.execute("SELECT count(*) FROM canary").fetchone() == (0,)


@pytest.mark.services
def test_postgres_reads_columns_of_any_name(postgres_url: str, payloads: list[str]) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute(CANARY)
        connection.commit()
        for payload in filter(short, payloads):
            own_tables(connection, "postgres", payload, "%s", connection.rollback)
        assert connection.execute("SELECT count(*) FROM canary").fetchone() == (0,)


def test_a_table_that_is_not_there_is_no_file_and_no_function(payloads: list[str]) -> None:
    """Check that DuckDB, which reads a file or a Python variable by a table's name, finds only views."""
    with duckdb.connect() as connection:
        for payload in payloads:
            tables = TeamTables(ExposureTable(payload), (EventTable(payload, version="v"),))
            with pytest.raises((duckdb.Error, OptionError)):
                measure_tables(connection, "duckdb", tables, POLICY, COLUMNS)
