"""Solver `solve_batch`: the same answers as one by one, for every batch."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pasto.optimize.exact.solver as batch
from pasto.objective import maximize
from pasto.optimize import Program, Solution, solve_batch, solve_linear


@pytest.mark.parametrize(("hard", "soft"), [(0, 2), (2, 0), (1, 1), (3, 2), (0, 1)])
@pytest.mark.parametrize("tightness", [0.3, 1.5])
def test_a_batch_equals_its_members(proves: Any, hard: int, soft: int, tightness: float) -> None:
    rng = np.random.default_rng(1)
    program = _batch(rng, 64, 40, hard, soft, tightness)
    solutions = solve_batch(program)
    for place, one in enumerate(_members(program)):
        alone = solve_linear(one)
        assert solutions.probabilities[place] == pytest.approx(alone.probabilities, abs=1e-9)
        assert solutions.duals[place] == pytest.approx(alone.duals, rel=1e-7, abs=1e-9)
        assert solutions.feasible[place] == alone.feasible
        proves(one, solutions.probabilities[place], solutions.duals[place], bool(solutions.feasible[place]))


def test_most_members_are_solved_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    alone = []

    def counted(program: Program) -> Solution:
        alone.append(program)
        return solve_linear(program)

    monkeypatch.setattr(batch, "solve_linear", counted)
    for hard, soft in ((0, 2), (2, 0), (1, 1)):
        solve_batch(_batch(rng, 256, 100, hard, soft, 0.3))
    assert len(alone) <= 3 * 256 / 16


def test_infeasible_programs_of_a_batch_are_flagged_and_the_others_solved() -> None:
    rng = np.random.default_rng(3)
    program = _batch(rng, 30, 20, 2, 1, 0.3)
    clean = solve_batch(program)
    slack = program.slack.copy()
    slack[::3, 0] = -1.0 - np.abs(slack[::3, 0])
    mixed = solve_batch(Program(program.goal, slack, program.penalties))
    expected = clean.feasible.copy()
    expected[::3] = False
    assert mixed.feasible.tolist() == expected.tolist()
    untouched = np.arange(30) % 3 > 0
    assert mixed.probabilities[untouched] == pytest.approx(clean.probabilities[untouched], abs=1e-12)
    nearest = solve_linear(next(_members(Program(program.goal, slack, program.penalties))))
    assert mixed.probabilities[0].tolist() == nearest.probabilities.tolist()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), width=st.integers(1, 8), hard=st.integers(0, 2), soft=st.integers(0, 2))
def test_ties_and_duplicates_are_proved_optimal(proves: Any, seed: int, width: int, hard: int, soft: int) -> None:
    rng = np.random.default_rng(seed)
    rails = hard + soft
    penalties = np.concatenate([np.full(hard, np.inf), 10.0 ** rng.uniform(-3, 6, size=soft)])
    goal = rng.integers(-2, 3, size=(8, width)).astype(float)
    program = Program(goal, rng.integers(-2, 3, size=(8, rails, width)).astype(float), penalties)
    solutions = solve_batch(program)
    for place, one in enumerate(_members(program)):
        proves(one, solutions.probabilities[place], solutions.duals[place], bool(solutions.feasible[place]))


def test_without_guardrails_each_problem_gets_its_best_candidate() -> None:
    goal = np.array([[1.0, 3.0, 3.0], [2.0, 0.0, 1.0]])
    solutions = solve_batch(Program(goal, np.zeros((2, 0, 3)), np.zeros(0)))
    assert solutions.probabilities.tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    assert solutions.duals.shape == (2, 0)
    assert solutions.feasible.all()


def test_one_candidate_and_no_problem() -> None:
    one = solve_batch(Program(np.zeros((3, 1)), np.array([[[-1.0]], [[0.0]], [[1.0]]]), np.array([np.inf])))
    assert one.probabilities.tolist() == [[1.0]] * 3
    assert one.feasible.tolist() == [False, True, True]
    assert solve_batch(Program(np.zeros((0, 4)), np.zeros((0, 1, 4)), np.array([1.0]))).probabilities.shape == (0, 4)


def test_chunks_and_wide_problems_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    program = _batch(rng, 40, 30, 1, 1, 0.3)
    solved_together = solve_batch(program)
    monkeypatch.setattr(batch, "CHUNK_SHARES", 7 * 30)
    assert solve_batch(program).probabilities == pytest.approx(solved_together.probabilities, abs=1e-12)
    monkeypatch.setattr(batch, "MAX_BATCH_CANDIDATES", 10)
    assert solve_batch(program).probabilities == pytest.approx(solved_together.probabilities, abs=1e-12)


def test_draws_of_means_make_a_batch() -> None:
    form = maximize("x").keep("y", at_least=0).form()
    means = np.random.default_rng(5).normal(size=(6, 2, 9))
    program = Program.of(form, means)
    assert program.slack.shape == (6, 1, 9)
    assert program.value(solve_batch(program).probabilities) == pytest.approx(
        [float(one.value(solve_linear(one).probabilities)) for one in _members(program)]
    )


def _batch(rng: np.random.Generator, count: int, width: int, hard: int, soft: int, tightness: float) -> Program:
    slack = rng.normal(size=(count, hard + soft, width)) - tightness
    penalties = np.concatenate([np.full(hard, np.inf), 10.0 ** rng.uniform(-1, 3, size=soft)])
    return Program(rng.normal(size=(count, width)), slack, penalties)


def _members(program: Program) -> Any:
    return (Program(goal, slack, program.penalties) for goal, slack in zip(program.goal, program.slack, strict=True))
