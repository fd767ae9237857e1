"""Off-policy estimates: every candidate's means from units that another policy served, weighted by propensities.

With w_i = 1{a_i = k} / p_i for the candidate k, the served candidates a_i and their propensities p_i:

- inverse propensity (IPS):   V_k = Σ w_i y_i / n
- self-normalised (SNIPS):    V_k = Σ w_i y_i / Σ w_i
- doubly robust (DR):         V_k = Σ (m_k(x_i) + w_i (y_i − m_k(x_i))) / n, with a regression m_k on features x

Covariances come from the influence of each unit on the estimate. Three corrections keep them honest if a few units
decide the estimate: the leverage of each unit (as in HC3); Student's t with the effective number of units; and the
variance of a candidate's unit is at least that pooled over candidates. The last one is for skewed metrics: where a few
large values are missing by chance, both the mean and its own variance are too small.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from pasto.arrays import FloatArray

Method = Literal["ips", "snips", "dr"]
FOLDS = 5
"""Parts of the data of the doubly robust estimate; the regression for one part is learned from the others."""
RIDGE = 1.0
"""Penalty of the regression's coefficients, in units of standardized features."""
MAX_LEVERAGE = 0.9
"""Largest share of a candidate's weight that the leverage correction counts for one unit."""
TWO_SIDED_LEVEL = 0.975
"""Quantile at which Student's t replaces the normal distribution."""


@dataclass(frozen=True, slots=True, eq=False)
class LoggedUnits:
    """Units that were served under a known policy, a row each."""

    chosen: NDArray[np.intp]
    """(rows,): place of the candidate that was served."""
    propensities: FloatArray
    """(rows,): probability with which it was served."""
    values: FloatArray
    """(rows, metrics)."""
    clusters: NDArray[np.intp]
    """(rows,): place of the independent unit that the row belongs to."""
    features: FloatArray | None = None
    """(rows, features): known before the candidate was chosen."""


@dataclass(frozen=True, slots=True, eq=False)
class OffPolicyEstimate:
    """Estimated means of one candidate."""

    means: FloatArray
    """(metrics,)."""
    covariance: FloatArray
    """(metrics, metrics): of the means."""
    effective_units: float
    """Number of equally weighted units with the same information, (Σ w)² / Σ w²."""
    squared_weight: float
    """Σ w² / (Σ w)²: variance of the estimate if one unit has variance one."""
    mean_weight: float
    """Σ w / n: near one if propensities are right and every unit could have been served the candidate."""
    mean_weight_error: float
    """Standard error of `mean_weight`."""


def estimate_off_policy(log: LoggedUnits, method: Method) -> dict[int, OffPolicyEstimate]:
    """Return the estimate of every candidate that was served, by its place.

    >>> import numpy as np
    >>> chosen, half = np.array([0, 1, 0, 1]), np.full(4, 0.5)
    >>> log = LoggedUnits(chosen, half, np.array([[1.0], [5.0], [3.0], [5.0]]), np.arange(4))
    >>> estimates = estimate_off_policy(log, "snips")
    >>> float(estimates[0].means[0]), estimates[0].effective_units
    (2.0, 2.0)
    """
    estimates = {candidate: _estimate(log, candidate, method) for candidate in np.unique(log.chosen).tolist()}
    # Variances of one unit of weight one, (candidates, metrics), and their average over all weights.
    squares = np.array([estimate.squared_weight for estimate in estimates.values()])
    variances = np.array([np.diag(estimate.covariance) for estimate in estimates.values()]) / squares[:, None]
    pooled = squares @ variances / squares.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = np.where(variances > 0.0, np.sqrt(np.maximum(pooled / variances, 1.0)), 1.0)
    pooled_diagonals = np.where(variances > 0.0, 0.0, pooled * squares[:, None])
    corrected = {}
    for place, (candidate, estimate) in enumerate(estimates.items()):
        covariance = np.outer(factors[place], factors[place]) * estimate.covariance + np.diag(pooled_diagonals[place])
        widening = stdtrit(max(estimate.effective_units - 1.0, 1.0), TWO_SIDED_LEVEL) / ndtri(TWO_SIDED_LEVEL)
        corrected[candidate] = replace(estimate, covariance=covariance * float(widening) ** 2)
    return corrected


def _estimate(log: LoggedUnits, candidate: int, method: Method) -> OffPolicyEstimate:
    """Return the estimate of one candidate, with the covariance of its own units."""
    rows = len(log.values)
    weights = np.where(log.chosen == candidate, 1.0 / log.propensities, 0.0)
    total, squares = float(weights.sum()), float(weights @ weights)
    if method == "snips":
        means = weights @ log.values / total
        influence = weights[:, None] * (log.values - means) / total
    else:
        expected = _predict(log, weights) if method == "dr" else np.zeros_like(log.values)
        terms = expected + weights[:, None] * (log.values - expected)
        means = terms.mean(axis=0)
        influence = (terms - means) / rows
    leverage = np.minimum(_sum_clusters(weights, log.clusters) / total, MAX_LEVERAGE)
    sums = _sum_clusters(influence, log.clusters) / (1.0 - leverage)[:, None]
    weight_sums = _sum_clusters(weights - total / rows, log.clusters)
    return OffPolicyEstimate(
        means=means,
        covariance=sums.T @ sums,
        effective_units=total**2 / squares,
        squared_weight=squares / total**2,
        mean_weight=total / rows,
        mean_weight_error=float(np.sqrt(weight_sums @ weight_sums)) / rows,
    )


def _predict(log: LoggedUnits, weights: FloatArray) -> FloatArray:
    """Return the expected metrics of each row under the candidate, learned from the other folds, (rows, metrics)."""
    features = np.zeros((len(weights), 0)) if log.features is None else log.features
    deviations = features.std(axis=0)
    scaled = (features - features.mean(axis=0)) / np.where(deviations > 0.0, deviations, 1.0)
    design = np.hstack([np.ones((len(weights), 1)), scaled])
    penalty = RIDGE * np.diag([0.0, *[1.0] * scaled.shape[1]])
    penalty[0, 0] = 1e-9
    expected = np.zeros_like(log.values)
    folds = log.clusters % FOLDS
    for fold in range(FOLDS):
        inside = folds == fold
        known = (weights > 0.0) & ~inside
        gram = design[known].T @ design[known] + penalty
        expected[inside] = design[inside] @ np.linalg.solve(gram, design[known].T @ log.values[known])
    return expected


def _sum_clusters(values: FloatArray, clusters: NDArray[np.intp]) -> FloatArray:
    """Return the sum of the rows of each cluster."""
    sums = np.zeros((int(clusters.max()) + 1, *values.shape[1:]))
    np.add.at(sums, clusters, values)
    return sums
