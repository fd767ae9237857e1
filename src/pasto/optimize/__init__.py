"""Optimization: from means and an objective to a distribution over candidates."""

from pasto.optimize.blend_summary import summarize_blend
from pasto.optimize.exact.linear import solve_batch, solve_linear
from pasto.optimize.exact.program import Program, Solution, Solutions
from pasto.optimize.exact.solver import solve_exact
from pasto.optimize.solve_blend import solve

__all__ = ["Program", "Solution", "Solutions", "solve", "solve_batch", "solve_exact", "solve_linear", "summarize_blend"]
