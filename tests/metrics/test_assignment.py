"""Assignment in SQL: every unit gets the same candidate as in Python."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from pasto.errors import OptionError
from pasto.metrics.sql.assignment import assignment_query
from pasto_sdk.policy import PublishedPolicy, publish_policy

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


def test_only_known_databases() -> None:
    with pytest.raises(OptionError, match="no SQL of 'oracle' is known; there are duckdb, postgres, spark"):
        assignment_query(LARGE, "oracle")
