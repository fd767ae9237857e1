"""From a unit to its candidate: a pure decision with an exact propensity, the same in every language."""

from pasto.assign.cell import ARMS, WHOLE, Cell
from pasto.assign.publish import publish
from pasto.assign.published import Published
from pasto.assign.signature import sign_exposure

__all__ = ["ARMS", "WHOLE", "Cell", "Published", "publish", "sign_exposure"]
