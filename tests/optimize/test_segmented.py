"""Solver `solve_segments`: optimal by proof, equal to other solvers, alone and in batches, with ties and misses."""

from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

import pasto.optimize.exact.segmented as segmented
from pasto.arrays import FloatArray
from pasto.errors import SolverError
from pasto.objective import Objective, maximize, ratio, utility
from pasto.optimize import Program, solve_linear
from pasto.optimize.exact.segmented import (
    SegmentedProgram,
    SegmentedSolution,
    solve_segmented_program,
    solve_segments,
    solve_segments_batch,
)
from pasto.optimize.exact.segmented_interior_point import find_vertex


def draw(
    rng: np.random.Generator,
    segments: int,
    candidates: int,
    *,
    hard: int = 1,
    soft: int = 0,
    own_hard: int = 0,
    own_soft: int = 0,
    tightness: float = 0.3,
) -> SegmentedProgram:
    """Return a random program whose guardrails usually bind; own guardrails are of random segments."""
    shares = rng.dirichlet(np.full(segments, 2.0))
    own_penalties = np.concatenate([np.full(own_hard, np.inf), 10.0 ** rng.uniform(-2, 4, size=own_soft)])
    return SegmentedProgram(
        goal=shares[:, None] * rng.normal(size=(segments, candidates)),
        slack=shares[:, None] * (rng.normal(size=(hard + soft, segments, candidates)) - tightness),
        penalties=np.concatenate([np.full(hard, np.inf), 10.0 ** rng.uniform(-2, 4, size=soft)]),
        own=rng.normal(size=(own_hard + own_soft, candidates)) - tightness,
        own_penalties=rng.permutation(own_penalties),
        owners=np.sort(rng.integers(0, segments, size=own_hard + own_soft)),
        shares=shares,
    )


def draw_any(rng: np.random.Generator) -> SegmentedProgram:
    """Return a random program of any small size, with any guardrails."""
    counts = dict(zip(("hard", "soft", "own_hard", "own_soft"), rng.integers(0, 3, size=4).tolist(), strict=True))
    tightness = float(rng.choice([0.0, 0.3, 1.0]))
    return draw(rng, int(rng.integers(1, 15)), int(rng.integers(1, 31)), tightness=tightness, **counts)


def flatten(program: SegmentedProgram) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return all guardrails over all candidates side by side, their penalties, and the sums that are one."""
    segments, width = program.goal.shape
    own = np.zeros((len(program.own), segments, width))
    for row, owner in enumerate(program.owners):
        own[row, owner] = program.own[row]
    rows = np.concatenate([program.slack, own]).reshape(-1, segments * width)
    penalties = np.concatenate([program.penalties, program.own_penalties])
    return rows, penalties, np.repeat(np.eye(segments), width, axis=1)


def prove(program: SegmentedProgram, solution: SegmentedSolution, tolerance: float = 1e-8) -> None:
    """Assert that the answer is feasible (or the nearest miss), small, and proved optimal by its multipliers.

    For any π ≥ 0, nothing is worth more than Σ_s max_k (goal_sk + π · slack_sk) + Σ π²/4λ.
    """
    segments, width = program.goal.shape
    rows, penalties, _ = flatten(program)
    shares, duals = solution.probabilities, np.concatenate([solution.duals, solution.own_duals])
    hard = np.isinf(penalties)
    assert shares.min() >= 0.0
    assert shares.sum(axis=1) == pytest.approx(1.0, abs=1e-12)
    assert np.count_nonzero(shares) <= segments + len(rows)
    assert (duals >= 0.0).all()
    levels = rows @ shares.ravel()
    by_segment = rows.reshape(len(rows), segments, width)
    sizes = np.abs(by_segment).max(axis=2).sum(axis=1)
    missed = np.where(hard, np.maximum(0.0, -levels), 0.0)
    if solution.feasible:
        assert (missed <= 1e-9 * sizes).all()
    else:
        assert (missed > 0.0).any()
        # Least squares over a convex set: no candidate lies further along the gradient than the answer itself.
        shares_of_rails = np.concatenate([np.ones(len(program.slack)), program.shares[program.owners]])
        ranges = np.ptp(by_segment, axis=2).sum(axis=1)
        weights = shares_of_rails * missed / np.where(ranges > 0.0, ranges, sizes) ** 2
        best = np.tensordot(weights, by_segment, axes=1).max(axis=1).sum()
        assert best - weights @ levels <= 1e-7 * (weights @ sizes)
    finite = np.where(hard, 1.0, penalties)
    cost = np.where(hard, 0.0, finite * np.minimum(levels, 0.0) ** 2).sum()
    priced = program.goal + np.tensordot(duals, by_segment, axes=1)
    bound = priced.max(axis=1).sum() + duals @ missed + np.where(hard, 0.0, duals**2 / (4.0 * finite)).sum()
    gap = bound - ((program.goal * shares).sum() - cost)
    scale = np.ptp(program.goal, axis=1).sum() + cost + duals @ sizes
    assert -tolerance * scale <= gap <= tolerance * scale or abs(gap) <= 1e-12 * np.abs(program.goal).max()


def solve_by_highs(program: SegmentedProgram) -> Any:
    rows, _, sums = flatten(program)
    highs: Any = linprog  # its stubs do not know sparse matrices
    return highs(
        -program.goal.ravel(),
        A_ub=csr_matrix(-rows),
        b_ub=np.zeros(len(rows)),
        A_eq=csr_matrix(sums),
        b_eq=np.ones(len(sums)),
        bounds=(0.0, None),
    )


def check_random_programs(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    outcomes = set()
    for _ in range(count):
        program = draw_any(rng)
        solution = solve_segmented_program(program)
        prove(program, solution)
        outcomes.add(solution.feasible)
        if np.isinf(program.penalties).all() and np.isinf(program.own_penalties).all():
            other = solve_by_highs(program)
            assert solution.feasible == (other.status == 0)
            if solution.feasible:
                assert (program.goal * solution.probabilities).sum() == pytest.approx(-other.fun, abs=1e-6)
    assert outcomes == {True, False}


def test_random_programs_are_proved_optimal_and_agree_with_highs() -> None:
    check_random_programs(300, 11)


@pytest.mark.services
def test_thousands_of_random_programs_are_proved_optimal_and_agree_with_highs() -> None:
    check_random_programs(6000, 12)


def check_large_programs(count: int, segments: int, candidates: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for turn in range(count):
        program = draw(rng, segments, candidates, hard=4, tightness=0.5)
        if turn % 2:
            own = rng.normal(size=(segments, candidates)) - 0.3
            owners = np.arange(segments)
            program = replace(program, own=own, own_penalties=np.full(segments, np.inf), owners=owners)
        solution = solve_segmented_program(program)
        prove(program, solution)
        other = solve_by_highs(program)
        assert (program.goal * solution.probabilities).sum() == pytest.approx(-other.fun, abs=1e-6)


def test_fifty_segments_agree_with_highs() -> None:
    check_large_programs(4, 50, 40, 13)


@pytest.mark.services
def test_fifty_segments_of_a_thousand_candidates_agree_with_highs() -> None:
    check_large_programs(20, 50, 1000, 14)


def test_soft_guardrails_agree_with_clarabel() -> None:
    rng = np.random.default_rng(15)
    for _ in range(40):
        program = draw(rng, 4, 8, hard=1, soft=1, own_hard=1, own_soft=2, tightness=0.0)
        rows, penalties, sums = flatten(program)
        hard = np.isinf(penalties)
        p = cp.Variable(32, nonneg=True)
        weighted = np.sqrt(penalties[~hard, None]) * rows[~hard]
        value = program.goal.ravel() @ p - cp.sum_squares(cp.neg(weighted @ p))
        problem = cp.Problem(cp.Maximize(value), [sums @ p == 1, rows[hard] @ p >= 0])
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
        solution = solve_segmented_program(program)
        assert solution.feasible == (problem.status == cp.OPTIMAL)
        if solution.feasible:
            levels = rows @ solution.probabilities.ravel()
            cost = (penalties[~hard] * np.minimum(levels[~hard], 0.0) ** 2).sum()
            reached = (program.goal * solution.probabilities).sum() - cost
            assert reached == pytest.approx(problem.value, rel=1e-6, abs=1e-6)


numbers = st.integers(-3, 3)


@st.composite
def degenerate_programs(draw: st.DrawFn, *, hard: bool) -> SegmentedProgram:
    """Return programs of small whole numbers: ties, duplicates, empty rows and one candidate."""
    segments, width = draw(st.integers(1, 6)), draw(st.integers(1, 8))
    common, own = draw(st.integers(0, 3)), draw(st.integers(0, 3))

    def table(*shape: int) -> FloatArray:
        size = int(np.prod(shape))
        return np.array(draw(st.lists(numbers, min_size=size, max_size=size)), dtype=float).reshape(shape)

    powers = st.floats(-3, 6)
    weights = [10.0 ** draw(st.one_of(st.just(np.inf), powers) if hard else powers) for _ in range(common + own)]
    owners = sorted(draw(st.lists(st.integers(0, segments - 1), min_size=own, max_size=own)))
    return SegmentedProgram(
        goal=table(segments, width),
        slack=table(common, segments, width),
        penalties=np.array(weights[:common], dtype=float),
        own=table(own, width),
        own_penalties=np.array(weights[common:], dtype=float),
        owners=np.array(owners, dtype=np.intp),
        shares=np.full(segments, 1.0 / segments),
    )


@settings(max_examples=200, deadline=None)
@given(program=degenerate_programs(hard=True))
def test_degenerate_programs_are_proved_optimal(program: SegmentedProgram) -> None:
    prove(program, solve_segmented_program(program))


@settings(max_examples=60, deadline=None)
@given(program=degenerate_programs(hard=False))
def test_the_interior_point_takes_what_column_generation_fails_on(program: SegmentedProgram) -> None:
    first = solve_segmented_program(program)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segmented, "_generate_columns", lambda scaled, *_: (None, np.zeros(scaled.give.shape[1])))
        second = solve_segmented_program(program)
    rows, _, _ = flatten(program)
    scale = np.abs(program.goal).sum() + np.concatenate([first.duals, first.own_duals]) @ np.abs(rows).sum(axis=1)
    assert value(program, second) == pytest.approx(value(program, first), abs=1e-8 * (1.0 + scale))


def value(program: SegmentedProgram, solution: SegmentedSolution) -> float:
    rows, penalties, _ = flatten(program)
    soft = np.isfinite(penalties)
    breach = np.minimum(0.0, rows[soft] @ solution.probabilities.ravel())
    return float((program.goal * solution.probabilities).sum() - penalties[soft] @ breach**2)


def test_both_methods_failing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    program = draw(np.random.default_rng(16), 3, 5, tightness=0.0)
    none = np.full((1, 3, 5), 0.2), np.zeros((1, 1)), np.zeros(1, dtype=bool)
    monkeypatch.setattr(segmented, "_generate_columns", lambda *_: (None, np.zeros(1)))
    monkeypatch.setattr(segmented, "segmented_interior_point", lambda *_, **__: none)
    with pytest.raises(SolverError, match="best blends of 3 segments and 5 candidates"):
        solve_segmented_program(program)


def test_one_segment_is_the_ordinary_program(random_program: Any) -> None:
    rng = np.random.default_rng(17)
    for _ in range(100):
        single: Program = random_program(rng, 20, 2, 1)
        program = SegmentedProgram(
            single.goal[None], single.slack[:, None], single.penalties, np.zeros((0, 20)), np.zeros(0),
            np.zeros(0, dtype=np.intp), np.ones(1),
        )  # fmt: skip
        expected, solution = solve_linear(single), solve_segmented_program(program)
        assert solution.probabilities[0] == pytest.approx(expected.probabilities, abs=1e-9)
        assert solution.duals == pytest.approx(expected.duals, rel=1e-7, abs=1e-9)


def test_without_common_guardrails_each_segment_is_solved_by_itself(random_program: Any) -> None:
    rng = np.random.default_rng(18)
    for _ in range(50):
        singles: list[Program] = [random_program(rng, 12, 1, 0) for _ in range(3)]
        shares = rng.dirichlet(np.ones(3))
        program = SegmentedProgram(
            goal=shares[:, None] * np.array([single.goal for single in singles]),
            slack=np.zeros((0, 3, 12)),
            penalties=np.zeros(0),
            own=np.concatenate([single.slack for single in singles]),
            own_penalties=np.full(3, np.inf),
            owners=np.arange(3),
            shares=shares,
        )
        solution = solve_segmented_program(program)
        for segment, single in enumerate(singles):
            assert solution.probabilities[segment] == pytest.approx(solve_linear(single).probabilities, abs=1e-9)


def stack(programs: list[SegmentedProgram]) -> SegmentedProgram:
    first = programs[0]
    return replace(
        first,
        goal=np.array([program.goal for program in programs]),
        slack=np.array([program.slack for program in programs]),
        own=np.array([program.own for program in programs]),
    )


@pytest.mark.parametrize(
    "counts", [{"hard": 2}, {"soft": 2, "hard": 0}, {"hard": 1, "soft": 1, "own_hard": 2, "own_soft": 1}]
)
@pytest.mark.parametrize("tightness", [0.0, 0.6])
def test_a_batch_equals_its_members(counts: dict[str, int], tightness: float) -> None:
    first = draw(np.random.default_rng(19), 6, 15, tightness=tightness, **counts)
    rng = np.random.default_rng(20)
    members = [
        replace(
            first,
            goal=first.goal + 0.3 * rng.normal(size=first.goal.shape),
            slack=first.slack + 0.3 * rng.normal(size=first.slack.shape),
            own=first.own + 0.3 * rng.normal(size=first.own.shape),
        )
        for _ in range(24)
    ]
    solutions = solve_segments_batch(stack(members))
    for place, member in enumerate(members):
        alone = solve_segmented_program(member)
        assert solutions.probabilities[place] == pytest.approx(alone.probabilities, abs=1e-8)
        assert solutions.duals[place] == pytest.approx(alone.duals, rel=1e-6, abs=1e-8)
        assert solutions.own_duals[place] == pytest.approx(alone.own_duals, rel=1e-6, abs=1e-8)
        assert solutions.feasible[place] == alone.feasible


def test_most_members_of_a_batch_are_solved_together(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = []

    def counted(program: SegmentedProgram) -> SegmentedSolution:
        alone.append(program)
        return solve_segmented_program(program)

    monkeypatch.setattr(segmented, "solve_segmented_program", counted)
    rng = np.random.default_rng(21)
    members = [draw(rng, 10, 30, hard=2, soft=1, tightness=0.0) for _ in range(60)]
    solutions = solve_segments_batch(stack([replace(member, penalties=members[0].penalties) for member in members]))
    assert solutions.feasible.all()
    assert len(alone) <= 3


def test_a_ratio_goal_agrees_with_a_search_over_its_level() -> None:
    rng = np.random.default_rng(22)
    names = ("n", "d", "y")
    objective = maximize(ratio("n", "d")).keep("y", at_least=0.9)
    for _ in range(10):
        shares = rng.dirichlet(np.ones(3))
        means = rng.uniform(0.5, 1.5, size=(3, 3, 10))
        form = objective.segmented_form(dict(zip("abc", shares.tolist(), strict=True)))
        solution = solve_segments(form, means)
        totals = np.einsum("s,smk,sk->m", shares, means, solution.probabilities)
        flat = (shares[:, None] * means.transpose(1, 0, 2)).reshape(len(names), -1)
        # Charnes and Cooper: with t = 1/D and u = t p, the ratio is linear.
        highs: Any = linprog
        result = highs(
            -np.append(flat[0], 0.0),
            A_ub=np.append(-flat[2], 0.9)[None],
            b_ub=[0.0],
            A_eq=np.vstack([np.append(flat[1], 0.0), np.hstack([np.kron(np.eye(3), np.ones(10)), -np.ones((3, 1))])]),
            b_eq=[1.0, 0.0, 0.0, 0.0],
            bounds=(0.0, None),
        )
        assert totals[0] / totals[1] == pytest.approx(-result.fun, abs=1e-6)
        assert solution.duals[0] == pytest.approx(-result.ineqlin.marginals[0] / totals[1], abs=1e-6)


KINDS: dict[str, tuple[Objective, Any]] = {
    "log": (
        utility(lambda y: np.log(y).sum(-1), lambda y: 1 / y, over={"a": (1e-3, 5), "b": (1e-3, 5)}),
        lambda y: cp.sum(cp.log(y)),
    ),
    "least": (
        utility(
            lambda y: y.min(-1),
            lambda y: 1.0 * (np.arange(y.shape[-1]) == y.argmin(-1)[..., None]),
            over={"a": (1e-3, 5), "b": (1e-3, 5)},
        ),
        cp.min,
    ),
}


@pytest.mark.parametrize("rails", ["none", "common", "own"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_utility_agrees_with_clarabel(kind: str, rails: str) -> None:
    rng = np.random.default_rng(23)
    stated, formula = KINDS[kind]
    objective = stated
    within = "each" if rails == "own" else None
    if rails != "none":
        objective = objective.keep("y", at_least=1.2, within=within).keep("z", at_least=1.4, penalty=3.0, within=within)
    shares = np.array([0.2, 0.3, 0.5])
    means = rng.uniform(0.1, 2, size=(3, len(objective.metrics), 15))
    form = objective.segmented_form({"u": 0.2, "v": 0.3, "w": 0.5})
    solution = solve_segments(form, means)
    p = cp.Variable((3, 15), nonneg=True)
    vectors = [means[segment] @ p[segment] for segment in range(3)]
    total = sum(share * vector for share, vector in zip(shares, vectors, strict=True))
    value, limits = formula(total[:2]), [cp.sum(p, axis=1) == 1]
    for vector, weight in [(total, 1.0)] if rails == "common" else list(zip(vectors, shares, strict=True)):
        if rails != "none":
            limits.append(vector[2] >= 1.2)
            value = value - 3.0 * weight * cp.square(cp.neg(vector[3] - 1.4))
    problem = cp.Problem(cp.Maximize(value), limits)
    problem.solve(solver=cp.CLARABEL)
    assert solution.feasible
    reached = form.smooth(np.einsum("smk,sk->sm", means, solution.probabilities))
    assert float(reached) == pytest.approx(problem.value, rel=1e-6, abs=1e-7)
    assert np.count_nonzero(solution.probabilities) <= 3 + means.shape[1] + 6


def test_an_infeasible_utility_is_the_best_of_the_nearest() -> None:
    means = np.array([[[1.0, 2.0, 0.5], [1.0, 0.5, 2.0], [0.0, 1.0, 1.0]]] * 2)
    form = KINDS["log"][0].keep("y", at_least=2).segmented_form({"u": 0.5, "v": 0.5})
    solution = solve_segments(form, means)
    assert not solution.feasible
    assert solution.probabilities.mean(axis=0) == pytest.approx([0.0, 0.5, 0.5], abs=1e-6)


def test_a_wrong_guess_of_the_optimum_is_refused() -> None:
    rng = np.random.default_rng(24)
    program = draw(rng, 5, 8, hard=1, soft=1, own_hard=1, tightness=0.0)
    solution = solve_segmented_program(program)
    rows = program.rows()
    shares, duals = solution.probabilities, np.concatenate([solution.duals, solution.own_duals])
    vertex = find_vertex(rows, 0, np.where(shares > 0.0, 2.0, 0.0), duals > 0.0)
    assert vertex is not None
    assert vertex[0] == pytest.approx(shares, abs=1e-9)
    assert vertex[1] == pytest.approx(duals, abs=1e-9)
    pure = int(np.flatnonzero((shares > 0.0).sum(axis=1) == 1)[0])
    for candidate in np.flatnonzero(shares[pure] == 0.0).tolist():  # one segment at another candidate
        strength = np.where(shares > 0.0, 2.0, 0.0)
        strength[pure] = 0.0
        strength[pure, candidate] = 2.0
        assert find_vertex(rows, 0, strength, duals > 0.0) is None
    binding = int(np.argmax(duals))
    dropped = (duals > 0.0) & (np.arange(len(duals)) != binding)
    assert find_vertex(rows, 0, np.where(shares > 0.0, 2.0, 0.0), dropped) is None


def test_a_program_has_the_value_of_its_form() -> None:
    rng = np.random.default_rng(25)
    objective = maximize({"a": 1.0, "b": 0.5}).keep("b", at_least="-5%").keep("a", at_least=0.3, within="each")
    means = rng.uniform(0.5, 2.0, size=(3, 2, 6))
    form = objective.segmented_form({"u": 0.2, "v": 0.3, "w": 0.5}, means[:, :, 0])
    program = SegmentedProgram.of(form, means)
    shares = rng.dirichlet(np.ones(6), size=3)
    vectors = np.einsum("smk,sk->sm", means, shares)
    assert (program.goal * shares).sum() == pytest.approx(float(form.smooth(vectors)))
    levels = program.rows().levels(0, shares)
    assert levels[0] == pytest.approx(form.common.slack(form.mix(vectors))[0])
    assert levels[1:] == pytest.approx(vectors[:, 0] - 0.3)
