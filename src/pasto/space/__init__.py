"""From strategic parameters to the candidates a study chooses among."""

from pasto.space.candidates import Candidates
from pasto.space.parameters import Choice, Integer, Real
from pasto.space.product_grid import grid
from pasto.space.space import Space, sobol

__all__ = ["Candidates", "Choice", "Integer", "Real", "Space", "grid", "sobol"]
