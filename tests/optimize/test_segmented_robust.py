"""Robust blends of segments: against the solver for one segment, a general one, and the exact solver without errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

import pasto
from pasto.arrays import FloatArray
from pasto.estimate import CellCovariance, IndependentPosterior
from pasto.optimize.chance_constrained.program import expected_penalty
from pasto.optimize.chance_constrained.robust_blend import solve_robust
from pasto.optimize.chance_constrained.segmented_robust import UncertainRail, solve_robust_segments
from pasto.optimize.exact.segmented import SegmentedProgram, solve_segmented_program

Z = 1.6448536269514722


def value(goal: FloatArray, rails: list[UncertainRail], shares: FloatArray) -> float:
    """Return the goal less the expected penalties."""
    costs = [
        rail.penalty * float(expected_penalty(np.array(rail.level(shares)), np.array(rail.spread(shares))))
        for rail in rails
        if np.isfinite(rail.penalty)
    ]
    return float((goal * shares).sum()) - sum(costs)


@pytest.mark.parametrize("seed", range(24))
def test_one_segment_has_the_answer_of_the_solver_without_segments(seed: int) -> None:
    rng = np.random.default_rng([51, seed])
    count = int(rng.integers(3, 40))
    means = rng.normal(size=(3, count))
    roots = 0.3 * rng.normal(size=(count, 3, 3))
    posterior = IndependentPosterior(means, roots @ roots.transpose(0, 2, 1), 0.2 * rng.normal(size=(count, 3, 2)))
    objective = pasto.maximize("x").keep("y", at_least=0.2, penalty=3.0 if seed % 2 else None).keep("z", at_least=0)
    form = objective.form()
    reference = solve_robust(form, posterior)
    rails = []
    for row, limit, penalty in zip(form.rows, form.at, form.penalties, strict=True):
        own = np.einsum("i,kij,j->k", row, posterior.covariances, row)[None]
        assert posterior.shared is not None
        shared = np.einsum("i,kir->kr", row, posterior.shared)[None]
        covariance = CellCovariance(own, np.zeros((1, count, 0)), shared)
        rails.append(UncertainRail((row @ means - limit)[None], np.ones(1), covariance, np.zeros((1, count)), penalty))
    goal = means[:1]
    answer = solve_robust_segments(goal, rails, Z, np.zeros((1, count)))
    assert answer is not None
    assert answer.certified == reference.certified
    if reference.certified:
        assert value(goal, rails, answer.probabilities) == pytest.approx(reference.value, abs=1e-6)
        assert answer.duals == pytest.approx(reference.duals, abs=1e-3)
    else:
        least = [rail.level(answer.probabilities) / rail.spread(answer.probabilities) for rail in rails]
        other = [
            rail.level(reference.probabilities[None]) / rail.spread(reference.probabilities[None]) for rail in rails
        ]
        hard = [np.isinf(rail.penalty) for rail in rails]
        assert min(np.array(least)[hard]) == pytest.approx(min(np.array(other)[hard]), abs=1e-3)


def draw_rails(rng: np.random.Generator, segments: int, candidates: int) -> tuple[FloatArray, list[UncertainRail]]:
    """Draw a soft and a hard guardrail on all traffic, relative to a baseline, and a hard one in a segment."""
    shares = rng.dirichlet(np.full(segments, 5.0))
    goal = shares[:, None] * rng.normal(size=(segments, candidates))
    rails = []
    for kind in range(3):
        covariance = CellCovariance(
            0.05 * rng.random((segments, candidates)),
            0.2 * rng.normal(size=(segments, candidates, 2)),
            0.1 * rng.normal(size=(segments, candidates, 3)),
        )
        scale = shares if kind < 2 else np.asarray(np.arange(segments) == 0, dtype=float)
        anchor = np.zeros((segments, candidates))
        anchor[:, 0] = 0.97 if kind == 1 else 0.0
        slack = scale[:, None] * (0.8 + rng.normal(size=(segments, candidates)))
        rails.append(UncertainRail(slack, scale, covariance, anchor, 4.0 if kind == 0 else np.inf))
    return goal, rails


@pytest.mark.parametrize("seed", range(10))
def test_a_general_solver_finds_nothing_better(seed: int) -> None:
    rng = np.random.default_rng([52, seed])
    segments, candidates = 3, 4
    goal, rails = draw_rails(rng, segments, candidates)
    answer = solve_robust_segments(goal, rails, Z, np.zeros_like(goal))
    assert answer is not None
    assert answer.certified
    for rail in rails[1:]:
        assert rail.level(answer.probabilities) - Z * rail.spread(answer.probabilities) >= -1e-7

    def shaped(flat: FloatArray) -> FloatArray:
        return flat.reshape(segments, candidates)

    constraints: list[dict[str, Any]] = [{"type": "eq", "fun": lambda flat: shaped(flat).sum(axis=1) - 1.0}]
    for rail in rails[1:]:
        constraints.append(
            {"type": "ineq", "fun": lambda flat, rail=rail: rail.level(shaped(flat)) - Z * rail.spread(shaped(flat))}
        )
    best = -np.inf
    search: Any = minimize  # its stubs want keyword types for each method
    for start in (answer.probabilities, rng.dirichlet(np.ones(candidates), segments)):
        found = search(
            lambda flat: -value(goal, rails, shaped(flat)),
            start.ravel(),
            method="SLSQP",
            bounds=[(0.0, 1.0)] * start.size,
            constraints=constraints,
            options={"maxiter": 500, "ftol": 1e-12},
        )
        if found.success:
            best = max(best, -float(found.fun))
    assert value(goal, rails, answer.probabilities) == pytest.approx(best, abs=1e-5)


def test_without_errors_the_answer_is_the_exact_one() -> None:
    rng = np.random.default_rng(53)
    goal, rails = draw_rails(rng, 6, 30)
    none = CellCovariance(np.zeros((6, 30)), np.zeros((6, 30, 0)), np.zeros((6, 30, 0)))
    known = [UncertainRail(rail.slack, rail.scale, none, rail.anchor, rail.penalty) for rail in rails]
    answer = solve_robust_segments(goal, known, Z, np.zeros_like(goal))
    program = SegmentedProgram(
        goal=goal,
        slack=np.array([rail.slack for rail in rails[:2]]),
        penalties=np.array([4.0, np.inf]),
        own=rails[2].slack[:1],
        own_penalties=np.array([np.inf]),
        owners=np.zeros(1, dtype=np.intp),
        shares=rails[0].scale,
    )
    exact = solve_segmented_program(program)
    assert answer is not None
    assert value(goal, known, answer.probabilities) == pytest.approx(value(goal, known, exact.probabilities), abs=1e-6)
    assert answer.duals[1:] == pytest.approx([exact.duals[1], exact.own_duals[0]], abs=1e-4)


def test_guardrails_that_no_blends_meet_on_average_have_no_answer() -> None:
    goal, rails = draw_rails(np.random.default_rng(54), 3, 4)
    hopeless = UncertainRail(
        -np.abs(rails[1].slack) - 0.1, rails[1].scale, rails[1].covariance, rails[1].anchor, np.inf
    )
    assert solve_robust_segments(goal, [hopeless], Z, np.zeros_like(goal)) is None


def test_units_do_not_matter() -> None:
    goal, rails = draw_rails(np.random.default_rng(55), 4, 10)
    answer = solve_robust_segments(goal, rails, Z, np.zeros_like(goal))
    scaled = [
        UncertainRail(
            factor * rail.slack, factor * rail.scale, rail.covariance, rail.anchor, 1e6 * rail.penalty / factor**2
        )
        for rail, factor in zip(rails, (1e-5, 1e7, 300.0), strict=True)
    ]
    other = solve_robust_segments(1e6 * goal, scaled, Z, np.zeros_like(goal))
    assert answer is not None
    assert other is not None
    assert other.probabilities == pytest.approx(answer.probabilities, abs=1e-4)
