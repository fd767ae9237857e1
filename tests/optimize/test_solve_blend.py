"""Function `pasto.solve`: accepted input, refused input, and its answer's text."""

import re
from typing import Any

import numpy as np
import pytest

from pasto import maximize, minimize, ratio, solve, utility
from pasto.errors import MeansError, ObjectiveError, OptionError, PastoWarning
from pasto.objective import Objective
from pasto.optimize import solve_exact, summarize_blend

TWO_ARMS = {"x": [2, 0], "y": [-2, 2]}
KEEP_Y = maximize("x").keep("y", at_least=0)


def test_the_two_arm_story() -> None:
    blend = solve(TWO_ARMS, KEEP_Y, names=["bold", "safe"])
    assert blend.probabilities == (0.5, 0.5)
    assert (blend.value, blend.metrics, blend.prices) == (1.0, {"x": 1.0, "y": 0.0}, {"y": 0.5})
    assert (blend.support, blend.names, blend.feasible) == ((0, 1), ("bold", "safe"), True)
    assert (blend.best_single, blend.best_single_value) == (1, 0.0)
    assert (blend.gain.candidate, blend.gain.value, blend.gain.goal, blend.gain.violations) == (1, 1.0, 1.0, {})
    assert (blend.shortfalls, blend.lifts) == ({}, {})


def test_a_soft_guardrail_settles_below_its_target_by_the_price() -> None:
    blend = solve({"x": [2, 0], "y": [-2, 2]}, maximize("x").keep("y", at_least=0, penalty=10.0))
    # 2p − 10 (2 − 4p)² for p above a half
    assert blend.probabilities[0] == pytest.approx(0.5 + 1 / 160)
    assert blend.metrics["y"] == pytest.approx(-0.025)
    assert blend.value == pytest.approx(1.00625)
    assert blend.prices == pytest.approx({"y": 0.5})
    assert blend.shortfalls == pytest.approx({"y": 0.025})
    assert blend.feasible


def test_an_array_in_the_objectives_order_is_the_same_as_lists_by_name() -> None:
    three = {"x": [2, 0, 1], "y": [-2, 2, 1]}
    assert solve(np.array([[2.0, 0.0, 1.0], [-2.0, 2.0, 1.0]]), KEEP_Y) == solve(three, KEEP_Y)
    assert solve([[2, 0, 1], [-2, 2, 1]], KEEP_Y) == solve({"y": [-2, 2, 1], "x": [2, 0, 1]}, KEEP_Y)


def test_other_metrics_are_printed() -> None:
    blend = solve({**TWO_ARMS, "z": [10, 30]}, KEEP_Y, baseline=0)
    assert blend.metrics == {"x": 1.0, "y": 0.0, "z": 20.0}
    assert blend.lifts == pytest.approx({"x": -50.0, "z": 100.0})  # y's baseline is negative: no percentage


def test_ratios_are_printed_as_ratios_of_blended_parts() -> None:
    rate = ratio("likes", "views", name="rate")
    truth = {"watch": [1, 3], "likes": [1, 6], "views": [10, 100]}
    blend = solve(truth, maximize("watch").keep(rate, at_least=7 / 110), baseline="0")
    assert blend.probabilities == pytest.approx((0.5, 0.5))
    assert blend.metrics["rate"] == pytest.approx(7 / 110)
    assert blend.lifts["rate"] == pytest.approx(100 * (70 / 110 - 1))


def test_relative_thresholds_equal_hand_converted_absolute_ones() -> None:
    rng = np.random.default_rng(1)
    rate = ratio("n", "d", name="rate")
    for _ in range(20):
        means = rng.uniform(1, 2, size=(5, 10))
        base = means[:, 3]
        relative = (
            maximize("x").keep("y", at_least="-2%", penalty=5.0).keep("z", at_most="+1%").keep(rate, at_least="-3%")
        )
        absolute = (
            maximize({"x": 100 / base[0]})
            .keep("y", at_least=0.98 * base[1], penalty=5.0 * (100 / base[1]) ** 2)
            .keep("z", at_most=1.01 * base[2])
            .keep(rate, at_least=0.97 * base[3] / base[4])
        )
        one, two = solve(means, relative, baseline=3), solve(means, absolute)
        assert one.probabilities == pytest.approx(two.probabilities, abs=1e-9)
        assert one.value == pytest.approx(two.value - 100.0)
        assert one.feasible


def test_the_baseline_goes_by_name_or_index() -> None:
    objective = maximize("x").keep("y", at_least="-10%")
    truth = {"x": [1, 2, 3], "y": [3, 2.8, 1]}
    assert solve(truth, objective, names=["a", "b", "c"], baseline="a") == solve(
        truth, objective, names=["a", "b", "c"], baseline=0
    )


@pytest.mark.parametrize("penalty", [None, 4.0])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("kind", ["plain", "ratio", "percent", "ratio percent"])
def test_a_price_is_what_relaxing_by_one_unit_buys(kind: str, lower: bool, penalty: float | None) -> None:
    rng = np.random.default_rng(7)
    n, d = rng.uniform(1, 2, size=(2, 8))
    # The higher the constrained metric (or, for at_most, the lower), the lower the goal, so that the guardrail binds.
    x = (1.0 if lower else -1.0) * -(n / d if "ratio" in kind else n) + rng.uniform(4, 4.1, size=8)
    metric: Any = ratio("n", "d", name="kept") if "ratio" in kind else "n"
    truth = {"x": x, "n": n, "d": d}
    middle = float(np.median(n / d if "ratio" in kind else n))
    side = "at_least" if lower else "at_most"

    def blend(shift: float) -> Any:
        if "percent" in kind:
            given: float | str = f"{1.0 + shift:+.7f}%"
            return solve(truth, maximize("x").keep(metric, **{side: given}, penalty=penalty, within=None), baseline=0)
        given = middle + shift
        return solve(truth, maximize("x").keep(metric, **{side: given}, penalty=penalty, within=None))

    if "percent" in kind:  # the middle candidate stands in as the baseline
        order = np.argsort(n / d if "ratio" in kind else n)
        truth = {name: row[np.roll(order, 4)] for name, row in truth.items()}
    price = next(iter(blend(0.0).prices.values()))
    step = 1e-4
    slope = (blend(-step).value - blend(step).value) / (2 * step) * (1 if lower else -1)
    assert price > 1e-3
    assert price == pytest.approx(slope, rel=2e-3)


def test_where_no_single_candidate_is_feasible_the_gain_names_the_violations() -> None:
    objective = (
        maximize("watch").keep("likes", at_least=3).keep("shares", at_least=3).keep("ads", at_least=9, penalty=1)
    )
    truth = {"watch": [5, 7], "likes": [2, 4], "shares": [4.5, 2], "ads": [1, 1]}
    blend = solve(truth, objective)
    assert (blend.best_single, blend.best_single_value, blend.gain.value) == (None, None, None)
    assert (blend.gain.candidate, blend.gain.violations) == (1, {"shares": 1.0})
    assert blend.gain.goal == pytest.approx(blend.metrics["watch"] - 7)
    assert blend.feasible
    assert "no single candidate meets every guardrail" in str(blend)


def test_where_no_blend_is_feasible_the_nearest_is_given() -> None:
    objective = maximize("x").keep("y", at_least=5).keep("z", at_least=0)
    blend = solve({"x": [9, 1, 2], "y": [0, 4, 4], "z": [1, 1, 1]}, objective)
    assert (blend.probabilities, blend.feasible, blend.value) == ((0.0, 0.0, 1.0), False, 2.0)
    assert blend.shortfalls == {"y": 1.0}
    assert (blend.gain.candidate, blend.gain.violations) == (2, {"y": 1.0})
    assert "nearest one misses y by 1" in str(blend)


def test_two_limits_that_exclude_each_other() -> None:
    blend = solve({"x": [0, 1, 5], "y": [0, 10, 5]}, maximize("x").keep("y", at_least=6).keep("y", at_most=4))
    assert blend.metrics["y"] == pytest.approx(5.0)
    assert blend.shortfalls == pytest.approx({"y (at least)": 1.0, "y (at most)": 1.0})
    assert blend.probabilities == pytest.approx((0.0, 0.0, 1.0))


def test_lower_is_better() -> None:
    blend = solve({"cost": [3, 1], "sales": [9, 5]}, minimize("cost").keep("sales", at_least=6))
    assert (blend.probabilities, blend.value) == ((0.25, 0.75), -1.5)


def test_one_candidate_is_the_answer() -> None:
    blend = solve({"x": [2], "y": [1]}, KEEP_Y)
    assert (blend.probabilities, blend.gain.value, blend.best_single) == ((1.0,), 0.0, 0)


@pytest.mark.parametrize(
    ("means", "objective", "options", "message"),
    [
        ({"x": [1]}, KEEP_Y, {}, "lacks 'y'.*it has 'x'"),
        ({}, KEEP_Y, {}, "lacks 'x', 'y'.*it has nothing"),
        ({"x": [1, 2], "y": [1]}, KEEP_Y, {}, "'x' has 2 means and 'y' has 1"),
        ({"x": [1, 2], "y": [1, float("nan")]}, KEEP_Y, {"names": ["a", "b"]}, "'y' for candidate 'b' is nan"),
        ({"x": [1, float("inf")], "y": [1, 2]}, KEEP_Y, {}, "'x' for candidate '1' is inf"),
        ({"x": [1, 2], "y": [1, None]}, KEEP_Y, {}, "'y' for candidate '1' is nan"),
        ({"x": [1, 2], "y": [1, 2], "z": [1, float("nan")]}, KEEP_Y, {}, "'z' for candidate '1' is nan"),
        ({"x": ["1", "2"], "y": [1, 2]}, KEEP_Y, {}, "means of 'x' must be numbers"),
        ({"x": [[1], [2]], "y": [1, 2]}, KEEP_Y, {}, "'x' must be a list"),
        ({"x": [], "y": []}, KEEP_Y, {}, "no candidates"),
        ({"x": 1.0, "y": 2.0}, KEEP_Y, {}, "'x' must be a list"),
        ([[1, 2]], KEEP_Y, {}, r"2 rows x, y, got shape \(1, 2\)"),
        ([1, 2], KEEP_Y, {}, r"got shape \(2,\)"),
        ([[1, 2], [3]], KEEP_Y, {}, "equal rows"),
        (np.zeros((2, 0)), KEEP_Y, {}, "no candidates"),
        (TWO_ARMS, KEEP_Y, {"names": ["a"]}, "1 names for the 2 candidates of means"),
        (TWO_ARMS, KEEP_Y, {"names": ["a", "a"]}, "'a' twice"),
        ({"n": [1, 1], "d": [1, 0]}, maximize(ratio("n", "d")), {}, "'n/d' divides by 'd'.*it is 0 for candidate '1'"),
        (
            {"a": [1, 3]},
            utility(lambda y: y[..., 0], lambda y: np.ones_like(y), over={"a": (0, 2)}),
            {},
            r"'a' for candidate '1' is 3, outside the range \(0, 2\)",
        ),
    ],
)
def test_means_that_do_not_fit_are_refused(means: Any, objective: Objective, options: Any, message: str) -> None:
    with pytest.raises(MeansError, match=message):
        solve(means, objective, **options)


@pytest.mark.parametrize("baseline", ["c", 2, -1, True])
def test_a_baseline_that_is_no_candidate_is_refused(baseline: Any) -> None:
    with pytest.raises(OptionError, match=re.escape(f"baseline={baseline!r} is not a candidate; name one of a, b")):
        solve(TWO_ARMS, KEEP_Y, names=["a", "b"], baseline=baseline)


def test_a_percentage_needs_a_baseline() -> None:
    with pytest.raises(ObjectiveError, match="pass baseline="):
        solve(TWO_ARMS, maximize("x").keep("y", at_least="-2%"))


def test_a_weak_penalty_is_reported_with_a_larger_one() -> None:
    truth = {"watch": [30.0, 33.0], "like_rate": [0.03, 0.02]}
    with pytest.warns(
        PastoWarning, match=r"penalty=5 on 'like_rate' hardly bites.*0\.0045.*by 3; a penalty of 3\.33e\+03"
    ):
        solve(truth, maximize("watch").keep("like_rate", at_least=0.03, penalty=5.0), baseline=0)
    solve(truth, maximize("watch").keep("like_rate", at_least=0.03, penalty=4e3), baseline=0)
    solve(truth, maximize("watch").keep("like_rate", at_least="-2%", penalty=5.0), baseline=0)
    solve(truth, maximize("watch").keep("like_rate", at_least=0.03, penalty=5.0))


def test_a_penalty_without_effect_on_a_ratio_is_measured_by_its_numerator() -> None:
    truth = {"watch": [30.0, 33.0], "likes": [2.0, 1.0], "views": [100.0, 100.0]}
    rate = ratio("likes", "views", name="rate")
    with pytest.warns(PastoWarning, match=r"penalty=0\.5 on 'rate'"):
        solve(truth, maximize("watch").keep(rate, at_least=0.02, penalty=0.5), baseline=0)
    solve(truth, maximize("watch").keep(rate, at_least=0.02, penalty=0.8), baseline=0)


def test_a_guardrail_that_cannot_fail_is_reported_with_a_percentage() -> None:
    truth = {"watch": [30.0, 33.0], "likes": [0.03, 0.02], "views": [1.0, 1.0]}
    with pytest.warns(PastoWarning, match=r"keep\('likes', at_least=-0\.02\) cannot fail: likes is never neg.*'-2%'"):
        solve(truth, maximize("watch").keep("likes", at_least=-0.02))
    with pytest.warns(PastoWarning, match="likes/views is never negative"):
        solve(truth, maximize("watch").keep(ratio("likes", "views"), at_least=-2))
    solve({**truth, "likes": [0.03, -0.01]}, maximize("watch").keep("likes", at_least=-0.02))
    solve(truth, maximize("watch").keep("likes", at_least=0).keep("views", at_most=-1))


def test_describe_gives_the_metrics_of_any_distribution() -> None:
    means = np.array([[2.0, 0.0], [-2.0, 2.0]])
    blend = summarize_blend(np.array([0.75, 0.25]), means, KEEP_Y, names=("a", "b"))
    assert (blend.feasible, blend.shortfalls, blend.value) == (False, {"y": 1.0}, 1.5)
    assert blend.prices == {}  # a hard guardrail's price is unknown without its dual
    solution = solve_exact(KEEP_Y.form(), means)
    given = summarize_blend(
        solution.probabilities,
        means,
        KEEP_Y,
        names=("0", "1"),
        duals=solution.duals,
        others={"z": np.array([1.0, 3.0])},
    )
    assert given.prices == {"y": 0.5}
    assert given.metrics == {"x": 1.0, "y": 0.0, "z": 2.0}
