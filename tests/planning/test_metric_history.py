"""Facts about metrics from three kinds of tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pasto.errors import MeansError
from pasto.planning.metric_history import read_metric_history

HALVES: dict[str, tuple[str, str] | None] = {"watch": None, "rate": ("likes", "views")}


def test_a_row_for_each_metric() -> None:
    table: dict[str, list[Any]] = {
        "metric": ["watch", "rate", "other"],
        "mean": ["310", 0.04, 1],
        "std": [420, None, 1],
        "spread": ["3%", "", 0],
    }
    facts = read_metric_history(table, HALVES)
    assert list(facts) == ["watch", "rate"]
    assert (facts["watch"].mean, facts["watch"].deviation, facts["watch"].spread) == (310.0, 420.0, 0.03)
    assert facts["rate"].deviation is None
    assert facts["rate"].sources == {"mean": "history"}


def test_a_row_for_each_unit() -> None:
    rng = np.random.default_rng(3)
    views = rng.poisson(20.0, 5_000)
    likes = rng.binomial(views, 0.05)
    table: dict[str, list[Any]] = {"watch": views.tolist(), "likes": likes.tolist(), "views": views.tolist()}
    facts = read_metric_history(table, HALVES)
    assert facts["watch"].deviation == pytest.approx(views.std(ddof=1))
    level = likes.mean() / views.mean()
    assert facts["rate"].mean == pytest.approx(level)
    assert facts["rate"].deviation == pytest.approx((likes - level * views).std(ddof=1) / views.mean())
    assert facts["rate"].spread is None


def test_a_row_for_each_candidate() -> None:
    rng = np.random.default_rng(4)
    candidates, units = 400, np.full(400, 5_000)
    truth = 100.0 * (1.0 + 0.02 * rng.standard_normal(candidates))
    errors = np.full(candidates, 150.0 / np.sqrt(5_000))
    table: dict[str, Any] = {
        "candidate": [f"c{k}" for k in range(candidates)],
        "units": units.tolist(),
        "watch": (truth + errors * rng.standard_normal(candidates)).tolist(),
        "watch_se": errors.tolist(),
    }
    watch = read_metric_history(table, HALVES)["watch"]
    assert watch.deviation == pytest.approx(150.0)
    assert watch.spread == pytest.approx(0.02, rel=0.15)
    del table["watch_se"]
    table["watch_std"] = [150.0] * candidates
    again = read_metric_history(table, HALVES)["watch"]
    assert (again.deviation, again.spread) == pytest.approx((150.0, watch.spread))


def test_a_ratio_of_each_candidate_comes_from_its_halves() -> None:
    table: dict[str, Any] = {"units": [1_000] * 5, "likes": [1.0] * 5, "views": [20.0] * 5}
    table |= {"likes_se": [0.04] * 5, "views_se": [0.5] * 5, "likes_views_cov": [0.01] * 5}
    rate = read_metric_history(table, HALVES)["rate"]
    assert rate.mean == 0.05
    assert rate.deviation == pytest.approx(np.sqrt(1_000 * (0.04**2 - 2 * 0.05 * 0.01 + 0.05**2 * 0.5**2)) / 20.0)
    own: dict[str, list[Any]] = {"units": [1_000] * 3, "rate": [0.05] * 3, "rate_se": [0.001] * 3}
    few = read_metric_history(own, HALVES)["rate"]
    assert few.deviation == pytest.approx(0.001 * np.sqrt(1_000))
    assert few.spread is None


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"x": [1.0]}, "the history has none of the metrics watch, rate; its columns are x"),
        ({"metric": ["watch"]}, "needs the columns 'mean' and 'std'"),
        ({"metric": ["watch", "watch"], "mean": [1, 1]}, "has 'watch' twice"),
        ({"metric": ["x"], "mean": [1]}, "none of the metrics watch, rate; it has x"),
        ({"metric": ["watch"], "mean": ["much"]}, "column 'mean' of the history must be a number, got 'much' in row 1"),
        ({"candidate": ["a"], "watch": [1.0]}, "add the column 'watch_se'"),
        ({"watch": [1.0] * 9}, "has 9 rows without errors"),
        ({"rate": [0.5] * 40}, "give its halves in the columns 'likes' and 'views'"),
        ({"watch": [1.0, ""], "watch_se": [1, 1]}, "got '' in row 2"),
        ({"watch": [1.0], "watch_se": [-1]}, "must not be negative"),
        ({"watch": [1.0], "watch_se": [1], "units": [0]}, "'units' of the history must be positive"),
        ({"likes": [1.0], "views": [0.0], "likes_se": [1.0]}, "'views' of the history must be positive"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(table: dict[str, Any], message: str) -> None:
    with pytest.raises(MeansError, match=message):
        read_metric_history(table, HALVES)
