"""Posteriors and priors, compared with Gaussian conditioning in dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from pasto.estimate import IndependentPosterior, JointPosterior, Prior, SufficientStatistics, learn_prior
from pasto.estimate.posterior import PRIOR_CANDIDATES, learned_covariance_errors, symmetric_root, triangular_root
from pasto.estimate.sufficient_statistics import regularize

Matrix = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def random_covariance(rng: np.random.Generator, width: int) -> Matrix:
    root = rng.normal(size=(width, width + 2))
    return np.asarray(root @ root.T / width)


def normal_prior(mean: Matrix, covariance: Matrix) -> Prior:
    return Prior(mean, covariance, 1e-12 * covariance)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 5), st.floats(-1e4, 1e4))
def test_the_posterior_is_gaussian_conditioning(seed: int, width: int, count: int, level: float) -> None:
    rng = np.random.default_rng(seed)
    prior = normal_prior(rng.normal(size=width), random_covariance(rng, width))
    chosen = rng.integers(0, count, 7)
    means = level + rng.normal(size=(7, width))
    unit, units = random_covariance(rng, width), rng.uniform(1, 9, 7)
    statistics = SufficientStatistics.empty(width, count)
    for part in (slice(0, 3), slice(3, 7)):
        noises = unit / units[part, None, None]
        statistics = statistics.add(chosen[part], means[part], units[part], noises)
    posterior = IndependentPosterior.from_statistics(statistics, prior)
    inverse = np.linalg.inv(regularize(prior.covariance))
    noise = np.linalg.inv(regularize(unit))
    for k in range(count):
        mine = np.flatnonzero(chosen == k)
        precision = inverse + units[mine].sum() * noise
        pull = inverse @ (prior.mean + means[0]) + noise @ (units[mine] @ means[mine])
        assert_allclose(posterior.mean[:, k], np.linalg.solve(precision, pull), rtol=1e-5, atol=1e-5)
        assert_allclose(posterior.covariances[k], np.linalg.inv(precision), rtol=1e-5, atol=1e-10)


def test_a_high_level_loses_no_accuracy() -> None:
    rng = np.random.default_rng(5)
    noise = rng.normal(size=(200, 3, 1))
    means = []
    for level in (0.0, 1e9):
        statistics = SufficientStatistics.empty(1, 3)
        for measured in noise:
            statistics = statistics.add(np.arange(3), level + measured, np.ones(3), None)
        means.append(IndependentPosterior.from_statistics(statistics, learn_prior(statistics)).mean - level)
    assert_allclose(means[1], means[0], atol=1e-5)


@pytest.mark.parametrize("repeats", [1, 5])
def test_the_prior_is_learned_from_the_candidates(repeats: int) -> None:
    rng = np.random.default_rng(6)
    centre, spread = np.array([2.0, -1.0]), np.array([[1.0, -0.7], [-0.7, 2.0]])
    truth = rng.multivariate_normal(centre, spread, size=3_000)
    statistics = SufficientStatistics.empty(2, 3_000)
    for _ in range(repeats):
        measured = truth + rng.normal(size=truth.shape)
        statistics = statistics.add(np.arange(3_000), measured, np.ones(3_000), np.tile(np.eye(2), (3_000, 1, 1)))
    prior = learn_prior(statistics, steps=40)
    assert_allclose(prior.mean + statistics.origin, centre, atol=0.1)
    assert_allclose(prior.covariance, spread, atol=0.15)
    assert_allclose(prior.mean_covariance, (spread + np.eye(2) / repeats) / 3_000, rtol=0.2)


def test_the_uncertain_prior_mean_is_shared_by_all_candidates() -> None:
    rng = np.random.default_rng(8)
    scores: list[float] = []
    for _ in range(400):
        truth = 5.0 + rng.normal(size=6)
        measured = truth + 2.0 * rng.normal(size=6)
        statistics = SufficientStatistics.empty(1, 6).add(
            np.arange(6), measured[:, None], np.ones(6), np.full((6, 1, 1), 4.0)
        )
        mean = measured.mean() - measured[0]
        prior = Prior(np.array([mean]), np.eye(1), np.array([[5.0 / 6.0]]))
        posterior = IndependentPosterior.from_statistics(statistics, prior)
        weights = np.full(6, 1.0 / 6.0)
        off = float(posterior.mean[0] @ weights - truth @ weights)
        scores.append(off / float(posterior.spread(np.ones(1), weights)))
        alone = np.sqrt(np.square(weights) @ posterior.covariances[:, 0, 0])
        assert posterior.spread(np.ones(1), weights) > 1.5 * alone
    assert_allclose(np.std(scores), 1.0, atol=0.1)


def test_one_observation_of_a_few_candidates_is_enough_to_continue() -> None:
    for known in (None, np.tile(0.04 * np.eye(2), (3, 1, 1))):
        statistics = SufficientStatistics.empty(2, 100).add(
            np.arange(3), np.array([[1.0, 2], [1.5, 1], [0.5, 3]]), np.ones(3), known
        )
        prior = learn_prior(statistics)
        assert (np.linalg.eigvalsh(prior.covariance) > 1e-4).all()
        posterior = IndependentPosterior.from_statistics(statistics, prior)
        assert np.isfinite(posterior.mean).all()
        spreads = posterior.variances(np.eye(2))
        assert (spreads[:, 50] > spreads[:, 0]).all()


def test_identical_observations_leave_a_proper_posterior() -> None:
    statistics = SufficientStatistics.empty(2, 4).add(np.arange(4), np.ones((4, 2)), np.ones(4), np.zeros((4, 2, 2)))
    posterior = IndependentPosterior.from_statistics(statistics, learn_prior(statistics))
    assert_allclose(posterior.mean, 1.0, atol=1e-6)
    assert np.isfinite(posterior.draw(np.random.default_rng(0).normal(size=(5, 2, 4)))).all()


def test_faded_statistics_count_for_less() -> None:
    statistics = SufficientStatistics.empty(1, 2).add(np.array([0]), np.array([[3.0]]), np.ones(1), np.ones((1, 1, 1)))
    prior = normal_prior(np.zeros(1), np.eye(1))
    full, half = (IndependentPosterior.from_statistics(each, prior) for each in (statistics, statistics.fade(0.5)))
    assert half.covariances[0, 0, 0] > full.covariances[0, 0, 0]
    assert_allclose(half.covariances[0, 0, 0], 1 / 1.5, rtol=1e-5)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_draws_have_the_posterior_s_mean_and_spread(rank: int) -> None:
    rng = np.random.default_rng(8)
    shared = rng.normal(size=(3, 2, rank)) if rank else None
    posterior = IndependentPosterior(
        rng.normal(size=(2, 3)), np.array([random_covariance(rng, 2) for _ in range(3)]), shared
    )
    draws = posterior.draw(rng.standard_normal((100_000, 2, 3)))
    assert_allclose(draws.mean(axis=0), posterior.mean, atol=0.05)
    row, weights = np.array([1.0, -2.0]), np.array([0.2, 0.3, 0.5])
    measured = np.einsum("m,nmk,k->n", row, draws, weights).std()
    assert_allclose(measured, posterior.spread(row, weights), rtol=0.02)
    factor = posterior.factor(row)
    full = np.diag(factor) if factor.ndim == 1 else factor
    assert_allclose(np.linalg.norm(full.T @ weights), posterior.spread(row, weights), rtol=1e-12)
    assert_allclose(posterior.variances(row[None])[0], np.square(full).sum(axis=1), rtol=1e-12)
    order = np.array([2, 0, 1])
    noise = rng.standard_normal((5, 2, 3))
    assert_allclose(posterior.take(order).draw(noise[:, :, order]), posterior.draw(noise)[:, :, order], atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6))
def test_a_joint_posterior_is_gaussian_conditioning(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=(1, count))
    prior, precision = random_covariance(rng, count)[None], random_covariance(rng, count)[None]
    weighted = np.einsum("mij,mj->mi", precision, rng.normal(size=(1, count)))
    posterior = JointPosterior.from_evidence(mean, prior, precision, weighted)
    total = np.linalg.inv(np.linalg.inv(prior[0]) + precision[0])
    assert_allclose(posterior.covariances[0], total, rtol=1e-6, atol=1e-9)
    assert_allclose(posterior.mean[0], total @ (np.linalg.solve(prior[0], mean[0]) + weighted[0]), rtol=1e-5, atol=1e-6)
    diagonal = np.einsum("mkk->mk", precision)
    assert_allclose(
        JointPosterior.from_evidence(mean, prior, diagonal, weighted).mean,
        JointPosterior.from_evidence(mean, prior, np.array([np.diag(diagonal[0])]), weighted).mean,
        rtol=1e-9,
    )


def test_a_candidate_known_exactly_stays_known() -> None:
    prior = np.diag([4.0, 0.0, 4.0])[None]
    posterior = JointPosterior.from_evidence(
        np.array([[1.0, 0.0, 1.0]]), prior, np.array([[1.0, 1.0, 0.0]]), np.array([[2.0, 5.0, 0.0]])
    )
    assert posterior.mean[0, 1] == 0.0
    assert posterior.covariances[0, 1, 1] == 0.0
    assert_allclose(posterior.mean[0, 2], 1.0)


@pytest.mark.parametrize("mixed", [False, True])
def test_draws_and_spreads_agree_and_relabelling_relabels(mixed: bool) -> None:
    rng = np.random.default_rng(2)
    mixing = rng.normal(size=(2, 2)) if mixed else None
    posterior = JointPosterior(
        rng.normal(size=(2, 4)), np.array([random_covariance(rng, 4), random_covariance(rng, 4)]), mixing
    )
    row, weights = np.array([1.0, -0.5]), np.array([0.4, 0.3, 0.2, 0.1])
    draws = posterior.draw(rng.standard_normal((200_000, 2, 4)))
    assert_allclose(np.einsum("m,nmk,k->n", row, draws, weights).std(), posterior.spread(row, weights), rtol=0.02)
    assert_allclose(np.linalg.norm(posterior.factor(row).T @ weights), posterior.spread(row, weights), rtol=1e-9)
    assert_allclose(posterior.variances(row[None])[0, 0], posterior.spread(row, np.eye(4)[0]) ** 2, rtol=1e-9)
    order = np.array([2, 0, 3, 1])
    noise = rng.standard_normal((5, 2, 4))
    moved = posterior.take(order).draw(noise[:, :, order])
    assert_allclose(moved, posterior.draw(noise)[:, :, order], rtol=1e-6, atol=1e-9)


def test_the_prior_finds_the_few_directions_in_which_candidates_differ() -> None:
    rng = np.random.default_rng(7)
    truth = np.outer(rng.normal(size=20), [3.0, -3.0, 2.0])
    statistics, prior = SufficientStatistics.empty(3, 20), None
    for _ in range(10):
        means = truth + rng.normal(size=truth.shape)
        statistics = statistics.add(np.arange(20), means, np.ones(20), np.tile(np.eye(3), (20, 1, 1)))
        prior = learn_prior(statistics, prior)
    assert prior is not None
    spread = np.linalg.eigvalsh(prior.covariance)
    assert spread[:2].max() < 0.1 < 5.0 < spread[2]  # the noise of a candidate's mean is 0.1


def some_statistics(rng: np.random.Generator, width: int = 2, count: int = 6) -> SufficientStatistics:
    statistics = SufficientStatistics.empty(width, count)
    truths = rng.normal(size=(count, width))
    for _ in range(3):
        means = truths + 0.5 * rng.normal(size=(count, width))
        statistics = statistics.add(np.arange(count), means, np.full(count, 4.0), np.tile(np.eye(width), (count, 1, 1)))
    return statistics


def test_the_error_of_a_learned_covariance_moves_the_means_as_a_finite_difference_does() -> None:
    rng = np.random.default_rng(3)
    statistics = some_statistics(rng)
    covariance, error = random_covariance(rng, 2), random_covariance(rng, 2)
    mean, none = np.zeros(2), 1e-12 * np.eye(2)
    prior = Prior(mean, covariance, none, covariance_errors=error[None])
    shared = IndependentPosterior.from_statistics(statistics, prior).shared
    assert shared is not None
    step = 1e-4
    up, down = (
        IndependentPosterior.from_statistics(statistics, normal_prior(mean, covariance + sign * step * error)).mean
        for sign in (1.0, -1.0)
    )
    assert_allclose(shared[:, :, -1], (up - down).T / (2 * step), rtol=1e-4, atol=1e-7)


def test_the_error_of_a_learned_covariance_is_that_of_repeated_studies() -> None:
    """Fail if the Fisher information, or its inverse root, is wrong: variances of estimates without noise are known."""
    covariance, count = np.array([[2.0, 0.6], [0.6, 1.0]]), 40
    errors = learned_covariance_errors(covariance, np.full((count, 2, 2), 0.0), 1e-12 * np.eye(2))
    total = np.einsum("jab,jcd->abcd", errors, errors)
    for a, b, c, d in np.ndindex(2, 2, 2, 2):
        wishart = covariance[a, c] * covariance[b, d] + covariance[a, d] * covariance[b, c]
        assert total[a, b, c, d] == pytest.approx(wishart / (count + PRIOR_CANDIDATES), rel=1e-4)


def test_draws_of_a_joint_posterior_carry_its_shared_covariance() -> None:
    rng = np.random.default_rng(8)
    covariances = np.array([random_covariance(rng, 3), random_covariance(rng, 3)])
    mixing = rng.normal(size=(2, 2))
    posterior = JointPosterior(rng.normal(size=(2, 3)), covariances, mixing, rng.normal(size=(3, 2, 4)))
    apart = posterior.draw(rng.standard_normal((200_000, 2, 3))) - posterior.mean
    rows, weights = np.array([1.0, -0.5]), np.array([0.5, 0.7, -0.2])
    drawn = np.std(apart.transpose(0, 2, 1) @ rows @ weights)
    assert drawn == pytest.approx(float(posterior.spread(rows, weights)), rel=0.01)
    root = posterior.factor(rows)
    assert float(np.linalg.norm(root.T @ weights)) == pytest.approx(float(posterior.spread(rows, weights)), rel=1e-9)
    assert_allclose(posterior.variances(rows[None])[0], np.square(root).sum(axis=1), rtol=1e-9)
    moved = posterior.transform(np.diag([2.0, 3.0]), np.eye(3), np.zeros(2)).take(np.array([0, 1, 2]))
    expected = posterior.spread(np.array([2.0, -1.5]), weights)
    assert float(moved.spread(rows, weights)) == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize("has_mixing", [False, True])
@pytest.mark.parametrize("rank", [0, 2])
def test_triangular_draws_have_the_posterior_s_covariance_and_follow_the_labels(rank: int, has_mixing: bool) -> None:
    rng = np.random.default_rng(8)
    mixing = rng.normal(size=(2, 2)) if has_mixing else None
    shared = rng.normal(size=(4, 2, rank)) if rank else None
    covariances = np.array([random_covariance(rng, 4) for _ in range(2)])
    posterior = JointPosterior(rng.normal(size=(2, 4)), covariances, mixing, shared)
    order = np.array([2, 0, 3, 1])
    basis = np.eye(8).reshape(8, 2, 4)
    moved = (posterior.draw(basis, order) - posterior.mean).reshape(8, 8)
    assert_allclose(moved.T @ moved, posterior.covariance(), rtol=1e-6, atol=1e-8)
    labels = np.array([3, 1, 0, 2])
    places = np.argsort(labels)[order]  # where the candidates of the order stand after the relabelling
    assert_allclose(
        posterior.take(labels).draw(basis[:, :, labels], places), posterior.draw(basis, order)[:, :, labels], rtol=1e-9
    )
    root = np.array([symmetric_root(covariance) for covariance in covariances])
    if not rank and mixing is None:  # without an order nothing changes: earlier studies replay bit for bit
        noise = rng.normal(size=(3, 2, 4))
        assert np.array_equal(posterior.draw(noise), posterior.mean + np.einsum("mij,nmj->nmi", root, noise))


def test_a_singular_covariance_has_a_triangular_root() -> None:
    column = np.array([[0.0], [2.0], [2.0]])  # the first candidate is known exactly, the others are equal
    root = triangular_root(column @ column.T)
    assert_allclose(root @ root.T, column @ column.T, atol=1e-8)
    assert np.array_equal(root, np.tril(root))
    assert np.isfinite(triangular_root(np.zeros((3, 3)))).all()


def test_a_mixture_of_metrics_is_a_transformation_that_leaves_candidates_alone() -> None:
    rng = np.random.default_rng(9)
    covariances = np.array([random_covariance(rng, 4) for _ in range(2)])
    posterior = JointPosterior(rng.normal(size=(2, 4)), covariances, None, rng.normal(size=(4, 2, 3)))
    mixing, shift = rng.normal(size=(2, 2)), rng.normal(size=2)
    mixed, transformed = posterior.mix(mixing, shift), posterior.transform(mixing, np.eye(4), shift)
    for part in ("mean", "covariances", "mixing", "shared"):
        assert np.array_equal(getattr(mixed, part), getattr(transformed, part)), part
