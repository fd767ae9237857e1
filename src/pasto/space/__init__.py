"""Spaces of settings: strategic parameters, their constraints and the candidates of a study."""

from pasto.space.candidates import Candidates
from pasto.space.parameters import Choice, Integer, Real
from pasto.space.product_grid import grid
from pasto.space.space import Space, sobol

__all__ = ["Candidates", "Choice", "Integer", "Real", "Space", "grid", "sobol"]
