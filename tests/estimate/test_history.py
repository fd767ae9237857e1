"""Warm-start regression: exact posteriors, and slopes that are learned."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pasto.arrays import FloatArray
from pasto.estimate import CandidateHistory, ContrastModel, ControlContrasts, HistoryPrior, LevelModel, RoundMeans
from pasto.estimate.history import SLOPE_VARIANCE, posterior_of_levels
from pasto.estimate.history_contrast import posterior_of_contrasts
from pasto.estimate.posterior import JointPosterior
from pasto.estimate.sufficient_statistics import SufficientStatistics

COUNT, METRICS = 7, 2
UNITS = np.array([40.0, 60.0, 50.0, 45.0, 55.0])
NOISE = np.array([[4.0, 1.0], [1.0, 2.0]])


def _history(rng: np.random.Generator) -> CandidateHistory:
    roots = rng.normal(size=(COUNT, METRICS, METRICS))
    return CandidateHistory.of_levels(
        rng.normal(5.0, 1.0, (METRICS, COUNT)), 0.1 * roots @ roots.transpose(0, 2, 1), np.ones(COUNT, dtype=np.bool_)
    )


def _round(truth: FloatArray, rng: np.random.Generator, candidates: int = 5) -> RoundMeans:
    """Return a round of the first candidates, with the noise of NOISE per unit."""
    units = np.resize(UNITS, candidates)
    errors = rng.multivariate_normal(np.zeros(METRICS), NOISE, candidates) / np.sqrt(units)[:, None]
    covariances = NOISE / units[:, None, None]
    return RoundMeans(np.arange(candidates), truth.T[:candidates] + errors, units, covariances)


def _dense(
    design: FloatArray, start: FloatArray, start_variance: FloatArray, prior: FloatArray, evidence: FloatArray,
    weighted: FloatArray,
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """Return the posterior of values = design @ coefficients + N(0, prior), by one large system."""
    covariance = prior + design @ np.diag(start_variance) @ design.T
    posterior = np.linalg.inv(evidence + np.linalg.inv(covariance))
    return posterior @ (weighted + np.linalg.solve(covariance, design @ start)), posterior


def test_the_posterior_of_levels_is_that_of_one_large_gaussian() -> None:
    rng = np.random.default_rng(1)
    history = _history(rng)
    prior = HistoryPrior(history, np.array([[0.5, 0.2], [0.2, 0.4]]), np.diag([0.8, 0.5]))
    cells = _round(rng.normal(5.0, 1.0, (METRICS, COUNT)), rng)
    assert cells.units is not None
    statistics = SufficientStatistics.empty(METRICS, COUNT).add(
        cells.candidates, cells.means, cells.units, cells.covariances
    )
    posterior = posterior_of_levels(prior, statistics)

    places = np.arange(COUNT * METRICS).reshape(COUNT, METRICS)
    own, evidence = np.zeros((14, 14)), np.zeros((14, 14))
    design = np.zeros((14, 4))
    for k in range(COUNT):
        own[np.ix_(places[k], places[k])] = prior.covariance + prior.errors[k]
        design[places[k]] = np.concatenate([np.eye(METRICS), np.diag(history.centred[:, k])], axis=1)
        if k < 5:
            evidence[np.ix_(places[k], places[k])] = np.linalg.inv(NOISE / UNITS[k])
    estimates = np.zeros(14)
    estimates[:10] = cells.means.ravel()
    start = np.concatenate([history.means.mean(axis=1), np.ones(METRICS)])
    flat = np.array([1e6, 1e6, SLOPE_VARIANCE, SLOPE_VARIANCE])
    mean, covariance = _dense(design, start, flat, own, evidence, evidence @ estimates)

    np.testing.assert_allclose(posterior.mean.T.ravel(), mean, rtol=1e-4)
    assert posterior.shared is not None
    coefficients = posterior.shared[:, :, :4].reshape(14, 4)
    blocks = np.zeros((14, 14))
    for k in range(COUNT):
        blocks[np.ix_(places[k], places[k])] = posterior.covariances[k]
    np.testing.assert_allclose(blocks + coefficients @ coefficients.T, covariance, rtol=1e-3, atol=1e-5)


def test_the_posterior_of_contrasts_is_that_of_one_large_gaussian() -> None:
    rng = np.random.default_rng(2)
    percent = np.zeros(METRICS, dtype=np.bool_)
    history = _history(rng).contrast(percent, 0)
    history = replace(history, covariances=0.0 * history.covariances)
    noise = np.diag([4.0, 2.0])
    prior = HistoryPrior(history, np.diag([0.5, 0.4]), np.diag([0.8, 0.5]))
    contrasts = ControlContrasts.empty(percent, COUNT)
    for _ in range(2):
        cells = _round(rng.normal(5.0, 1.0, (METRICS, COUNT)), rng)
        assert cells.units is not None
        contrasts = contrasts.add(replace(cells, covariances=noise / cells.units[:, None, None]), 0, None)
    posterior = posterior_of_contrasts(prior, contrasts, 0)
    assert isinstance(posterior, JointPosterior)

    others = np.arange(COUNT) != 0
    for metric in range(METRICS):
        centred = (history.means[metric] - history.means[metric, others].mean()) * others
        design = np.stack([others.astype(float), centred], axis=1)[1:]
        evidence = contrasts.information[1:, 1:] / noise[metric, metric]
        weighted = contrasts.weighted[metric, 1:] / noise[metric, metric]
        start = np.array([history.means[metric, others].mean(), 1.0])
        own = prior.covariance[metric, metric] * np.eye(COUNT - 1)
        mean, _ = _dense(design, start, np.array([1e6, SLOPE_VARIANCE]), own, evidence, weighted)
        np.testing.assert_allclose(posterior.mean[metric, 1:], mean, atol=2e-3)
        assert abs(posterior.mean[metric, 0]) < 1e-12


@pytest.mark.parametrize("contrast", [False, True])
@pytest.mark.parametrize("correlation", [0.95, 0.0, -0.5])
def test_slopes_and_the_share_explained_follow_the_quality_of_the_history(correlation: float, contrast: bool) -> None:
    rng = np.random.default_rng(3)
    count = 60
    truth = 20.0 + rng.normal(size=(METRICS, count))
    other = rng.normal(size=(METRICS, count))
    means = 20.0 + correlation * (truth - 20.0) + np.sqrt(1.0 - correlation**2) * other
    history = CandidateHistory.of_levels(means, np.zeros((count, METRICS, METRICS)), np.ones(count, dtype=np.bool_))
    percent = np.zeros(METRICS, dtype=np.bool_)
    model: LevelModel | ContrastModel = LevelModel(
        SufficientStatistics.empty(METRICS, count), history=HistoryPrior.start(history)
    )
    if contrast:
        model = ContrastModel(
            ControlContrasts.empty(percent, count), 0, history=HistoryPrior.start(history.contrast(percent, 0))
        )
    for _ in range(4):
        model = model.add(_round(truth, rng, candidates=count))
    assert model.history is not None
    np.testing.assert_allclose(np.diag(model.history.slopes), correlation, atol=0.3)
    np.testing.assert_allclose(model.history.explained, correlation**2, atol=0.2)
    errors = (model.posterior(None).mean - truth) / np.sqrt(model.posterior(None).variances(np.eye(METRICS)))
    assert 0.75 < float(np.sqrt(np.mean(np.square(errors)))) < 1.25


@pytest.mark.parametrize("contrast", [False, True])
def test_what_was_learned_is_saved_bit_for_bit(contrast: bool) -> None:
    rng = np.random.default_rng(4)
    history, percent = _history(rng), np.ones(METRICS, dtype=np.bool_)
    cells = _round(rng.normal(5.0, 1.0, (METRICS, COUNT)), rng)
    if contrast:
        start = ContrastModel(
            ControlContrasts.empty(percent, COUNT), 0, history=HistoryPrior.start(history.contrast(percent, 0))
        )
        model = start.add(cells)
        again = ContrastModel.from_saved(model.to_saved(), history)
        assert again.to_saved() == model.to_saved()
        np.testing.assert_array_equal(again.posterior(None).mean, model.posterior(None).mean)
    else:
        level = LevelModel(SufficientStatistics.empty(METRICS, COUNT), history=HistoryPrior.start(history)).add(cells)
        read = LevelModel.from_saved(level.to_saved(), METRICS, history)
        assert read.to_saved() == level.to_saved()
        np.testing.assert_array_equal(read.posterior(None).mean, level.posterior(None).mean)


def test_a_history_on_another_scale_is_learned_too() -> None:
    rng = np.random.default_rng(5)
    truth = 20.0 + rng.normal(size=(METRICS, 40))
    for scale in (0.01, 100.0):
        history = CandidateHistory.of_levels(
            scale * truth, np.zeros((40, METRICS, METRICS)), np.ones(40, dtype=np.bool_)
        )
        model = LevelModel(SufficientStatistics.empty(METRICS, 40), history=HistoryPrior.start(history))
        for _ in range(4):
            model = model.add(_round(truth, rng, candidates=40))
        errors = (model.posterior(None).mean - truth) / np.sqrt(model.posterior(None).variances(np.eye(METRICS)))
        assert 0.4 < float(np.sqrt(np.mean(np.square(errors)))) < 1.3
        assert model.history is not None
        assert (model.history.explained > 0.9).all() == (scale > 1.0)  # a slope of 100 is far from one


def test_a_model_without_history_saves_no_history() -> None:
    assert "history" not in LevelModel(SufficientStatistics.empty(METRICS, COUNT)).to_saved()
    assert "history" not in ContrastModel(ControlContrasts.empty(np.ones(2, dtype=np.bool_), COUNT), 0).to_saved()
