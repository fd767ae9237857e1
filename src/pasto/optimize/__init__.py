"""Optimization: from means and an objective to a distribution over candidates."""

from pasto.optimize.blend_summary import summarize_blend
from pasto.optimize.exact.solver import Program, Solution, Solutions, solve_batch, solve_exact, solve_linear
from pasto.optimize.solve_blend import solve

__all__ = ["Program", "Solution", "Solutions", "solve", "solve_batch", "solve_exact", "solve_linear", "summarize_blend"]
