"""Exact solver: the best blend for any kind of goal, from concave quadratic programs over the simplex of candidates.

A linear goal is one program, a ratio a few of them (`ratio`), and a concave utility one in each Newton step
(`concave`). Single programs are solved by an active set, and many of one shape by an interior point.

Both are needed, and both are faster than HiGHS (`scipy.optimize.linprog`), which takes no penalties. Milliseconds of
`pasto bench solve` for two hard guardrails, for all problems together:

| candidates | problems | here | HiGHS one by one |
|---|---|---|---|
| 100 | 1 | 0.5 (active set) | 1.3 |
| 100,000 | 1 | 44 (active set) | 4,200 |
| 100 | 256 | 35 (interior point; 0.14 each) | 1,290 |
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import SolverError, UnsupportedError
from pasto.objective import LinearGoal, NormalForm, RatioGoal, UtilityGoal
from pasto.objective.normal_form import TOLERANCE
from pasto.optimize.exact.active_set import ActiveSet, solve_active_set
from pasto.optimize.exact.interior_point import interior_point

SECOND_METHOD_GAP = 1e-9
"""The gap to the optimum above which the second method is tried; the goal's spread is about one."""

MAX_GAP = 1e-6
"""The gap above which no answer is given."""

MAX_BATCH_CANDIDATES = 600
"""Candidates above which one problem at a time is faster, because it uses a few columns only."""

CHUNK_SHARES = 16_384
"""Shares of one chunk: they fit in a processor's cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Maximise goal · p − Σ λ_g min(0, slack_g · p)² over soft g, with slack_g · p ≥ 0 for hard g and p on the simplex.

    Every constant is folded into the columns, because p sums to one. Leading axes, if there are any, run over many
    problems of one shape.

    >>> import numpy as np, pasto
    >>> form = pasto.maximize("x").keep("y", at_least=1).form()
    >>> Program.of(form, np.array([[2.0, 0.0], [-2.0, 2.0]])).slack
    array([[-3.,  1.]])
    """

    goal: FloatArray
    """(..., candidates)."""
    slack: FloatArray
    """(..., guardrails, candidates)."""
    penalties: FloatArray
    """(guardrails,): λ, infinite for a hard guardrail."""

    @classmethod
    def of(cls, form: NormalForm, means: FloatArray) -> Program:
        """Return the program of a form with a linear goal over means (..., metrics, candidates)."""
        if not isinstance(form.goal, LinearGoal):
            raise UnsupportedError(
                f"a program needs a goal that is a weighted sum of metrics, got a {type(form.goal).__name__}; "
                "`solve_exact` takes every kind of goal"
            )
        goal = form.goal.row @ means + form.goal.offset
        return cls(goal, form.rows @ means - form.at[:, None], form.penalties)

    def value(self, probabilities: FloatArray) -> FloatArray:
        """Return the goal less the soft penalties, (...); hard guardrails are ignored."""
        soft = np.isfinite(self.penalties)
        value = (self.goal * probabilities).sum(axis=-1)
        breach = np.minimum(0.0, (self.slack[..., soft, :] @ probabilities[..., None])[..., 0])
        return np.asarray(value - (breach**2) @ self.penalties[soft])


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """The best p of a program, with the guardrails' multipliers.

    >>> import numpy as np
    >>> Solution(np.array([0.5, 0.5]), np.array([0.5]), True).duals
    array([0.5])
    """

    probabilities: FloatArray
    """(candidates,)."""
    duals: FloatArray
    """(guardrails,): π ≥ 0, by how much the value rises as a unit is added to a guardrail's slack."""
    feasible: bool
    """True if some p meets every hard guardrail; otherwise p is the nearest miss."""


@dataclass(frozen=True, slots=True, eq=False)
class Solutions:
    """The best p of each of many programs of one shape.

    >>> import numpy as np
    >>> Solutions(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([[0.0], [0.5]]), np.array([True, True])).duals.shape
    (2, 1)
    """

    probabilities: FloatArray
    """(problems, candidates)."""
    duals: FloatArray
    """(problems, guardrails)."""
    feasible: NDArray[np.bool_]
    """(problems,)."""


@dataclass(frozen=True, slots=True, eq=False)
class ScaledProgram:
    """Maximise goal · p − Σ min(0, slack_g · p)² / (2 give_g); give is 0 for a hard guardrail.

    Leading axes run over many problems, as in the program.
    """

    goal: FloatArray
    """(..., candidates): the best is 0, the worst between −1/2 and −1."""
    slack: FloatArray
    """(..., guardrails, candidates): the largest, either way, between 1/2 and 1."""
    give: FloatArray
    """(..., guardrails): 1/2λ, the shortfall of a guardrail for a unit of multiplier."""
    hard: NDArray[np.bool_]
    """(guardrails,)."""
    exchange: FloatArray
    """(..., guardrails): a unit multiplier of the scaled problem in the program's own units."""

    @classmethod
    def of(cls, program: Program) -> ScaledProgram:
        """Scale a program."""
        hard = np.isinf(program.penalties)
        penalties = np.where(hard, 1.0, program.penalties)
        units = powers(np.abs(program.slack).max(axis=-1))
        goal = program.goal - program.goal.max(axis=-1, keepdims=True)
        spread = -goal.min(axis=-1)
        if not spread.all():
            # A goal that is the same everywhere has no scale: the heaviest penalty of one candidate sets it.
            cost = penalties[~hard, None] * np.minimum(program.slack[..., ~hard, :], 0.0) ** 2
            spread = np.where(spread > 0.0, spread, cost.max(axis=(-2, -1), initial=0.0))
        unit = powers(spread)[..., None]
        return cls(
            goal=goal / unit,
            slack=program.slack / units[..., None],
            give=np.where(hard, 0.0, unit / (2.0 * penalties) / units**2),
            hard=hard,
            exchange=unit / units,
        )


def powers(sizes: FloatArray) -> FloatArray:
    """Return the power of two above each size; 1 for a size of 0, or so small that its square would be 0.

    >>> powers(np.array([0.0, 0.3, 5.0])).tolist()
    [1.0, 0.5, 8.0]
    """
    return np.where(sizes > 1e-100, np.ldexp(1.0, np.frexp(sizes)[1]), 1.0)


def solve_exact(form: NormalForm, means: FloatArray) -> Solution:
    """Return the best blend of means (metrics, candidates), without names or records.

    >>> import numpy as np, pasto
    >>> form = pasto.maximize("x").keep("y", at_least=0).form()
    >>> solve_exact(form, np.array([[2.0, 0.0], [-2.0, 2.0]])).probabilities
    array([0.5, 0.5])
    """
    from pasto.optimize.exact.concave import solve_utility  # both solve programs by the functions below
    from pasto.optimize.exact.ratio import solve_ratio

    match form.goal:
        case LinearGoal():
            return solve_linear(Program.of(form, means))
        case RatioGoal() as goal:
            return solve_ratio(form, goal, means)
        case UtilityGoal() as goal:
            return solve_utility(form, goal, means)
    raise UnsupportedError(f"no exact answer for a goal of kind {type(form.goal).__name__}")


def solve_linear(program: Program) -> Solution:
    """Return the best p of one program, with at most one candidate more than there are guardrails.

    If no p meets every hard guardrail, p makes the sum of squared shortfalls least, each in units of its
    guardrail's spread over the candidates, and is the best such p.

    >>> import numpy as np
    >>> solution = solve_linear(Program(np.array([2.0, 0.0]), np.array([[-2.0, 2.0]]), np.array([np.inf])))
    >>> solution.probabilities, solution.duals, solution.feasible
    (array([0.5, 0.5]), array([0.5]), True)
    """
    return solve_with_two_sided_penalties(program, np.zeros(len(program.penalties), dtype=bool))


def solve_with_two_sided_penalties(program: Program, springs: NDArray[np.bool_]) -> Solution:
    """Return the best p if some soft guardrails, marked in springs (guardrails,), are penalised on both sides."""
    scaled = ScaledProgram.of(program)
    start, allowance = _start(scaled)
    start.held = [*start.held, *(rail for rail in np.flatnonzero(springs).tolist() if rail not in start.held)]
    slack = scaled.slack + allowance[:, None] if allowance.any() else scaled.slack
    shares, duals = _maximize(scaled.goal, slack, scaled.give, start, springs)
    duals = np.where(springs, duals, np.maximum(duals, 0.0)) * scaled.exchange
    feasible = bool((allowance <= TOLERANCE * np.abs(scaled.slack).max(axis=1, initial=0.0)).all())
    return Solution(_clean(shares), duals, feasible)


def _maximize(
    goal: FloatArray, slack: FloatArray, give: FloatArray, start: ActiveSet, springs: NDArray[np.bool_] | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return shares and multipliers with a small duality gap; by the interior point if the active set fails."""
    both = np.zeros(len(give), dtype=bool) if springs is None else springs
    state = solve_active_set(goal, slack, give, start, springs=both)
    shares, duals = np.zeros(len(goal)), state.duals
    shares[state.support] = state.shares
    gap = _gap(goal, slack, give, both, shares, duals) if state.done else np.inf
    if gap > SECOND_METHOD_GAP:
        doubled, gives = np.vstack([slack, -slack[both]]), np.concatenate([give, give[both]])
        inner, prices, _ = interior_point(goal[None], doubled[None], gives[None])
        others = prices[0, : len(give)]
        others[both] -= prices[0, len(give) :]
        if (less := _gap(goal, slack, give, both, inner[0], others)) < gap:
            shares, duals, gap = inner[0], others, less
    if gap > MAX_GAP:
        raise SolverError(
            f"the best blend of {len(goal)} candidates was found only to a gap of {gap:.3g} of the goal's spread; are "
            "the metrics or the penalties many orders of magnitude apart?"
        )
    return shares, duals


def _gap(
    goal: FloatArray,
    slack: FloatArray,
    give: FloatArray,
    both: NDArray[np.bool_],
    shares: FloatArray,
    duals: FloatArray,
) -> float:
    """Return the larger of the duality gap at the shares and the shortfall of a hard guardrail."""
    levels, hard = slack @ shares, give == 0.0
    breach = np.where(both, levels, np.minimum(levels, 0.0))
    cost = float((breach[~hard] ** 2 / (2.0 * give[~hard])).sum())
    bound = float((goal + duals @ slack).max()) + float(duals**2 @ give) / 2.0
    scale = 1.0 + cost + float(np.abs(duals).max(initial=0.0))
    return max((bound - float(goal @ shares) + cost) / scale, -float(levels[hard].min(initial=0.0)))


def _start(scaled: ScaledProgram) -> tuple[ActiveSet, FloatArray]:
    """Return a state that meets every hard guardrail, and the amounts by which each is lowered so that one exists."""
    slack, hard = scaled.slack, scaled.hard
    rows = slack[hard]
    met = (rows >= 0.0).all(axis=0)
    if met.any():
        first = int(np.argmax(np.where(met, scaled.goal, -np.inf)))
        missed = np.flatnonzero(~hard & (slack[:, first] < 0.0)).tolist()
        return ActiveSet([first], np.ones(1), missed), np.zeros(len(hard))
    rows = rows / spreads(rows)[:, None]
    first = int(np.argmin((np.minimum(rows, 0.0) ** 2).sum(axis=0)))
    alone = ActiveSet([first], np.ones(1), np.flatnonzero(rows[:, first] < 0.0).tolist())
    shares, _ = _maximize(np.zeros(len(scaled.goal)), rows, np.ones(len(rows)), alone)
    support = np.flatnonzero(shares).tolist()
    levels = slack @ shares
    allowance = np.where(hard, np.maximum(-levels, 0.0), 0.0)
    columns = slack[:, support] + allowance[:, None]
    held = independent_rows(columns, np.flatnonzero(hard & (levels <= 1e-13)).tolist(), np.ones((1, len(support))))
    held += np.flatnonzero(~hard & (levels < 0.0)).tolist()
    return ActiveSet(support, shares[support], held), allowance


def spreads(slack: FloatArray) -> FloatArray:
    """Return the range of each guardrail's slack over the candidates, or its size if they are all the same."""
    spread, size = np.ptp(slack, axis=1), np.abs(slack).max(axis=1, initial=0.0)
    return np.where(spread > TOLERANCE * size, spread, np.where(size > 0.0, size, 1.0))


def independent_rows(columns: FloatArray, rails: list[int], members: FloatArray) -> list[int]:
    """Return as many of these guardrails as shares of these columns can hold at once.

    members (segments, candidates) is 1 in the row of each candidate's segment.

    >>> independent_rows(np.array([[1.0, -1.0], [2.0, -2.0]]), [0, 1], np.ones((1, 2)))
    [0]
    """
    held: list[int] = []
    matrix = np.asarray(members, dtype=float)
    for rail in rails:
        grown = np.vstack([matrix, columns[rail]])
        if len(grown) <= columns.shape[1] and np.linalg.svd(grown, compute_uv=False)[-1] > 1e-10:
            matrix, held = grown, [*held, rail]
    return held


def _clean(shares: FloatArray) -> FloatArray:
    """Return shares without tiny ones that sum to one."""
    clean = np.where(shares < 1e-12, 0.0, shares)
    total = float(clean.sum())
    return clean if total == 1.0 else clean / total


def solve_batch(program: Program) -> Solutions:
    """Return the best p of each problem; the same as `solve_linear` one by one, many times faster.

    goal (problems, candidates), slack (problems, guardrails, candidates).

    >>> import numpy as np
    >>> goal, slack = np.array([[2.0, 0.0], [0.0, 2.0]]), np.array([[[-2.0, 2.0]], [[-2.0, 2.0]]])
    >>> solve_batch(Program(goal, slack, np.array([np.inf]))).probabilities
    array([[0.5, 0.5],
           [0. , 1. ]])
    """
    count, width = program.goal.shape
    answer = Solutions(np.zeros((count, width)), np.zeros((count, len(program.penalties))), np.ones(count, dtype=bool))
    first = program.goal.argmax(axis=1)
    free = (program.slack[np.arange(count), :, first] >= 0.0).all(axis=1)
    answer.probabilities[np.flatnonzero(free), first[free]] = 1.0
    rest = np.flatnonzero(~free)
    size = max(1, CHUNK_SHARES // width)
    for begin in range(0, len(rest), size):
        _solve(program, rest[begin : begin + size], answer)
    return answer


def _solve(program: Program, places: np.ndarray[tuple[int, ...], np.dtype[np.intp]], answer: Solutions) -> None:
    """Write the answers of some of the problems."""
    if program.goal.shape[1] <= MAX_BATCH_CANDIDATES and len(places) > 2:
        scaled = ScaledProgram.of(Program(program.goal[places], program.slack[places], program.penalties))
        shares, duals, solved = interior_point(scaled.goal, scaled.slack, scaled.give, leave=len(places) // 32)
        answer.probabilities[places[solved]] = shares[solved] / shares[solved].sum(axis=1, keepdims=True)
        answer.duals[places[solved]] = (duals * scaled.exchange)[solved]
        places = places[~solved]
    for place in places.tolist():
        solution = solve_linear(Program(program.goal[place], program.slack[place], program.penalties))
        answer.probabilities[place], answer.duals[place] = solution.probabilities, solution.duals
        answer.feasible[place] = solution.feasible
