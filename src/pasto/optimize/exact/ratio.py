"""Ratio goals: the blend with the best ratio of two metrics, by Dinkelbach's iteration."""

from __future__ import annotations

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import SolverError
from pasto.objective import NormalForm, RatioGoal
from pasto.optimize.exact.solver import Program, Solution, solve_linear


def solve_ratio(form: NormalForm, goal: RatioGoal, means: FloatArray) -> Solution:
    """Return the blend with the best ratio of blended halves, by Dinkelbach's iteration.

    N/D exceeds a level θ exactly if N − θD is positive, and that is linear in the blend. So solve for N − θD, raise θ
    to the ratio reached, and repeat until nothing is gained.

    >>> import numpy as np, pasto
    >>> form = pasto.maximize(pasto.ratio("likes", "views")).keep("views", at_least=55).form()
    >>> solve_ratio(form, form.goal, np.array([[1.0, 6.0], [10.0, 100.0]])).probabilities
    array([0.5, 0.5])
    """
    top, bottom = goal.numerator @ means, goal.denominator @ means
    slack = form.rows @ means - form.at[:, None]
    level = float((top / bottom).min())
    for _ in range(100):
        solution = solve_linear(Program(top - level * bottom, slack, form.penalties))
        reached = float((top @ solution.probabilities) / (bottom @ solution.probabilities))
        if reached <= level + 1e-13 * abs(level):
            unit = goal.scale / float(bottom @ solution.probabilities)
            return Solution(solution.probabilities, solution.duals * unit, solution.feasible)
        level = reached
    raise SolverError(f"the ratio still rose after 100 rounds, at {np.format_float_scientific(level, 6)}")
