"""Warm start: a prior from earlier results of the candidates, whose accuracy is learned from the study's own rounds.

Candidate k has the history h_k, known up to the covariance V_k. Its mean is modelled as

    μ_k = α + D h_k + e_k,    e_k ~ N(0, Σ),    D = diag(d),    d ~ N(1, SLOPE_VARIANCE)

The level α is free. After every round, the slopes d and the covariance Σ are learned from the candidates measured so
far. History that predicts well has slopes near one and a small Σ. History that predicts nothing has slopes near zero,
and the prior is then that of a study without history. The errors of α, d and Σ are a part of the posterior.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.estimate.posterior import (
    MAX_SHARED_CANDIDATES,
    PRIOR_CANDIDATES,
    IndependentPosterior,
    excess_variance,
    learned_covariance_errors,
)
from pasto.estimate.sufficient_statistics import SufficientStatistics, regularize

SLOPE_VARIANCE = 1.0
"""Prior variance of a slope around one."""
EM_STEPS = 8
"""EM steps for slopes and covariance, per round."""


@dataclass(frozen=True, slots=True, eq=False)
class CandidateHistory:
    """Earlier estimates of every candidate's means: its own, or predicted from other settings."""

    means: FloatArray
    """(metrics, candidates): h_k; equal for all candidates if the metric has no history."""
    covariances: FloatArray
    """(candidates, metrics, metrics): V_k, the covariance of h_k as an estimate of the earlier truth."""
    listed: NDArray[np.bool_]
    """(candidates,): True if the candidate has a row of its own."""
    level: FloatArray
    """(metrics,): what zero in `means` is, in the metrics' own units."""
    unit: FloatArray
    """(metrics,): what one in `means` is, in the metrics' own units."""

    @classmethod
    def of_levels(cls, means: FloatArray, covariances: FloatArray, listed: NDArray[np.bool_]) -> CandidateHistory:
        """Return the history of the metrics as they are."""
        return cls(means, covariances, listed, np.zeros(len(means)), np.ones(len(means)))

    @property
    def centred(self) -> FloatArray:
        """The estimates less their average over candidates, (metrics, candidates)."""
        return np.asarray(self.means - self.means.mean(axis=1, keepdims=True))

    @property
    def variance(self) -> FloatArray:
        """The variance of the earlier truth between candidates, (metrics,); 0 for a metric without history."""
        errors = np.einsum("kii->i", self.covariances) / len(self.listed)
        return np.asarray(np.where(self.has_metric, self.means.var(axis=1) + errors, 0.0))

    @property
    def has_metric(self) -> NDArray[np.bool_]:
        """(metrics,): True if candidates differ in their history of the metric."""
        return np.asarray(np.ptp(self.means, axis=1) > 0.0, dtype=np.bool_)

    def contrast(self, percent: NDArray[np.bool_], baseline: int) -> CandidateHistory:
        """Return the history of the contrasts with the baseline, which is exactly zero for the baseline itself.

        The scale of a percentage is the average over candidates, which has less noise than the baseline alone.
        """
        average = self.means.mean(axis=1)
        unit = np.where(percent & self.has_metric, average / 100.0, 1.0)
        others = np.arange(len(self.listed)) != baseline
        return CandidateHistory(
            (self.means - self.means[:, [baseline]]) / unit[:, None],
            self.covariances / np.outer(unit, unit) * others[:, None, None],
            self.listed,
            self.means[:, baseline].copy(),
            unit,
        )


@dataclass(frozen=True, slots=True, eq=False)
class HistoryPrior:
    """History, and what the study has learned about it."""

    history: CandidateHistory
    covariance: FloatArray
    """(metrics, metrics): Σ, of the candidates' means around the prediction."""
    slopes: FloatArray
    """(metrics, metrics): D."""
    learned: bool = False
    """False before the first round."""

    @classmethod
    def start(cls, history: CandidateHistory) -> HistoryPrior:
        """Return the prior before the first round: half of the candidates' variance is not in the history."""
        variance = history.variance
        typical = float(variance.max()) or 1.0
        return cls(history, np.diag(np.where(variance > 0.0, variance, typical)), np.eye(len(variance)))

    @property
    def errors(self) -> FloatArray:
        """The part of the prior covariance that comes from errors of the history, (candidates, metrics, metrics)."""
        return np.asarray(self.slopes @ self.history.covariances @ self.slopes.T)

    @property
    def explained(self) -> FloatArray:
        """The share of the variance between candidates that the history explains, (metrics,)."""
        predicted = np.square(self.slopes @ self.history.centred).mean(axis=1)
        rest = np.diag(self.covariance) + np.einsum("kii->i", self.errors) / len(self.history.listed)
        return np.asarray(predicted / np.maximum(predicted + rest, 1e-300))

    def predict(self) -> FloatArray:
        """Return the prediction D h_k, up to a level, (metrics, candidates)."""
        return np.asarray(self.slopes @ self.history.centred)

    def widen(self, estimates: FloatArray, noises: FloatArray) -> HistoryPrior:
        """Return the start of learning: at least as wide as the first estimates, whose scale may differ from before.

        `estimates` are (candidates, metrics), `noises` (candidates, metrics, metrics).
        """
        least = excess_variance(estimates, noises)
        return replace(self, covariance=np.diag(np.maximum(np.diag(self.covariance), least)), learned=True)

    def to_saved(self) -> dict[str, Any]:
        """Return what was learned as a plain JSON value, bit for bit; the history itself belongs to the study."""
        return {"covariance": self.covariance.tolist(), "slopes": self.slopes.tolist(), "learned": self.learned}

    @classmethod
    def from_saved(cls, saved: dict[str, Any], history: CandidateHistory) -> HistoryPrior:
        """Return what `to_saved` wrote."""
        covariance, slopes = (np.array(saved[name], dtype=float) for name in ("covariance", "slopes"))
        return cls(history, covariance, slopes, bool(saved["learned"]))


@dataclass(frozen=True, slots=True, eq=False)
class HistoryTrend:
    """History in components of the metrics, each a Gaussian over all candidates."""

    means: FloatArray
    """(components, candidates): expectation with all slopes one."""
    variances: FloatArray
    """(components, candidates): from errors of the history."""
    columns: FloatArray
    """(components, candidates, metrics): the change of the means with each metric's slope."""

    @classmethod
    def of_mixing(cls, prior: HistoryPrior, mixing: FloatArray, baseline: int | None = None) -> HistoryTrend:
        """Return the trend of components, with metrics = mixing @ components; that of the `baseline` is exactly zero.

        Every component learns its own slopes. Their prior variance is that of the metrics' slopes.
        """
        inverse = np.asarray(np.linalg.inv(mixing), dtype=float)
        means = centred = prior.history.centred
        if baseline is not None:
            others = np.arange(means.shape[1]) != baseline
            means = prior.history.means
            centred = (means - means[:, others].mean(axis=1, keepdims=True)) * others
        variances = np.einsum("ci,kij,cj->ck", inverse, prior.errors, inverse)
        return cls(inverse @ means, np.maximum(variances, 0.0), np.einsum("cm,mk->ckm", inverse, centred))

    def covariance(self) -> FloatArray:
        """Return what the history adds to the prior covariance, (components, candidates, candidates)."""
        slopes = SLOPE_VARIANCE * self.columns @ self.columns.transpose(0, 2, 1)
        return np.asarray(slopes + self.variances[:, :, None] * np.eye(self.variances.shape[1]))


@dataclass(frozen=True, slots=True, eq=False)
class HistoryRegression:
    """Regression of the measured means on the history, with the covariance Σ given."""

    design: FloatArray
    """(candidates, metrics, coefficients): X_k = [I, diag(h_k)]."""
    coefficients: FloatArray
    """(coefficients,): γ = (α, d)."""
    coefficient_covariance: FloatArray
    prior: FloatArray
    """(candidates, metrics, metrics): R_k = Σ + D V_k D."""
    residuals: FloatArray
    """(candidates, metrics): x_k − X_k γ; 0 if unmeasured."""
    inverse: FloatArray
    """(candidates, metrics, metrics): (R_k + noise of x_k)⁻¹; 0 if unmeasured."""

    @classmethod
    def fit(cls, statistics: SufficientStatistics, noises: FloatArray, prior: HistoryPrior) -> HistoryRegression:
        """Fit the coefficients by generalized least squares; `noises` are those of the measured candidates."""
        history, measured = prior.history, statistics.measured
        metrics = len(prior.covariance)
        levels = np.broadcast_to(np.eye(metrics), (len(measured), metrics, metrics))
        design = np.concatenate([levels, history.centred.T[:, :, None] * np.eye(metrics)], axis=2)
        covariances = regularize(prior.covariance + prior.errors)
        inverse = np.zeros_like(covariances)
        inverse[measured] = np.linalg.inv(covariances[measured] + noises)
        # The level is free as soon as something is measured. Before, it is the history's own.
        level_precision = np.zeros(metrics) if measured.any() else 1.0 / np.diag(prior.covariance)
        precision = np.concatenate([level_precision, np.full(metrics, 1.0 / SLOPE_VARIANCE)])
        start = np.concatenate([history.means.mean(axis=1) - _origin(statistics), np.ones(metrics)])
        estimates = statistics.estimates()
        information = np.einsum("kia,kij,kjb->ab", design, inverse, design, optimize=True) + np.diag(precision)
        weighted = np.einsum("kia,kij,kj->a", design, inverse, estimates, optimize=True)
        coefficient_covariance = np.linalg.inv(information)
        coefficients = coefficient_covariance @ (weighted + precision * start)
        residuals = np.where(measured[:, None], estimates - design @ coefficients, 0.0)
        return cls(design, coefficients, coefficient_covariance, covariances, residuals, inverse)


def learn_from_levels(prior: HistoryPrior, statistics: SufficientStatistics) -> HistoryPrior:
    """Return the prior with the slopes and the covariance that make the measurements most likely, by steps of EM.

    As in a study without history, the covariance has an inverse-Wishart prior that counts like PRIOR_CANDIDATES
    candidates, centred at the noise of a typical candidate.
    """
    measured = statistics.measured
    if not measured.any():
        return prior
    noises = np.asarray(np.linalg.inv(statistics.likelihood()[0][measured]), dtype=float)
    typical_noise = _typical_noise(statistics)
    metrics, count = len(prior.covariance), int(measured.sum())
    prior = prior if prior.learned else prior.widen(statistics.estimates()[measured], noises)
    for _ in range(EM_STEPS):
        fit = HistoryRegression.fit(statistics, noises, prior)
        gains = prior.covariance @ fit.inverse[measured]
        own = np.einsum("kij,kj->ki", gains, fit.residuals[measured])
        effects = gains @ fit.design[measured]
        scatter = own.T @ own + (prior.covariance - gains @ prior.covariance).sum(axis=0)
        scatter += np.einsum("kia,ab,kjb->ij", effects, fit.coefficient_covariance, effects, optimize=True)
        scatter = 0.5 * (scatter + scatter.T)
        covariance = regularize((scatter + PRIOR_CANDIDATES * typical_noise) / (count + PRIOR_CANDIDATES))
        prior = replace(prior, covariance=covariance, slopes=np.diag(fit.coefficients[metrics:]))
    return prior


def posterior_of_levels(prior: HistoryPrior, statistics: SufficientStatistics) -> IndependentPosterior:
    """Return the posterior of candidates that share only the errors of level, slopes and covariance."""
    measured, metrics = statistics.measured, len(prior.covariance)
    noises = np.zeros((0, metrics, metrics))
    if measured.any():
        noises = np.asarray(np.linalg.inv(statistics.likelihood()[0][measured]), dtype=float)
    fit = HistoryRegression.fit(statistics, noises, prior)
    gains = fit.prior @ fit.inverse
    loadings = np.eye(metrics) - gains
    means = fit.design @ fit.coefficients + np.einsum("kij,kj->ki", gains, fit.residuals)
    covariances = loadings @ fit.prior
    covariances = 0.5 * (covariances + covariances.transpose(0, 2, 1))
    shared = loadings @ fit.design @ np.linalg.cholesky(regularize(fit.coefficient_covariance))
    if measured.any() and len(measured) <= MAX_SHARED_CANDIDATES:
        noises = noises + prior.errors[measured]
        errors = learned_covariance_errors(prior.covariance, noises, _typical_noise(statistics))
        scores = np.einsum("kij,kj->ki", fit.inverse, fit.residuals)
        moves = np.einsum("kij,rjl,kl->kir", loadings, errors, scores, optimize=True)
        shared = np.concatenate([shared, moves], axis=2)
    return IndependentPosterior((means + _origin(statistics)).T.copy(), covariances, shared)


def _origin(statistics: SufficientStatistics) -> FloatArray:
    """Return what the statistics' estimates are counted from, (metrics,); 0 before the first round."""
    return np.where(np.isnan(statistics.origin), 0.0, statistics.origin)


def _typical_noise(statistics: SufficientStatistics) -> FloatArray:
    """Return the covariance of a typical candidate's estimate, (metrics, metrics)."""
    return np.asarray(statistics.pooled_covariance() / float(np.median(statistics.units[statistics.measured])))
