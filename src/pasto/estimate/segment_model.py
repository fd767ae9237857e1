"""Segment model: means of candidates in segments, shrunk towards what all segments have in common.

The mean vector of candidate k in segment s is

    θ_sk = α_s + μ_k + δ_sk,   μ_k ~ N(0, T),   δ_sk ~ N(0, D),

with a level α_s of the segment of which nothing is known before. T is the spread of the candidates' common effects, and
that of the effects in single segments is D. Both are learned from all cells by EM. So segments share strength: if they
do not differ, D is near zero, and each cell is estimated from all segments; if they differ much, each counts alone.

T and D carry inverse-Wishart priors that count like PRIOR_CANDIDATES candidates or cells. That of T is centred at the
noise of a typical candidate. That of D is centred at the error with which D can be learned, because the likeliest D is
often zero although the data cannot exclude a larger one. The errors of both come from the Fisher information, and are a
part of the posterior (Kass and Steffey 1989).

Apart from the levels, everything is linear in segments times candidates. The levels are one linear system of the size
of segments times metrics.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import NotFittedError
from pasto.estimate.posterior import PRIOR_CANDIDATES, symmetric_root
from pasto.estimate.segment_posterior import SegmentPosterior, SegmentSpreads
from pasto.estimate.sufficient_statistics import regularize

EM_STEPS = 40
"""Steps of EM without a start: D falls like 1/steps of the noise if segments do not differ."""
EM_STEPS_FROM_START = 8
"""Steps of EM from the covariances of an earlier round."""
MIN_START = 0.1
"""Part of the cells' mean noise at which D and T start at least, because EM does not leave zero."""
FREE_LEVEL_FACTOR = 100.0
"""Prior variance of the level of a segment without measurements, relative to all variances that were measured."""


def fit_segments(
    estimates: FloatArray, precisions: FloatArray, start: SegmentSpreads | None = None, steps: int | None = None
) -> SegmentPosterior:
    """Return the posterior of all cells, for measured means (segments, candidates, metrics) and their precisions.

    precisions (segments, candidates, metrics, metrics) are inverse covariances of the measured means, and zero for a
    cell that is not measured. Of the level of a segment without measurements hardly anything is known. start has the
    covariances of an earlier round.

    >>> rng = np.random.default_rng(0)
    >>> common = rng.normal(size=(30, 1))
    >>> estimates = common + 0.5 * rng.normal(size=(6, 30, 1))  # the segments do not differ
    >>> posterior = fit_segments(estimates, np.full((6, 30, 1, 1), 4.0))
    >>> bool(posterior.spreads.own[0, 0] < 0.03), bool(np.abs(posterior.means - common).mean() < 0.25)
    (True, True)
    """
    measured = np.einsum("skii->sk", precisions) > 0.0
    if not measured.any():
        raise NotFittedError("no cell is measured; observe a round first")
    estimates = np.where(measured[:, :, None], estimates, 0.0)
    spreads = _start(estimates, precisions) if start is None else start
    common, own = spreads.common, spreads.own
    typical, typical_common = _typical_noises(precisions)
    least = typical / np.sqrt(2.0 * measured.sum())
    if steps is None:
        steps = EM_STEPS if start is None else EM_STEPS_FROM_START
    for _ in range(steps):
        weights = _weights(precisions, own)
        levels, _ = _fit_levels(estimates, weights, common)
        effects, covariances = _common_effects(estimates - levels[:, None], weights, common)
        gains = own @ weights
        moved = _multiply(gains, estimates - levels[:, None] - effects)
        spread = own - gains @ own + gains @ covariances @ gains.transpose(0, 1, 3, 2)
        scatter = covariances.sum(axis=0) + effects.T @ effects
        own_scatter = np.einsum("ski,skj->ij", moved, moved) + spread.sum(axis=(0, 1))
        common = (scatter + PRIOR_CANDIDATES * typical_common) / (len(effects) + PRIOR_CANDIDATES)
        own = (own_scatter + PRIOR_CANDIDATES * least) / (measured.size + PRIOR_CANDIDATES)
        common, own = 0.5 * (common + common.T), 0.5 * (own + own.T)
    weights = _weights(precisions, own)
    return _complete(estimates, weights, SegmentSpreads(common, own), typical, typical_common)


def _typical_noises(precisions: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the noise of a typical cell, and that of a typical candidate over all segments, (metrics, metrics)."""
    known = np.einsum("skii->sk", precisions) > 0.0
    cell = np.linalg.inv(regularize(np.median(precisions[known], axis=0)))
    by_candidate = precisions[:, known.any(axis=0)].sum(axis=0)
    return np.asarray(cell), np.asarray(np.linalg.inv(regularize(np.median(by_candidate, axis=0))))


def _complete(
    estimates: FloatArray, weights: FloatArray, spreads: SegmentSpreads, typical: FloatArray, typical_common: FloatArray
) -> SegmentPosterior:
    """Return the posterior under learned covariances, with their errors."""
    segments, candidates, metrics = estimates.shape
    common, own = spreads.common, spreads.own
    levels, information = _fit_levels(estimates, weights, common)
    level_root = symmetric_root(np.asarray(np.linalg.inv(information)))
    residuals = estimates - levels[:, None]
    effects, covariances = _common_effects(residuals, weights, common)
    rest = np.eye(metrics) - own @ weights
    # A level moves its own cells, and through the common effects all cells.
    turns = -(covariances @ weights).transpose(1, 2, 0, 3).reshape(candidates, metrics, -1)
    level_moves = np.tile(turns, (segments, 1, 1, 1)).reshape(segments, candidates, metrics, segments, metrics)
    place = np.arange(segments)
    level_moves[place, :, :, place] += np.eye(metrics)
    level_columns = rest @ level_moves.reshape(segments, candidates, metrics, -1) @ level_root
    errors = _covariance_columns(residuals, weights, spreads, effects, covariances, (typical_common, typical))
    return SegmentPosterior(
        means=levels[:, None] + effects + _multiply(own @ weights, residuals - effects),
        own=own - own @ weights @ own,
        common=rest @ _roots(covariances),
        shared=np.concatenate([level_columns, rest @ errors], axis=3),
        levels=levels,
        spreads=spreads,
    )


def _covariance_columns(
    residuals: FloatArray,
    weights: FloatArray,
    spreads: SegmentSpreads,
    effects: FloatArray,
    covariances: FloatArray,
    typical: tuple[FloatArray, FloatArray],
) -> FloatArray:
    """Return the moves of all cells with the errors of T and D, (segments, candidates, metrics, directions).

    They still lack the factor I − D (noise + D)⁻¹. With W_s the weights of a candidate, U = Σ W_s, V the covariance of
    its common effects and r_s its residuals without them: a change A of T moves the common effects by
    (I − V U) A (I − U V) Σ W_s (y_s − α_s). A change A of D moves them by −V Σ W_s A W_s r_s, and the own effects by
    A W_s r_s.
    """
    metrics = residuals.shape[2]
    rows, columns = np.triu_indices(metrics)
    units = np.zeros((len(rows), metrics, metrics))
    units[np.arange(len(rows)), rows, columns] = units[np.arange(len(rows)), columns, rows] = 1.0
    bases = []
    for covariance, noise in zip((spreads.common, spreads.own), typical, strict=True):
        root = np.linalg.cholesky(regularize(covariance + noise))
        bases.append(root @ units @ root.T)
    first, second = bases
    total = weights.sum(axis=0)
    information = _information(weights, total, covariances, first, second)
    prior = np.einsum("aij,bji->ab", units, units)  # the basis is whitened by covariance + noise
    zero = np.zeros_like(prior)
    information = information + 0.5 * PRIOR_CANDIDATES * np.block([[prior, zero], [zero, prior]])
    pulled = _multiply(weights, residuals).sum(axis=0)
    keep = np.eye(metrics) - covariances @ total
    common_moves = np.einsum("kij,ajl,kl->kia", keep, first, _multiply(keep.transpose(0, 2, 1), pulled), optimize=True)
    left = _multiply(weights, residuals - effects)
    own_moves = np.einsum("aij,skj->skia", second, left, optimize=True)
    own_common = -covariances @ np.einsum("skij,skja->kia", weights, own_moves, optimize=True)
    moves = np.concatenate(
        [np.broadcast_to(common_moves, (len(residuals), *common_moves.shape)), own_moves + own_common], axis=3
    )
    return np.asarray(moves @ np.linalg.cholesky(np.linalg.inv(information)))


def _information(
    weights: FloatArray, total: FloatArray, covariances: FloatArray, first: FloatArray, second: FloatArray
) -> FloatArray:
    """Return the Fisher information of T in the directions `first` and D in `second`, ½ Σ_k tr(S_k⁻¹ A S_k⁻¹ B).

    S_k, the covariance of all measurements of a candidate, is never formed: S_k⁻¹ has the blocks
    δ_st W_s − W_s V W_t.
    """
    inner = total - total @ covariances @ total
    products = inner[:, None] @ first
    common = np.einsum("kaij,kbji->ab", products, products, optimize=True)
    crossing = weights - weights @ covariances @ total
    sandwiched = crossing.transpose(0, 1, 3, 2)[:, :, None] @ second @ crossing[:, :, None]
    mixed = np.einsum("aij,bji->ab", first, sandwiched.sum(axis=(0, 1)), optimize=True)
    turned = weights[:, :, None] @ second
    own = np.einsum("skaij,skbji->ab", turned, turned, optimize=True)
    doubled = turned @ weights[:, :, None]  # W A W
    once = np.einsum("skaij,kjl,sklm,bmi->ab", doubled, covariances, weights, second, optimize=True)
    sums = covariances[:, None] @ doubled.sum(axis=0)
    twice = np.einsum("kaij,kbji->ab", sums, sums, optimize=True)
    own = own - once - once.T + twice
    return np.asarray(0.5 * np.block([[common, mixed], [mixed.T, own]]))


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
    empty: NDArray[np.bool_] = ~np.asarray(weights.any(axis=(1, 2, 3)), dtype=np.bool_)
    if empty.any():
        center, spread = _describe_cells(estimates[~empty], weights[~empty])
        precision = np.linalg.inv(FREE_LEVEL_FACTOR * spread)
        blocks[place[empty], :, place[empty]] += precision
        right = right + (empty[:, None] * (precision @ center)).ravel()
    information = 0.5 * (information + information.T)
    return np.linalg.solve(information, right).reshape(segments, metrics), information


def _describe_cells(estimates: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and covariance of the measured cells, noise included, for a segment of which nothing is known."""
    known = weights.any(axis=(2, 3))
    cells, noises = estimates[known], np.linalg.inv(weights[known])
    center = cells.mean(axis=0)
    return center, np.asarray(regularize((cells - center).T @ (cells - center) / len(cells) + noises.mean(axis=0)))


def _start(estimates: FloatArray, precisions: FloatArray) -> SegmentSpreads:
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
    return SegmentSpreads(np.diag(np.maximum(rows.var(axis=0), MIN_START * typical)), np.diag(own))
