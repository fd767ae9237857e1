"""The arm of a unit that another platform assigned: drawn with the published shares, alike on every engine."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import psycopg
import pytest
from scipy.stats import chisquare

from pasto.errors import OptionError
from pasto.metrics import Column
from pasto.metrics.external_assignment import ArmDraw, arm_draw
from pasto.metrics.measurement import measure_tables
from pasto.metrics.sources.team_tables import EventTable, ExposureTable, TeamTables
from pasto.metrics.sql.assignment import external_query
from pasto_sdk.policy import PublishedPolicy, publish_policy

UNITS = 20_000
FALSE_ALARM_RATE = 1e-6
SHARES = [
    ("control", 0, 0.1),
    ("blend", 0, 0.2),
    ("blend", 1, 0.15),
    ("blend", 2, 0.2 - 1e-15),
    ("best_single", 1, 0.35),
    ("best_single", 2, 1e-15),
]


def policy(mode: Any = "sticky") -> PublishedPolicy:
    names = ("plain", "it's bold 'ü' \\ \"🙂\" :p %s ? $1", "ünusual")
    return publish_policy(
        study="feed",
        version=7,
        round=7,
        state="confirming",
        mode=mode,
        salt="fête/7",
        candidates={place: (name, {}) for place, name in enumerate(names)},
        baseline=0,
        shares=SHARES,
        valid_from=0,
        expires_after=60,
    )


POLICY = policy()
NAMES = [*POLICY.named, "not served"]


def assigned(seed: int = 5) -> list[tuple[str, str]]:
    """Return units with the candidate that a platform with its own hash gave them."""
    rng = random.Random(seed)
    letters = "äßπ漢字🙂é'\"\\ %:$?x"
    return [
        ("".join(rng.choices(letters, k=rng.randint(1, 5))) + str(place), rng.choice(NAMES)) for place in range(UNITS)
    ]


def test_arms_of_a_candidate_get_their_shares_of_its_units() -> None:
    draw = ArmDraw(POLICY)
    for name in POLICY.named:
        widths = {cell.arm: cell.width for cell in POLICY.cells if cell.name == name}
        arms = [draw.bucket(f"user {number}", name).arm for number in range(UNITS)]  # type: ignore[union-attr]
        expected = {arm: UNITS * width / sum(widths.values()) for arm, width in widths.items()}
        if min(expected.values()) < 5:
            assert set(arms) == {"blend"}
            continue
        assert chisquare([arms.count(arm) for arm in expected], [*expected.values()]).pvalue > FALSE_ALARM_RATE


def test_a_unit_keeps_its_arm_and_an_unserved_candidate_has_none() -> None:
    draw = arm_draw(POLICY)
    assert draw.bucket("ann", "plain") is draw.bucket("ann", "plain")
    assert draw.bucket("ann", "not served") is None


def test_the_draw_is_not_that_of_the_policy_itself() -> None:
    """Otherwise a platform with the policy's own hash would put all units of a candidate into one arm."""
    units = [f"user {number}" for number in range(UNITS)]
    drawn = [(unit, POLICY.draw(unit)) for unit in units]
    arms = [(cell.arm, arm_draw(POLICY).bucket(unit, cell.name).arm) for unit, cell in drawn if cell.name == "plain"]  # type: ignore[union-attr]
    control = [second for first, second in arms if first == "control"]
    share = control.count("control") / len(control)
    assert share == pytest.approx(1 / 3, abs=0.06)


def check(rows: list[tuple[Any, ...]], published: PublishedPolicy, given: list[tuple[str, str]]) -> None:
    assert len(rows) == len(given)
    found = {unit: rest for unit, *rest in rows}
    for unit, name in given:
        bucket = arm_draw(published).bucket(unit, name)
        assert found[unit] == ([None, None, name] if bucket is None else [bucket.arm, bucket.candidate, name])


@pytest.mark.parametrize("mode", ["sticky", "shuffled"])
def test_duckdb_draws_alike(mode: str) -> None:
    published, given = policy(mode), assigned()
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE people (person VARCHAR, claimed VARCHAR)")
        columns = [list(column) for column in zip(*given, strict=True)]
        connection.execute("INSERT INTO people SELECT unnest(?), unnest(?)", columns)
        query = external_query(published, "duckdb", "claimed", "person").query("people", also="claimed", named=False)
        check(connection.execute(query).fetchall(), published, given)


@pytest.mark.services
def test_postgres_draws_alike(postgres_server: Any) -> None:
    url, given = postgres_server.fresh(), assigned()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE people (person text, claimed text)")
        with connection.cursor().copy("COPY people FROM STDIN") as copy:
            for row in given:
                copy.write_row(row)
        query: Any = external_query(POLICY, "postgres", "claimed", "person").query("people", "claimed", named=False)
        check(connection.execute(query).fetchall(), POLICY, given)
    postgres_server.drop(url)


@pytest.mark.services
def test_spark_draws_alike(spark: Any) -> None:
    given = assigned()
    spark.createDataFrame(given, "person STRING, claimed STRING").createOrReplaceTempView("people")
    query = external_query(POLICY, "spark", "claimed", "person").query("people", "claimed", named=False)
    check([tuple(row) for row in spark.sql(query).collect()], POLICY, given)


COLUMNS = (Column("likes", "like", None, "count"),)
TABLES = TeamTables(ExposureTable("seen", candidate="given"), (EventTable("deeds", version="version"),))


def test_team_tables_count_the_candidate_that_they_name() -> None:
    given = assigned()[:3000]
    first = {unit: arm_draw(POLICY).bucket(unit, name) for unit, name in given}
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE seen (unit TEXT, version BIGINT, given TEXT)")
        connection.execute("CREATE TABLE deeds (unit TEXT, version BIGINT, name TEXT)")
        units, names = ([row[place] for row in given] for place in (0, 1))
        connection.execute("INSERT INTO seen SELECT unnest(?), 7, unnest(?)", [units, names])
        connection.execute("INSERT INTO deeds SELECT unnest(?), 7, 'like'", [units[::3]])
        plain = measure_tables(connection, "duckdb", TABLES, POLICY, COLUMNS, is_external=True)
        counts = {(cell.arm, cell.candidate): cell.units for cell in plain}
        expected: dict[tuple[str, int], int] = {}
        for bucket in first.values():
            if bucket is not None:
                key = (bucket.arm, bucket.candidate)
                expected[key] = expected.get(key, 0) + 1
        assert counts == expected
        crossed = [unit for unit, name in given if name == "plain"][:100]
        connection.execute("INSERT INTO seen SELECT unnest(?), 7, 'ünusual'", [crossed])
        without = measure_tables(connection, "duckdb", TABLES, POLICY, COLUMNS, is_external=True)
        assert sum(cell.units for cell in plain) - sum(cell.units for cell in without) == 100
        unnamed = TeamTables(ExposureTable("seen"), TABLES.events)
        with pytest.raises(OptionError, match="needs the column of the candidate that its platform assigned"):
            measure_tables(connection, "duckdb", unnamed, POLICY, COLUMNS, is_external=True)
