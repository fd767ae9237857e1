"""Units: a metric rescaled together with its thresholds gives the same answer."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pasto
from pasto.arrays import FloatArray
from pasto.blend import Blend
from pasto.estimate import IndependentPosterior
from pasto.objective import Objective
from pasto.optimize import solve_exact
from pasto.optimize.chance_constrained.robust_blend import holding_probabilities, solve_robust
from pasto.optimize.exact.solver import Program, solve_batch
from pasto.optimize.learners.base import ExplorationLimits
from pasto.optimize.learners.exploration_limits import ShareBounds

UNITS = [1e-12, 1e-9, 1e-6, 1e-3, 1e3, 1e6, 1e9, 1e12]
SEEDS = st.integers(0, 2**32 - 1)
POWERS = st.lists(st.integers(-12, 12), min_size=5, max_size=5)
pytestmark = pytest.mark.filterwarnings("ignore:keep")  # random limits below zero on metrics that happen to be above
KEPT = pasto.maximize("x").keep("y", at_least=0.0)

Case = tuple[FloatArray, Objective, int | None]
"""Means (metrics, candidates), what to do with them, and the baseline."""


def plain(rng: np.random.Generator, units: FloatArray) -> Case:
    """Return a goal of two metrics, hard guardrails on both sides and a soft one, in absolute numbers."""
    means = rng.normal(size=(5, int(rng.integers(2, 9))))
    low, high, target = rng.normal(size=3) * 0.7
    return (
        means * units[:, None],
        pasto.maximize({"m0": 1.0, "m1": 0.5 * units[0] / units[1]})
        .keep("m2", at_least=low * units[2])
        .keep("m3", at_most=high * units[3])
        .keep("m4", at_least=target * units[4], penalty=float(10.0 ** rng.uniform(-1, 3)) * units[0] / units[4] ** 2),
        None,
    )


def percent(rng: np.random.Generator, units: FloatArray) -> Case:
    """Return percentages over a baseline, of metrics and of a ratio."""
    means = rng.uniform(1.0, 1.2, size=(5, int(rng.integers(2, 9))))
    rate = pasto.ratio("m3", "m4", name="rate")
    low, high, least = rng.uniform(-8.0, 8.0, size=3)
    return (
        means * units[:, None],
        pasto.maximize("m0")
        .keep("m1", at_least=f"{low:+.3f}%", penalty=5.0)
        .keep("m2", at_most=f"{high:+.3f}%")
        .keep(rate, at_least=f"{least:+.3f}%"),
        0,
    )


def rates(rng: np.random.Generator, units: FloatArray) -> Case:
    """Return a ratio as the goal, another as a hard guardrail, and a metric on both sides."""
    means = rng.uniform(1.0, 2.0, size=(5, int(rng.integers(2, 9))))
    least, low, high = rng.uniform(0.7, 1.3), rng.uniform(1.2, 1.6), rng.uniform(1.4, 1.9)
    return (
        means * units[:, None],
        pasto.maximize(pasto.ratio("m0", "m1", name="goal"))
        .keep(pasto.ratio("m2", "m3", name="rate"), at_least=least * units[2] / units[3])
        .keep("m4", at_least=low * units[4])
        .keep("m4", at_most=high * units[4]),
        None,
    )


def fair(rng: np.random.Generator, units: FloatArray) -> Case:
    """Return a concave utility of two metrics, in its own units, with two hard guardrails."""
    means = rng.uniform(0.5, 4.0, size=(5, int(rng.integers(2, 9))))
    own, size = units[:2], units[4]
    objective = pasto.utility(
        lambda y: size * np.log(y / own).sum(axis=-1),
        lambda y: size / y,
        over={"m0": (0.1 * own[0], 10.0 * own[0]), "m1": (0.1 * own[1], 10.0 * own[1])},
    )
    low, high = rng.uniform(1.5, 3.0, size=2)
    objective = objective.keep("m2", at_least=low * units[2]).keep("m3", at_most=high * units[3])
    return means[:4] * units[:4, None], objective, None


def worst(rng: np.random.Generator, units: FloatArray) -> Case:
    """Return the smaller of two metrics, a utility with a kink, with a hard guardrail."""
    means = rng.uniform(0.5, 4.0, size=(3, int(rng.integers(2, 9))))
    own, size = units[:2], units[4]

    def slope(y: FloatArray) -> FloatArray:
        return np.asarray(size * (y / own == (y / own).min(axis=-1, keepdims=True)) / own)

    objective = pasto.utility(
        lambda y: size * (y / own).min(axis=-1),
        slope,
        over={"m0": (0.1 * own[0], 10.0 * own[0]), "m1": (0.1 * own[1], 10.0 * own[1])},
    )
    return means * units[:3, None], objective.keep("m2", at_least=rng.uniform(1.5, 3.0) * units[2]), None


def signs(case: Case, blend: Blend) -> list[int]:
    """Return the sign of each guardrail's slack under the blend; 0 within 1e-7 of its largest over candidates."""
    means, objective, baseline = case
    form = objective.form(None if baseline is None else means[:, baseline])
    slack = form.rows @ means - form.at[:, None]
    levels = slack @ np.array(blend.probabilities)
    levels[np.abs(levels) <= 1e-7 * np.abs(slack).max(axis=1)] = 0.0
    return [int(sign) for sign in np.sign(levels)]


def verdict(case: Case) -> tuple[Any, ...]:
    means, objective, baseline = case
    blend = pasto.solve(objective.by_metric(means), objective, baseline=baseline)
    names = tuple(blend.shortfalls), blend.gain.candidate, tuple(blend.gain.violations)
    return blend.feasible, blend.support, signs(case, blend), blend.best_single, names


@pytest.mark.parametrize("kind", [plain, percent, rates, fair, worst])
@given(seed=SEEDS, powers=POWERS)
@settings(max_examples=60, deadline=None)
def test_rescaling_metrics_changes_no_verdict(
    kind: Callable[[np.random.Generator, FloatArray], Case], seed: int, powers: list[int]
) -> None:
    units = np.array([10.0**power for power in powers])
    one = verdict(kind(np.random.default_rng(seed), np.ones(5)))
    assert verdict(kind(np.random.default_rng(seed), units)) == one


@pytest.mark.parametrize("unit", [1.0, *UNITS])
@pytest.mark.parametrize("part", [0.06, 0.3])
def test_a_guardrail_missed_by_a_few_percent_is_infeasible_in_every_unit(unit: float, part: float) -> None:
    objective = pasto.maximize("x").keep("y", at_least=unit)
    blend = pasto.solve({"x": [2.0, 0.0], "y": [-2.0 * unit, (1.0 - part) * unit]}, objective)
    assert not blend.feasible
    assert blend.shortfalls == pytest.approx({"y": part * unit}, rel=1e-6)
    assert (blend.best_single, blend.gain.candidate, blend.support) == (None, 1, (1,))
    assert blend.gain.violations == pytest.approx({"y": part * unit}, rel=1e-6)


@pytest.mark.parametrize("unit", [1.0, *UNITS])
def test_a_guardrail_met_up_to_rounding_is_feasible_in_every_unit(unit: float) -> None:
    truth = {"x": [2.0, 0.0, 1.0], "y": [-0.2 * unit, 0.1 * unit, -0.3 * unit]}
    blend = pasto.solve(truth, KEPT)
    assert blend.feasible
    assert not blend.shortfalls
    assert blend.support == (0, 1)
    thirds = pasto.solve({"x": [1.0, 1.0], "y": [3 * (0.1 * unit), 0.2 * unit]}, KEPT.keep("y", at_most=0.3 * unit))
    assert thirds.feasible


def test_a_level_far_above_the_range_hides_no_miss() -> None:
    blend = pasto.solve({"x": [1.0, 2.0], "y": [1.0 - 1e-7, 1.0 - 5e-8]}, KEPT.keep("y", at_most=1.0 - 8e-8))
    assert blend.feasible
    assert blend.support == (0, 1)
    near = pasto.solve(
        {"x": [1.0, 2.0], "y": [1000.0, 1000.0 + 1e-6]}, pasto.maximize("x").keep("y", at_least=1000.00001)
    )
    assert not near.feasible


@pytest.mark.parametrize("unit", [1.0, *UNITS])
def test_a_constant_guardrail_does_not_hide_the_others(unit: float) -> None:
    objective = pasto.maximize("x").keep("y", at_least=5.0 * unit).keep("z", at_least=3.0)
    truth = {"x": [9.0, 1.0, 2.0], "y": [unit, unit, unit], "z": [0.0, 1.0, 2.5]}
    blend = pasto.solve(truth, objective)
    assert (blend.feasible, blend.gain.candidate, blend.support) == (False, 2, (2,))


@given(seed=SEEDS, power=st.integers(-12, 12))
@settings(max_examples=30, deadline=None)
def test_many_programs_at_once_are_as_feasible_in_every_unit(seed: int, power: int) -> None:
    rng = np.random.default_rng(seed)
    goal, slack = rng.normal(size=(6, 4)), rng.normal(size=(6, 2, 4)) - 0.6
    hard = np.full(2, np.inf)
    one = solve_batch(Program(goal, slack, hard))
    other = solve_batch(Program(goal, slack * np.array([10.0**power, 1.0])[:, None], hard))
    assert other.feasible.tolist() == one.feasible.tolist()
    assert (other.probabilities > 0.0).tolist() == (one.probabilities > 0.0).tolist()


@given(seed=SEEDS, powers=POWERS)
@settings(max_examples=40, deadline=None)
def test_rescaling_changes_no_certificate(seed: int, powers: list[int]) -> None:
    rng = np.random.default_rng(seed)
    width = int(rng.integers(2, 7))
    mean, low, target = rng.normal(size=(3, width)), float(rng.normal() * 0.7), float(rng.normal() * 0.7)
    roots = rng.normal(size=(width, 3, 3)) * 10.0 ** rng.uniform(-3, 0)

    def answer(units: FloatArray) -> tuple[bool, list[bool], FloatArray]:
        objective = pasto.maximize("x").keep("y", at_least=low * units[1])
        objective = objective.keep("z", at_least=target * units[2], penalty=3.0 * units[0] / units[2] ** 2)
        form = objective.form()
        scaled = units[:, None] * roots
        posterior = IndependentPosterior(mean * units[:, None], scaled @ scaled.transpose(0, 2, 1))
        found = solve_robust(form, posterior)
        return (
            found.certified,
            (found.probabilities > 1e-6).tolist(),
            holding_probabilities(form, posterior, found.probabilities),
        )

    certified, support, chances = answer(np.ones(3))
    again, same, others = answer(np.array([10.0**power for power in powers[:3]]))
    assert (again, same) == (certified, support)
    assert others == pytest.approx(chances, abs=1e-5)


@pytest.mark.parametrize("unit", [1.0, *UNITS])
def test_what_is_known_exactly_holds_or_not_in_every_unit(unit: float) -> None:
    posterior = IndependentPosterior(np.array([[2.0, 0.0], [-2.0 * unit, 0.94 * unit]]), np.zeros((2, 2, 2)))
    form = pasto.maximize("x").keep("y", at_least=unit).form()
    assert holding_probabilities(form, posterior, np.array([0.0, 1.0])).tolist() == [0.0]
    assert not solve_robust(form, posterior).certified
    easier = pasto.maximize("x").keep("y", at_least=0.94 * unit).form()
    assert holding_probabilities(easier, posterior, np.array([0.0, 1.0])).tolist() == [1.0]
    assert solve_robust(easier, posterior).certified


@pytest.mark.parametrize("unit", [1.0, *UNITS])
def test_a_budget_has_the_same_verdict_in_every_unit(unit: float) -> None:
    posterior = IndependentPosterior(np.array([[0.0, 2.0], [0.0, -2.0 * unit]]), np.zeros((2, 2, 2)))
    limits = ExplorationLimits(loss_budget={"y": 0.2 * unit})
    bounds = ShareBounds(KEPT.form(), posterior, np.zeros(1), 0, limits)
    assert bounds.holds(np.array([0.9, 0.1]))
    assert not bounds.holds(np.array([0.89, 0.11]))


@pytest.mark.parametrize("errors", [True, False])
@pytest.mark.parametrize("unit", UNITS)
def test_a_study_certifies_the_same_blend_in_every_unit(unit: float, errors: bool) -> None:
    truth = np.array([[2.0, 0.0, 1.0], [-2.0, 2.0, 0.5]])

    def learned(units: FloatArray) -> Blend:
        rng = np.random.default_rng(4)
        rows = [{"a": place} for place in range(3)]
        study = pasto.Study(pasto.Candidates.from_rows(rows), KEPT, seed=3)
        for _ in range(10):
            assignments = study.ask(10)
            chosen = [assignment.candidate for assignment in assignments]
            metrics = truth.T[chosen] + 0.5 * rng.standard_normal((10, 2))
            study.tell(assignments, metrics * units, standard_errors=np.full((10, 2), 0.5) * units if errors else None)
        return study.blend()

    one, other = learned(np.ones(2)), learned(np.array([1.0, unit]))
    assert one.certificate is not None
    assert other.certificate is not None
    assert one.certificate.certified
    assert other.certificate.certified
    assert other.probabilities == pytest.approx(one.probabilities, abs=1e-6)
    assert other.certificate.holds == pytest.approx(one.certificate.holds, abs=1e-6)


def test_solution_and_blend_agree_on_feasibility() -> None:
    rng = np.random.default_rng(8)
    for _ in range(200):
        units = np.power(10.0, rng.integers(-12, 13, size=5))
        means, objective, baseline = plain(rng, units)
        blend = pasto.solve(objective.by_metric(means), objective, baseline=baseline)
        assert solve_exact(objective.form(), means).feasible == blend.feasible
