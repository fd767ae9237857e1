"""An estimate and the two ends it lies between."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pasto.errors import BadOption

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """Estimates with their lower and upper ends, of any shape.

    >>> import numpy as np
    >>> found = Interval(np.array([1.0, 2.0]), np.array([0.5, -1.0]), np.array([1.5, 5.0]))
    >>> found.covers(0.0).tolist(), found.above(0.0).tolist()
    ([False, True], [True, False])
    """

    estimate: Array
    low: Array
    high: Array

    def covers(self, value: float | Array) -> NDArray[np.bool_]:
        """Whether the value lies inside."""
        return np.asarray((self.low <= value) & (value <= self.high))

    def above(self, value: float | Array) -> NDArray[np.bool_]:
        """Whether all of it lies above the value."""
        return np.asarray(self.low > value)

    def below(self, value: float | Array) -> NDArray[np.bool_]:
        """Whether all of it lies below the value."""
        return np.asarray(self.high < value)


def chance_of_error(confidence: float, claims: int = 1) -> float:
    """What each of several claims may be wrong with, so that all hold together with the confidence (the union bound).

    >>> round(chance_of_error(0.95), 12), round(chance_of_error(0.95, claims=5), 12)
    (0.05, 0.01)
    """
    if not 0.0 < confidence < 1.0:
        raise BadOption(f"a confidence lies between 0 and 1, got {confidence!r}; write 0.95 for 95 %")
    if claims < 1:
        raise BadOption(f"an error is shared out among at least one claim, got {claims!r}")
    return (1.0 - confidence) / claims
