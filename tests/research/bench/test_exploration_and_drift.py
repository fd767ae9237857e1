"""Safe exploration and drift, at a size that fits the suite; `pasto bench` runs them in full."""

from __future__ import annotations

import pytest

from pasto_research.bench import BENCHMARKS, run, write
from pasto_research.bench.drift import swings, turn
from pasto_research.bench.round_cost import measure
from pasto_research.bench.safe_exploration import travel


def test_a_budget_is_seldom_broken_and_learning_continues() -> None:
    guarded = travel(guarded=True, studies=3, rounds=60, sigma=0.5, seed=5)
    free = travel(guarded=False, studies=3, rounds=60, sigma=0.5, seed=5)
    assert guarded.broken <= 0.08
    assert free.broken > 0.2
    assert guarded.relative[-1] > 0.5
    assert guarded.baseline < 0.6


def test_contrasts_learn_through_day_and_night() -> None:
    with_contrast = swings("percent", studies=2, rounds=48)
    without = swings(None, studies=2, rounds=48)
    assert with_contrast > 0
    assert without < with_contrast - 2


def test_forgetting_follows_a_best_blend_that_moves() -> None:
    assert turn(8.0, studies=2, rounds=60) > turn(None, studies=2, rounds=60) + 0.2


def test_reports_are_written(tmp_path: object) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path))
    report = run("drift", quick=True)
    assert [path.name for path in write("drift", report, folder)] == ["drift.json"]
    assert {row["world"] for row in report.rows} == {"day and night", "the best blend moves"}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_describes_its_measurement(name: str) -> None:
    assert BENCHMARKS[name].name == name
    assert BENCHMARKS[name].summary


def test_a_round_is_timed_by_candidates() -> None:
    report = measure({"7 candidates": (7, True, 4), "100 candidates on a line, process": (100, False, 4)})
    assert all(row["round ms"] > 0 and row["blend ms"] > 0 for row in report.rows)
