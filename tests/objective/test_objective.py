"""Objective: refused input, parsed input, and value and gradient equal to the formula."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import pasto
from pasto.errors import ObjectiveError, StateError, UnsupportedError
from pasto.objective import Objective, objective_document, read_objective_document

numbers = st.floats(-10, 10)
penalties = st.floats(0.01, 100)


@given(x=numbers, y=numbers, z=numbers, at=numbers, cap=numbers, penalty=penalties)
def test_value_is_the_goal_less_the_squared_breaches(
    x: float, y: float, z: float, at: float, cap: float, penalty: float
) -> None:
    objective = pasto.maximize("x").keep("y", at_least=at, penalty=penalty).keep("z", at_most=cap, penalty=penalty)
    expected = x - penalty * min(0.0, y - at) ** 2 - penalty * max(0.0, z - cap) ** 2
    assert_allclose(objective.value([x, y, z]), expected, rtol=1e-12, atol=1e-12)


@given(st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=8), penalties)
def test_value_and_gradient_are_vectorised(points: list[tuple[float, float, float]], penalty: float) -> None:
    objective = pasto.minimize({"x": 2.0, "z": -0.5}).keep("y", at_least=0.5, penalty=penalty)
    cloud = np.array(points)
    assert_allclose(objective.value(cloud), [objective.value(point) for point in cloud])
    assert_allclose(objective.gradient(cloud), [objective.gradient(point) for point in cloud])


@given(st.tuples(numbers, numbers, numbers), penalties)
def test_gradient_is_the_slope_of_the_value(point: tuple[float, float, float], penalty: float) -> None:
    objective = (
        pasto.maximize({"x": 1.5, "y": -2.0}).keep("y", at_least=0.3, penalty=penalty).keep("z", at_most=1.0, penalty=1)
    )
    step = 1e-6
    slopes = [
        (objective.value(np.add(point, shift)) - objective.value(np.subtract(point, shift))) / (2 * step)
        for shift in step * np.eye(3)
    ]
    assert_allclose(objective.gradient(point), slopes, rtol=1e-4, atol=1e-3)


@given(st.tuples(numbers, numbers), st.tuples(numbers, numbers), st.floats(0, 1), penalties)
def test_a_soft_objective_is_concave(
    one: tuple[float, float], two: tuple[float, float], share: float, penalty: float
) -> None:
    objective = pasto.maximize("x").keep("y", at_least=0.0, penalty=penalty)
    middle = share * np.array(one) + (1 - share) * np.array(two)
    ends = share * objective.value(one) + (1 - share) * objective.value(two)
    assert objective.value(middle) >= ends - 1e-9 * (1 + abs(float(ends)))


def test_a_missed_hard_guardrail_is_minus_infinity_and_rounding_does_not_miss_it() -> None:
    objective = pasto.maximize("x").keep("y", at_least=0.1 + 0.2)
    assert objective.value([1.0, 0.29]) == -math.inf
    assert objective.value([1.0, 0.3]) == 1.0


def test_a_hard_guardrail_has_no_gradient_and_the_fix_is_named() -> None:
    with pytest.raises(UnsupportedError, match="penalty="):
        pasto.maximize("x").keep("y", at_least=0).gradient([1.0, 1.0])


def test_metrics_stand_in_the_order_they_were_named() -> None:
    rate = pasto.ratio("likes", "views", name="like_rate")
    objective = pasto.maximize({"watch": 1, "views": 0.1}).keep(rate, at_least=0.03).keep("load", at_most=3)
    assert objective.metrics == ("watch", "views", "likes", "load")
    assert objective.names == ("like_rate", "load")
    assert objective.ratios == (rate,)


def test_a_metric_may_have_guardrails_on_both_sides() -> None:
    objective = pasto.maximize("x").keep("y", at_least=0).keep("y", at_most=1)
    assert objective.names == ("y (at least)", "y (at most)")
    assert list(objective.value([[1, 0.5], [1, 2], [1, -1]])) == [1, -math.inf, -math.inf]


@given(st.floats(0.5, 10), st.floats(0.5, 10), numbers, numbers, st.floats(-20, 20), penalties)
def test_percentages_are_lifts_over_the_baseline(
    x0: float, y0: float, x: float, y: float, percent: float, penalty: float
) -> None:
    objective = pasto.maximize("x").keep("y", at_least=f"{percent:+.3f}%", penalty=penalty)
    lift = 100 * (y / y0 - 1)
    expected = 100 * (x / x0 - 1) - penalty * min(0.0, lift - round(percent, 3)) ** 2
    assert_allclose(objective.value([x, y], baseline=[x0, y0]), expected, rtol=1e-6, atol=1e-6)


@given(st.floats(0.5, 5), st.floats(0.5, 5), st.floats(0.5, 5), st.floats(0.5, 5))
def test_a_relative_ratio_is_met_exactly_when_the_ratio_is(n: float, d: float, n0: float, d0: float) -> None:
    rate = pasto.ratio("n", "d", name="rate")
    objective = pasto.maximize("n").keep(rate, at_least="-2%")
    lift = 100 * ((n / d) / (n0 / d0) - 1)
    if abs(lift + 2) > 1e-6:
        assert np.isfinite(objective.value([n, d], baseline=[n0, d0])) == (lift > -2)


def test_a_ratio_goal_is_the_ratio_and_its_lift() -> None:
    rate = pasto.ratio("n", "d")
    assert pasto.maximize(rate).value([1.0, 4.0]) == 0.25
    assert pasto.minimize(rate).value([1.0, 4.0]) == -0.25
    lifted = pasto.maximize(rate).keep("d", at_least="-50%").value([3.0, 4.0], baseline=[2.0, 4.0])
    assert_allclose(lifted, 50.0)


@pytest.mark.parametrize(
    ("arguments", "cure"),
    [
        ({}, "either at_least= or at_most="),
        ({"at_least": 0, "at_most": 1}, "one of them only"),
        ({"at_least": "2%"}, r"'\+2%' or '-2%'"),
        ({"at_least": "two"}, "signed percentage"),
        ({"at_least": math.nan}, "finite"),
        ({"at_least": True}, "finite number"),
        ({"at_least": 0, "penalty": 0}, "positive number"),
        ({"at_least": 0, "penalty": -1}, "positive number"),
        ({"at_least": 0, "penalty": math.inf}, "positive number"),
        ({"at_least": 0, "penalty": "5"}, "positive number"),
    ],
)
def test_keep_refuses_and_names_the_fix(arguments: dict[str, Any], cure: str) -> None:
    with pytest.raises(ObjectiveError, match=cure):
        pasto.maximize("x").keep("y", **arguments)


@pytest.mark.parametrize("goal", ["", {}, 3, {"x": 0}, {"x": math.nan}, {"": 1}, {"x": "1"}, {"x": True}])
def test_a_goal_that_is_none_is_refused(goal: Any) -> None:
    with pytest.raises(ObjectiveError):
        pasto.maximize(goal)


def test_the_same_guardrail_twice_is_refused() -> None:
    with pytest.raises(ObjectiveError, match="kept twice"):
        pasto.maximize("x").keep("y", at_least=0).keep("y", at_least=1, penalty=2)


def test_a_ratio_goal_refuses_soft_guardrails() -> None:
    with pytest.raises(ObjectiveError, match="hard guardrails only"):
        pasto.maximize(pasto.ratio("n", "d")).keep("y", at_least=0, penalty=1)


@pytest.mark.parametrize(("top", "bottom"), [("", "d"), ("n", "n"), (3, "d")])
def test_a_ratio_of_nothing_is_refused(top: Any, bottom: Any) -> None:
    with pytest.raises(ObjectiveError):
        pasto.ratio(top, bottom)


def test_a_percentage_needs_a_positive_baseline() -> None:
    objective = pasto.maximize("x").keep("y", at_least="-2%")
    with pytest.raises(ObjectiveError, match="baseline="):
        objective.value([1.0, 1.0])
    with pytest.raises(ObjectiveError, match="positive"):
        objective.value([1.0, 1.0], baseline=[1.0, 0.0])


def test_a_vector_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ObjectiveError, match="2 metrics"):
        pasto.maximize("x").keep("y", at_least=0).value([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    "objective",
    [
        pasto.maximize("x"),
        pasto.minimize({"x": 1, "y": 0.25}).keep("z", at_most="+5%", penalty=2.0).keep("z", at_least=0.125),
        pasto.maximize(pasto.ratio("n", "d")).keep(pasto.ratio("a", "b", name="ab"), at_least="-2%"),
    ],
)
def test_an_objective_survives_being_saved(objective: Objective) -> None:
    assert read_objective_document(json.loads(json.dumps(objective_document(objective)))) == objective


@pytest.mark.parametrize("saved", [{}, {"weights": {"x": 1}}, {"weights": {"x": 1}, "sign": 1, "guardrails": [{}]}])
def test_a_broken_saved_objective_is_refused(saved: dict[str, Any]) -> None:
    with pytest.raises(StateError):
        read_objective_document(saved)


def test_weighted_goals_are_printed_as_a_sum() -> None:
    assert str(pasto.maximize({"x": 2, "y": -1.5, "z": 1})) == "maximize 2 x - 1.5 y + 1 z"
    assert str(pasto.maximize({"x": -2, "y": 1})) == "maximize - 2 x + 1 y"
