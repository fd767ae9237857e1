"""Sufficient statistics: weights by units, pooled covariances, and the scatter of repeats."""

from __future__ import annotations

import json

import numpy as np
from numpy.testing import assert_allclose

from pasto.estimate import Overdispersion, SufficientStatistics
from pasto.estimate.sufficient_statistics import reference_variances, relative_units


def test_noise_is_pooled_from_repeats() -> None:
    rng = np.random.default_rng(3)
    truth, noise = rng.normal(size=(50, 2)) * 10, np.array([[1.0, 0.6], [0.6, 2.0]])
    statistics = SufficientStatistics.empty(2, 50)
    for _ in range(40):
        measured = truth + rng.multivariate_normal([0, 0], noise, size=50)
        statistics = statistics.add(np.arange(50), measured, np.ones(50), None)
    assert_allclose(statistics.repeat_covariance(), noise, atol=0.1)
    assert_allclose(statistics.unit_covariances()[7], noise, atol=0.1)


def test_units_weigh_observations_of_unknown_covariance() -> None:
    rng = np.random.default_rng(4)
    statistics = SufficientStatistics.empty(1, 2)
    for _ in range(2_000):
        measured = np.array([[1.0], [5.0]]) + rng.normal(size=(2, 1)) / np.sqrt([[4.0], [100.0]])
        statistics = statistics.add(np.arange(2), measured, np.array([4.0, 100.0]), None)
    assert_allclose(statistics.repeat_covariance(), [[1.0]], rtol=0.1)
    precision, _ = statistics.likelihood()
    assert_allclose(precision[:, 0, 0] / (2_000 * np.array([4.0, 100.0])), 1.0, rtol=0.1)


def exponential_cells(
    rng: np.random.Generator, rounds: int, units: int, candidates: int
) -> tuple[SufficientStatistics, np.ndarray]:
    """Return skewed cells in which every candidate has the mean 10, and means weighted by inverse variances."""
    statistics = SufficientStatistics.empty(1, candidates)
    tops, bottoms = np.zeros(candidates), np.zeros(candidates)
    for _ in range(rounds):
        cells = rng.exponential(10.0, (candidates, units))
        means, variances = cells.mean(axis=1), cells.var(axis=1, ddof=1) / units
        statistics = statistics.add(
            np.arange(candidates), means[:, None], np.full(candidates, float(units)), variances[:, None, None]
        )
        tops, bottoms = tops + means / variances, bottoms + 1.0 / variances
    return statistics, tops / bottoms


def test_variances_of_few_units_do_not_pull_the_means_down() -> None:
    """Check cells of a dozen units: weighted by sample variances, the estimate would be a tenth too low."""
    statistics, inverse_variance = exponential_cells(np.random.default_rng(12), 300, 12, 4)
    estimates = statistics.estimates()[:, 0] + statistics.origin[0]
    assert (inverse_variance < 9.0).all()
    assert_allclose(estimates, 10.0, atol=0.5)


def test_noisy_variances_are_pooled_and_real_differences_remain() -> None:
    rng = np.random.default_rng(1)
    alike, _ = exponential_cells(rng, 10, 30, 20)
    variances = alike.unit_covariances()[:, 0, 0]
    assert variances.std() < 0.1 * variances.mean()
    statistics = SufficientStatistics.empty(1, 20)
    rates = np.linspace(0.01, 0.05, 20)
    for _ in range(10):
        measured = rng.binomial(5_000, rates) / 5_000
        errors = measured * (1 - measured) / 5_000
        statistics = statistics.add(np.arange(20), measured[:, None], np.full(20, 5_000.0), errors[:, None, None])
    assert_allclose(statistics.unit_covariances()[:, 0, 0], rates * (1 - rates), rtol=0.2)


def test_a_cell_without_events_is_not_exact() -> None:
    measured = np.array([0.0, 0.03, 0.02])
    errors = measured * (1 - measured) / 100
    statistics = SufficientStatistics.empty(1, 3).add(
        np.arange(3), measured[:, None], np.full(3, 100.0), errors[:, None, None]
    )
    variance = statistics.unit_covariances()[0, 0, 0] / 100
    assert_allclose(variance, errors.mean(), rtol=1e-3)


def test_errors_of_zero_everywhere_fall_back_on_the_scatter_of_repeats() -> None:
    rng = np.random.default_rng(3)
    statistics = SufficientStatistics.empty(1, 5)
    for _ in range(40):
        statistics = statistics.add(np.arange(5), rng.normal(size=(5, 1)), np.ones(5), np.zeros((5, 1, 1)))
    assert_allclose(statistics.unit_covariances()[:, 0, 0], 1.0, rtol=0.3)


def test_the_scatter_ratio_is_one_for_right_errors_and_shows_wrong_ones() -> None:
    rng = np.random.default_rng(4)
    for stated, expected in ((1.0, 1.0), (0.5, 4.0)):
        statistics = SufficientStatistics.empty(1, 20)
        for _ in range(30):
            units = rng.integers(10, 1_000, 20).astype(float)
            means = np.arange(20.0) + rng.normal(size=20) / np.sqrt(units)
            errors = stated**2 / units
            statistics = statistics.add(np.arange(20), means[:, None], units, errors[:, None, None])
        ratio, degrees = statistics.scatter_ratio()
        assert degrees == 29 * 20
        assert_allclose(ratio, expected, rtol=0.15)
    assert np.isnan(SufficientStatistics.empty(1, 2).scatter_ratio()[0]).all()


def test_cells_without_units_are_sorted_into_sizes() -> None:
    rng = np.random.default_rng(5)
    units = np.array([100, 10_000] * 50)
    variances = np.array([[np.diag(rng.chisquare(20, 2) / 20 / n)] for n in units])[:, 0]
    sizes = relative_units(variances, reference_variances(variances))
    assert set(sizes[::2]) <= {1.0, 0.01}
    assert len(set(sizes[::2])) == 1
    assert_allclose(sizes[1::2], 100.0 * sizes[::2])


def test_statistics_survive_being_saved() -> None:
    statistics = SufficientStatistics.empty(2, 3)
    assert np.isnan(SufficientStatistics.from_saved(json.loads(json.dumps(statistics.to_saved())), 2).origin).all()
    statistics = statistics.add(np.array([2, 0]), np.array([[0.1, 0.2], [0.3, 0.4]]), np.ones(2), None)
    statistics = statistics.add(np.array([1]), np.array([[0.7, 0.2]]), np.ones(1), np.eye(2)[None] / 3)
    again = SufficientStatistics.from_saved(json.loads(json.dumps(statistics.to_saved())), 2)
    assert again.to_saved() == statistics.to_saved()


def test_right_errors_seldom_raise_the_alarm_however_few_the_repeats() -> None:
    rng = np.random.default_rng(1)
    for degrees in (1, 3, 10, 100):
        ratios = rng.chisquare(degrees, 4_000) / degrees
        raised = Overdispersion.from_ratio(ratios, float(degrees)).raised
        assert raised.mean() <= 0.01


def test_errors_too_small_by_half_raise_it() -> None:
    rng = np.random.default_rng(2)
    ratios = 4.0 * rng.chisquare(60, 1_000) / 60
    assert Overdispersion.from_ratio(ratios, 60.0).raised.mean() > 0.99


def test_unknown_is_not_an_alarm() -> None:
    assert not Overdispersion.from_ratio(np.array([np.nan]), 0.0).raised.any()
