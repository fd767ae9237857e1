"""From means and an objective to a distribution over candidates."""

from pasto.optimize.blend_summary import describe
from pasto.optimize.exact.linear import best, best_batch
from pasto.optimize.exact.program import Program, Solution, Solutions
from pasto.optimize.exact.solver import optimum
from pasto.optimize.solve_blend import solve

__all__ = ["Program", "Solution", "Solutions", "best", "best_batch", "describe", "optimum", "solve"]
