"""Beliefs in which candidates tell of each other: joint Gaussians, contrasts with a control, kernels."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from pasto.errors import BadMeasurement
from pasto.estimate import Absolute, Contrasted, Contrasts, Control, Evidence, Joint, Kernel, Reading
from pasto.estimate.prior import Spread, learn_spread
from pasto.estimate.process import choose_kernels, fit_kernels, held_out


def spd(rng: np.random.Generator, size: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    root = rng.normal(size=(size, size + 2))
    return np.asarray(root @ root.T / size)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6))
def test_a_joint_posterior_is_gaussian_conditioning(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    mean, prior, precision = rng.normal(size=(1, count)), spd(rng, count)[None], spd(rng, count)[None]
    weighted = np.einsum("mij,mj->mi", precision, rng.normal(size=(1, count)))
    belief = Joint.of(mean, prior, precision, weighted)
    total = np.linalg.inv(np.linalg.inv(prior[0]) + precision[0])
    assert_allclose(belief.covariances[0], total, rtol=1e-6, atol=1e-9)
    assert_allclose(belief.mean[0], total @ (np.linalg.solve(prior[0], mean[0]) + weighted[0]), rtol=1e-5, atol=1e-6)
    diagonal = np.einsum("mkk->mk", precision)
    assert_allclose(
        Joint.of(mean, prior, diagonal, weighted).mean,
        Joint.of(mean, prior, np.array([np.diag(diagonal[0])]), weighted).mean,
        rtol=1e-9,
    )


def test_a_candidate_known_exactly_stays_known() -> None:
    mean, prior = Spread(np.array([1.0]), np.array([4.0])).prior(3, 1)
    belief = Joint.of(mean, prior, np.array([[1.0, 1.0, 0.0]]), np.array([[2.0, 5.0, 0.0]]))
    assert belief.mean[0, 1] == 0.0
    assert belief.covariances[0, 1, 1] == 0.0
    assert_allclose(belief.mean[0, 2], 1.0)


def test_draws_and_spreads_agree_and_relabelling_relabels() -> None:
    rng = np.random.default_rng(2)
    belief = Joint(rng.normal(size=(2, 4)), np.array([spd(rng, 4), spd(rng, 4)]))
    row, weights = np.array([1.0, -0.5]), np.array([0.4, 0.3, 0.2, 0.1])
    draws = belief.draw(rng.standard_normal((200_000, 2, 4)))
    assert_allclose(np.einsum("m,nmk,k->n", row, draws, weights).std(), belief.spread(row, weights), rtol=0.02)
    assert_allclose(np.linalg.norm(belief.factor(row).T @ weights), belief.spread(row, weights), rtol=1e-9)
    order = np.array([2, 0, 3, 1])
    noise = rng.standard_normal((5, 2, 4))
    assert_allclose(belief.take(order).draw(noise[:, :, order]), belief.draw(noise)[:, :, order], rtol=1e-6, atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_the_control_s_noise_is_carried_as_shared(seed: int, percent: bool) -> None:
    """Against the full covariance of the contrasts, written out and inverted."""
    rng = np.random.default_rng(seed)
    metrics = rng.uniform(0.5, 2.0, (4, 1))
    own, shared, control = rng.uniform(0.1, 1.0, 4), 0.7, rng.uniform(0.5, 2.0, 1)
    evidence = Contrasts.none(1, 4, percent=percent).add(
        np.arange(4), metrics, own[:, None, None], Control(control, np.array([[shared]]))
    )
    slope = np.full(4, 100.0) / control if percent else np.ones(4)
    lean = slope * (metrics[:, 0] / control if percent else np.ones(4))
    covariance = np.diag(slope**2 * own) + shared * np.outer(lean, lean)
    contrast = 100.0 * (metrics[:, 0] / control - 1.0) if percent else metrics[:, 0] - control
    assert_allclose(evidence.precision[0], np.linalg.inv(covariance), rtol=1e-7, atol=1e-10)
    assert_allclose(evidence.weighted[0], np.linalg.solve(covariance, contrast), rtol=1e-6, atol=1e-8)


def test_a_round_without_control_still_tells_differences() -> None:
    metrics = np.array([[3.0], [5.0]])
    first = Contrasts.none(1, 2, percent=False)
    with pytest.raises(BadMeasurement, match="control"):
        first.add(np.arange(2), metrics, np.ones((2, 1, 1)), None)
    started = first.add(np.array([0]), metrics[:1], np.ones((1, 1, 1)), Control(np.ones(1), 1e9 * np.eye(1)))
    both = started.add(np.arange(2), metrics, np.ones((2, 1, 1)), None)
    belief = Joint.of(np.zeros((1, 2)), 1e6 * np.eye(2)[None], both.precision, both.weighted)
    assert_allclose(belief.mean[0, 1] - belief.mean[0, 0], 2.0, rtol=1e-4)


def test_percent_needs_a_positive_control() -> None:
    with pytest.raises(BadMeasurement, match="difference"):
        Contrasts.none(1, 1, percent=True).add(
            np.array([0]), np.ones((1, 1)), np.ones((1, 1, 1)), Control(np.zeros(1), np.eye(1))
        )


def simulated(rng: np.random.Generator, *, swing: float) -> tuple[Contrasted, Absolute, np.ndarray]:
    """Fifty rounds of twenty candidates under a swing that all share."""
    truth = rng.normal(10.0, 1.0, (2, 20))
    contrasted = Contrasted(Contrasts.none(2, 20, percent=False), baseline=0)
    absolute = Absolute(Evidence.none(2, 20), 0)
    noise = 0.25 * np.eye(2)
    for day in range(50):
        level = swing * np.sin(day)
        chosen = rng.integers(0, 20, 8)
        metrics = truth[:, chosen].T + level + 0.5 * rng.normal(size=(8, 2))
        control = Control(truth[:, 0] + level + 0.5 * rng.normal(size=2), noise)
        reading = Reading(chosen, metrics, np.ones(8), np.tile(noise, (8, 1, 1)), control)
        contrasted, absolute = contrasted.add(reading), absolute.add(reading)
    return contrasted, absolute, truth


def test_contrasts_see_through_a_swing_that_fools_the_levels() -> None:
    contrasted, absolute, truth = simulated(np.random.default_rng(5), swing=10.0)
    for known, good in ((contrasted, True), (absolute, False)):
        mean = known.belief(None).mean
        error = np.sqrt(np.mean(np.square((mean - mean[:, [0]]) - (truth - truth[:, [0]]))))
        assert (error < 0.35) == good


def test_contrasts_are_told_at_the_control_s_level_with_honest_spreads() -> None:
    scores = []
    for seed in range(12):
        contrasted, _, truth = simulated(np.random.default_rng(seed), swing=3.0)
        belief = contrasted.belief(None)
        off = (belief.mean - belief.mean[:, [0]]) - (truth - truth[:, [0]])
        spreads = np.sqrt(np.array([belief.variances(row[None])[0] for row in np.eye(2)]))
        scores.append((off[:, 1:] / spreads[:, 1:]).ravel())
    assert_allclose(np.concatenate(scores).std(), 1.0, atol=0.15)


def test_growing_adds_candidates_of_which_nothing_is_known() -> None:
    contrasted, absolute, _ = simulated(np.random.default_rng(6), swing=0.0)
    for known in (contrasted, absolute):
        grown = known.grow(2)
        before, after = known.belief(None), grown.belief(None)
        assert after.mean.shape == (2, 22)
        assert_allclose(after.mean[:, :20], before.mean, rtol=0.05)
        assert after.variances(np.eye(2))[:, 21].min() > before.variances(np.eye(2))[:, 1:].max()
        assert np.isinf(grown.points()[1][:, 20:]).all()


def test_knowledge_survives_being_saved() -> None:
    contrasted, absolute, _ = simulated(np.random.default_rng(7), swing=1.0)
    kernels = (Kernel(0.0, 1.0, 0.1, (0.3,)), Kernel(0.5, 2.0, 0.1, (0.4,)))
    for known in (contrasted, contrasted.share(kernels)):
        assert Contrasted.from_saved(json.loads(json.dumps(known.to_saved()))).to_saved() == known.to_saved()
    for plain in (absolute, absolute.share(kernels)):
        assert Absolute.from_saved(json.loads(json.dumps(plain.to_saved())), 2).to_saved() == plain.to_saved()


def test_a_spread_is_learned_from_contrasts() -> None:
    rng = np.random.default_rng(8)
    truth = rng.normal(2.0, 3.0, 400)
    precision = np.diag(np.full(400, 4.0))[None]
    spread = learn_spread(precision, 4.0 * (truth + 0.5 * rng.normal(size=400))[None], 0, None, steps=30)
    assert_allclose(spread.mean, 2.0, atol=0.4)
    assert_allclose(spread.variance, 9.0, rtol=0.2)


def test_kernels_share_strength_between_neighbours() -> None:
    rng = np.random.default_rng(9)
    features = np.linspace(0, 1, 60)[:, None]
    truth = np.array([np.sin(5 * features[:, 0]), np.cos(4 * features[:, 0])])
    chosen = np.arange(0, 60, 2)
    metrics = truth[:, chosen].T + 0.3 * rng.normal(size=(30, 2))
    known = Absolute(Evidence.none(2, 60)).add(
        Reading(chosen, metrics, np.ones(30), np.tile(0.09 * np.eye(2), (30, 1, 1)))
    )
    estimates, noises = known.points()
    kernels = choose_kernels(features, estimates, noises)
    assert kernels is not None
    with_geometry = known.share(kernels).belief(features).mean
    without = known.belief(features).mean
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
    whole = covariance + np.diag(variances)
    for k in range(5):
        rest = [j for j in range(5) if j != k]
        lean = np.linalg.solve(whole[np.ix_(rest, rest)], whole[rest, k])
        spread = whole[k, k] - whole[k, rest] @ lean
        total += -0.5 * (np.log(2 * np.pi * spread) + (values[k] - 0.3 - lean @ (values[rest] - 0.3)) ** 2 / spread)
    assert_allclose(held_out(covariance, 0.3, values, variances), total, rtol=1e-9)


def test_lengths_are_learned_metric_by_metric() -> None:
    rng = np.random.default_rng(11)
    features = rng.uniform(size=(80, 2))
    truth = np.array([np.sin(9 * features[:, 0]), features[:, 1] * 3.0])
    first, second = fit_kernels(features, truth + 0.05 * rng.normal(size=truth.shape), np.full((2, 80), 0.0025))
    assert first.scales[0] < first.scales[1]
    assert second.scales[1] < second.scales[0]
