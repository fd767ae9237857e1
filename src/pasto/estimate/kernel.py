"""How much neighbouring candidates have in common: a Matérn covariance over the parameters, one a metric."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Kernel:
    """mean + amplitude · Matérn-5/2 over scaled distances + nugget of each candidate's own.

    >>> import numpy as np
    >>> kernel = Kernel(mean=0.0, amplitude=2.0, nugget=0.5, scales=(0.3,))
    >>> kernel.covariance(np.array([[0.0], [0.0], [1.0]])).round(3).tolist()
    [[2.5, 2.0, 0.031], [2.0, 2.5, 0.031], [0.031, 0.031, 2.5]]
    """

    mean: float
    amplitude: float
    """The variance that neighbours share."""
    nugget: float
    """The variance that they do not."""
    scales: tuple[float, ...]
    """One length a dimension."""

    def covariance(self, features: Array) -> Array:
        """Between all candidates, (candidates, candidates)."""
        shared = self.between(features, features)
        shared[np.diag_indices_from(shared)] += self.nugget
        return shared

    def between(self, left: Array, right: Array) -> Array:
        """What the points of two sets share, (left, right)."""
        scales = np.array(self.scales)
        one, two = left / scales, right / scales
        squares = np.sum(one**2, axis=1)[:, None] + np.sum(two**2, axis=1) - 2.0 * one @ two.T
        steps = sqrt(5.0) * np.sqrt(np.maximum(squares, 0.0))
        return np.asarray(self.amplitude * (1.0 + steps + steps**2 / 3.0) * np.exp(-steps))
