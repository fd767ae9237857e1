"""Mutants for `pasto bench certificates`: rules that make certificates false, so that the benchmark can be red.

A cell counts by the inverse of its own sample variance, a contrast in percent is divided by its own control, and the
prior mean is taken for known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.estimate import JointPosterior, Overdispersion, RoundMeans
from pasto.estimate.sufficient_statistics import regularize
from pasto.optimize.learners import LearningProblem, Thompson
from pasto.optimize.learners.thompson import ThompsonState

POOL_UNITS = 100.0
"""Units that a round's pooled covariance counts for against a cell's own, if units are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InverseVarianceThompson(Thompson):
    """The learner with the mutant model."""

    def start(self, problem: LearningProblem) -> ThompsonState:
        """Start with the mutant model."""
        metrics, count = problem.shape
        contrast = "difference" if self.contrast == "auto" else self.contrast
        model = InverseVarianceModel(
            np.zeros((metrics, count, count)), np.zeros((metrics, count)), problem.baseline, contrast
        )
        return ThompsonState(0, model, np.eye(metrics), 1.0, 0)


@dataclass(frozen=True, slots=True, eq=False)
class InverseVarianceModel:
    """Every cell weighted by the inverse of its own sample variance."""

    precision: FloatArray
    """(metrics, candidates, candidates)."""
    weighted: FloatArray
    """(metrics, candidates)."""
    baseline: int | None
    contrast: str | None
    level: FloatArray | None = None
    rounds: int = 0
    noise: FloatArray | None = None
    kernels: None = None
    history: None = None

    def size(self, cells: RoundMeans) -> RoundMeans:
        """Count cells without units as one unit each."""
        return cells if cells.units is not None else replace(cells, units=np.ones(len(cells.candidates)))

    def add(self, cells: RoundMeans) -> InverseVarianceModel:
        """Add the round."""
        units, covariances = self.size(cells).units, cells.covariances
        assert units is not None and covariances is not None  # noqa: S101, PT018
        if cells.units is not None:
            covariances = _pooled(covariances, units)
        variances = np.einsum("qii->qi", regularize(covariances))
        noise = (units[:, None, None] * covariances).mean(axis=0)
        new = replace(self, rounds=self.rounds + 1, noise=noise)
        if self.contrast is None:
            precision, weighted = self._levels(cells.candidates, cells.means, variances)
            return replace(new, precision=precision, weighted=weighted)
        reference = cells.means[-1]
        level = reference if self.level is None else self.level + (reference - self.level) / (self.rounds + 1)
        precision, weighted = self._contrasts(cells.candidates, cells.means, variances)
        return replace(new, level=level, precision=precision, weighted=weighted)

    def _levels(
        self, places: NDArray[np.intp], means: FloatArray, variances: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        precision, weighted = self.precision.copy(), self.weighted.copy()
        for metric in range(means.shape[1]):
            np.add.at(precision[metric], (places, places), 1.0 / variances[:, metric])
            np.add.at(weighted[metric], places, means[:, metric] / variances[:, metric])
        return precision, weighted

    def _contrasts(
        self, places: NDArray[np.intp], means: FloatArray, variances: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Add a round whose last cell is the control; its noise enters contrasts by the cell's own measured ratio."""
        reference, shared, own = means[-1], variances[-1], variances[:-1]
        contrast, pattern = means[:-1] - reference, np.ones_like(means[:-1])
        if self.contrast == "percent":
            scale = 100.0 / reference
            pattern = means[:-1] / reference
            contrast, own, shared = scale * contrast, np.square(scale) * own, np.square(scale) * shared
        precision, weighted = self.precision.copy(), self.weighted.copy()
        for metric in range(means.shape[1]):
            weights = 1.0 / own[:, metric]
            leaning = weights * pattern[:, metric]
            total = 1.0 / float(shared[metric]) + float(leaning @ pattern[:, metric])
            inner = np.diag(weights) - np.outer(leaning / total, leaning)
            np.add.at(precision[metric], (places[:-1, None], places[None, :-1]), inner)
            np.add.at(weighted[metric], places[:-1], inner @ contrast[:, metric])
        return precision, weighted

    def fade(self, factor: float) -> InverseVarianceModel:
        """Reduce the weight of old rounds."""
        return replace(self, precision=factor * self.precision, weighted=factor * self.weighted)

    def grow(self, count: int, history: Any = None) -> InverseVarianceModel:
        """Raise an error, because the benchmark's candidates are fixed."""
        raise NotImplementedError

    def share(self, kernels: Any, mixing: Any = None) -> InverseVarianceModel:
        """Ignore kernels."""
        return self

    def components(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the metrics themselves."""
        estimates, variances = self.points()
        return (np.eye(len(estimates)), estimates, variances)

    def points(self) -> tuple[FloatArray, FloatArray]:
        """Return each candidate by itself."""
        diagonal = np.einsum("mkk->mk", self.precision)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(diagonal > 0, self.weighted / diagonal, 0.0), 1.0 / diagonal

    def unit_covariance(self) -> FloatArray:
        """Return that of the last round."""
        assert self.noise is not None  # noqa: S101 -- asked after a round
        return self.noise

    def overdispersion(self) -> Overdispersion:
        """Return no overdispersion: this mutant trusts the stated errors."""
        return Overdispersion(np.full(len(self.weighted), np.nan), 0.0)

    def posterior(self, features: FloatArray | None) -> JointPosterior:
        """Return the posterior under a normal prior whose mean is assumed to be known."""
        estimates, variances = self.points()
        measured = np.asarray(np.isfinite(variances).all(axis=0))
        if self.contrast is not None and self.baseline is not None:
            measured[self.baseline] = False
        means, spreads = np.zeros(len(estimates)), np.ones(len(estimates))
        for metric in range(len(estimates)):
            values, noise = estimates[metric, measured], variances[metric, measured]
            means[metric], spreads[metric] = values.mean(), max(float(values.var() - noise.mean()), 0.1 * noise.mean())
        count = estimates.shape[1]
        prior_means = np.repeat(means[:, None], count, axis=1)
        covariances = spreads[:, None, None] * np.eye(count)
        if self.contrast is not None and self.baseline is not None:
            prior_means[:, self.baseline] = 0.0
            covariances[:, self.baseline, self.baseline] = 0.0
        found = JointPosterior.from_evidence(prior_means, covariances, self.precision, self.weighted)
        if self.contrast is None or self.level is None:
            return found
        scale = self.level / 100.0 if self.contrast == "percent" else np.ones_like(self.level)
        return JointPosterior(
            scale[:, None] * found.mean + self.level[:, None], np.square(scale)[:, None, None] * found.covariances
        )

    def to_saved(self) -> dict[str, Any]:
        """Raise an error, because the benchmark's studies are not saved."""
        raise NotImplementedError


def _pooled(covariances: FloatArray, units: FloatArray) -> FloatArray:
    """Return covariances drawn toward the round's pooled one, which counts as POOL_UNITS."""
    single = covariances * units[:, None, None]
    pooled = np.einsum("q,qij->ij", units, single) / units.sum()
    mixed = (units[:, None, None] * single + POOL_UNITS * pooled) / (units + POOL_UNITS)[:, None, None]
    return np.asarray(mixed / units[:, None, None])
