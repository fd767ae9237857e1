"""Clusters that are assigned as a whole: intervals by cluster cover the truth, and those by member do not.

Each study goes from the draw of a policy over events in a database to the interval of a lift.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import duckdb
import numpy as np
import pytest

from pasto.inference import Quantity
from pasto.inference.lift import LiftTarget, estimate_lifts
from pasto.inference.round_data import MeasuredRound, measure_design_effect, record_rounds
from pasto.metrics import MEMBERS, Column, Moments, measure
from pasto.metrics.moments import moments_match
from pasto_sdk.policy import PublishedPolicy, publish_policy

SHARES = {("control", 0): 0.5, ("blend", 1): 0.5}
LIFT = 0.05
CLUSTERS = 240
"""Clusters of a study, in both arms together."""
CORRELATION = 0.5
"""Correlation of two members of a cluster."""
POINTS = Column("points", "answer", "points", "sum")
BY_CLUSTER, BY_MEMBER = (POINTS, MEMBERS), (POINTS,)
COLUMNS = (
    "sequence INTEGER PRIMARY KEY, study, kind, unit, version, arm, candidate, name, fields, excluded, received_at"
)
LAKE_COLUMNS = (
    "sequence BIGINT, study BIGINT, kind BIGINT, unit VARCHAR, version BIGINT, arm VARCHAR, candidate BIGINT, "
    "name VARCHAR, fields VARCHAR, excluded BIGINT, received_at DOUBLE"
)


def draw_policy(version: int) -> PublishedPolicy:
    return publish_policy(
        study="feed",
        version=version,
        round=version,
        state="learning",
        mode="shuffled",
        salt=f"feed/{version}",
        candidates={0: ("a", {}), 1: ("b", {})},
        baseline=0,
        shares=[(arm, candidate, share) for (arm, candidate), share in SHARES.items()],
        valid_from=0,
        expires_after=60,
        cluster="school",
    )


def make_events(rng: np.random.Generator, version: int, after: int) -> list[tuple[Any, ...]]:
    """Return the events of one study: members of a cluster are alike, and large clusters have a higher level."""
    policy = draw_policy(version)
    rows: list[tuple[Any, ...]] = []
    for number, size in enumerate(1 + rng.negative_binomial(1, 0.15, CLUSTERS)):  # 1 to about 40
        school = f"school {number}"
        effect = np.sqrt(CORRELATION) * rng.standard_normal() + 0.03 * (size - 6.0)
        noise = np.sqrt(1.0 - CORRELATION) * rng.standard_normal(size)
        for member in range(size):
            unit = f"{school}/{member}"
            cell = policy.draw(unit, {"school": school})
            points = float((1.0 + LIFT * cell.candidate) * (10.0 + effect + noise[member]))
            after += 2
            place = (unit, version, cell.arm, cell.candidate)
            rows.append((after - 1, 1, 0, *place, None, f'{{"cluster":"{school}"}}', 0, 0.0))
            rows.append((after, 1, 1, *place, "answer", f'{{"points":{points!r}}}', 0, 0.0))
    return rows


def fill(connection: Any, rows: list[tuple[Any, ...]]) -> None:
    connection.execute("DELETE FROM events")
    connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def measured(connection: Any, dialect: str, version: int, columns: tuple[Column, ...]) -> tuple[Moments, ...]:
    return measure(connection, dialect, study=1, version=version, after=0, until=10**9, columns=columns)


def covers(cells: tuple[Moments, ...], quantity: Quantity) -> bool:
    record = record_rounds([MeasuredRound(1, SHARES, cells)])
    (lift,) = estimate_lifts(record, {"points": quantity}, [LiftTarget("blend", "blend")], sequential=False)
    return lift.relative.low <= LIFT <= lift.relative.high


def measure_coverage(seed: int, studies: int) -> tuple[float, float, float]:
    """Return the coverage of intervals by cluster and by member, and the mean design effect."""
    rng = np.random.default_rng(seed)
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute(f"CREATE TABLE events ({COLUMNS})")
    by_cluster = by_member = 0
    effects = []
    for version in range(1, studies + 1):
        connection.execute("BEGIN")
        fill(connection, make_events(rng, version, 0))
        cells = measured(connection, "sqlite", version, BY_CLUSTER)
        by_cluster += covers(cells, Quantity(0, 1))
        by_member += covers(measured(connection, "sqlite", version, BY_MEMBER), Quantity(0))
        effects.append(measure_design_effect([MeasuredRound(version, SHARES, cells)], 0, 1, 1))
        connection.execute("COMMIT")
    connection.close()
    return by_cluster / studies, by_member / studies, float(np.mean(np.array(effects, dtype=float)))


@pytest.mark.parametrize(
    ("seed", "studies"), [(71, 300), *(pytest.param(seed, 1_000, marks=pytest.mark.services) for seed in (72, 73))]
)
def test_intervals_by_cluster_cover_and_those_by_member_do_not(seed: int, studies: int) -> None:
    by_cluster, by_member, effect = measure_coverage(seed, studies)
    assert 0.935 <= by_cluster <= 0.975
    assert by_member < 0.8
    assert 5.0 < effect < 12.0


def test_lakes_and_archives_measure_the_same() -> None:
    rng = np.random.default_rng(74)
    embedded = sqlite3.connect(":memory:", isolation_level=None)
    embedded.execute(f"CREATE TABLE events ({COLUMNS})")
    with duckdb.connect() as lake:
        lake.execute(f"CREATE TABLE events ({LAKE_COLUMNS})")
        for version in range(1, 4):
            rows = make_events(rng, version, 0)
            fill(embedded, rows)
            lists = {f"c{place}": list(column) for place, column in enumerate(zip(*rows, strict=True))}
            lake.execute("DELETE FROM events")
            lake.execute(f"INSERT INTO events SELECT {', '.join(f'unnest(${name})' for name in lists)}", lists)
            cells = measured(embedded, "sqlite", version, BY_CLUSTER)
            assert measured(lake, "archive", version, BY_CLUSTER) == cells
            others = measured(lake, "duckdb", version, BY_CLUSTER)
            assert moments_match(cells, others)
            own, theirs = (np.array([cell.member_cross for cell in found], dtype=float) for found in (cells, others))
            assert np.allclose(own, theirs, rtol=1e-9, atol=1e-9)
    embedded.close()
