"""The best blend for any kind of goal: the one place where the kinds are told apart."""

from __future__ import annotations

from pasto.errors import Unsupported
from pasto.objective import Array, Form, LinearGoal, RatioGoal, UtilityGoal
from pasto.optimize.exact.concave import best_utility
from pasto.optimize.exact.linear import best
from pasto.optimize.exact.program import Program, Solution
from pasto.optimize.exact.ratio import best_ratio


def optimum(form: Form, means: Array) -> Solution:
    """The best blend of means (metrics, candidates), without names or records.

    >>> import numpy as np, pasto
    >>> form = pasto.maximize("x").keep("y", at_least=0).form()
    >>> optimum(form, np.array([[2.0, 0.0], [-2.0, 2.0]])).probabilities
    array([0.5, 0.5])
    """
    match form.goal:
        case LinearGoal():
            return best(Program.of(form, means))
        case RatioGoal() as goal:
            return best_ratio(form, goal, means)
        case UtilityGoal() as goal:
            return best_utility(form, goal, means)
    raise Unsupported(f"no exact answer for a goal of kind {type(form.goal).__name__}")
