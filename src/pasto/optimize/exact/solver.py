"""Exact solver: the best blend for any kind of goal."""

from __future__ import annotations

from pasto.arrays import FloatArray
from pasto.errors import UnsupportedError
from pasto.objective import LinearGoal, NormalForm, RatioGoal, UtilityGoal
from pasto.optimize.exact.concave import solve_utility
from pasto.optimize.exact.linear import solve_linear
from pasto.optimize.exact.program import Program, Solution
from pasto.optimize.exact.ratio import solve_ratio


def solve_exact(form: NormalForm, means: FloatArray) -> Solution:
    """Return the best blend of means (metrics, candidates), without names or records.

    >>> import numpy as np, pasto
    >>> form = pasto.maximize("x").keep("y", at_least=0).form()
    >>> solve_exact(form, np.array([[2.0, 0.0], [-2.0, 2.0]])).probabilities
    array([0.5, 0.5])
    """
    match form.goal:
        case LinearGoal():
            return solve_linear(Program.of(form, means))
        case RatioGoal() as goal:
            return solve_ratio(form, goal, means)
        case UtilityGoal() as goal:
            return solve_utility(form, goal, means)
    raise UnsupportedError(f"no exact answer for a goal of kind {type(form.goal).__name__}")
