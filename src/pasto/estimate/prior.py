"""The prior over candidates, learned from the candidates themselves (empirical Bayes)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pasto.estimate.evidence import Evidence, steadied
from pasto.estimate.joint import Joint

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


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """Candidates' contrasts are drawn from N(mean, variance), metric by metric, (metrics,) each."""

    mean: Array
    variance: Array

    def prior(self, candidates: int, known: int) -> tuple[Array, Array]:
        """Means (metrics, candidates) and covariances (metrics, candidates, candidates); `known` is zero, exactly."""
        means = np.repeat(self.mean[:, None], candidates, axis=1)
        covariances = self.variance[:, None, None] * np.eye(candidates)
        means[:, known] = 0.0
        covariances[:, known, known] = 0.0
        return means, covariances


def learn_spread(precision: Array, weighted: Array, known: int, start: Spread | None, steps: int = 3) -> Spread:
    """How contrasts spread over the candidates, by EM on dense evidence (metrics, candidates, candidates)."""
    diagonal = np.einsum("mkk->mk", precision)
    seen = (diagonal > 0).all(axis=0)
    seen[known] = False
    metrics, count = weighted.shape
    if not seen.any():
        return Spread(np.zeros(metrics), np.ones(metrics)) if start is None else start
    noise = 1.0 / diagonal[:, seen]
    raw = weighted[:, seen] * noise
    floor = 0.1 * noise.mean(axis=1)
    guess = np.maximum(raw.var(axis=1) - noise.mean(axis=1), floor) if seen.sum() > 1 else noise[:, 0]
    spread = Spread(np.zeros(metrics), guess) if start is None else start
    strength = 3.0
    for _ in range(steps):
        belief = Joint.of(*spread.prior(count, known), precision, weighted)
        means = belief.mean[:, seen]
        centre = means.mean(axis=1)
        scatter = np.square(means - centre[:, None]) + np.einsum("mkk->mk", belief.covariances)[:, seen]
        spread = Spread(centre, (scatter.sum(axis=1) + strength * guess) / (seen.sum() + strength))
    return spread
