"""A belief in which candidates tell of each other: metric by metric, one joint Gaussian over all candidates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """Metrics are independent of each other, candidates are not; memory is quadratic in the candidates.

    >>> import numpy as np
    >>> belief = Joint(np.zeros((1, 2)), np.array([[[1.0, 1.0], [1.0, 1.0]]]))
    >>> float(belief.spread(np.ones(1), np.array([1.0, -1.0])))           # what both share cancels in a contrast
    0.0
    """

    mean: Array
    """(metrics, candidates)."""
    covariances: Array
    """(metrics, candidates, candidates)."""

    @classmethod
    def of(cls, mean: Array, covariances: Array, precision: Array, weighted: Array) -> Joint:
        """The posterior from a prior N(mean, covariances) and Gaussian evidence.

        `precision` is (metrics, candidates, candidates), or (metrics, candidates) where it is diagonal; `weighted` is
        precision times what was measured. The prior may be singular: a candidate known exactly has a zero row.
        """
        count = mean.shape[1]
        if precision.ndim == 2:
            product, pull = covariances * precision[:, None, :], weighted - precision * mean
        else:
            product = covariances @ precision
            pull = weighted - np.einsum("mij,mj->mi", precision, mean)
        posterior = np.linalg.solve(np.eye(count) + product, covariances)
        posterior = 0.5 * (posterior + posterior.transpose(0, 2, 1))
        return cls(mean + np.einsum("mij,mj->mi", posterior, pull), posterior)

    def scaled(self, scale: Array, shift: Array) -> Joint:
        """The belief about scale · truth + shift, metric by metric, (metrics,) each."""
        return Joint(
            scale[:, None] * self.mean + shift[:, None],
            np.square(scale)[:, None, None] * self.covariances,
        )

    def take(self, places: NDArray[np.intp]) -> Joint:
        """Their own means and what they share."""
        return Joint(self.mean[:, places], self.covariances[:, places[:, None], places])

    def draw(self, noise: Array) -> Array:
        """Truths from standard normals, through the symmetric root: relabelling candidates relabels the draws."""
        roots = np.array([symmetric_root(covariance) for covariance in self.covariances])
        return np.asarray(self.mean + np.einsum("mij,nmj->nmi", roots, noise))

    def variances(self, rows: Array) -> Array:
        """Σ row_m² C_m[k, k]."""
        return np.asarray(np.square(rows) @ np.maximum(np.einsum("mkk->mk", self.covariances), 0.0))

    def spread(self, row: Array, weights: Array) -> Array:
        """√Σ row_m² wᵀ C_m w."""
        quadratic = np.einsum("...i,mij,...j->...m", weights, self.covariances, weights)
        return np.asarray(np.sqrt(np.maximum(quadratic @ np.square(row), 0.0)))

    def factor(self, row: Array) -> Array:
        """The symmetric root of Σ row_m² C_m, (candidates, candidates)."""
        return symmetric_root(np.einsum("m,mij->ij", np.square(row), self.covariances))


def symmetric_root(covariance: Array) -> Array:
    """R with R R = covariance, rounding below zero cut off.

    >>> import numpy as np
    >>> symmetric_root(np.array([[4.0, 0.0], [0.0, 9.0]])).round(12).tolist()
    [[2.0, 0.0], [0.0, 3.0]]
    """
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)
