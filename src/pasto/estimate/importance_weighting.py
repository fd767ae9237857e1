"""Importance weighting: a round's unbiased sample Û of the true means μ, by inverse propensity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Sparse sample of one round: Û = Σ_q share_q · û_q / p_q in the column of the candidate drawn.

    Arrays may have leading axes (many runs at once); the last axes are draws, then metrics.
    """

    candidates: NDArray[np.intp]
    """(..., draws)."""
    metrics: FloatArray
    """(..., draws, metrics): û, the measured values."""
    probabilities: FloatArray
    """(..., draws): p, the propensity of each draw."""
    shares: FloatArray
    """(..., draws): each draw's share of the round, summing to one; 1/Q for Q draws."""

    @property
    def columns(self) -> FloatArray:
        """share · û / p, (..., draws, metrics)."""
        return np.asarray(self.metrics * (self.shares / self.probabilities)[..., None])

    def matrix(self, candidates: int) -> FloatArray:
        """Return Û as a dense matrix, (..., metrics, candidates).

        E[Û] = μ: here each of two candidates is drawn with its own probability.

        >>> import numpy as np
        >>> means = np.array([[2.0, 0.0], [-2.0, 2.0]])
        >>> def draw(k, p):
        ...     return Sample(np.array([k]), means[:, k][None], np.array([p]), np.ones(1)).matrix(2)
        >>> 0.25 * draw(0, 0.25) + 0.75 * draw(1, 0.75)
        array([[ 2.,  0.],
               [-2.,  2.]])
        """
        *leading, _, width = self.metrics.shape
        dense = np.zeros((*leading, width, candidates))
        add_samples(dense, self)
        return dense


def add_samples(total: FloatArray, sample: Sample) -> None:
    """Add Û to a running total (..., metrics, candidates), in place; the total must be contiguous."""
    width, count = total.shape[-2:]
    rows = np.arange(total.size // count).reshape(*total.shape[:-2], 1, width)
    positions = rows * count + sample.candidates[..., None]  # (..., draws, metrics) in the flat total
    np.add.at(total.reshape(-1), positions.reshape(-1), sample.columns.reshape(-1))  # counts repeated draws each time
