"""Holdout query: the comparison of a holdout with all other units, on every engine."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pandas
import psycopg
import pytest

from pasto.metrics.sql.assignment import HoldoutColumns, holdout_query
from pasto_sdk.enrolment import EnrolmentSlice
from pasto_sdk.policy import publish_policy
from pasto_sdk.policy_document import BUCKET_TOTAL

SALT, UNTIL = "holdout:global", BUCKET_TOTAL // 5
COLUMNS = HoldoutColumns("users", "user_id", ["watch", "visits"])
UNITS = [f"{number}" for number in range(4_000)]
POLICY = publish_policy(
    study="feed",
    version=1,
    round=1,
    state="learning",
    mode="shuffled",
    salt="feed/1",
    candidates={0: ("a", {})},
    baseline=0,
    shares=[("control", 0, 1.0)],
    valid_from=0,
    expires_after=60,
    enrolment=[EnrolmentSlice("holdout", SALT, UNTIL, BUCKET_TOTAL)],
)
HELD_OUT = np.array([POLICY.draw(unit) is POLICY.not_enrolled for unit in UNITS])


def users(seed: int, lift: float = 0.0) -> pandas.DataFrame:
    """Return a table of units: skewed sums of time, and counts with some that are not known."""
    rng = np.random.default_rng(seed)
    visits = rng.poisson(3.0, len(UNITS)).astype(float)
    visits[::7] = np.nan
    watch = rng.lognormal(0.0, 1.0, len(UNITS)) + lift * ~HELD_OUT
    return pandas.DataFrame({"user_id": [int(unit) for unit in UNITS], "watch": watch, "visits": visits})


def expected(frame: pandas.DataFrame) -> list[list[Any]]:
    """Return what the query computes, by numpy."""
    rows: list[list[Any]] = []
    for name in COLUMNS.metrics:
        values = frame[name].to_numpy()
        held, rest = values[HELD_OUT], values[~HELD_OUT]
        held, rest = held[~np.isnan(held)], rest[~np.isnan(rest)]
        difference = rest.mean() - held.mean()
        error = 1.959964 * np.sqrt(held.var(ddof=1) / len(held) + rest.var(ddof=1) / len(rest))
        means = [held.mean(), rest.mean(), difference, 100 * difference / held.mean()]
        rows.append([name, len(held), len(rest), *means, difference - error, difference + error])
    return rows


def check(answer: list[Any], frame: pandas.DataFrame) -> None:
    for row, wanted in zip(answer, expected(frame), strict=True):
        assert list(row)[:3] == wanted[:3]
        assert [float(value) for value in row[3:]] == pytest.approx(wanted[3:], rel=1e-9)


def run_on_duckdb(frame: pandas.DataFrame) -> list[Any]:
    with duckdb.connect() as connection:
        connection.register("users", frame.astype(object).where(frame.notna(), None).infer_objects())
        rows: list[Any] = connection.execute(holdout_query(COLUMNS, SALT, UNTIL, "duckdb")).fetchall()
    return rows


@pytest.mark.parametrize("seed", range(3))
def test_duckdb(seed: int) -> None:
    frame = users(seed, lift=0.2)
    check(run_on_duckdb(frame), frame)


def test_the_interval_covers_the_effect_of_all_launches() -> None:
    covered = [row[7] <= 0.2 <= row[8] for row in (run_on_duckdb(users(seed, 0.2))[0] for seed in range(100, 500))]
    assert 0.92 <= sum(covered) / len(covered) <= 0.98


@pytest.mark.services
def test_postgres(postgres_server: Any) -> None:
    frame, url = users(5, lift=0.2), postgres_server.fresh()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE users (user_id bigint, watch double precision, visits double precision)")
        with connection.cursor().copy("COPY users FROM STDIN") as copy:
            for row in frame.itertuples(index=False):
                copy.write_row([None if value != value else value for value in row])
        query: Any = holdout_query(COLUMNS, SALT, UNTIL, "postgres")
        check(connection.execute(query).fetchall(), frame)
    postgres_server.drop(url)


@pytest.mark.services
def test_spark(spark: Any) -> None:
    frame = users(6, lift=0.2)
    rows = [tuple(None if value != value else value for value in row) for row in frame.itertuples(index=False)]
    spark.createDataFrame(rows, "user_id bigint, watch double, visits double").createOrReplaceTempView("users")
    check([tuple(row) for row in spark.sql(holdout_query(COLUMNS, SALT, UNTIL, "spark")).collect()], frame)
