"""Segment model: dense conditioning as a second opinion, and worlds in which it must beat pooled and separate means."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from pasto.arrays import FloatArray
from pasto.errors import NotFittedError
from pasto.estimate import SegmentPosterior, SegmentSpreads, fit_segments
from pasto.estimate.posterior import PRIOR_CANDIDATES
from pasto.estimate.segment_model import _typical_noises

ROOT = np.linalg.cholesky(np.array([[1.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 1.0]]))
NOISE = np.array([[1.0, 0.3, 0.0], [0.3, 1.0, 0.0], [0.0, 0.0, 1.0]])


@dataclass(frozen=True)
class Cells:
    """True means and measurements of a world."""

    truth: FloatArray
    estimates: FloatArray
    precisions: FloatArray


def draw_cells(seed: int, heterogeneity: float, segments: int = 8, candidates: int = 60, noise: float = 0.5) -> Cells:
    """Draw three metrics with unequal noise and levels that differ much between segments."""
    rng = np.random.default_rng(seed)
    levels = 3.0 * rng.normal(size=(segments, 1, 3))
    common = rng.normal(size=(candidates, 3)) @ ROOT.T
    truth = levels + common + heterogeneity * rng.normal(size=(segments, candidates, 3)) @ ROOT.T
    scales = noise * np.exp(0.5 * rng.normal(size=(segments, candidates)))
    covariances = (scales**2)[:, :, None, None] * NOISE
    errors = np.linalg.cholesky(covariances) @ rng.normal(size=(segments, candidates, 3, 1))
    return Cells(truth, truth + errors[..., 0], np.linalg.inv(covariances))


def pool(cells: Cells) -> FloatArray:
    """Return the best estimates if segments differ in their levels only: weighted least squares."""
    levels = np.zeros((len(cells.truth), 3))
    effects = np.zeros(cells.truth.shape[1:])
    for _ in range(200):
        residuals = cells.precisions @ (cells.estimates - levels[:, None])[..., None]
        effects = np.linalg.solve(cells.precisions.sum(axis=0), residuals.sum(axis=0))[..., 0]
        residuals = cells.precisions @ (cells.estimates - effects)[..., None]
        levels = np.linalg.solve(cells.precisions.sum(axis=1), residuals.sum(axis=1))[..., 0]
    return np.asarray(levels[:, None] + effects)


def error(estimate: FloatArray, truth: FloatArray) -> float:
    return float(np.sqrt(((estimate - truth) ** 2).mean()))


@pytest.mark.parametrize("heterogeneity", [0.3, 0.6, 1.0])
def test_shrinkage_beats_pooled_and_separate_means(heterogeneity: float) -> None:
    for seed in range(700, 712):
        cells = draw_cells(seed, heterogeneity)
        shrunk = error(fit_segments(cells.estimates, cells.precisions).means, cells.truth)
        assert shrunk < 0.95 * error(pool(cells), cells.truth)
        assert shrunk < 0.95 * error(cells.estimates, cells.truth)


def test_segments_that_are_alike_lose_less_than_3_percent_against_pooling() -> None:
    losses = []
    for seed in range(720, 750):
        cells = draw_cells(seed, 0.0)
        shrunk = error(fit_segments(cells.estimates, cells.precisions).means, cells.truth)
        losses.append(shrunk / error(pool(cells), cells.truth) - 1.0)
    assert np.mean(losses) < 0.03


@pytest.mark.parametrize("heterogeneity", [0.0, 0.3, 1.0])
def test_intervals_of_draws_cover_the_truth(heterogeneity: float) -> None:
    covered = []
    for seed in range(760, 772):
        cells = draw_cells(seed, heterogeneity)
        draws = fit_segments(cells.estimates, cells.precisions).draw(300, np.random.default_rng(seed))
        low, high = np.quantile(draws, [0.025, 0.975], axis=0)
        covered.append(((low <= cells.truth) & (cells.truth <= high)).mean())
    assert 0.93 < np.mean(covered) < 0.985


def condition(cells: Cells, posterior: SegmentPosterior) -> tuple[FloatArray, FloatArray]:
    """Return mean and covariance of all cells by dense conditioning, with levels of variance 10⁶."""
    segments, candidates, metrics = cells.estimates.shape
    same_segment = np.kron(np.eye(segments), np.ones((candidates, candidates)))
    same_candidate = np.kron(np.ones((segments, segments)), np.eye(candidates))
    prior = (
        np.kron(same_segment, 1e6 * np.eye(metrics))
        + np.kron(same_candidate, posterior.spreads.common)
        + np.kron(np.eye(segments * candidates), posterior.spreads.own)
    )
    chosen = np.flatnonzero(np.repeat(np.einsum("skii->sk", cells.precisions).ravel() > 0.0, metrics))
    noise = np.zeros_like(prior)
    for cell, precision in enumerate(cells.precisions.reshape(-1, metrics, metrics)):
        if precision.any():
            place = slice(cell * metrics, (cell + 1) * metrics)
            noise[place, place] = np.linalg.inv(precision)
    gain = np.linalg.solve((prior + noise)[np.ix_(chosen, chosen)], prior[chosen]).T
    mean = gain @ cells.estimates.ravel()[chosen]
    return mean.reshape(cells.estimates.shape), prior - gain @ prior[chosen]


def without_covariance_errors(posterior: SegmentPosterior) -> SegmentPosterior:
    """Return the posterior that takes T and D as known."""
    segments, _, metrics = posterior.means.shape
    return replace(posterior, shared=posterior.shared[..., : segments * metrics])


def test_the_posterior_is_that_of_dense_conditioning() -> None:
    cells = draw_cells(780, 0.5, segments=3, candidates=5)
    precisions = cells.precisions.copy()
    precisions[1, 2] = precisions[0, 4] = precisions[2, 4] = 0.0  # not measured in one segment, or in two
    partial = Cells(cells.truth, cells.estimates, precisions)
    posterior = fit_segments(np.where(precisions.any(axis=3), cells.estimates, np.nan), precisions)
    mean, covariance = condition(partial, posterior)
    assert posterior.means == pytest.approx(mean, abs=1e-4)
    known = without_covariance_errors(posterior)
    draws = known.draw(200_000, np.random.default_rng(781)).reshape(200_000, -1)
    assert draws.mean(axis=0) == pytest.approx(mean.ravel(), abs=0.02)
    spread = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    assert np.abs(np.cov(draws.T) - covariance).max() < 0.02 * spread.max()
    # The covariance of one metric over all cells, without draws.
    row = np.array([1.0, -0.5, 2.0])
    projected = known.project(row)
    exact = np.einsum("aibj,i,j->ab", covariance.reshape(15, 3, 15, 3), row, row)
    assert projected.block(np.arange(15)) == pytest.approx(exact, abs=1e-4)
    weights = np.random.default_rng(782).normal(size=(3, 5))
    assert projected.times(weights).ravel() == pytest.approx(exact @ weights.ravel(), abs=1e-3)
    assert projected.spread(weights) ** 2 == pytest.approx(weights.ravel() @ exact @ weights.ravel(), rel=1e-3)
    cells = exact.reshape(3, 5, 3, 5)
    assert projected.by_candidate()[4] == pytest.approx(cells[:, 4, :, 4], abs=1e-4)
    assert projected.variances() == pytest.approx(np.diag(exact).reshape(3, 5), abs=1e-4)


def test_the_errors_of_learned_covariances_move_the_means_as_differences_do() -> None:
    cells = draw_cells(783, 0.5, segments=3, candidates=5)
    posterior = fit_segments(cells.estimates, cells.precisions)
    columns = posterior.shared[..., 9:]  # after those of the levels
    assert columns.shape[3] == 12

    def refit(spreads: SegmentSpreads) -> FloatArray:
        moved = fit_segments(cells.estimates, cells.precisions, start=spreads, steps=0)
        return moved.means - moved.levels[:, None]

    # A finite difference in any direction lies in the span of the columns; the levels are taken as fixed.
    flat = columns.reshape(-1, columns.shape[3])
    step = 1e-4
    for part in range(2):
        changes = [np.zeros((3, 3)), np.zeros((3, 3))]
        changes[part] = step * np.array([[1.0, 0.3, 0.0], [0.3, 0.5, 0.0], [0.0, 0.0, 2.0]])
        spreads = posterior.spreads
        after = SegmentSpreads(spreads.common + changes[0], spreads.own + changes[1])
        before = SegmentSpreads(spreads.common - changes[0], spreads.own - changes[1])
        difference = (refit(after) - refit(before)).ravel()
        within_segments = np.kron(np.eye(3), np.kron(np.ones((5, 5)) / 5.0, np.eye(3)))
        centred, columns_centred = difference - within_segments @ difference, flat - within_segments @ flat
        left = centred - columns_centred @ np.linalg.lstsq(columns_centred, centred, rcond=None)[0]
        assert np.abs(left).max() < 0.2 * np.abs(centred).max()


def test_the_error_of_the_own_covariance_is_that_of_its_estimate() -> None:
    """Compare the error from the Fisher information with the scatter of the learned D over worlds of one kind."""
    learned, stated = [], []
    for seed in range(800, 860):
        rng = np.random.default_rng(seed)
        truth = rng.normal(size=(30, 1)) + 0.7 * rng.normal(size=(5, 30, 1))
        estimates = truth + 0.5 * rng.normal(size=truth.shape)
        posterior = fit_segments(estimates, np.full((5, 30, 1, 1), 4.0))
        learned.append(posterior.spreads.own[0, 0])
        stated.append(own_covariance_error(estimates, posterior))
    assert np.mean(stated) == pytest.approx(np.std(learned, ddof=1), rel=0.3)


def own_covariance_error(estimates: FloatArray, posterior: SegmentPosterior) -> float:
    """Return the standard error of D, from the moves of a cell that is far from the rest of its candidate."""
    columns = posterior.shared[..., 5:]  # after those of the levels
    step = 1e-5
    precisions = np.full((*estimates.shape, 1), 4.0)
    spreads = replace(posterior.spreads, own=posterior.spreads.own + step)
    moved = fit_segments(estimates, precisions, start=spreads, steps=0).means - posterior.means
    place = np.unravel_index(int(np.abs(moved).argmax()), moved.shape)
    return float(abs(columns[place][1]) * step / abs(moved[place]))


def log_density(cells: Cells, posterior: SegmentPosterior) -> float:
    """Return the log density of all measurements and of T and D, at the fitted levels and covariances."""
    segments, candidates, metrics = cells.estimates.shape
    total = 0.0
    cell_noise, candidate_noise = _typical_noises(cells.precisions)
    for spread, center in (
        (posterior.spreads.common, candidate_noise),
        (posterior.spreads.own, cell_noise / np.sqrt(2.0 * segments * candidates)),
    ):
        part = np.linalg.slogdet(spread)[1] + np.trace(np.linalg.solve(spread, center))
        total -= 0.5 * PRIOR_CANDIDATES * float(part)
    for candidate in range(candidates):
        residual = (cells.estimates[:, candidate] - posterior.levels).ravel()
        covariance = np.kron(np.ones((segments, segments)), posterior.spreads.common)
        for segment in range(segments):
            place = slice(segment * metrics, (segment + 1) * metrics)
            noise = np.linalg.inv(cells.precisions[segment, candidate])
            covariance[place, place] += posterior.spreads.own + noise
        total -= 0.5 * (np.linalg.slogdet(covariance)[1] + residual @ np.linalg.solve(covariance, residual))
    return float(total)


def test_each_step_makes_the_measurements_more_likely() -> None:
    for seed, heterogeneity in ((790, 0.0), (791, 0.4)):
        cells = draw_cells(seed, heterogeneity, segments=4, candidates=12)
        fits = [fit_segments(cells.estimates, cells.precisions, steps=steps) for steps in (1, 2, 4, 8, 16, 32)]
        likelihoods = [log_density(cells, fit) for fit in fits]
        assert likelihoods == sorted(likelihoods)
        # From a start, the steps go on.
        resumed = fit_segments(cells.estimates, cells.precisions, start=fits[3].spreads, steps=8)
        assert resumed.means == pytest.approx(fits[4].means, abs=1e-9)


def test_the_learned_covariances_are_the_most_likely_ones() -> None:
    cells = draw_cells(792, 0.6, segments=3, candidates=15, noise=1.0)
    best = fit_segments(cells.estimates, cells.precisions, steps=600)
    highest = log_density(cells, best)
    for factor in (0.97, 1.03):
        common = replace(best, spreads=replace(best.spreads, common=factor * best.spreads.common))
        own = replace(best, spreads=replace(best.spreads, own=factor * best.spreads.own))
        assert log_density(cells, common) < highest
        assert log_density(cells, own) < highest


def test_units_of_metrics_do_not_matter() -> None:
    cells = draw_cells(795, 0.4, segments=4, candidates=15)
    units = np.array([1e-4, 1.0, 1e5])
    first = fit_segments(cells.estimates, cells.precisions)
    second = fit_segments(cells.estimates * units, cells.precisions / np.outer(units, units))
    assert second.means / units == pytest.approx(first.means, rel=1e-6, abs=1e-6)


def test_of_a_segment_without_measurements_hardly_anything_is_known() -> None:
    cells = draw_cells(796, 0.4, segments=3, candidates=5)
    precisions = cells.precisions.copy()
    precisions[1] = 0.0
    posterior = fit_segments(cells.estimates, precisions)
    deviations = np.sqrt(posterior.project(np.array([1.0, 0.0, 0.0])).variances())
    assert deviations[1].min() > 10.0 * deviations[[0, 2]].max()
    others = fit_segments(cells.estimates[[0, 2]], precisions[[0, 2]], steps=0, start=posterior.spreads)
    assert posterior.means[[0, 2]] == pytest.approx(others.means, abs=1e-9)
    with pytest.raises(NotFittedError, match="no cell is measured"):
        fit_segments(cells.estimates, np.zeros_like(precisions))
