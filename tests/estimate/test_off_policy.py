"""Off-policy estimates: unbiased, with intervals that cover the truth in skewed worlds."""

from __future__ import annotations

import numpy as np
import pytest

from pasto.arrays import FloatArray
from pasto.estimate.off_policy import LoggedUnits, Method, estimate_off_policy

CANDIDATES, ROWS = 4, 4000
ANGLES = np.arange(CANDIDATES)


def _draw(rng: np.random.Generator, rows: int = ROWS, rows_of_a_unit: int = 1) -> LoggedUnits:
    """Return rows whose propensities depend on features: rare purchases of log-normal amounts, and likes."""
    features = np.repeat(rng.normal(size=(rows // rows_of_a_unit, 2)), rows_of_a_unit, axis=0)
    logits = features[:, :1] * np.cos(ANGLES) + features[:, 1:] * np.sin(ANGLES)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    shares = 0.05 / CANDIDATES + 0.95 * shares
    chosen = (rng.random((rows, 1)) > shares.cumsum(axis=1)).sum(axis=1).clip(0, CANDIDATES - 1)
    own = np.repeat(rng.normal(size=rows // rows_of_a_unit), rows_of_a_unit)
    bought = rng.random(rows) < _buying(features, chosen)
    revenue = np.where(bought, rng.lognormal(0.0, 1.2, rows), 0.0)
    likes = 1.0 + 0.2 * chosen + features[:, 1] + own + rng.normal(size=rows)
    clusters = np.arange(rows) // rows_of_a_unit
    return LoggedUnits(chosen, shares[np.arange(rows), chosen], np.stack([revenue, likes], 1), clusters, features)


def _buying(features: FloatArray, chosen: FloatArray) -> FloatArray:
    return np.clip(0.05 * (1.0 + 0.3 * np.sin(chosen)) * np.exp(0.3 * features[:, 0]), 0.0, 1.0)


def _truth() -> FloatArray:
    features = np.random.default_rng(99).normal(size=(200_000, 2))
    revenue = [_buying(features, np.full(len(features), k)).mean() * np.exp(0.5 * 1.2**2) for k in ANGLES]
    return np.stack([revenue, 1.0 + 0.2 * ANGLES], axis=1)


@pytest.mark.parametrize("method", ["ips", "snips", "dr"])
def test_intervals_cover_the_truth_in_a_skewed_world(method: Method) -> None:
    truth, covered, errors = _truth(), [], []
    for seed in range(80):
        estimates = estimate_off_policy(_draw(np.random.default_rng([3, seed])), method)
        means = np.array([estimates[k].means for k in range(CANDIDATES)])
        deviations = np.sqrt([np.diag(estimates[k].covariance) for k in range(CANDIDATES)])
        covered.append(np.abs(means - truth) < 1.96 * deviations)
        errors.append(means - truth)
    # 320 intervals of each metric: a standard error of about 1.2 % around 95 %.
    revenue, likes = np.mean(covered, axis=(0, 1))
    assert 0.90 < revenue < 0.985
    assert 0.92 < likes < 0.985
    bias = np.mean(errors, axis=0) / (np.std(errors, axis=0) / np.sqrt(80))
    assert np.abs(bias).max() < 4.0


def test_a_naive_mean_misses_the_truth() -> None:
    log = _draw(np.random.default_rng(1), rows=20_000)
    naive = np.array([log.values[log.chosen == k, 1].mean() for k in range(CANDIDATES)])
    estimates = estimate_off_policy(log, "snips")
    weighted = np.array([estimates[k].means[1] for k in range(CANDIDATES)])
    truth = _truth()[:, 1]
    assert np.abs(naive - truth).max() > 0.3
    assert np.abs(weighted - truth).max() < 0.15


def test_a_regression_takes_noise_out_of_the_doubly_robust_estimate() -> None:
    log = _draw(np.random.default_rng(2), rows=8000)
    variances = {
        method: np.mean([estimate.covariance[1, 1] for estimate in estimate_off_policy(log, method).values()])
        for method in ("snips", "dr")
    }
    assert variances["dr"] < 0.9 * variances["snips"]


def test_rows_of_one_unit_count_as_one_unit() -> None:
    truth, covered = _truth()[:, 1], {"clustered": 0, "alone": 0}
    for seed in range(40):
        log = _draw(np.random.default_rng([4, seed]), rows=3000, rows_of_a_unit=10)
        apart = LoggedUnits(log.chosen, log.propensities, log.values, np.arange(3000), log.features)
        for name, units in (("clustered", log), ("alone", apart)):
            estimates = estimate_off_policy(units, "snips")
            for k in range(CANDIDATES):
                error = abs(estimates[k].means[1] - truth[k])
                covered[name] += error < 1.96 * np.sqrt(estimates[k].covariance[1, 1])
    assert covered["clustered"] > 0.88 * 160
    assert covered["alone"] < 0.85 * 160


def test_weights_average_to_one_if_propensities_are_right() -> None:
    for estimate in estimate_off_policy(_draw(np.random.default_rng(5)), "snips").values():
        assert abs(estimate.mean_weight - 1.0) < 4.0 * estimate.mean_weight_error
