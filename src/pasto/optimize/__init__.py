"""From means and an objective to a distribution over candidates."""

from pasto.optimize.answer import solve
from pasto.optimize.blend import describe
from pasto.optimize.exact.batch import best_batch
from pasto.optimize.exact.best import best
from pasto.optimize.exact.kinds import optimum
from pasto.optimize.exact.program import Program, Solution, Solutions

__all__ = ["Program", "Solution", "Solutions", "best", "best_batch", "describe", "optimum", "solve"]
