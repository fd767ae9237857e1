"""Covariate adjustment: regression, common noise of cells, and calibrated posteriors."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from pasto.arrays import FloatArray
from pasto.errors import MeasurementError
from pasto.estimate import ContrastModel, ControlContrasts, CovariateAdjustment, LevelModel, RoundMeans
from pasto.estimate import SufficientStatistics as Statistics
from pasto.estimate.covariate_adjustment import SharedNoise

EXPLAINED = 0.6
"""Part of a unit's variance that its covariate explains."""
METRICS, CANDIDATES = 2, 8


def draw_units(rng: np.random.Generator, means: FloatArray, units: int, *, level: float = 0.0) -> FloatArray:
    """Return units of one cell: metrics of variance 1, then one covariate of variance 4 for each."""
    past = rng.standard_normal((units, len(means)))
    rest = rng.standard_normal((units, len(means)))
    return np.hstack([means + np.sqrt(EXPLAINED) * past + np.sqrt(1 - EXPLAINED) * rest, level + 2.0 * past])


def cells_of(parts: dict[int, FloatArray]) -> RoundMeans:
    return RoundMeans(
        np.array(list(parts), dtype=np.intp),
        np.array([values.mean(axis=0) for values in parts.values()]),
        np.array([float(len(values)) for values in parts.values()]),
        np.array([np.cov(values.T) / len(values) for values in parts.values()]),
    )


def draw_round(
    rng: np.random.Generator, truth: FloatArray, units: int, *, level: float = 0.0, shift: float = 0.0
) -> RoundMeans:
    """Return a round with a different share for each candidate; the shift moves all metrics of the round."""
    counts = 2 + rng.multinomial(units, rng.dirichlet(np.full(truth.shape[1], 0.5)))
    return cells_of({k: draw_units(rng, truth[:, k] + shift, n, level=level) for k, n in enumerate(counts.tolist())})


def test_adjusted_means_are_those_of_a_regression_on_all_units() -> None:
    rng = np.random.default_rng(1)
    parts = {k: draw_units(rng, np.array([1.0, 2.0]) * k, 40 + 30 * k, level=5.0) for k in range(3)}
    adjusted, _ = CovariateAdjustment.empty(4).adjust(cells_of(parts), METRICS)
    values = np.vstack(list(parts.values()))
    dummies = np.repeat(np.eye(3), [len(part) for part in parts.values()], axis=0)
    past = values[:, METRICS:] - values[:, METRICS:].mean(axis=0)
    slopes = np.linalg.lstsq(np.hstack([dummies, past]), values[:, :METRICS], rcond=None)[0]
    assert_allclose(adjusted.means, slopes[:3], rtol=1e-4)  # the estimates of the dummies are the adjusted means


def test_stated_errors_of_adjusted_means_are_right() -> None:
    rng, truth = np.random.default_rng(2), np.zeros((METRICS, 3))
    means, own, stated = [], [], []
    for _ in range(400):
        parts = {k: draw_units(rng, truth[:, k], n, level=3.0) for k, n in enumerate((30, 60, 120))}
        adjusted, _ = CovariateAdjustment.empty(4).adjust(cells_of(parts), METRICS)
        assert adjusted.covariances is not None and adjusted.explained is not None  # noqa: PT018
        means.append(adjusted.means)
        own.append(np.einsum("qii->qi", adjusted.covariances))
        stated.append(own[-1] + np.diag(adjusted.explained) / 210.0)
    ratio = np.var(means, axis=0).sum(axis=1) / np.mean(stated, axis=0).sum(axis=1)
    assert_allclose(ratio, 1.0, atol=0.15)
    assert_allclose(np.mean(own, axis=0) * [[30], [60], [120]], 1 - EXPLAINED, atol=0.03)


def scores(seed: int, *, mutant: bool = False, swing: float = 0.0, contrast: bool = False) -> tuple[float, Any]:
    """Return the error of the mean level of all candidates in stated deviations, and the model."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(5.0, 0.1, (METRICS, CANDIDATES))
    model: Any = LevelModel(Statistics.empty(METRICS, CANDIDATES), 0)
    if contrast:
        model = ContrastModel(ControlContrasts.empty(np.array([True, False]), CANDIDATES), 0)
    adjustment = CovariateAdjustment.empty(2 * METRICS)
    for number in range(8):
        level = swing * np.sin(number)
        cells, adjustment = adjustment.adjust(draw_round(rng, truth, 400, level=level), METRICS)
        model = model.add(replace(cells, explained=None) if mutant else cells)
    posterior, row = model.posterior(None), np.array([1.0, 0.0])
    weights = np.full(CANDIDATES, 1.0 / CANDIDATES)
    return float(row @ (posterior.mean - truth) @ weights / posterior.spread(row, weights)), model


@pytest.mark.parametrize("contrast", [False, True])
def test_a_posterior_knows_the_error_of_the_mean_covariate(contrast: bool) -> None:
    """Check rounds whose covariate level swings ten times as much as covariates differ between units."""
    honest = [scores(seed, swing=20.0, contrast=contrast)[0] for seed in range(40)]
    assert 0.75 < np.std(honest) < 1.2
    ignorant = [scores(seed, swing=20.0, contrast=contrast, mutant=True)[0] for seed in range(40)]
    assert np.std(ignorant) > 1.25


def test_the_check_of_the_errors_expects_the_noise_that_cells_share() -> None:
    ratios = [scores(seed)[1].statistics.scatter_ratio()[0] for seed in range(20)]
    assert_allclose(np.mean(ratios), 1.0, atol=0.06)
    rng, truth = np.random.default_rng(3), np.zeros((METRICS, CANDIDATES))
    model, adjustment = LevelModel(Statistics.empty(METRICS, CANDIDATES)), CovariateAdjustment.empty(4)
    for _ in range(12):
        cells = draw_round(rng, truth, 400)
        assert cells.units is not None and cells.covariances is not None  # noqa: PT018
        cells = replace(cells, units=4 * cells.units, covariances=cells.covariances / 4)  # four rows per unit
        cells, adjustment = adjustment.adjust(cells, METRICS)
        model = model.add(cells)
    assert model.overdispersion().raised.all()


def test_contrasts_do_not_move_with_the_covariates_and_have_less_noise() -> None:
    _, still = scores(5, contrast=True)
    _, swinging = scores(5, contrast=True, swing=50.0)
    assert_allclose(swinging.points()[0], still.points()[0], rtol=1e-6, atol=1e-9)
    assert_allclose(still.contrasts.noise[1, 1], 1 - EXPLAINED, rtol=0.1)
    assert_allclose(still.unit_covariance()[1, 1], 1 - EXPLAINED, rtol=0.1)


def test_shared_noise_is_split_into_a_common_part_and_the_candidates_own() -> None:
    rng = np.random.default_rng(4)
    units = rng.integers(1, 100, (9, CANDIDATES)).astype(float)
    units[:4, 0] = 0.0  # measured in the last rounds only
    explained = np.array([[2.0, 0.5], [0.5, 1.0]])
    noise = SharedNoise.empty(METRICS, CANDIDATES)
    for row in units:
        places = np.repeat(np.flatnonzero(row), 2).astype(np.intp)  # two cells of each candidate
        noise = noise.add(places, np.repeat(row[row > 0] / 2, 2), explained)
    total = units.sum(axis=0)
    covariance = np.einsum("tk,tl,t->kl", units, units, 1 / units.sum(axis=1)) / np.outer(total, total)
    common = noise.common_covariance(total)
    assert common is not None
    shares = total / total.sum()
    assert_allclose(common, explained * (shares @ covariance @ shares))
    own = noise.unit_covariances(total) / total[:, None, None] + common
    assert_allclose(own[:, 0, 0], 2.0 * np.diag(covariance))
    many = noise.grow(500)
    grown = np.concatenate([total, np.zeros(500)])
    assert many.common_covariance(grown) is None  # all of this covariance comes from the candidates themselves
    assert_allclose(many.unit_covariances(grown)[:CANDIDATES, 0, 0] / total, 2.0 * np.diag(covariance))
    scatter = len(units) - total @ np.diag(covariance)
    assert_allclose(noise.expected_scatter(total), np.diag(explained) * scatter)


def test_models_that_were_adjusted_survive_being_saved_faded_and_grown() -> None:
    _, level = scores(6)
    _, contrast = scores(6, contrast=True)
    for model, read in (
        (level, lambda saved: LevelModel.from_saved(saved, METRICS)),
        (contrast, ContrastModel.from_saved),
    ):
        for changed in (model, model.fade(0.5), model.grow(2)):
            again = read(json.loads(json.dumps(changed.to_saved())))
            assert again.to_saved() == changed.to_saved()
            assert_allclose(again.posterior(None).mean, changed.posterior(None).mean, rtol=0, atol=0)
        units = np.eye(METRICS)
        assert (model.fade(0.5).posterior(None).variances(units) > model.posterior(None).variances(units))[:, 1:].all()
        assert np.isinf(model.grow(2).points()[1][:, CANDIDATES:]).all()


def test_states_without_covariates_have_no_new_parts() -> None:
    cells = draw_round(np.random.default_rng(7), np.ones((METRICS, CANDIDATES)), 400)
    assert cells.covariances is not None
    raw = replace(cells, means=cells.means[:, :2], covariances=cells.covariances[:, :2, :2])
    level = LevelModel(Statistics.empty(METRICS, CANDIDATES)).add(raw).to_saved()
    contrast = ContrastModel(ControlContrasts.empty(np.full(2, False), CANDIDATES), 0).add(raw).to_saved()
    assert "shared" not in level["statistics"]
    assert "explained_sums" not in contrast["contrasts"]


@pytest.mark.parametrize("past", ["nothing", "constant", "twice"])
def test_covariates_that_carry_nothing_change_nothing(past: str) -> None:
    """Check a missing past, one that is the same for all units, and one that is given twice."""
    rng = np.random.default_rng(8)
    parts = {k: draw_units(rng, np.zeros(2), 200) for k in range(4)}
    expected, _ = CovariateAdjustment.empty(4).adjust(cells_of(parts), METRICS)
    for values in parts.values():
        if past == "twice":
            values[:, 3] = values[:, 2]
        else:
            values[:, 2:] = 0.0 if past == "nothing" else 0.1
    cells = cells_of(parts)
    adjusted, _ = CovariateAdjustment.empty(4).adjust(cells, METRICS)
    if past == "twice":
        assert_allclose(adjusted.means[:, 0], expected.means[:, 0], atol=0.02)
    else:
        assert_allclose(adjusted.means, cells.means[:, :2], atol=1e-12)
        assert adjusted.explained is not None
        assert_allclose(adjusted.explained, 0.0, atol=1e-12)


def test_a_few_units_are_not_adjusted_until_rounds_have_added_up() -> None:
    rng, adjustment = np.random.default_rng(9), CovariateAdjustment.empty(3)
    explained = []
    for _ in range(4):
        parts = {k: draw_units(rng, np.zeros(2), 4)[:, :3] for k in range(2)}
        cells, adjustment = adjustment.adjust(cells_of(parts), METRICS)
        explained.append(cells.explained is not None)
    assert explained == [False, True, True, True]
    with pytest.raises(MeasurementError, match="has 2 covariates, and the rounds before had 1"):
        adjustment.adjust(cells_of({0: draw_units(rng, np.zeros(2), 40)}), METRICS)


def test_cells_without_covariances_are_compared_with_others_of_their_candidate() -> None:
    rng, truth = np.random.default_rng(10), np.array([0.0, 5.0, -5.0])
    chosen = rng.integers(0, 3, 500)
    values = np.vstack([draw_units(rng, np.array([truth[k]]), 1) for k in chosen])
    cells = RoundMeans(chosen.astype(np.intp), values)
    adjusted, learned = CovariateAdjustment.empty(2).adjust(cells, 1)
    assert learned.degrees == 497.0
    rest = adjusted.means[:, 0] - truth[chosen]
    assert_allclose(rest.var(), 1 - EXPLAINED, atol=0.06)
