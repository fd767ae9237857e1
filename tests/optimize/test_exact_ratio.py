"""Ratio goals: the best corner of the feasible set, found by enumeration."""

from itertools import combinations

import numpy as np
import pytest

from pasto import maximize, minimize, ratio, solve
from pasto.arrays import FloatArray
from pasto.blend import Blend


@pytest.mark.parametrize("seed", range(40))
def test_a_ratio_goal_equals_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    top, bottom, guarded = rng.uniform(0.1, 1, 7), rng.uniform(0.5, 2, 7), rng.normal(size=7) - 0.5
    if guarded.max() < 0:
        guarded[0] = 0.1
    rate = ratio("n", "d", name="rate")
    for objective, sign in ((maximize(rate), 1.0), (minimize(rate), -1.0)):
        blend = solve(np.array([top, bottom, guarded]), objective.keep("y", at_least=0))
        best = max(sign * (top @ p) / (bottom @ p) for p in _corners(guarded))
        assert blend.value == pytest.approx(best, rel=1e-9)
        assert blend.metrics["rate"] == pytest.approx(sign * best, rel=1e-9)
        assert blend.metrics["y"] >= -1e-12


def test_the_ratio_of_a_blend_is_the_ratio_of_its_blended_halves() -> None:
    rate = ratio("likes", "views", name="rate")
    blend = solve({"likes": [1, 6], "views": [10, 100]}, maximize(rate).keep("views", at_least=55))
    assert blend.probabilities == pytest.approx((0.5, 0.5))
    assert blend.metrics["rate"] == pytest.approx(7 / 110)


def test_a_ratio_goals_price_is_its_slope() -> None:
    truth = {"likes": [1.0, 6.0, 3.0], "views": [10.0, 100.0, 40.0], "watch": [1.0, 3.0, 2.5]}
    rate = ratio("likes", "views", name="rate")

    def at(limit: float) -> float:
        return solve(truth, maximize(rate).keep("watch", at_least=limit)).value

    price = solve(truth, maximize(rate).keep("watch", at_least=2)).prices["watch"]
    assert price == pytest.approx((at(2 - 1e-5) - at(2 + 1e-5)) / 2e-5, rel=1e-5)


def test_a_ratio_goal_in_percent_of_the_baseline() -> None:
    truth = {"likes": [2.0, 6.0, 2.5], "views": [10.0, 20.0, 10.0], "watch": [4.0, 1.0, 3.8]}
    rate = ratio("likes", "views", name="rate")

    def at(percent: float) -> Blend:
        return solve(truth, maximize(rate).keep("watch", at_least=f"{percent:+.6f}%"), baseline=0)

    blend = at(-10)
    assert blend.metrics["watch"] == pytest.approx(3.6)
    assert blend.value == pytest.approx(blend.lifts["rate"])
    assert blend.prices["watch"] == pytest.approx((at(-10.001).value - at(-9.999).value) / 0.002, rel=1e-4)


def test_no_blend_feasible_still_gives_the_best_ratio_of_the_nearest() -> None:
    truth = {"likes": [1.0, 2.0, 3.0], "views": [10.0, 10.0, 10.0], "watch": [1.0, 2.0, 2.0]}
    blend = solve(truth, maximize(ratio("likes", "views")).keep("watch", at_least=3))
    assert (blend.probabilities, blend.feasible, blend.shortfalls) == ((0.0, 0.0, 1.0), False, {"watch": 1.0})


def _corners(guarded: FloatArray) -> list[FloatArray]:
    corners = [np.eye(len(guarded))[k] for k in np.flatnonzero(guarded >= 0)]
    for one, two in combinations(range(len(guarded)), 2):
        if guarded[one] * guarded[two] < 0:
            p = np.zeros(len(guarded))
            p[one] = guarded[two] / (guarded[two] - guarded[one])
            p[two] = 1 - p[one]
            corners.append(p)
    return corners
