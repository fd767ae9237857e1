"""Warm start of contrasts with the control: one Gaussian over all candidates for each component of the metrics."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.estimate.control_contrast import ControlContrasts
from pasto.estimate.history import SLOPE_VARIANCE, HistoryPrior, HistoryTrend
from pasto.estimate.posterior import (
    FREE_MEAN_VARIANCE,
    MAX_SHARED_CANDIDATES,
    PRIOR_CANDIDATES,
    JointPosterior,
    learned_covariance_errors,
    uncorrelated_components,
)
from pasto.estimate.sufficient_statistics import regularize

FIRST_EM_STEPS, EM_STEPS = 8, 3
"""EM steps for slopes and covariance, after the first round and after each later one."""


def learn_from_contrasts(prior: HistoryPrior, contrasts: ControlContrasts, baseline: int) -> HistoryPrior:
    """Return the prior with the slopes and the covariance that make the contrasts most likely, by steps of EM."""
    others = np.arange(len(contrasts.units)) != baseline
    measured = contrasts.measured & others
    if not measured.any():
        return prior
    weights = np.diag(contrasts.information)[measured]
    typical_noise = contrasts.noise / float(np.median(weights))
    count, steps = int(measured.sum()), EM_STEPS
    if not prior.learned:
        noises = contrasts.noise / weights[:, None, None]
        prior, steps = prior.widen((contrasts.weighted[:, measured] / weights).T, noises), FIRST_EM_STEPS
    for _ in range(steps):
        fit = ContrastFit.of(prior, contrasts, baseline)
        own = fit.variances[:, None] * fit.scores[:, measured]
        reduction = np.einsum("ckk->ck", fit.score_precision())[:, measured]
        rest = (fit.variances[:, None] - np.square(fit.variances)[:, None] * reduction).sum(axis=1)
        scatter = fit.mixing @ (own @ own.T + np.diag(rest)) @ fit.mixing.T
        covariance = (0.5 * (scatter + scatter.T) + PRIOR_CANDIDATES * typical_noise) / (count + PRIOR_CANDIDATES)
        prior = replace(prior, covariance=regularize(covariance), slopes=fit.slopes())
    return prior


def posterior_of_contrasts(prior: HistoryPrior, contrasts: ControlContrasts, baseline: int) -> JointPosterior:
    """Return the posterior of the effects, in contrast units."""
    others = np.arange(len(contrasts.units)) != baseline
    fit = ContrastFit.of(prior, contrasts, baseline)
    # A candidate's noise may be larger or smaller than the pooled one, whose variance is 1 in every component.
    own = contrasts.component_variances(np.asarray(np.linalg.inv(fit.mixing), dtype=float))
    precision = np.broadcast_to(contrasts.information, fit.posterior.covariances.shape)
    known = fit.posterior.with_noise(precision, contrasts.evidence_covariance(own))
    shared = fit.covariance_columns(prior, others)
    return JointPosterior(fit.mixing @ known.mean, known.covariances, fit.mixing, shared)


@dataclass(frozen=True, slots=True, eq=False)
class ContrastFit:
    """Posterior of the effects in uncorrelated components, with the prior covariance given."""

    contrasts: ControlContrasts
    trend: HistoryTrend
    mixing: FloatArray
    """(metrics, components)."""
    variances: FloatArray
    """(components,): Σ in components."""
    posterior: JointPosterior
    """Of the components."""
    scores: FloatArray
    """(components, candidates): prior precision times what was learned, C⁻¹ (θ − prior mean) = b − A θ."""

    @classmethod
    def of(cls, prior: HistoryPrior, contrasts: ControlContrasts, baseline: int) -> ContrastFit:
        """Return the posterior; noise and covariance Σ are diagonal in the same components."""
        others = np.arange(len(contrasts.units)) != baseline
        mixing, variances = uncorrelated_components(contrasts.noise, prior.covariance)
        inverse = np.asarray(np.linalg.inv(mixing), dtype=float)
        trend = HistoryTrend.of_mixing(prior, mixing, baseline)
        weights = np.diag(contrasts.information)
        # The mean of all effects is free as soon as something is measured. Before, it is the history's own.
        free = variances
        if (weights > 0).any():
            free = FREE_MEAN_VARIANCE * (variances + 1.0 / float(np.median(weights[weights > 0])))
        own = variances[:, None, None] * np.diag(others.astype(float))
        covariances = own + free[:, None, None] * np.outer(others, others) + trend.covariance()
        weighted = inverse @ contrasts.weighted
        information = np.broadcast_to(contrasts.information, covariances.shape)
        posterior = JointPosterior.from_evidence(trend.means, covariances, information, weighted)
        scores = np.where(others, weighted - posterior.mean @ contrasts.information, 0.0)
        return cls(contrasts, trend, mixing, variances, posterior, scores)

    def score_precision(self) -> FloatArray:
        """Return the variance of the scores before the round, A − A P A, (components, candidates, candidates)."""
        information = self.contrasts.information
        return np.asarray(information - information @ self.posterior.covariances @ information)

    def slopes(self) -> FloatArray:
        """Return the expected slopes, (metrics, metrics)."""
        inverse = np.linalg.inv(self.mixing)
        moves = SLOPE_VARIANCE * np.einsum("ckm,ck->cm", self.trend.columns, self.scores)
        return np.asarray(self.mixing @ (inverse * (1.0 + moves)))

    def covariance_columns(self, prior: HistoryPrior, others: NDArray[np.bool_]) -> FloatArray | None:
        """Return the change of the effects with each error of the learned covariance, (candidates, metrics, rank)."""
        contrasts, measured = self.contrasts, others & self.contrasts.measured
        if not measured.any() or len(others) > MAX_SHARED_CANDIDATES:
            return None
        weights = np.diag(contrasts.information)[measured]
        noises = contrasts.noise / weights[:, None, None] + prior.errors[measured]
        errors = learned_covariance_errors(prior.covariance, noises, contrasts.noise / float(np.median(weights)))
        inverse = np.linalg.inv(self.mixing)
        loadings = np.eye(len(others)) - self.posterior.covariances @ contrasts.information
        moves = np.einsum("ci,rij,dj,dk->rck", inverse, errors, inverse, self.scores, optimize=True)
        return np.asarray(np.einsum("mc,ckl,rcl->kmr", self.mixing, loadings, moves, optimize=True))
