"""The prior over candidates, learned from the candidates themselves (empirical Bayes)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pasto.estimate.evidence import Evidence, steadied

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """Candidates' mean vectors are drawn from N(mean, covariance); mean is counted from the evidence's origin."""

    mean: Array
    covariance: Array


def learn_prior(evidence: Evidence, start: Prior | None = None, steps: int = 8) -> Prior:
    """The prior that makes the candidates' observations most likely, by a few steps of EM from `start`.

    The covariance carries an inverse-Wishart prior of metrics + 2 degrees around the spread that the observations
    show before their noise is taken out, so that one observation of each of a few candidates is enough to go on.
    """
    precision, weighted = evidence.likelihood()
    seen = evidence.seen
    width = precision.shape[-1]
    if not seen.any():
        return Prior(np.zeros(width), np.eye(width)) if start is None else start
    precision, weighted = precision[seen], weighted[seen]
    estimates: Array = np.linalg.solve(precision, weighted[..., None])[..., 0].astype(float)
    noises: Array = np.linalg.inv(precision).astype(float)
    count, strength = len(estimates), width + 2.0
    guess = np.diag(_spread(estimates, noises))
    prior = Prior(estimates.mean(axis=0), guess) if start is None else start
    for _ in range(steps):
        inverse = np.linalg.inv(steadied(prior.covariance))
        covariances = np.linalg.inv(precision + inverse)
        means = np.einsum("kij,kj->ki", covariances, weighted + inverse @ prior.mean)
        centre = means.mean(axis=0)
        apart = means - centre
        scatter = covariances.sum(axis=0) + apart.T @ apart
        prior = Prior(centre, steadied((scatter + strength * guess) / (count + strength)))
    return prior


def _spread(estimates: Array, noises: Array) -> Array:
    """Each metric's spread between candidates, (metrics,), never less than a tenth of the observations' own noise."""
    noise = np.einsum("kii->ki", noises).mean(axis=0)
    if len(estimates) < 2:
        return np.asarray(noise)
    return np.asarray(np.maximum(estimates.var(axis=0, ddof=1) - noise, 0.1 * noise))
