"""Assignment in SQL: every unit gets the same candidate as in Python."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from pasto.errors import OptionError
from pasto.metrics.sql.assignment import assignment_query
from pasto_sdk.policy import PublishedPolicy, publish_policy
from tests.assignment.conftest import make_attributes, make_segmented

CASES = json.loads((Path(__file__).parents[2] / "clients" / "conformance" / "cases.json").read_text(encoding="utf-8"))
AUDIENCES = {policy["about"]: policy for policy in CASES["policies"] if "audience" in json.loads(policy["text"])}
"""Cases in which attributes decide who takes part."""
DIVIDED = {policy["about"]: policy for policy in CASES["policies"] if "segments" in json.loads(policy["text"])}
"""Cases in which attributes decide on the segment."""
READ = {"enrolment", "audience", "segments", "cluster"}
CHOSEN = [policy for policy in CASES["policies"] if READ & set(json.loads(policy["text"]))]
"""Cases in which not all units are drawn alike: all that Spark runs, which compiles each query for seconds."""
COLUMNS = {
    "country": "VARCHAR",
    "plan": "VARCHAR",
    "tenure_days": "DOUBLE",
    "größe 👍": "DOUBLE",
    "employee": "BOOLEAN",
}
"""Attributes of the cases by the type of their column; a value of another type is NULL there."""
PYTHON = {"VARCHAR": (str,), "DOUBLE": (int, float), "BOOLEAN": (bool,)}
UNITS = 100_000
Rows = list[tuple[str, str, int, str]]


def policy(mode: Any, candidates: int) -> PublishedPolicy:
    rng = random.Random(candidates)
    weights = [rng.random() + 0.01 for _ in range(candidates)]
    shares = [("control", 0, 0.1), *(("learner", k, 0.9 * w / sum(weights)) for k, w in enumerate(weights))]
    return publish_policy(
        study="fête",
        version=3,
        round=3,
        state="learning",
        mode=mode,
        salt="fête/3",
        candidates={k: (f"c{k} 'ü' \\ \"🙂\" :p %s ? $1", {}) for k in range(candidates)},
        baseline=0,
        shares=shares,
        valid_from=0,
        expires_after=60,
    )


POLICIES = [policy("shuffled", 50), policy("sticky", 6), policy("shuffled", 1)]
LARGE = policy("shuffled", 1000)


@pytest.fixture(scope="module")
def units() -> list[str]:
    """Return plain unit ids, and ids in every script and with control characters."""
    rng = random.Random(7)
    letters = "äßπ漢字🙂é'\"\\ %:$?x\u200d\u0301"
    odd = ("".join(rng.choices(letters, k=rng.randint(1, 20))) + str(place) for place in range(UNITS // 5))
    return [*odd, *(f"user-{place}" for place in range(UNITS - UNITS // 5))]


def check(rows: Rows, published: PublishedPolicy, units: list[str]) -> None:
    """Check that SQL returns every unit, with the draw of Python."""
    found = {unit: rest for unit, *rest in rows}
    assert len(rows) == len(found) == len(units)
    wrong = [
        unit
        for unit in units
        for cell in [published.draw(unit)]
        if found[unit] != [cell.arm, cell.candidate, cell.name]
    ]
    assert wrong == []


@pytest.mark.parametrize("published", [*POLICIES, LARGE], ids=repr)
def test_duckdb(units: list[str], published: PublishedPolicy) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1; CREATE TABLE people (person VARCHAR)")
        connection.execute("INSERT INTO people SELECT unnest($units)", {"units": units})
        check(
            connection.execute(assignment_query(published, "duckdb", "person").query("people")).fetchall(),
            published,
            units,
        )


@pytest.mark.services
@pytest.mark.parametrize("published", [*POLICIES, LARGE], ids=repr)
def test_postgres(postgres_server: Any, units: list[str], published: PublishedPolicy) -> None:
    url = postgres_server.fresh()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE people (person text)")
        with connection.cursor().copy("COPY people FROM STDIN") as copy:
            for unit in units:
                copy.write_row((unit,))
        query: Any = assignment_query(published, "postgres", "person").query("people")
        check(connection.execute(query).fetchall(), published, units)
    postgres_server.drop(url)


@pytest.mark.services
def test_spark(spark: Any, units: list[str], tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE people (person VARCHAR)")
        connection.execute("INSERT INTO people SELECT unnest($units)", {"units": units})
        connection.execute(f"COPY people TO '{tmp_path}/people.parquet'")
    spark.read.parquet(f"{tmp_path}/people.parquet").createOrReplaceTempView("people")
    for published in [*POLICIES, LARGE]:
        rows = spark.sql(assignment_query(published, "spark", "person").query("people")).collect()
        check([tuple(row) for row in rows], published, units)


def cases_of(case: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return rows of units without NUL, which databases cannot hold: number, unit, attributes, and the draw."""
    rows = []
    cluster = json.loads(case["text"]).get("cluster")
    for number, (unit, arm, candidate, _, *further) in enumerate(case["draws"]):
        given = CASES["attributes"][further[0]] if further else {}
        if type(given.get(cluster)) is str and COLUMNS.get(cluster) == "DOUBLE":
            continue  # a column has clusters of one type
        values = [given.get(name) if type(given.get(name)) in PYTHON[kind] else None for name, kind in COLUMNS.items()]
        if "\0" not in CASES["units"][unit]:
            rows.append((number, CASES["units"][unit], *values, arm, candidate, *(further[1:] or [None])))
    assert len(rows) > 50
    return rows


def expected(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(number, arm, candidate, segment) for number, *_, arm, candidate, segment in rows]


def queried(case: dict[str, Any], dialect: str) -> str:
    """Return the query over a table `people` with the columns number, unit, and one for each attribute, unsorted."""
    policy = PublishedPolicy.from_text(case["text"])
    columns = {name: f"a{place}" for place, name in enumerate(COLUMNS)}
    if policy.cluster is not None and COLUMNS[policy.cluster] == "DOUBLE":  # a column of clusters has texts or integers
        number = columns[policy.cluster]
        integer = f"CASE WHEN {number} = floor({number}) THEN {number} END"
        columns[policy.cluster] = f"CAST(CASE WHEN abs({number}) <= 1e15 THEN {integer} END AS BIGINT)"
    own = assignment_query(policy, dialect, "unit", columns).query("people", also="number", named=False)
    segment = "NULL" if policy.segments is None else "segment"
    return f"SELECT number, arm, candidate, {segment} FROM ({own}) AS assigned"  # noqa: S608 -- of the test


@pytest.mark.parametrize("case", CASES["policies"], ids=lambda case: case["about"])
def test_duckdb_on_the_cases(case: dict[str, Any]) -> None:
    rows = cases_of(case)
    with duckdb.connect() as connection:
        kinds = ", ".join(f"a{place} {kind}" for place, kind in enumerate(COLUMNS.values()))
        kinds += ", arm VARCHAR, c INTEGER, s VARCHAR"
        connection.execute(f"CREATE TABLE people (number INTEGER, unit VARCHAR, {kinds})")
        connection.executemany("INSERT INTO people VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        assert sorted(connection.execute(queried(case, "duckdb")).fetchall()) == expected(rows)


@pytest.mark.services
def test_postgres_on_the_cases(postgres_server: Any) -> None:
    url = postgres_server.fresh()
    with psycopg.connect(url) as connection:
        names = {"VARCHAR": "text", "DOUBLE": "double precision", "BOOLEAN": "boolean"}
        kinds = ", ".join(f"a{place} {names[kind]}" for place, kind in enumerate(COLUMNS.values()))
        create: Any = f"CREATE TABLE people (number integer, unit text, {kinds}, arm text, c integer, s text)"
        connection.execute(create)
        for case in CASES["policies"]:
            rows = cases_of(case)
            connection.execute("DELETE FROM people")
            with connection.cursor() as cursor:
                cursor.executemany("INSERT INTO people VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)", rows)
            query: Any = queried(case, "postgres")
            assert sorted(connection.execute(query).fetchall()) == expected(rows), case["about"]
    postgres_server.drop(url)


@pytest.mark.services
def test_spark_on_the_cases(spark: Any) -> None:
    names = {"VARCHAR": "string", "DOUBLE": "double", "BOOLEAN": "boolean"}
    kinds = ", ".join(f"a{place} {names[kind]}" for place, kind in enumerate(COLUMNS.values()))
    for case in CHOSEN:
        rows = [
            tuple(float(v) if type(v) is int and 2 <= p < 7 else v for p, v in enumerate(row)) for row in cases_of(case)
        ]
        frame = spark.createDataFrame(rows, f"number int, unit string, {kinds}, arm string, c int, s string")
        frame.createOrReplaceTempView("people")
        found = sorted(tuple(row) for row in spark.sql(queried(case, "spark")).collect())
        assert found == expected(rows), case["about"]


@pytest.mark.parametrize(
    ("case", "column", "expected"),
    [
        (AUDIENCES["an audience with open ends"], "arm", "not_enrolled"),
        (DIVIDED["segments between cuts"], "segment", "other"),
    ],
    ids=["audience", "segments"],
)
def test_numbers_that_are_not_finite_meet_no_condition(case: dict[str, Any], column: str, expected: str) -> None:
    policy = PublishedPolicy.from_text(case["text"])
    own = assignment_query(policy, "duckdb", "unit", {"tenure_days": "days"}).query("people", named=False)
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE people (unit VARCHAR, days DOUBLE)")
        connection.execute(
            "INSERT INTO people VALUES ('a', 'nan'), ('b', 'inf'), ('c', '-inf'), ('d', NULL), ('e', 1e16)"
        )
        found = connection.execute(f"SELECT DISTINCT {column} FROM ({own}) AS assigned").fetchall()  # noqa: S608
        assert found == [(expected,)]


@pytest.mark.parametrize("mode", ["shuffled", "sticky"])
def test_duckdb_on_random_segments(mode: str) -> None:
    rng = random.Random(19)
    kinds = {"country": "VARCHAR", "level": "DOUBLE", "employee": "BOOLEAN", "tenure_days": "DOUBLE"}
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE people (unit VARCHAR, {', '.join(map(' '.join, kinds.items()))})")
        for _ in range(15):
            published = make_segmented(rng, mode)
            rows, expected_draws = [], {}
            for unit in map(str, range(100)):
                given = make_attributes(rng)
                typed = {name: given.get(name) for name in kinds if type(given.get(name)) in PYTHON[kinds[name]]}
                cell = published.draw(unit, typed)
                rows.append([unit, *(typed.get(name) for name in kinds)])
                expected_draws[unit] = (cell.arm, cell.candidate, cell.segment)
            connection.execute("DELETE FROM people")
            connection.executemany("INSERT INTO people VALUES (?, ?, ?, ?, ?)", rows)
            query = assignment_query(published, "duckdb", "unit", {name: name for name in kinds})
            found = connection.execute(query.query("people", named=False)).fetchall()
            assert {unit: tuple(drawn) for unit, *drawn in found} == expected_draws


def test_an_audience_needs_the_columns_of_its_attributes() -> None:
    policy = PublishedPolicy.from_text(AUDIENCES["an audience"]["text"])
    with pytest.raises(OptionError, match="audience reads the attribute 'tenure_days', and no column of it is given"):
        assignment_query(policy, "duckdb", "unit", {"country": "country"})
    divided = PublishedPolicy.from_text(DIVIDED["two attributes crossed"]["text"])
    with pytest.raises(OptionError, match="segments read the attribute 'tenure_days', and no column of it is given"):
        assignment_query(divided, "duckdb", "unit", {"country": "country"})
    assert assignment_query(policy, "duckdb", "unit", is_exposed=True).takes_part is None


def test_only_known_databases() -> None:
    with pytest.raises(OptionError, match="no SQL of 'oracle' is known; there are duckdb, postgres, spark"):
        assignment_query(LARGE, "oracle")
