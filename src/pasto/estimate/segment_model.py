"""Segment model: means of candidates in segments, shrunk towards what all segments have in common.

The mean vector of candidate k in segment s is

    θ_sk = α_s + μ_k + δ_sk,   μ_k ~ N(0, T),   δ_sk ~ N(0, D),

with a level α_s of the segment of which nothing is known before. T is the spread of the candidates' common effects, and
that of the effects in single segments is D. Both are learned from all cells by EM. So segments share strength: if they
do not differ, D is near zero, and each cell is estimated from all segments; if they differ much, each counts alone.

Apart from the levels, everything is linear in segments times candidates. The levels are one linear system of the size
of segments times metrics. The errors of T and D are not part of the posterior, so its intervals are a little too short
while few cells are measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import NotFittedError
from pasto.estimate.posterior import symmetric_root

EM_STEPS = 40
"""Steps of EM without a start: D falls like 1/steps of the noise if segments do not differ."""
EM_STEPS_FROM_START = 8
"""Steps of EM from the covariances of an earlier round."""
MIN_START = 0.1
"""Part of the cells' mean noise at which D and T start at least, because EM does not leave zero."""


@dataclass(frozen=True, slots=True, eq=False)
class SegmentPosterior:
    """Posterior of the mean vectors of all cells, given the covariances T and D."""

    levels: FloatArray
    """α, (segments, metrics)."""
    level_root: FloatArray
    """R with R Rᵀ = covariance of all levels, (segments · metrics, segments · metrics)."""
    common_covariance: FloatArray
    """T, (metrics, metrics)."""
    segment_covariance: FloatArray
    """D, (metrics, metrics)."""
    estimates: FloatArray
    """The cells' measured means, (segments, candidates, metrics); 0 if not measured."""
    weights: FloatArray
    """(noise + D)⁻¹ of each cell, (segments, candidates, metrics, metrics); 0 if not measured."""
    noises: FloatArray
    """D − D (noise + D)⁻¹ D, the covariance of δ_sk if μ_k and α_s are known, shaped as weights."""

    @property
    def means(self) -> FloatArray:
        """Expected mean vectors, (segments, candidates, metrics)."""
        common, _ = _common_effects(self.estimates - self.levels[:, None], self.weights, self.common_covariance)
        return np.asarray(self._complete(self.levels[None], common[None])[0])

    def draw(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Draw mean vectors, (draws, segments, candidates, metrics)."""
        segments, candidates, metrics = self.estimates.shape
        noise = rng.standard_normal((count, segments * metrics))
        levels = self.levels + (noise @ self.level_root.T).reshape(count, segments, metrics)
        residuals = self.estimates - levels[:, :, None]
        common, covariances = _common_effects(residuals, self.weights, self.common_covariance)
        common = common + _multiply(_roots(covariances), rng.standard_normal((count, candidates, metrics)))
        own = _multiply(_roots(self.noises), rng.standard_normal((count, segments, candidates, metrics)))
        return self._complete(levels, common) + own

    def _complete(self, levels: FloatArray, common: FloatArray) -> FloatArray:
        """Return α + μ and the expected δ, for levels (draws, segments, metrics) and μ (draws, candidates, metrics)."""
        base = levels[:, :, None] + common[:, None]
        gains = self.segment_covariance @ self.weights
        return np.asarray(base + _multiply(gains, self.estimates - base))


def fit_segments(
    estimates: FloatArray, precisions: FloatArray, start: SegmentPosterior | None = None, steps: int | None = None
) -> SegmentPosterior:
    """Return the posterior of all cells, for measured means (segments, candidates, metrics) and their precisions.

    precisions (segments, candidates, metrics, metrics) are inverse covariances of the measured means, and zero for a
    cell that is not measured. Every segment needs a measured candidate. start is the posterior of an earlier round.

    >>> rng = np.random.default_rng(0)
    >>> common = rng.normal(size=(30, 1))
    >>> estimates = common + 0.5 * rng.normal(size=(6, 30, 1))  # the segments do not differ
    >>> posterior = fit_segments(estimates, np.full((6, 30, 1, 1), 4.0))
    >>> bool(posterior.segment_covariance[0, 0] < 0.02), bool(np.abs(posterior.means - common).mean() < 0.25)
    (True, True)
    """
    measured = np.einsum("skii->sk", precisions) > 0.0
    if not measured.any(axis=1).all():
        missing = int(np.flatnonzero(~measured.any(axis=1))[0])
        raise NotFittedError(f"segment {missing} has no measured candidate; measure one, or leave the segment out")
    estimates = np.where(measured[:, :, None], estimates, 0.0)
    if start is None:
        common, own = _start(estimates, precisions)
    else:
        common, own = start.common_covariance, start.segment_covariance
    for _ in range(steps or (EM_STEPS if start is None else EM_STEPS_FROM_START)):
        weights = _weights(precisions, own)
        levels, _ = _fit_levels(estimates, weights, common)
        effects, covariances = _common_effects(estimates - levels[:, None], weights, common)
        gains = own @ weights
        moved = _multiply(gains, estimates - levels[:, None] - effects)
        spread = own - gains @ own + gains @ covariances @ gains.transpose(0, 1, 3, 2)
        common = covariances.mean(axis=0) + effects.T @ effects / len(effects)
        own = (np.einsum("ski,skj->ij", moved, moved) + spread.sum(axis=(0, 1))) / measured.size
        common, own = 0.5 * (common + common.T), 0.5 * (own + own.T)
    weights = _weights(precisions, own)
    levels, information = _fit_levels(estimates, weights, common)
    root = symmetric_root(np.asarray(np.linalg.inv(information)))
    return SegmentPosterior(levels, root, common, own, estimates, weights, own - own @ weights @ own)


def _weights(precisions: FloatArray, own: FloatArray) -> FloatArray:
    """Return (noise + D)⁻¹ of each cell, zero if not measured."""
    weights = np.linalg.solve(np.eye(len(own)) + precisions @ own, precisions)
    return np.asarray(0.5 * (weights + weights.transpose(0, 1, 3, 2)))


def _multiply(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    return np.asarray((matrices @ vectors[..., None])[..., 0])


def _roots(covariances: FloatArray) -> FloatArray:
    """Return symmetric roots of covariances (..., metrics, metrics)."""
    values, vectors = np.linalg.eigh(covariances)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]) @ np.swapaxes(vectors, -1, -2))


def _common_effects(residuals: FloatArray, weights: FloatArray, common: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the expected μ (..., candidates, metrics) and its covariances, for known levels.

    residuals are the measured means less the levels, (..., segments, candidates, metrics).
    """
    total = weights.sum(axis=0)
    covariances = np.linalg.solve(np.eye(len(common)) + common @ total, common)
    covariances = 0.5 * (covariances + covariances.transpose(0, 2, 1))
    return _multiply(covariances, _multiply(weights, residuals).sum(axis=-3)), covariances


def _fit_levels(estimates: FloatArray, weights: FloatArray, common: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the levels by generalised least squares, (segments, metrics), and their information matrix."""
    segments, candidates, metrics = estimates.shape
    pulled = _multiply(weights, estimates)
    effects, covariances = _common_effects(estimates, weights, common)
    right = (pulled - _multiply(weights, effects)).sum(axis=1).ravel()
    crossing = weights.transpose(1, 0, 2, 3).reshape(candidates, segments * metrics, metrics)
    flat = (crossing @ covariances).transpose(1, 0, 2).reshape(segments * metrics, -1)
    information = -flat @ crossing.transpose(1, 0, 2).reshape(segments * metrics, -1).T
    blocks = information.reshape(segments, metrics, segments, metrics)
    place = np.arange(segments)
    blocks[place, :, place] += weights.sum(axis=1)
    information = 0.5 * (information + information.T)
    return np.linalg.solve(information, right).reshape(segments, metrics), information


def _start(estimates: FloatArray, precisions: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return T and D to start from, diagonal: variances of candidates' means and of residuals, less the noise."""
    known = np.einsum("skii->ski", precisions)
    measured = known > 0.0
    counts = np.maximum(measured.sum(axis=(0, 1)), 1)
    typical = np.where(measured, 1.0 / np.where(measured, known, 1.0), 0.0).sum(axis=(0, 1)) / counts
    levels = np.where(measured, estimates, 0.0).sum(axis=1) / np.maximum(measured.sum(axis=1), 1)
    centred = np.where(measured, estimates - levels[:, None], 0.0)
    rows = centred.sum(axis=0) / np.maximum(measured.sum(axis=0), 1)
    residuals = np.where(measured, centred - rows, 0.0)
    within = (residuals**2).sum(axis=(0, 1)) / np.maximum(counts - len(rows) - len(levels) + 1, 1)
    own = np.maximum(within - typical, MIN_START * typical)
    return np.diag(np.maximum(rows.var(axis=0), MIN_START * typical)), np.diag(own)
