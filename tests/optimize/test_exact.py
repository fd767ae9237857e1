"""Solver `solve_linear`: optimal by proof, equal to other solvers, and stable for degenerate programs."""

from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import pasto.optimize.exact.solver as exact
from pasto.arrays import FloatArray
from pasto.errors import SolverError, UnsupportedError
from pasto.objective import maximize, ratio
from pasto.optimize import Program, solve_linear
from pasto.optimize.exact.active_set import ActiveSet


def test_two_thousand_random_programs_are_proved_optimal(proves: Any, random_program: Any) -> None:
    rng = np.random.default_rng(1)
    for _ in range(2000):
        program = random_program(rng, int(rng.integers(1, 101)), int(rng.integers(0, 4)), int(rng.integers(0, 4)))
        solution = solve_linear(program)
        proves(program, solution.probabilities, solution.duals, solution.feasible)


def test_ordinary_programs_need_only_the_active_set(random_program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(exact, "interior_point")
    rng = np.random.default_rng(9)
    for _ in range(300):
        solve_linear(random_program(rng, 50, 1, 2, tightness=rng.choice([0.3, 3.0])))
    angles = np.linspace(0.0, np.pi, 3001)  # neighbours on an arc are almost tied
    for penalty in (0.1, 10.0, np.inf):
        solve_linear(Program(np.cos(angles), np.sin(angles)[None] - 0.7, np.array([penalty])))


def test_mixed_programs_agree_with_clarabel(random_program: Any) -> None:
    rng = np.random.default_rng(2)
    width, hard, soft = 12, 2, 2
    p = cp.Variable(width, nonneg=True)
    goal, firm, weighted = cp.Parameter(width), cp.Parameter((hard, width)), cp.Parameter((soft, width))
    value = goal @ p - cp.sum_squares(cp.neg(weighted @ p))
    problem = cp.Problem(cp.Maximize(value), [cp.sum(p) == 1, firm @ p >= 0])
    for _ in range(300):
        program = random_program(rng, width, hard, soft)
        goal.value, firm.value = program.goal, program.slack[:hard]
        weighted.value = np.sqrt(program.penalties[hard:, None]) * program.slack[hard:]
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
        solution = solve_linear(program)
        assert solution.feasible == (problem.status == cp.OPTIMAL)
        if solution.feasible:
            reached = float(program.value(solution.probabilities))
            assert reached == pytest.approx(problem.value, rel=1e-6, abs=1e-6)
            assert solution.probabilities == pytest.approx(p.value, abs=1e-4)


def test_hard_programs_agree_with_highs(random_program: Any) -> None:
    rng = np.random.default_rng(3)
    outcomes = set()
    for _ in range(300):
        program = random_program(rng, int(rng.integers(2, 31)), int(rng.integers(1, 5)), 0)
        solution = solve_linear(program)
        other = _highs(program.goal, program.slack)
        assert solution.feasible == (other.status == 0)
        outcomes.add(solution.feasible)
        if solution.feasible:
            assert program.goal @ solution.probabilities == pytest.approx(-other.fun, abs=1e-6)
            assert solution.duals == pytest.approx(-other.ineqlin.marginals, abs=1e-6)
    assert outcomes == {True, False}


def test_the_nearest_miss_is_least_squares_and_then_the_best_goal(random_program: Any) -> None:
    rng = np.random.default_rng(4)
    for _ in range(25):
        program = random_program(rng, 8, 3, 0, tightness=3.0)
        solution = solve_linear(program)
        assert not solution.feasible
        spread = np.ptp(program.slack, axis=1)
        p = cp.Variable(8, nonneg=True)
        missed = cp.neg((program.slack / spread[:, None]) @ p)
        problem = cp.Problem(cp.Minimize(cp.sum_squares(missed)), [cp.sum(p) == 1])
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
        short = np.maximum(0.0, -(program.slack @ solution.probabilities))
        assert ((short / spread) ** 2).sum() == pytest.approx(problem.value, rel=1e-7)
        other = _highs(program.goal, program.slack + short[:, None] + 1e-9)
        assert program.goal @ solution.probabilities == pytest.approx(-other.fun, abs=1e-6)


numbers = st.integers(-3, 3)


@st.composite
def degenerate_programs(draw: st.DrawFn, *, hard: bool) -> Program:
    """Return programs of small whole numbers (ties, duplicates, empty rows), in units from a millionth to a million."""
    width, rails = draw(st.integers(1, 30)), draw(st.integers(0, 5))
    columns = draw(st.lists(st.tuples(*[numbers] * (1 + rails)), min_size=width, max_size=width))
    table = np.array(columns, dtype=float).T
    goal_unit = 10.0 ** draw(st.integers(-6, 6))
    units = np.array([10.0 ** draw(st.integers(-6, 6)) for _ in range(rails)])
    powers = st.floats(-3, 6)
    weights = [10.0 ** draw(st.one_of(st.just(np.inf), powers) if hard else powers) for _ in range(rails)]
    penalties = np.array(weights, dtype=float) * goal_unit / units**2
    return Program(goal_unit * table[0], units[:, None] * table[1:], penalties)


@settings(max_examples=250, deadline=None)
@given(program=degenerate_programs(hard=True))
def test_degenerate_programs_are_proved_optimal(proves: Any, program: Program) -> None:
    solution = solve_linear(program)
    proves(program, solution.probabilities, solution.duals, solution.feasible)


@settings(max_examples=100, deadline=None)
@given(program=degenerate_programs(hard=False))
def test_the_interior_point_agrees_with_the_active_set(program: Program) -> None:
    first = solve_linear(program)
    with pytest.MonkeyPatch.context() as patch:
        start = ActiveSet([0], np.ones(1), [], np.zeros(len(program.penalties)))
        patch.setattr(exact, "solve_active_set", lambda *_, **__: start)
        second = solve_linear(program)
    scale = np.abs(program.goal).max() + float(first.duals @ np.abs(program.slack).max(axis=1, initial=0.0))
    assert float(program.value(second.probabilities)) == pytest.approx(
        float(program.value(first.probabilities)), abs=1e-8 * scale
    )


def test_the_interior_point_agrees_under_hard_guardrails(random_program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    programs = [random_program(rng, 20, 2, 1, tightness=0.0) for _ in range(50)]
    expected = [solve_linear(program) for program in programs]
    monkeypatch.setattr(
        exact, "solve_active_set", lambda goal, slack, give, start, springs: replace(start, duals=np.zeros(3))
    )
    for program, solution in zip(programs, expected, strict=True):
        if solution.feasible and (program.slack[:2] >= 0.0).all(axis=0).any():
            assert solve_linear(program).probabilities == pytest.approx(solution.probabilities, abs=1e-9)


def test_an_unsolved_program_raises_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "solve_active_set", lambda *_, **__: ActiveSet([0], np.ones(1), [], np.zeros(1)))
    unproved = (np.array([[0.0, 1.0]]), np.zeros((1, 1)), np.zeros(1, dtype=bool))
    monkeypatch.setattr(exact, "interior_point", lambda *_: unproved)
    with pytest.raises(SolverError, match=r"gap of 0\.5"):
        solve_linear(Program(np.array([1.0, 0.0]), np.array([[1.0, 1.0]]), np.array([np.inf])))


def test_relabelling_the_candidates_relabels_the_answer(random_program: Any) -> None:
    rng = np.random.default_rng(6)
    for _ in range(50):
        program = random_program(rng, 15, 1, 2)
        order = rng.permutation(15)
        moved = solve_linear(Program(program.goal[order], program.slack[:, order], program.penalties))
        assert moved.probabilities == pytest.approx(solve_linear(program).probabilities[order], abs=1e-9)


def test_without_a_binding_guardrail_one_candidate_gets_everything(random_program: Any) -> None:
    rng = np.random.default_rng(7)
    for hard, soft in ((0, 0), (1, 1)):
        program = random_program(rng, 20, hard, soft)
        met = Program(program.goal, np.abs(program.slack), program.penalties)
        solution = solve_linear(met)
        assert solution.probabilities.tolist() == np.eye(20)[program.goal.argmax()].tolist()
        assert not solution.duals.any()


def test_ties_go_to_the_first_candidate() -> None:
    solution = solve_linear(Program(np.array([1.0, 2.0, 2.0]), np.array([[1.0, 0.5, 0.5]]), np.array([np.inf])))
    assert solution.probabilities.tolist() == [0.0, 1.0, 0.0]


def test_simple_shares_come_out_exact() -> None:
    hard = solve_linear(Program(np.array([3.0, 0.0]), np.array([[-1.0, 3.0]]), np.array([np.inf])))
    assert hard.probabilities.tolist() == [0.75, 0.25]
    soft = solve_linear(Program(np.array([2.0, 0.0]), np.array([[-2.0, 2.0]]), np.array([0.25])))
    assert soft.probabilities.tolist() == [0.75, 0.25]  # 2p − 0.25 (4p − 2)² has its peak at 3/4


def test_a_hundred_thousand_candidates(proves: Any, random_program: Any) -> None:
    rng = np.random.default_rng(8)
    for hard, soft in ((2, 0), (0, 2), (1, 1)):
        program = random_program(rng, 100_000, hard, soft, tightness=2.0)
        solution = solve_linear(program)
        proves(program, solution.probabilities, solution.duals, solution.feasible)


def test_a_program_needs_a_linear_goal() -> None:
    form = maximize(ratio("a", "b")).form()
    with pytest.raises(UnsupportedError, match="solve_exact"):
        Program.of(form, np.ones((2, 3)))


def test_a_program_folds_its_constants_into_the_columns() -> None:
    form = maximize("x").keep("y", at_least="-10%").keep("z", at_most=4).form([2.0, 5.0, 1.0])
    program = Program.of(form, np.array([[2.0, 3.0], [5.0, 4.0], [1.0, 6.0]]))
    assert program.goal == pytest.approx([0.0, 50.0])
    assert program.slack == pytest.approx(np.array([[10.0, -10.0], [3.0, -2.0]]))


def _highs(goal: FloatArray, slack: FloatArray) -> Any:
    return linprog(-goal, A_ub=-slack, b_ub=np.zeros(len(slack)), A_eq=np.ones((1, len(goal))), b_eq=[1.0])
