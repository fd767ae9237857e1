"""Chance programs: optimal by their gap, equal for two methods, and stable for large, steep and flat programs."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pasto.optimize.chance_constrained.solver as confident
import pasto.optimize.chance_constrained.solver as safety
from pasto.arrays import FloatArray
from pasto.optimize.chance_constrained.interior_point import follow_central_path
from pasto.optimize.chance_constrained.program import HARD_MARGIN, ChanceProgram, SmoothedPoint
from pasto.optimize.chance_constrained.solver import (
    ease_constraints,
    find_safest,
    find_widest_margin,
    solve_by_cones,
    solve_chance_program,
    solve_or_safest,
)


def draw(
    rng: np.random.Generator,
    width: int,
    hard: int,
    soft: int,
    *,
    spread: float = 0.3,
    penalty: tuple[float, float] = (-1.0, 3.0),
    rank: int | None = None,
    anchored: bool = False,
) -> ChanceProgram:
    """Return a random program that its first candidate can hold."""
    rails = hard + soft
    shape = (rails, width) if rank is None else (rails, width, rank)
    factor = spread * (rng.uniform(0.2, 1.0, shape) if rank is None else rng.normal(size=shape) / np.sqrt(rank))
    anchor = np.zeros((rails, width) if rank is None else (rails, rank))
    if anchored:
        anchor[:, 1 if rank is None else slice(None)] = 0.9 * factor[:, 1]
    slack = rng.normal(size=(rails, width)) - 0.3
    program = ChanceProgram(
        goal=-rng.uniform(size=width),
        mass=np.ones(width),
        slack=slack,
        factor=factor,
        anchor=anchor,
        penalties=np.concatenate([np.full(hard, np.inf), 10.0 ** rng.uniform(*penalty, size=soft)]),
        tight=np.append(np.full(hard, HARD_MARGIN), np.zeros(soft)),
        base=1 if anchored else None,
    )
    slack[:, 0] = 1.2 * program.at(np.eye(width)[0]).spread + 0.02
    return program


def is_beaten(program: ChanceProgram, shares: FloatArray, rng: np.random.Generator) -> bool:
    """Return true if some random blend holds the hard guardrails and has a higher value."""
    value = program.at(shares).value
    for concentration in (0.02, 0.2, 1.0):
        for other in rng.dirichlet(np.full(len(shares), concentration), size=60):
            for mixed in (other, 0.9 * shares + 0.1 * other, 0.999 * shares + 0.001 * other):
                place = program.at(mixed)
                if (place.level >= place.spread)[program.hard].all() and place.value > value + 1e-8:
                    return True
    return False


def test_random_programs_are_solved_to_the_last_digits() -> None:
    rng = np.random.default_rng(1)
    for turn in range(200):
        rank = None if turn % 3 else int(rng.integers(3, 12))
        program = draw(
            rng,
            int(rng.choice([2, 5, 20, 60])),
            int(rng.integers(0, 3)),
            int(rng.integers(1, 3)),
            spread=10.0 ** rng.uniform(-3, 0.5),
            rank=rank,
            anchored=turn % 2 == 0,
        )
        found = solve_chance_program(program)
        assert found is not None
        assert found.gap <= 1e-9
        assert found.short <= HARD_MARGIN
        assert found.shares.min() >= 0.0
        if turn % 10 == 0:
            assert not is_beaten(program, found.shares, rng)


def test_steep_penalties_over_wide_spreads_are_solved_as_well() -> None:
    rng = np.random.default_rng(2)
    for _ in range(80):
        program = draw(rng, int(rng.choice([2, 5, 20])), 0, 3, spread=10.0 ** rng.uniform(-4, 1), penalty=(-2.0, 8.0))
        found = solve_chance_program(program)
        assert found is not None
        assert found.gap <= 1e-8


def test_the_stable_method_alone_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    programs = [draw(rng, 12, 1, 1) for _ in range(20)]
    bold = [solve_chance_program(program) for program in programs]
    monkeypatch.setattr(confident, "follow_central_path", lambda program, calm: follow_central_path(program, calm=True))
    for program, before in zip(programs, bold, strict=True):
        found = solve_chance_program(program)
        assert found is not None
        assert before is not None
        assert found.shares == pytest.approx(before.shares, abs=1e-7)


def test_the_second_method_agrees() -> None:
    rng = np.random.default_rng(4)
    for turn in range(30):
        program = draw(rng, 10, turn % 3, (turn + 1) % 3, rank=None if turn % 2 else 12, anchored=turn % 4 == 0)
        if turn % 5 == 0:
            program = replace(program, caps=np.append(1.0, np.full(9, 0.3)))
        first, second = solve_chance_program(program), solve_by_cones(program, rounding=1e-9)
        assert first is not None
        assert second is not None
        assert second.shares == pytest.approx(first.shares, abs=1e-6)
        assert second.prices == pytest.approx(first.prices, abs=1e-5)


@given(st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_any_prices_give_a_true_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    program = draw(rng, 6, 1, 1, anchored=seed % 2 == 0)
    found = solve_chance_program(program)
    assert found is not None
    best = program.at(found.shares).value
    for _ in range(10):
        shares, near = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6))
        prices = np.where(program.hard, rng.exponential(), 0.0)
        proof = program.prove(shares, prices, SmoothedPoint(near, rng.uniform()))
        assert program.at(shares).value + proof.gap * (1.0 + prices.max()) >= best - 1e-9


def test_a_diagonal_written_as_a_matrix_changes_nothing() -> None:
    rng = np.random.default_rng(5)
    for width in (8, 130):  # 130 correlated candidates are priced, 8 are carried
        for _ in range(6):
            program = draw(rng, width, 1, 1, spread=1.0, anchored=True)
            first, second = solve_chance_program(program), solve_chance_program(program.dense())
            assert first is not None
            assert second is not None
            assert second.shares == pytest.approx(first.shares, abs=1e-7)


def test_ten_thousand_candidates_alike_share_alike() -> None:
    width = 10_000
    goal = np.full(width, -1.0)
    goal[0] = 0.0
    slack, factor = np.full((1, width), 0.1), np.full((1, width), 0.5)
    slack[0, 0] = -0.3
    for penalty in (np.inf, 300.0):
        program = ChanceProgram(goal, np.ones(width), slack, factor, 0.0 * factor, np.array([penalty]), np.zeros(1))
        found = solve_chance_program(program)
        assert found is not None
        assert found.gap <= 1e-10
        assert 0.01 < found.shares[0] < 0.5
        assert np.ptp(found.shares[1:]) <= 1e-12
        # If all others are equal, two variables remain: their share is one column, with a spread √n times smaller.
        two = program.take(np.array([0, 1]))
        two = replace(two, factor=two.factor * np.array([1.0, (width - 1) ** -0.5]))
        other = solve_chance_program(two)
        assert other is not None
        assert found.shares[0] == pytest.approx(other.shares[0], abs=1e-9)


def test_dominated_candidates_are_left_out_however_many() -> None:
    rng = np.random.default_rng(6)
    for rank in (None, 30):
        program = draw(rng, 30, 1, 1, rank=rank)
        small = solve_chance_program(program)
        assert small is not None
        copies = np.repeat(np.arange(30), 20 if rank else 300)
        wide = program.take(np.arange(30))
        wide = replace(
            wide,
            goal=np.append(program.goal, program.goal[copies] - 5.0),
            mass=np.ones(30 + len(copies)),
            slack=np.hstack([program.slack, program.slack[:, copies] - 0.1]),
            factor=np.concatenate([program.factor, program.factor[:, copies]], axis=1),
            anchor=np.zeros((2, 30 + len(copies) if rank is None else program.anchor.shape[1])),
        )
        found = solve_chance_program(wide)
        assert found is not None
        assert found.shares[:30] == pytest.approx(small.shares, abs=1e-8)
        assert not found.shares[30:].any()


def test_only_impossible_guardrails_are_reported_as_infeasible() -> None:
    rng = np.random.default_rng(7)
    p, slack, factor = cp.Variable(5, nonneg=True), cp.Parameter((2, 5)), cp.Parameter((2, 5))
    holds = [slack[rail] @ p >= cp.norm(cp.multiply(factor[rail], p)) for rail in range(2)]
    problem = cp.Problem(cp.Maximize(0), [cp.sum(p) == 1, *holds])
    outcomes = set()
    for _ in range(60):
        program = draw(rng, 5, 2, 0, spread=0.8)
        program.slack[:, 0] = rng.normal(size=2)
        slack.value, factor.value = program.slack, program.factor
        problem.solve(solver=cp.CLARABEL)
        proves_infeasible = any(
            program.proves_infeasible(point.shares, point.prices)
            for _, point in zip(range(30), follow_central_path(program), strict=False)
        )
        outcomes.add(proves_infeasible)
        assert not (proves_infeasible and problem.status == cp.OPTIMAL)
        assert (solve_chance_program(program) is not None) == (problem.status == cp.OPTIMAL)
    assert outcomes == {True, False}


def test_the_safest_blend_has_the_largest_margin() -> None:
    rng = np.random.default_rng(8)
    p, margin = cp.Variable(6, nonneg=True), cp.Variable()
    slack, factor = cp.Parameter((2, 6)), cp.Parameter((2, 6))
    leaves = [slack[rail] @ p - cp.norm(cp.multiply(factor[rail], p)) >= margin for rail in range(2)]
    problem = cp.Problem(cp.Maximize(margin), [cp.sum(p) == 1, *leaves])
    for _ in range(30):
        program = draw(rng, 6, 2, 0)
        slack.value, factor.value = program.slack, program.factor
        problem.solve(solver=cp.CLARABEL)
        shares = find_widest_margin(program)
        assert shares is not None
        place = program.at(shares)
        assert (place.level - place.spread).min() == pytest.approx(problem.value, abs=1e-7)


def test_the_safest_blend_holds_with_most_deviations() -> None:
    rng = np.random.default_rng(9)
    for turn in range(20):
        program = draw(rng, 6, 2, 0, spread=3.0, rank=None if turn % 2 else 8)
        program.slack[:, 0] = 0.1
        least = find_safest(program)
        assert least is not None
        shares, fraction = least
        place = program.at(shares)
        assert (place.level / place.spread).min() == pytest.approx(fraction)
        assert 0.0 < fraction < 1.0
        assert solve_chance_program(ease_constraints(program, fraction * 0.9999)) is not None
        assert solve_chance_program(ease_constraints(program, fraction * 1.0001)) is None


def test_where_one_blend_only_holds_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # At least and at most at once, without uncertainty: the feasible blends are an edge without an interior.
    slack = np.array([[-1.0, 1.0, 3.0], [1.0, -1.0, -3.0]])
    goal, sure, firm = np.array([0.0, -1.0, -0.5]), np.zeros((2, 3)), np.full(2, np.inf)
    program = ChanceProgram(goal, np.ones(3), slack, sure, sure, firm, np.full(2, HARD_MARGIN))
    found = solve_or_safest(program)
    assert found is not None
    assert found[2]
    assert found[0] == pytest.approx([0.75, 0.0, 0.25], abs=1e-7)
    monkeypatch.setattr(safety, "MAX_CONIC_COLUMNS", 0)
    found = solve_or_safest(program)  # without the second method some blend of the edge is still found
    assert found is not None
    assert found[2]
    assert slack @ found[0] == pytest.approx([0.0, 0.0], abs=1e-8)


def test_a_level_that_misses_by_rounding_is_not_certified_and_not_nan() -> None:
    sure, firm = np.zeros((1, 2)), np.array([np.inf])
    program = ChanceProgram(
        np.array([0.0, -1.0]), np.ones(2), np.full((1, 2), -5e-10), sure, sure, firm, np.full(1, HARD_MARGIN)
    )
    found = solve_or_safest(program)
    assert found is not None
    assert np.isfinite(found[0]).all()
    assert not found[2]
