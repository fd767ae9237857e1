from math import e, log, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pasto
from pasto.errors import MeansError, OptionError, UnsupportedError
from pasto.objective import Objective
from pasto_research.paper.theory_bounds import Constants, convergence_bound, empirical_regret_bound, regret_bound

EXAMPLE_A = pasto.maximize("x").keep("y", at_least=0, penalty=5.0)
TRUTH_A = np.array([[2.0, 0.0], [-2.0, 2.0]])
SOME = Constants(gradient=3.0, slope=2.0, size=1.5, smoothness=0.5)


def test_example_a_has_the_constants_worked_out_by_hand() -> None:
    known = Constants.of(EXAMPLE_A, TRUTH_A)
    # At p = (1, 0): y = −2, ∇f = (1, 20), g = μᵀ∇f = (2 − 40, 40).
    assert known.gradient == pytest.approx(sqrt(38**2 + 40**2))
    assert known.slope == pytest.approx(sqrt(1 + 20**2))
    assert known.size == pytest.approx(sqrt(4 + 4 + 4))
    assert known.smoothness == pytest.approx(10.0)
    assert known.factor(2) == pytest.approx(log(2) + 4 * e * 3044 + 32 * (401 + 12 * 100) * 12 / sqrt(3044))
    assert known.factor(2) > 30_000


def test_no_choice_of_the_gradient_bound_brings_example_a_below_thirty_thousand() -> None:
    known = Constants.of(EXAMPLE_A, TRUTH_A)
    factors = [Constants(g, known.slope, known.size, known.smoothness).factor(2) for g in np.geomspace(1, 1000, 2001)]
    assert 30_000 < min(factors) < 30_300


def random_objective(rng: np.random.Generator, guardrails: int) -> tuple[Objective, int]:
    objective = pasto.maximize({"m0": 1.0, "m1": float(rng.normal())})
    for rail in range(guardrails):
        side: dict[str, Any] = {"at_least" if rng.integers(2) else "at_most": float(rng.normal())}
        objective = objective.keep(f"m{rail}", penalty=float(rng.uniform(0.1, 6)), **side)
    return objective, len(objective.metrics)


@given(seed=st.integers(0, 2**32 - 1), candidates=st.integers(1, 6), guardrails=st.integers(0, 3))
def test_no_blend_exceeds_the_constants(seed: int, candidates: int, guardrails: int) -> None:
    rng = np.random.default_rng(seed)
    objective, metrics = random_objective(rng, guardrails)
    truth = rng.normal(size=(metrics, candidates))
    known = Constants.of(objective, truth)
    blends = np.vstack([rng.dirichlet(np.full(candidates, 0.5), size=200), np.eye(candidates)])
    slopes = objective.gradient(blends @ truth.T)
    assert (np.linalg.norm(slopes, axis=1) <= known.slope * (1 + 1e-12)).all()
    assert (np.linalg.norm(slopes @ truth, axis=1) <= known.gradient * (1 + 1e-12)).all()
    assert known.size == pytest.approx(np.linalg.norm(truth))
    ends = rng.normal(scale=3, size=(2, 200, metrics))
    change = np.linalg.norm(objective.gradient(ends[0]) - objective.gradient(ends[1]), axis=1)
    assert (change <= known.smoothness * np.linalg.norm(ends[0] - ends[1], axis=1) + 1e-9).all()


@given(seed=st.integers(0, 2**32 - 1), candidates=st.integers(1, 6))
def test_with_one_guardrail_a_candidate_reaches_them(seed: int, candidates: int) -> None:
    rng = np.random.default_rng(seed)
    objective, metrics = random_objective(rng, 1)
    truth = rng.normal(size=(metrics, candidates))
    known = Constants.of(objective, truth)
    slopes = objective.gradient(truth.T)
    assert np.linalg.norm(slopes, axis=1).max() == pytest.approx(known.slope)
    assert np.linalg.norm(slopes @ truth, axis=1).max() == pytest.approx(known.gradient)


def test_a_blend_with_a_larger_gradient_than_every_candidate_is_covered() -> None:
    objective = pasto.maximize("x").keep("y", at_least=2, penalty=1.0).keep("z", at_least=2, penalty=1.0)
    truth = np.array([[-3.0, -3.0], [0.0, -1.0], [3.0, 1.0]])
    norms = np.linalg.norm(objective.gradient(np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]) @ truth.T) @ truth, axis=1)
    assert norms[2] > norms[:2].max() + 0.5
    assert Constants.of(objective, truth).gradient >= norms[2]


def test_guardrails_on_metrics_of_their_own_have_an_exact_slope() -> None:
    objective = pasto.maximize("x").keep("y", at_least=0.5, penalty=5.0).keep("z", at_least=0.5, penalty=5.0)
    truth = np.random.default_rng(3).uniform(-1, 1, size=(3, 20))
    slopes = np.linalg.norm(objective.gradient(truth.T), axis=1)
    assert Constants.of(objective, truth).slope == pytest.approx(slopes.max())


def test_a_moving_truth_gives_the_largest_of_each() -> None:
    other = np.array([[1.0, 0.0], [1.0, 5.0]])
    one, two = Constants.of(EXAMPLE_A, TRUTH_A), Constants.of(EXAMPLE_A, other)
    both = Constants.of(EXAMPLE_A, np.stack([TRUTH_A, other]))
    assert both == Constants(
        max(one.gradient, two.gradient), max(one.slope, two.slope), max(one.size, two.size), one.smoothness
    )
    assert both.size == two.size > one.size
    assert both.gradient == one.gradient > two.gradient


def test_the_bounds_are_the_printed_formulas() -> None:
    factor = log(4) + 4 * e * 9 + 32 * (4 + 1.5**2 * 0.25) * 1.5**2 / 3
    assert SOME.factor(4) == pytest.approx(factor)
    assert convergence_bound(SOME, 4, 100) == pytest.approx(factor / 10)
    assert regret_bound(SOME, 4, 100) == pytest.approx(factor * 10)
    assert empirical_regret_bound(SOME, 4, 100) == pytest.approx((factor + 2 * 1.5**2) * 10)


def test_relative_guardrails_are_taken_over_their_baseline() -> None:
    relative = pasto.maximize("x").keep("y", at_least="-2%", penalty=5.0)
    percent = pasto.maximize("x").keep("y", at_least=-2, penalty=5.0)
    truth = np.array([[1.0, 2.0], [4.0, 3.0]])
    lifts = 100 * (truth / truth[:, :1] - 1)
    # ∇ by p differs from that of the lifts by a constant along (1, 1), so only the slope can be compared directly.
    scale = 100 / truth[:, 0]
    known = Constants.of(relative, truth, baseline=truth[:, 0])
    expected = np.linalg.norm(percent.gradient(lifts.T) * scale, axis=1).max()
    assert known.slope == pytest.approx(expected)
    with pytest.raises(pasto.PastoError, match="baseline"):
        Constants.of(relative, truth)


@pytest.mark.parametrize(
    ("objective", "truth", "error", "words"),
    [
        (pasto.maximize("x").keep("y", at_least=0), TRUTH_A, UnsupportedError, "penalty="),
        (pasto.maximize(pasto.ratio("x", "y")), TRUTH_A, UnsupportedError, "weighted sum"),
        (EXAMPLE_A, TRUTH_A[0], MeansError, "shape"),
        (EXAMPLE_A, np.zeros((3, 2)), MeansError, "x, y"),
        (EXAMPLE_A, np.zeros((2, 0)), MeansError, "shape"),
        (EXAMPLE_A, [[2.0, np.nan], [1.0, 1.0]], MeansError, "finite"),
        (EXAMPLE_A, np.zeros((2, 2)), OptionError, "gradient="),
    ],
)
def test_what_has_no_constants_is_refused(objective: Objective, truth: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Constants.of(objective, truth)


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(OptionError, match="slope="):
        Constants(gradient=1.0, slope=-1.0, size=1.0, smoothness=1.0)
    with pytest.raises(OptionError, match="smoothness="):
        Constants(gradient=1.0, slope=1.0, size=1.0, smoothness=float("nan"))
    with pytest.raises(OptionError, match="candidates="):
        SOME.factor(0)
    for bound in (convergence_bound, regret_bound, empirical_regret_bound):
        with pytest.raises(OptionError, match="rounds="):
            bound(SOME, 2, 0)
