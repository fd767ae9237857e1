"""Contrasts with the control, compared with generalised least squares in dense matrices."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from pasto.arrays import FloatArray
from pasto.errors import MeasurementError
from pasto.estimate import ContrastPrior, ControlContrasts, RoundMeans


def empty(candidates: int, *, percent: bool, metrics: int = 1) -> ControlContrasts:
    return ControlContrasts.empty(np.full(metrics, percent), candidates)


def cells(places: list[int], means: FloatArray, units: FloatArray, variance: float) -> RoundMeans:
    covariances = variance / units[:, None, None] * np.eye(means.shape[1])
    return RoundMeans(np.array(places), means, units, covariances)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_effects_are_those_of_least_squares_with_a_free_level_for_each_round(seed: int) -> None:
    rng = np.random.default_rng(seed)
    contrasts = empty(4, percent=False)
    rows, values, weights = [], [], []
    for number in range(3):
        means, units = rng.normal(size=(5, 1)), rng.uniform(10, 100, 5)
        places = [0, 1, 2, 3, 0]
        contrasts = contrasts.add(cells(places, means, units, 2.0), 0, None)
        for place, mean, count in zip(places, means[:, 0], units, strict=True):
            rows.append([*(np.arange(1, 4) == place), *(np.arange(3) == number)])
            values.append(mean)
            weights.append(count / 2.0)
    design = np.array(rows, dtype=float)
    normal = design.T @ (np.array(weights)[:, None] * design)
    solution = np.linalg.solve(normal, design.T @ (np.array(weights) * values))
    wide = ContrastPrior(1e6 * np.eye(1)).posterior(contrasts, 0)
    assert_allclose(wide.mean[0, 1:], solution[:3], rtol=1e-3, atol=1e-3)
    assert_allclose(wide.mean[0, 0], 0.0, atol=1e-12)
    covariance = np.linalg.inv(normal)[:3, :3]
    spread = [wide.spread(np.ones(1), row) ** 2 for row in np.eye(4)[1:]]
    assert_allclose(spread, np.diag(covariance), rtol=1e-3)


def test_a_round_without_control_still_separates_candidates() -> None:
    means = np.array([[3.0], [5.0]])
    first = empty(3, percent=False)
    with pytest.raises(MeasurementError, match="control"):
        first.add(cells([1, 2], means, np.ones(2), 1.0), 0, None)
    started = first.add(cells([1, 0], np.array([[3.0], [1.0]]), np.ones(2), 1.0), 0, None)
    both = started.add(cells([1, 2], means, 1e6 * np.ones(2), 1.0), 0, None)
    posterior = ContrastPrior(1e6 * np.eye(1)).posterior(both, 0)
    assert_allclose(posterior.mean[0, 2] - posterior.mean[0, 1], 2.0, rtol=1e-3)


def test_percent_needs_positive_levels() -> None:
    with pytest.raises(MeasurementError, match="difference"):
        empty(2, percent=True).add(cells([0, 1], -np.ones((2, 1)), np.ones(2), 1.0), 0, None)


def test_a_round_without_events_adds_no_information_and_no_error() -> None:
    contrasts = empty(2, percent=True).add(cells([0, 1], np.array([[1.0], [1.2]]), np.full(2, 100.0), 1.0), 0, None)
    quiet = contrasts.add(
        RoundMeans(np.array([0, 1]), np.zeros((2, 1)), np.full(2, 50.0), np.zeros((2, 1, 1))), 0, None
    )
    assert np.isfinite(quiet.noise).all()
    assert_allclose(quiet.noise, contrasts.noise, rtol=1e-6)
    assert_allclose(quiet.weighted, contrasts.weighted)


@pytest.mark.parametrize("control", [0.2, 0.05])
@pytest.mark.parametrize("swing", [0.0, 1.0])
def test_percent_contrasts_are_unbiased_with_honest_errors(control: float, swing: float) -> None:
    """Check the mean error: divided by its own control, a round with a low control would count too much."""
    rng = np.random.default_rng(9)
    scores = []
    effects = np.array([0.0, 4.0, -4.0, 2.0, -2.0, 8.0])
    for _ in range(120):
        contrasts = empty(6, percent=True)
        for _ in range(10):
            level = 2.0 ** rng.uniform(-swing, swing)
            units = np.array([*np.full(6, (1 - control) * 500.0), control * 3_000.0])
            truth = level * (1.0 + np.array([*effects, 0.0]) / 100.0)
            means = truth + level * rng.normal(size=7) / np.sqrt(units)
            contrasts = contrasts.add(cells([0, 1, 2, 3, 4, 5, 0], means[:, None], units, level**2), 0, None)
        posterior = ContrastPrior(1e4 * np.eye(1)).posterior(contrasts, 0)
        weights = np.array([0.0, 0.5, 0.5, 0.0, 0.0, 0.0])
        off = posterior.mean[0] @ weights - effects @ weights
        scores.append(float(off / posterior.spread(np.ones(1), weights)))
    assert abs(np.mean(scores)) < 0.3
    assert_allclose(np.std(scores), 1.0, atol=0.2)


def test_a_prior_is_learned_from_contrasts() -> None:
    rng = np.random.default_rng(8)
    truth = np.array([0.0, *rng.normal(2.0, 3.0, 399)])
    means = 5.0 + truth + 0.5 * rng.normal(size=400)
    contrasts = empty(400, percent=False).add(cells([*range(400)], means[:, None], np.ones(400), 0.25), 0, None)
    prior = ContrastPrior.learn(contrasts, 0, None, steps=20)
    assert_allclose(prior.covariance, 9.0, rtol=0.2)


def test_contrasts_of_correlated_metrics_keep_the_correlation() -> None:
    """Check that N − cD of a ratio has a smaller error than from independent N and D."""
    rng = np.random.default_rng(10)
    unit = np.array([[1.0, 0.9], [0.9, 1.0]])
    contrasts, units = empty(5, percent=False, metrics=2), np.full(5, 100.0)
    for _ in range(20):
        means = rng.multivariate_normal([0, 0], unit / 100, 5)
        contrasts = contrasts.add(RoundMeans(np.arange(5), means, units, np.tile(unit / 100, (5, 1, 1))), 0, None)
    posterior = contrasts.to_metrics(ContrastPrior(np.eye(2)).posterior(contrasts, 0))
    apart = np.array([0.0, 1.0, 0.0, 0.0, 0.0]) - np.eye(5)[0]
    together, alone = posterior.spread(np.array([1.0, -1.0]), apart), posterior.spread(np.array([1.0, 0.0]), apart)
    assert together < 0.6 * alone


def test_metrics_are_at_the_average_level_with_a_small_error() -> None:
    """Check that the level comes from all units, so that an absolute guardrail has no noise of a small control."""
    rng = np.random.default_rng(11)
    scores = []
    for _ in range(200):
        contrasts = empty(3, percent=False)
        for _ in range(6):
            units = np.array([450.0, 450.0, 20.0])
            means = 10.0 + np.array([1.0, -1.0, 0.0]) + rng.normal(size=3) / np.sqrt(units)
            contrasts = contrasts.add(cells([1, 2, 0], means[:, None], units, 1.0), 0, None)
        posterior = contrasts.to_metrics(ContrastPrior(np.eye(1)).posterior(contrasts, 0))
        scores.append(float((posterior.mean[0, 1] - 11.0) / posterior.spread(np.ones(1), np.eye(3)[1])))
        assert posterior.spread(np.ones(1), np.eye(3)[1]) < 0.03
    assert_allclose(np.std(scores), 1.0, atol=0.15)


def test_the_scatter_ratio_shows_effects_that_change_between_rounds() -> None:
    rng = np.random.default_rng(12)
    for moving, low, high in ((0.0, 0.6, 1.5), (0.2, 3.0, 9.0)):
        contrasts = empty(10, percent=False)
        for _ in range(12):
            means = moving * rng.normal(size=10) + 0.1 * rng.normal(size=10)
            contrasts = contrasts.add(cells([*range(10)], means[:, None], np.full(10, 100.0), 1.0), 0, None)
        ratio, degrees = contrasts.scatter_ratio()
        assert degrees == 12 * 9 - 9
        assert low < ratio[0] < high


def test_contrasts_survive_being_saved() -> None:
    contrasts = empty(2, percent=True).add(cells([0, 1], np.array([[1.0], [1.2]]), np.full(2, 100.0), 1.0), 0, None)
    again = ControlContrasts.from_saved(json.loads(json.dumps(contrasts.to_saved())))
    assert again.to_saved() == contrasts.to_saved()


def test_a_candidate_that_varies_more_has_a_larger_error() -> None:
    rng = np.random.default_rng(5)
    variances, units = np.array([1.0, 1.0, 9.0, 1.0]), np.full(4, 1000.0)
    contrasts = empty(4, percent=False)
    for _ in range(20):
        means = rng.normal(0.0, np.sqrt(variances / units))[:, None]
        covariances = (variances / units)[:, None, None] * np.eye(1)
        contrasts = contrasts.add(RoundMeans(np.arange(4), means, units, covariances), 0, None)
    posterior = ContrastPrior(1e6 * np.eye(1)).posterior(contrasts, 0)
    errors = [float(posterior.spread(np.ones(1), row)) for row in np.eye(4)[1:]]
    exact = np.sqrt((variances[1:] + variances[0]) / 20_000)
    assert_allclose(errors, exact, rtol=0.1)


def test_candidates_that_differ_in_one_direction_share_it() -> None:
    rng = np.random.default_rng(6)
    truth = np.outer([3.0, -3.0], np.append(0.0, rng.normal(size=19)))
    contrasts = empty(20, percent=False, metrics=2)
    for _ in range(10):
        units = np.full(20, 1000.0)
        means = (truth + rng.normal(size=truth.shape)).T
        contrasts = contrasts.add(cells(list(range(20)), means, units, 1000.0), 0, None)
    prior = ContrastPrior.learn(contrasts, 0, None, steps=30)
    across, along = np.linalg.eigvalsh(prior.covariance)
    assert across < 0.1 < 5.0 < along  # the noise of a candidate's mean is 0.1
