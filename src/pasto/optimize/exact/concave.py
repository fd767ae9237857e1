"""Concave utilities: the best blend by Newton steps inside the simplex and the guardrails.

Around the blend so far, the utility is its tangent plus its curvature: a program in which the curvature is a few more
penalised rows, solved exactly. An exact line search towards that program's optimum never falls (with no curvature
it would be a Frank–Wolfe step), and the tangent bounds what is left to gain:

    f* − f(p) ≤ max_k (∇_k + π · slack_k) − ∇ · p,   ∇ = meansᵀ ∇f(y), π the hard guardrails' multipliers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import SolverError
from pasto.objective import NormalForm, UtilityGoal
from pasto.optimize.exact.solver import Program, Solution, solve_linear, solve_with_two_sided_penalties

MAX_CUTS = 400


def solve_by_cuts(
    smooth: NormalForm,
    means: FloatArray,
    limits: FloatArray,
    start: FloatArray,
    *,
    gap: float,
    scale: float = 1.0,
    weights: FloatArray | None = None,
    segments: int = 1,
) -> tuple[FloatArray, FloatArray]:
    """Return shares within gap · scale of the best, and multipliers of limits (hard guardrails, candidates) · p ≥ 0.

    smooth is a form without hard guardrails, whose values spread over about scale; start are shares that meet the
    limits. With segments, their candidates are side by side, the shares of each sum to one, and weights
    (candidates,) spread a constant over them, as in `climb_utility`.

    >>> import numpy as np, pasto
    >>> over = {"a": (-1, 3), "b": (-1, 3)}
    >>> least = pasto.utility(lambda y: y.min(-1), lambda y: 1.0 * (y == y.min(-1, keepdims=True)), over=over).form()
    >>> solve_by_cuts(least, np.array([[2.0, 0.0], [0.0, 2.0]]), np.zeros((0, 2)), np.array([1.0, 0.0]), gap=1e-9)[0]
    array([0.5, 0.5])
    """
    from scipy.optimize import linprog  # slow to load, and seldom needed

    width, firm = means.shape[1], len(limits)
    sizes = np.abs(limits).max(axis=1, initial=0.0)
    units = np.where(sizes > 0.0, sizes, 1.0)  # the linear program's tolerances are absolute
    rails = np.hstack([-limits / units[:, None], np.zeros((firm, 1))])
    gain = np.inf
    origin = float(smooth.smooth(means @ start))
    here, best, below = start, start, 0.0
    planes = np.zeros((0, width))
    for _ in range(MAX_CUTS):
        vector = means @ here
        slope = smooth.gradient(vector)
        constant = float(smooth.smooth(vector)) - origin - slope @ vector
        plane = slope @ means + (constant if weights is None else constant * weights)
        planes = np.vstack([planes, plane / scale])
        rows = np.vstack([rails, np.hstack([-planes, np.ones((len(planes), 1))])])
        result = linprog(
            np.append(np.zeros(width), -1.0),
            A_ub=rows,
            b_ub=np.zeros(len(rows)),
            A_eq=np.hstack([np.kron(np.eye(segments), np.ones(width // segments)), np.zeros((segments, 1))]),
            b_eq=np.ones(segments),
            bounds=[(0.0, None)] * width + [(None, None)],
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        if result.x is None:
            raise SolverError(f"the linear program over {len(planes)} tangents of the utility failed: {result.message}")
        here = np.maximum(result.x[:-1], 0.0)
        here = (here.reshape(segments, -1) / here.reshape(segments, -1).sum(axis=1, keepdims=True)).ravel()
        value = (float(smooth.smooth(means @ here)) - origin) / scale
        if value > below:
            best, below = here, value
        gain = float(result.x[-1]) - below
        if gain <= gap:
            return best, -result.ineqlin.marginals[:firm] * scale / units
    raise SolverError(
        f"the utility could not be maximised with {MAX_CUTS} tangents: {gain * scale:.3g} may still be gained; is it "
        "concave, and its gradient right, over all of over=?"
    )


MAX_NEWTON_STEPS = 100

TARGET_GAP = 1e-8
"""The largest gap to the optimum that is accepted, relative to the spread of f over the candidates."""


def solve_utility(form: NormalForm, goal: UtilityGoal, means: FloatArray) -> Solution:
    """Return the blend with the best utility, to a gap of a hundred-millionth of its spread over the candidates.

    >>> import numpy as np, pasto
    >>> over = {"buyers": (0.1, 10), "sellers": (0.1, 10)}
    >>> form = pasto.utility(lambda y: np.log(y).sum(axis=-1), lambda y: 1 / y, over=over).form()
    >>> solve_utility(form, form.goal, np.array([[4.0, 1.0], [1.0, 4.0]])).probabilities.round(6)
    array([0.5, 0.5])
    """
    slack = form.rows @ means - form.at[:, None]
    smooth = _drop_hard_guardrails(form)
    values = smooth.smooth(means.T)
    scale = _scale(values, float(smooth.smooth(means.mean(axis=1))))
    first = solve_linear(Program(values, slack[form.hard], form.penalties[form.hard]))
    if not first.feasible:
        slack = slack - np.where(form.hard, np.minimum(slack @ first.probabilities, 0.0), 0.0)[:, None]

    def solve_model(goals: FloatArray, bends: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return shares and multipliers for a linear goal and rows that are penalised on both sides."""
        penalties = np.concatenate([form.penalties, np.full(len(bends), 0.5)])
        model = Program(goals, np.vstack([slack, bends]), penalties)
        solution = solve_with_two_sided_penalties(model, np.arange(len(model.slack)) >= len(slack))
        return solution.probabilities, solution.duals[: len(slack)]

    weights = np.ones(means.shape[1])
    shares, duals = climb_utility(
        smooth, goal, means, slack, form.hard, solve_model, first.probabilities, scale, weights
    )
    return Solution(shares, duals, first.feasible)


def climb_utility(
    smooth: NormalForm,
    goal: UtilityGoal,
    means: FloatArray,
    slack: FloatArray,
    hard: NDArray[np.bool_],
    solve_model: Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]],
    start: FloatArray,
    scale: float,
    weights: FloatArray,
    segments: int = 1,
) -> tuple[FloatArray, FloatArray]:
    """Return shares with the best utility and all guardrails' multipliers, by Newton steps from a feasible start.

    smooth is the form without its hard guardrails; hard marks them among the rows of slack (guardrails, candidates).
    With segments, their candidates are side by side. A constant is spread over the candidates by weights (candidates,),
    whose blend is 1.
    """
    here, last = start, np.inf
    for _ in range(MAX_NEWTON_STEPS):
        vector = means @ here
        bend = _curvature(goal, vector)
        there, duals = solve_model(goal.gradient(vector) @ means, bend @ (means - vector[:, None] * weights))
        slope = smooth.gradient(vector) @ means
        priced = (slope + np.where(hard, duals, 0.0) @ slack).reshape(segments, -1)
        gap = float(priced.max(axis=1).sum() - slope @ here)
        step = _line_search(smooth, vector, means @ there)
        moved = there if step == 1.0 else here + step * (there - here)
        stuck = bool((moved == here).all())
        if gap <= TARGET_GAP * scale and (stuck or gap <= 1e-3 * TARGET_GAP * scale or gap > last / 2.0):
            return thin_out(here, np.vstack([means, slack]), segments), duals
        if stuck:
            break
        here, last = moved, gap
    # Newton steps stop short at a kink, because one gradient is not the complete slope there.
    shares, multipliers = solve_by_cuts(
        smooth, means, slack[hard], here, gap=TARGET_GAP, scale=scale, weights=weights, segments=segments
    )
    duals = np.zeros(len(slack))
    duals[hard] = multipliers
    return thin_out(shares, np.vstack([means, slack]), segments), duals


def _drop_hard_guardrails(form: NormalForm) -> NormalForm:
    """Return the form without its hard guardrails, which has a gradient everywhere."""
    soft = ~form.hard
    names = tuple(name for name, is_soft in zip(form.names, soft, strict=True) if is_soft)
    return NormalForm(form.goal, names, form.rows[soft], form.at[soft], form.penalties[soft], form.relief[soft])


def _scale(values: FloatArray, even: float) -> float:
    """Return the spread of f over the candidates (candidates,) and their even blend, or its size if it has none."""
    spread = max(float(np.ptp(values)), even - float(values.min()))
    return spread or float(np.abs(values).max()) or 1.0


def _curvature(goal: UtilityGoal, vector: FloatArray) -> FloatArray:
    """Return rows R (rank, metrics) with RᵀR = −∇²U, from differences of the gradient inside the checked ranges."""
    places = list(goal.columns)
    low, high = (np.array([goal.over[name][side] for name in goal.over]) for side in (0, 1))
    inner = vector[places]
    above = np.minimum(inner + 1e-5 * (high - low), high)
    below = np.maximum(inner - 1e-5 * (high - low), low)
    points = np.tile(inner, (2 * len(inner), 1))
    points[range(len(inner)), range(len(inner))] = above
    points[range(len(inner), 2 * len(inner)), range(len(inner))] = below
    slopes = goal.derivative(points)
    hessian = (slopes[: len(inner)] - slopes[len(inner) :]) / (above - below)[:, None]
    ranges = high - low  # metrics in units of their own range, so that which directions bend depends on no unit
    bends, axes = np.linalg.eigh(-(hessian + hessian.T) / 2.0 * np.outer(ranges, ranges))
    bent = bends > 1e-12 * max(float(bends[-1]), 0.0)
    rows = np.zeros((int(bent.sum()), len(vector)))
    rows[:, places] = np.sqrt(bends[bent])[:, None] * axes[:, bent].T / ranges
    return rows


def _line_search(smooth: NormalForm, here: FloatArray, there: FloatArray) -> float:
    """Return the part of the way to `there` on which f rises, in [0, 1]."""
    from scipy.optimize import brentq  # slow to load, and needed by utilities only

    def rise(step: float) -> float:
        return float(smooth.gradient(here + step * (there - here)) @ (there - here))

    if rise(1.0) >= 0.0:
        return 1.0
    if rise(0.0) <= 0.0:
        return 0.0
    return float(brentq(rise, 0.0, 1.0, xtol=1e-15))


def thin_out(probabilities: FloatArray, rows: FloatArray, segments: int = 1) -> FloatArray:
    """Return the same rows · p from as few candidates as possible; with segments, their candidates are side by side.

    >>> import numpy as np
    >>> thin = thin_out(np.array([0.25, 0.25, 0.5]), np.array([[0.0, 1.0, 2.0]]))
    >>> int(np.count_nonzero(thin)), round(float(thin @ [0.0, 1.0, 2.0]), 12)
    (2, 1.25)
    """
    thin = probabilities.copy()
    owner = np.repeat(np.arange(segments), len(thin) // segments)
    while True:
        support = np.flatnonzero(thin)
        matrix = np.vstack([owner[support] == np.arange(segments)[:, None], rows[:, support]])
        sizes = np.abs(matrix).max(axis=1)
        matrix /= np.where(sizes > 0.0, sizes, 1.0)[:, None]
        _, strengths, directions = np.linalg.svd(matrix)
        if len(support) == 1 or (len(support) <= len(strengths) and strengths[len(support) - 1] > 1e-12):
            return thin
        direction = directions[-1] if directions[-1].min() < 0.0 else -directions[-1]
        ratios = np.where(direction < 0.0, thin[support] / np.where(direction < 0.0, -direction, 1.0), np.inf)
        thin[support] = np.maximum(thin[support] + ratios.min() * direction, 0.0)
        thin[support[int(np.argmin(ratios))]] = 0.0
