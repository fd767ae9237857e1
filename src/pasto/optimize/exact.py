"""The exact best blend of one program."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pasto.errors import SolverFailed
from pasto.objective import Array
from pasto.optimize.climb import Stand, climb
from pasto.optimize.program import Program, Solution

STEPS = 500


def best(program: Program) -> Solution:
    """The best p of one program.

    >>> import numpy as np
    >>> solution = best(Program(np.array([2.0, 0.0]), np.array([[-2.0, 2.0]]), np.array([np.inf])))
    >>> solution.probabilities, solution.duals, solution.feasible
    (array([0.5, 0.5]), array([0.5]), True)
    """
    return best_with_springs(program, np.zeros(len(program.penalties), dtype=bool))


def best_with_springs(program: Program, springs: NDArray[np.bool_]) -> Solution:
    """The best p where some rows are springs: soft, and pulled back to zero from both sides."""
    count = len(program.goal)
    goal, goal_unit = _scaled_goal(program.goal)
    units = _powers(np.abs(program.slack).max(axis=1, initial=0.0))
    slack = program.slack / units[:, None]
    hard = np.isinf(program.penalties)
    give = np.where(hard, 0.0, goal_unit / (2.0 * np.where(hard, 1.0, program.penalties) * units**2))
    start, allowance = _start(goal, slack, give, hard)
    if allowance.any():
        slack = slack + allowance[:, None]
    held = [*start.held, *(g for g in np.flatnonzero(springs).tolist() if g not in start.held)]
    stand = climb(goal, slack, give, replace(start, held=held), steps=STEPS, free=springs)
    if not stand.done:
        raise SolverFailed(f"no optimum within {STEPS} steps")
    probabilities = np.zeros(count)
    probabilities[stand.support] = stand.shares
    probabilities[probabilities < 1e-12] = 0.0
    total = probabilities.sum()
    if total != 1.0:
        probabilities /= total
    return Solution(
        probabilities,
        np.where(springs, stand.duals, np.maximum(stand.duals, 0.0)) * goal_unit / units,
        bool(allowance.max(initial=0.0) <= 1e-9),
    )


def _start(goal: Array, slack: Array, give: Array, hard: Array) -> tuple[Stand, Array]:
    """A stand that meets every hard guardrail, and by how much each had to be lowered so that one exists."""
    nothing = np.zeros(len(give))
    met = (slack[hard] >= 0.0).all(axis=0)
    if met.any():
        first = int(np.argmax(np.where(met, goal, -np.inf)))
        return Stand(
            [first], np.ones(1), [g for g in range(len(give)) if not hard[g] and slack[g, first] < 0.0]
        ), nothing
    rows = slack[hard]
    spread = np.ptp(rows, axis=1)
    spread[spread == 0.0] = 1.0
    scaled = rows / spread[:, None]
    first = int(np.argmin((np.minimum(scaled, 0.0) ** 2).sum(axis=0)))
    missed = [g for g in range(len(rows)) if scaled[g, first] < 0.0]
    near = climb(np.zeros(len(goal)), scaled, np.ones(len(rows)), Stand([first], np.ones(1), missed), steps=STEPS)
    if not near.done:
        raise SolverFailed(f"no nearest blend within {STEPS} steps")
    reached = slack[:, near.support] @ near.shares
    allowance = np.where(hard, np.maximum(-reached, 0.0), 0.0)
    tight = [g for g in range(len(give)) if hard[g] and reached[g] <= 1e-13]
    matrix = np.ones((1, len(near.support)))
    held = []
    for g in tight:
        grown = np.vstack([matrix, slack[g, near.support] + allowance[g]])
        if np.linalg.matrix_rank(grown, tol=1e-10) == len(grown):
            matrix = grown
            held.append(g)
    held += [g for g in range(len(give)) if not hard[g] and reached[g] < 0.0]
    return Stand(near.support, near.shares, held), allowance


def _scaled_goal(goal: Array) -> tuple[Array, float]:
    """The goal with its best at 0 and its spread at about 1."""
    centred = goal - goal.max()
    unit = float(_powers(np.array([-centred.min()]))[0])
    return centred / unit, unit


def _powers(sizes: Array) -> Array:
    """The power of two next to each size, so that scaling by it rounds nothing; 1 for a size of 0."""
    return np.where(sizes > 0.0, np.ldexp(1.0, np.frexp(sizes)[1]), 1.0)
