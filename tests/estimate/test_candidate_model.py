"""Candidate models: levels and contrasts, independent candidates and kernels."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from pasto.estimate import (
    ContrastModel,
    ControlContrasts,
    JointPosterior,
    Kernel,
    LevelModel,
    RoundMeans,
    SufficientStatistics,
)
from pasto.estimate.gaussian_process import choose_kernels, fit_kernels, held_out_log_density


def spd(rng: np.random.Generator, size: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    root = rng.normal(size=(size, size + 2))
    return np.asarray(root @ root.T / size)


def simulated(rng: np.random.Generator, *, swing: float) -> tuple[ContrastModel, LevelModel, np.ndarray]:
    """Return fifty rounds of twenty candidates whose common level swings."""
    truth = rng.normal(10.0, 1.0, (2, 20))
    contrasted = ContrastModel(ControlContrasts.empty(np.full(2, False), 20), baseline=0)
    absolute = LevelModel(SufficientStatistics.empty(2, 20), 0)
    noise = 0.25 * np.eye(2)
    for day in range(50):
        level = swing * np.sin(day)
        chosen = rng.integers(0, 20, 8)
        metrics = truth[:, chosen].T + level + 0.5 * rng.normal(size=(8, 2))
        control = truth[:, 0] + level + 0.5 * rng.normal(size=2)
        cells = RoundMeans(np.append(chosen, 0), np.vstack([metrics, control]), np.ones(9), np.tile(noise, (9, 1, 1)))
        contrasted, absolute = contrasted.add(cells), absolute.add(cells)
    return contrasted, absolute, truth


def test_contrasts_cancel_a_swing_that_biases_the_levels() -> None:
    contrasted, absolute, truth = simulated(np.random.default_rng(5), swing=10.0)
    for known, good in ((contrasted, True), (absolute, False)):
        mean = known.posterior(None).mean
        error = np.sqrt(np.mean(np.square((mean - mean[:, [0]]) - (truth - truth[:, [0]]))))
        assert (error < 0.35) == good


def test_contrasts_have_honest_spreads() -> None:
    scores = []
    for seed in range(12):
        contrasted, _, truth = simulated(np.random.default_rng(seed), swing=3.0)
        posterior = contrasted.posterior(None)
        off = (posterior.mean - posterior.mean[:, [0]]) - (truth - truth[:, [0]])
        apart = np.eye(20) - np.eye(20)[0]
        spreads = np.array([posterior.spread(row, apart) for row in np.eye(2)])
        scores.append((off[:, 1:] / spreads[:, 1:]).ravel())
    assert_allclose(np.concatenate(scores).std(), 1.0, atol=0.15)


def test_growing_adds_unmeasured_candidates() -> None:
    contrasted, absolute, _ = simulated(np.random.default_rng(6), swing=0.0)
    for known in (contrasted, absolute):
        grown = known.grow(2)
        before, after = known.posterior(None), grown.posterior(None)
        assert after.mean.shape == (2, 22)
        assert_allclose(after.mean[:, :20], before.mean, rtol=0.05)
        assert after.variances(np.eye(2))[:, 21].min() > before.variances(np.eye(2))[:, 1:].max()
        assert np.isinf(grown.points()[1][:, 20:]).all()


def test_models_survive_being_saved() -> None:
    contrasted, absolute, _ = simulated(np.random.default_rng(7), swing=1.0)
    kernels = (Kernel(0.0, 1.0, 0.1, (0.3,)), Kernel(0.5, 2.0, 0.1, (0.4,)))
    for known in (contrasted, contrasted.share(kernels)):
        assert ContrastModel.from_saved(json.loads(json.dumps(known.to_saved()))).to_saved() == known.to_saved()
    for plain in (absolute, absolute.share(kernels)):
        assert LevelModel.from_saved(json.loads(json.dumps(plain.to_saved())), 2).to_saved() == plain.to_saved()


def test_kernels_share_strength_between_neighbours() -> None:
    rng = np.random.default_rng(9)
    features = np.linspace(0, 1, 60)[:, None]
    truth = np.array([np.sin(5 * features[:, 0]), np.cos(4 * features[:, 0])])
    chosen = np.arange(0, 60, 2)
    metrics = truth[:, chosen].T + 0.3 * rng.normal(size=(30, 2))
    known = LevelModel(SufficientStatistics.empty(2, 60)).add(
        RoundMeans(chosen, metrics, np.ones(30), np.tile(0.09 * np.eye(2), (30, 1, 1)))
    )
    estimates, noises = known.points()
    kernels = choose_kernels(features, estimates, noises)
    assert kernels is not None
    with_geometry = known.share(kernels).posterior(features).mean
    without = known.posterior(features).mean
    assert np.abs(with_geometry - truth).mean() < 0.4 * np.abs(without - truth).mean()


def test_no_kernels_where_candidates_have_no_structure() -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        features = np.linspace(0, 1, 40)[:, None]
        assert choose_kernels(features, rng.normal(size=(3, 40)), np.full((3, 40), 0.05)) is None


def test_too_few_measurements_fit_no_kernel() -> None:
    noises = np.full((1, 20), np.inf)
    noises[:, :5] = 0.1
    assert choose_kernels(np.linspace(0, 1, 20)[:, None], np.zeros((1, 20)), noises) is None


def test_held_out_density_is_that_of_each_point_given_the_others() -> None:
    rng = np.random.default_rng(10)
    covariance, values, variances = spd(rng, 5), rng.normal(size=5), rng.uniform(0.1, 1, 5)
    total = 0.0
    noisy = covariance + np.diag(variances)
    for k in range(5):
        rest = [j for j in range(5) if j != k]
        lean = np.linalg.solve(noisy[np.ix_(rest, rest)], noisy[rest, k])
        spread = noisy[k, k] - noisy[k, rest] @ lean
        total += -0.5 * (np.log(2 * np.pi * spread) + (values[k] - 0.3 - lean @ (values[rest] - 0.3)) ** 2 / spread)
    assert_allclose(held_out_log_density(covariance, 0.3, values, variances), total, rtol=1e-9)


def test_lengths_are_learned_metric_by_metric() -> None:
    rng = np.random.default_rng(11)
    features = rng.uniform(size=(80, 2))
    truth = np.array([np.sin(9 * features[:, 0]), features[:, 1] * 3.0])
    first, second = fit_kernels(features, truth + 0.05 * rng.normal(size=truth.shape), np.full((2, 80), 0.0025))
    assert first.scales[0] < first.scales[1]
    assert second.scales[1] < second.scales[0]


@pytest.mark.parametrize("half_life", [3.0, 6.0])
def test_fading_does_not_raise_an_alarm_about_right_errors(half_life: float) -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        contrasted = ContrastModel(ControlContrasts.empty(np.full(1, False), 60), baseline=0)
        levels = LevelModel(SufficientStatistics.empty(1, 60), 0)
        truth, factor = rng.normal(size=60), 0.5 ** (1.0 / half_life)
        for _ in range(40):
            chosen = np.append(rng.integers(0, 60, 10), 0)
            means = truth[chosen] + 0.5 * rng.normal(size=11)
            cells = RoundMeans(chosen, means[:, None], np.full(11, 100.0), np.full((11, 1, 1), 0.25))
            contrasted, levels = contrasted.fade(factor).add(cells), levels.fade(factor).add(cells)
        for model in (contrasted, levels):
            found = model.overdispersion()
            assert not found.raised.any()
            assert 0.5 < found.factors[0] < 1.5


def test_a_control_without_units_counts_all_its_assignments() -> None:
    """Check that four averaged measurements count as one cell of four times the size."""
    covariances = np.array([1.0, 1.2, 0.9, 0.25])[:, None, None]
    cells = RoundMeans(np.array([1, 2, 3, 0]), np.ones((4, 1)), None, covariances, np.array([1.0, 1.0, 1.0, 4.0]))
    model = LevelModel(SufficientStatistics.empty(1, 4), 0)
    assert model.size(cells).units.tolist() == [1.0, 1.0, 1.0, 4.0]  # type: ignore[union-attr]


def test_uncertain_kernels_widen_the_posterior_and_the_mixing_keeps_correlations() -> None:
    rng = np.random.default_rng(11)
    features = np.linspace(0, 1, 20)[:, None]
    wave = np.sin(6 * features[:, 0])
    truth = np.array([wave, -0.8 * wave + 0.3 * np.cos(9 * features[:, 0])])
    known = LevelModel(SufficientStatistics.empty(2, 20))
    for _ in range(4):
        metrics = truth.T + 0.3 * rng.normal(size=(20, 2))
        known = known.add(RoundMeans(np.arange(20), metrics, np.ones(20), np.tile(0.09 * np.eye(2), (20, 1, 1))))
    mixing, estimates, noises = known.components()
    kernels = choose_kernels(features, estimates, noises)
    assert kernels is not None
    shared = known.share(kernels, mixing)
    posterior = shared.posterior(features)
    assert isinstance(posterior, JointPosterior)
    assert posterior.shared is not None
    rows = np.eye(2)
    certain = replace(posterior, shared=None).variances(rows)
    assert (posterior.variances(rows) > certain).all()
    assert (posterior.variances(rows) < 4 * certain).mean() > 0.9
    assert np.abs(posterior.mean - truth).mean() < 0.15
    again = LevelModel.from_saved(json.loads(json.dumps(shared.to_saved())), 2)
    assert_allclose(again.posterior(features).mean, posterior.mean, rtol=0)
    # Components are uncorrelated under noise and prior; their mixture gives the metrics.
    metrics_again = mixing @ estimates
    assert_allclose(metrics_again, known.points()[0], atol=1e-12)
