"""Utility: its claimed properties are checked before it is used."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import pasto
from pasto.arrays import FloatArray
from pasto.errors import ObjectiveError, StateError
from pasto.objective import objective_document, read_objective_document

BOX = {"x": (0.1, 4.0), "y": (0.1, 4.0)}


def log_sum(y: FloatArray) -> FloatArray:
    return np.asarray(np.log(y).sum(axis=-1))


def log_slope(y: FloatArray) -> FloatArray:
    return 1.0 / y


def test_a_concave_utility_with_its_gradient_is_accepted() -> None:
    objective = pasto.utility(log_sum, log_slope, over=BOX)
    assert objective.metrics == ("x", "y")
    assert_allclose(objective.value([[1.0, 1.0], [2.0, 2.0]]), [0.0, 2 * np.log(2)])
    assert_allclose(objective.gradient([2.0, 4.0]), [0.5, 0.25])


def test_guardrails_work_with_a_utility() -> None:
    objective = pasto.utility(log_sum, log_slope, over=BOX).keep("z", at_least=1.0, penalty=2.0)
    assert objective.metrics == ("x", "y", "z")
    assert_allclose(objective.value([1.0, 1.0, 0.0]), -2.0)
    assert_allclose(objective.gradient([1.0, 1.0, 0.0]), [1.0, 1.0, 4.0])


def test_a_guardrail_outside_of_the_range_of_a_utility_is_refused() -> None:
    fair = pasto.utility(log_sum, log_slope, over=BOX)
    for options, meant in (({"at_least": -0.02}, "-2%"), ({"at_least": 0.1}, "-2%"), ({"at_most": 5}, r"\+2%")):
        with pytest.raises(
            ObjectiveError, match=f"'x' lies from 0.1 to 4, so the guardrail cannot fail.*write '{meant}'"
        ):
            fair.keep("x", **options)
    assert fair.keep("x", at_least=0.5).keep("y", at_most="+20%").keep("z", at_least=-1).names == ("x", "y", "z")


def test_a_utility_that_is_not_concave_is_refused() -> None:
    with pytest.raises(ObjectiveError, match="not concave"):
        pasto.utility(lambda y: (y**2).sum(axis=-1), lambda y: 2 * y, over=BOX)


def test_a_saddle_is_refused() -> None:
    with pytest.raises(ObjectiveError, match="not concave"):
        pasto.utility(lambda y: y[..., 0] * y[..., 1], lambda y: y[..., ::-1], over=BOX)


def test_a_wrong_gradient_is_refused_and_the_metric_named() -> None:
    def wrong(y: FloatArray) -> FloatArray:
        slope = 1.0 / y
        slope[..., 1] *= 1.05
        return slope

    with pytest.raises(ObjectiveError, match="gradient is wrong in 'y'"):
        pasto.utility(log_sum, wrong, over=BOX)


def test_a_function_of_one_vector_only_is_refused() -> None:
    with pytest.raises(ObjectiveError, match="many metric vectors"):
        pasto.utility(lambda y: np.asarray(np.log(y).sum()), log_slope, over=BOX)


def test_a_range_where_the_utility_is_not_finite_is_refused() -> None:
    with pytest.raises(ObjectiveError, match="narrow the ranges"), np.errstate(all="ignore"):
        pasto.utility(log_sum, log_slope, over={"x": (-1.0, 4.0), "y": (0.1, 4.0)})


@pytest.mark.parametrize("over", [{}, {"x": (1.0, 1.0)}, {"x": (0.0, np.inf)}])
def test_an_empty_range_is_refused(over: dict[str, tuple[float, float]]) -> None:
    with pytest.raises(ObjectiveError, match="over="):
        pasto.utility(log_sum, log_slope, over=over)


def test_a_saved_utility_asks_for_its_functions_back() -> None:
    with pytest.raises(StateError, match="objective="):
        read_objective_document(objective_document(pasto.utility(log_sum, log_slope, over=BOX)))
