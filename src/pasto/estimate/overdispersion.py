"""Overdispersion: repeats that scatter more between rounds than their stated errors allow.

The check finds errors that were computed too small, rows that are not independent (several rows of one user), and
rounds in which all candidates shift together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from pasto.arrays import FloatArray

MAX_ERROR_FACTOR = 1.5
"""Factor of understated standard errors from which nothing is certified."""
FALSE_ALARM_RATE = 0.005
"""Chance per metric and look that correct errors raise the alarm, for any factor."""


@dataclass(frozen=True, slots=True, eq=False)
class Overdispersion:
    """Factors by which the errors of each metric are too small, estimated from the scatter of repeats."""

    factors: FloatArray
    """(metrics,): √(observed scatter / expected scatter); NaN if it cannot be estimated."""
    degrees: float
    """Degrees of freedom of the factors."""

    @classmethod
    def from_ratio(cls, ratio: FloatArray, degrees: float) -> Overdispersion:
        """Return the factors from ratios of variances.

        >>> import numpy as np
        >>> Overdispersion.from_ratio(np.array([1.1, 4.0]), 100.0).raised.tolist()
        [False, True]
        """
        return cls(np.sqrt(np.maximum(ratio, 0.0)), degrees)

    @property
    def raised(self) -> NDArray[np.bool_]:
        """(metrics,): True if a metric's errors are too small by MAX_ERROR_FACTOR or more, beyond chance."""
        ratio = np.nan_to_num(np.square(self.factors))
        chance = chdtrc(max(self.degrees, 1e-9), ratio * self.degrees)
        return np.asarray((ratio >= MAX_ERROR_FACTOR**2) & (chance < FALSE_ALARM_RATE))
