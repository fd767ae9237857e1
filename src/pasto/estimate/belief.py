"""What is believed of the truth: a Gaussian over every candidate's mean vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pasto.estimate.evidence import Evidence, steadied
from pasto.estimate.prior import Prior

Array = NDArray[np.float64]


class Belief(Protocol):
    """A joint Gaussian over the truth, (metrics, candidates)."""

    @property
    def mean(self) -> Array:
        """The expected truth, (metrics, candidates)."""
        ...

    def take(self, places: NDArray[np.intp]) -> Belief:
        """The belief about some of the candidates."""
        ...

    def draw(self, noise: Array) -> Array:
        """Truths drawn from the belief, (count, metrics, candidates), given standard normals of that shape."""
        ...

    def variances(self, rows: Array) -> Array:
        """The variance of row · truth for each row and candidate, (rows, candidates)."""
        ...

    def spread(self, row: Array, weights: Array) -> Array:
        """The standard deviation of row · truth · weights, for weights (..., candidates)."""
        ...

    def factor(self, row: Array) -> Array:
        """A matrix L with ‖Lᵀ w‖ = spread(row, w): (candidates,) where it is diagonal, else (candidates, rank)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Independent:
    """Candidates that tell nothing of each other; metrics of one candidate are correlated.

    >>> import numpy as np
    >>> belief = Independent(np.zeros((2, 3)), np.tile(np.eye(2), (3, 1, 1)))
    >>> float(belief.spread(np.array([3.0, 4.0]), np.array([0.6, 0.8, 0.0])))
    5.0
    """

    mean: Array
    covariances: Array
    """(candidates, metrics, metrics)."""

    @classmethod
    def of(cls, evidence: Evidence, prior: Prior) -> Independent:
        """The posterior: prior times likelihood, candidate by candidate."""
        precision, weighted = evidence.likelihood()
        inverse = np.linalg.inv(steadied(prior.covariance))
        covariances = np.linalg.inv(precision + inverse)
        means = np.einsum("kij,kj->ki", covariances, weighted + inverse @ prior.mean)
        origin = np.where(np.isnan(evidence.origin), 0.0, evidence.origin)
        return cls((means + origin).T.copy(), covariances)

    def take(self, places: NDArray[np.intp]) -> Independent:
        """Their own means and covariances."""
        return Independent(self.mean[:, places], self.covariances[places])

    def draw(self, noise: Array) -> Array:
        """One independent Gaussian vector a candidate."""
        factors = np.linalg.cholesky(self.covariances)
        return np.asarray(self.mean + np.einsum("kij,njk->nik", factors, noise))

    def variances(self, rows: Array) -> Array:
        """Each candidate's own row · covariance · row."""
        return np.asarray(np.einsum("gi,kij,gj->gk", rows, self.covariances, rows))

    def spread(self, row: Array, weights: Array) -> Array:
        """√Σ w_k² v_k."""
        return np.asarray(np.sqrt(weights**2 @ self.variances(row[None])[0]))

    def factor(self, row: Array) -> Array:
        """√v, the diagonal itself."""
        return np.asarray(np.sqrt(self.variances(row[None])[0]))
