"""Evidence, prior and belief, against Gaussian conditioning written out in full."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from pasto.estimate import Evidence, Independent, Prior, learn_prior, shrunk
from pasto.estimate.evidence import steadied


def covariance(rng: np.random.Generator, width: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    root = rng.normal(size=(width, width + 2))
    return np.asarray(root @ root.T / width)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 5), st.floats(-1e4, 1e4))
def test_the_posterior_is_gaussian_conditioning(seed: int, width: int, count: int, level: float) -> None:
    rng = np.random.default_rng(seed)
    prior = Prior(rng.normal(size=width), covariance(rng, width))
    chosen = rng.integers(0, count, 7)
    metrics = level + rng.normal(size=(7, width))
    noises = np.array([covariance(rng, width) for _ in range(7)])
    evidence = Evidence.none(width, count)
    for part in (slice(0, 3), slice(3, 7)):
        evidence = evidence.add(chosen[part], metrics[part], np.ones(7)[part], noises[part])
    belief = Independent.of(evidence, prior)
    inverse = np.linalg.inv(steadied(prior.covariance))
    for k in range(count):
        mine = np.flatnonzero(chosen == k)
        precision = inverse + sum((np.linalg.inv(steadied(noises[q])) for q in mine), np.zeros((width, width)))
        pull = inverse @ (prior.mean + metrics[0]) + sum(
            (np.linalg.inv(steadied(noises[q])) @ metrics[q] for q in mine), np.zeros(width)
        )
        assert_allclose(belief.mean[:, k], np.linalg.solve(precision, pull), rtol=1e-7, atol=1e-6)
        assert_allclose(belief.covariances[k], np.linalg.inv(precision), rtol=1e-7, atol=1e-12)


def test_noise_is_pooled_from_repeats() -> None:
    rng = np.random.default_rng(3)
    truth, noise = rng.normal(size=(50, 2)) * 10, np.array([[1.0, 0.6], [0.6, 2.0]])
    evidence = Evidence.none(2, 50)
    for _ in range(40):
        measured = truth + rng.multivariate_normal([0, 0], noise, size=50)
        evidence = evidence.add(np.arange(50), measured, np.ones(50), None)
    assert_allclose(evidence.noise(), noise, atol=0.1)


def test_units_weigh_an_observation_of_unknown_covariance() -> None:
    rng = np.random.default_rng(4)
    evidence = Evidence.none(1, 2)
    for _ in range(2_000):
        measured = np.array([[1.0], [5.0]]) + rng.normal(size=(2, 1)) / np.sqrt([[4.0], [100.0]])
        evidence = evidence.add(np.arange(2), measured, np.array([4.0, 100.0]), None)
    assert_allclose(evidence.noise(), [[1.0]], rtol=0.1)
    precision, _ = evidence.likelihood()
    assert_allclose(precision[:, 0, 0] / (2_000 * np.array([4.0, 100.0])), 1.0, rtol=0.1)


def test_a_high_level_loses_no_accuracy() -> None:
    rng = np.random.default_rng(5)
    noise = rng.normal(size=(200, 3, 1))
    means = []
    for level in (0.0, 1e9):
        evidence = Evidence.none(1, 3)
        for measured in noise:
            evidence = evidence.add(np.arange(3), level + measured, np.ones(3), None)
        means.append(Independent.of(evidence, learn_prior(evidence)).mean - level)
    assert_allclose(means[1], means[0], atol=1e-5)


@pytest.mark.parametrize("repeats", [1, 5])
def test_the_prior_is_learned_from_the_candidates(repeats: int) -> None:
    rng = np.random.default_rng(6)
    centre, spread = np.array([2.0, -1.0]), np.array([[1.0, -0.7], [-0.7, 2.0]])
    truth = rng.multivariate_normal(centre, spread, size=3_000)
    evidence = Evidence.none(2, 3_000)
    for _ in range(repeats):
        measured = truth + rng.normal(size=truth.shape)
        evidence = evidence.add(np.arange(3_000), measured, np.ones(3_000), np.tile(np.eye(2), (3_000, 1, 1)))
    prior = learn_prior(evidence, steps=40)
    assert_allclose(prior.mean + evidence.origin, centre, atol=0.1)
    assert_allclose(prior.covariance, spread, atol=0.15)


def test_one_observation_of_a_few_candidates_is_enough_to_go_on() -> None:
    for known in (None, np.tile(0.04 * np.eye(2), (3, 1, 1))):
        evidence = Evidence.none(2, 100).add(np.arange(3), np.array([[1.0, 2], [1.5, 1], [0.5, 3]]), np.ones(3), known)
        prior = learn_prior(evidence)
        assert (np.linalg.eigvalsh(prior.covariance) > 1e-4).all()
        belief = Independent.of(evidence, prior)
        assert np.isfinite(belief.mean).all()
        spreads = np.einsum("kii->ki", belief.covariances)
        assert (spreads[50] > spreads[0]).all()


def test_identical_observations_leave_a_proper_belief() -> None:
    evidence = Evidence.none(2, 4).add(np.arange(4), np.ones((4, 2)), np.ones(4), np.zeros((4, 2, 2)))
    belief = Independent.of(evidence, learn_prior(evidence))
    assert_allclose(belief.mean, 1.0, atol=1e-6)
    assert np.isfinite(belief.draw(np.random.default_rng(0).normal(size=(5, 2, 4)))).all()


def test_faded_evidence_counts_for_less() -> None:
    evidence = Evidence.none(1, 2).add(np.array([0]), np.array([[3.0]]), np.ones(1), np.ones((1, 1, 1)))
    whole, half = (Independent.of(each, Prior(np.zeros(1), np.eye(1))) for each in (evidence, evidence.fade(0.5)))
    assert half.covariances[0, 0, 0] > whole.covariances[0, 0, 0]
    assert_allclose(half.covariances[0, 0, 0], 1 / 1.5, rtol=1e-5)


def test_evidence_survives_being_saved() -> None:
    evidence = Evidence.none(2, 3)
    assert np.isnan(Evidence.from_saved(json.loads(json.dumps(evidence.to_saved())), 2).origin).all()
    evidence = evidence.add(np.array([2, 0]), np.array([[0.1, 0.2], [0.3, 0.4]]), np.ones(2), None)
    evidence = evidence.add(np.array([1]), np.array([[0.7, 0.2]]), np.ones(1), np.eye(2)[None] / 3)
    again = Evidence.from_saved(json.loads(json.dumps(evidence.to_saved())), 2)
    assert again.to_saved() == evidence.to_saved()


def test_draws_have_the_belief_s_mean_and_spread() -> None:
    rng = np.random.default_rng(8)
    belief = Independent(rng.normal(size=(2, 3)), np.array([covariance(rng, 2) for _ in range(3)]))
    draws = belief.draw(rng.standard_normal((100_000, 2, 3)))
    assert_allclose(draws.mean(axis=0), belief.mean, atol=0.05)
    row, weights = np.array([1.0, -2.0]), np.array([0.2, 0.3, 0.5])
    measured = np.einsum("m,nmk,k->n", row, draws, weights).std()
    assert_allclose(measured, belief.spread(row, weights), rtol=0.02)
    assert_allclose(np.linalg.norm(belief.factor(row) * weights), belief.spread(row, weights), rtol=1e-12)
    assert_allclose(belief.variances(row[None])[0], belief.factor(row) ** 2, rtol=1e-12)


def test_variances_of_few_units_do_not_pull_the_means_down() -> None:
    """Exponential metrics in cells of a dozen units: as told, low means come with small variances and win."""
    rng = np.random.default_rng(12)
    raw, mended = Evidence.none(1, 1), Evidence.none(1, 1)
    for _ in range(300):
        units = np.array([12.0, 4_000.0])
        sessions = [rng.exponential(10.0, int(count)) for count in units]
        means = np.array([[cell.mean()] for cell in sessions])
        told = np.array([[[cell.var(ddof=1) / len(cell)]] for cell in sessions])
        raw = raw.add(np.array([0]), means[:1], units[:1], told[:1])
        mended = mended.add(np.array([0]), means[:1], units[:1], shrunk(told, units)[:1])
    flat = Prior(np.zeros(1), 1e6 * np.eye(1))
    assert Independent.of(raw, flat).mean[0, 0] < 9.0
    assert_allclose(Independent.of(mended, flat).mean[0, 0], 10.0, atol=0.5)
