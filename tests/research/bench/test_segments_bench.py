from __future__ import annotations

import numpy as np
import pytest

from pasto.objective import maximize
from pasto_research.bench import BENCHMARKS, segments
from pasto_research.bench.segment_certificates import CertificateCase, calibrate
from pasto_research.bench.segment_race import measure_race
from pasto_research.bench.segment_worlds import SegmentWorld, pool_segments


def test_headroom_rises_with_heterogeneity_and_is_zero_without() -> None:
    calls: list[tuple[str, int, int]] = []
    report = segments.measure(
        worlds=12, sizes=[(2, 3, 5)], repeats=1, progress=lambda label, done, total: calls.append((label, done, total))
    )
    headroom = [row["headroom_percent"] for row in report.rows]
    assert headroom[0] == pytest.approx(0.0, abs=1e-9)
    assert headroom == sorted(headroom)
    assert 5.0 < headroom[1] < 20.0
    for row in report.rows:
        assert row["least_percent"] >= -1e-9
        assert row["each_by_itself_percent"] <= row["headroom_percent"] + 1e-9
        assert row["mixed_segments"] <= 2.0
    assert calls[-1] == ("segments", 48, 48)
    [timing] = report.more
    assert [(row["guardrails"], row["problems"]) for row in timing.rows] == [("all", 2), ("all and each", 2)]
    assert all(row[name] > 0 for row in timing.rows for name in ("batch_ms", "one_by_one_ms", "highs_ms"))


def test_worlds_of_one_seed_differ_only_in_the_segments_own_effects() -> None:
    objective = maximize("x").keep("y", at_least=0)
    (shares, alike), (others, mixed) = (
        segments.make_world(np.random.default_rng(4), heterogeneity, objective) for heterogeneity in (0.0, 1.0)
    )
    assert shares == others
    own = np.array([mixed[name]["x"] - alike[name]["x"] for name in shares])
    assert 0.8 < own.std() < 1.2


def test_certificates_hold_and_fail_without_shrinkage() -> None:
    case = CertificateCase("alike", 0.0, segments=5, candidates=16, units=4_000, rounds=2, mutants=("no shrinkage",))
    calls: list[tuple[str, int, int]] = []
    report = calibrate(
        [case],
        studies=40,
        mutant_studies=40,
        seed=770,
        progress=lambda label, done, total: calls.append((label, done, total)),
    )
    learner, mutant = report.rows
    assert learner["hold_percent"] >= 90.0
    assert mutant["hold_percent"] < 85.0
    assert calls[-1] == ("alike, no shrinkage", 40, 40)


def test_a_blend_for_each_segment_wins_the_race_where_segments_differ() -> None:
    report = measure_race([1.0], worlds=2, separate_worlds=1, rounds=4)
    rounds = {row["learner"]: row["rounds to 75%"] for row in report.rows}
    assert rounds["a blend for each segment"] is not None
    after = {row["learner"]: row["after 1"] for row in report.rows}
    assert after["a blend for each segment"] > after["one blend for everybody"] + 0.1
    assert after["oracle, one blend for everybody"] < 0.9
    [losses] = report.more
    assert losses.rows[0]["lost_percent"] < -10.0


def test_observations_of_all_traffic_keep_units_and_totals() -> None:
    world = SegmentWorld.draw(np.random.default_rng(3), 0.5, segments=3, candidates=4, units=500)
    rows = world.draw_round(0, np.full((3, 4), 0.25), np.random.default_rng(4))
    pooled = pool_segments(rows)
    assert sum(row.units for row in pooled) == sum(row.units for row in rows) == 500
    total = sum(row.units * np.array(row.mean) for row in rows)
    assert sum(row.units * np.array(row.mean) for row in pooled) == pytest.approx(total)
    assert all(np.array(row.covariance)[0, 0] == pytest.approx(100.0 / row.units) for row in pooled)


def test_the_registry_has_the_benchmark() -> None:
    assert BENCHMARKS["segments"] is segments.BENCHMARK
