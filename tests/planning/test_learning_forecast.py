"""Learning forecast, compared with closed forms and with the learner's own steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from pasto.optimize.learners.thompson import allocate
from pasto.planning.learning_forecast import (
    LearningScenario,
    _allocate_slots,
    _draw_truth,
    _Evidence,
    _Posterior,
    forecast_learning,
)

SPREAD, DEVIATION = 2.0, 100.0


def scenario(guardrails: int = 0, **changes: Any) -> LearningScenario:
    """Return a goal and guardrails relative to the control, whose effects are not correlated."""
    metrics = 1 + guardrails
    start = LearningScenario(
        candidates=2,
        units=10_000.0,
        deviations=np.full(metrics, DEVIATION),
        effects=SPREAD**2 * np.eye(metrics),
        goal=np.eye(metrics)[0],
        rails=np.eye(metrics)[1:],
        slack=np.full(guardrails, 2.0),
        penalties=np.full(guardrails, np.inf),
        relative=np.ones(guardrails, dtype=bool),
    )
    return replace(start, **changes)


@pytest.mark.parametrize("candidates", [2, 6, 20])
def test_the_possible_gain_is_the_expected_maximum(candidates: int) -> None:
    found = forecast_learning(scenario(candidates=candidates), 1, studies=4_000)
    exact = SPREAD * quad(lambda x: 1.0 - norm.cdf(x) ** (candidates - 1), 0.0, 10.0)[0]
    assert found.best.mean() == pytest.approx(exact, rel=0.04)


def test_the_gain_of_one_candidate_is_that_of_a_decision_on_one_estimate() -> None:
    found = forecast_learning(scenario(), 1, studies=4_000)
    learner, control = 9_000.0, 1_000.0  # half of the learner's units are the baseline's too
    variance = DEVIATION**2 * (2.0 / learner + 1.0 / (learner / 2.0 + control))
    exact = SPREAD**2 / np.sqrt(2.0 * np.pi * (SPREAD**2 + variance))
    assert found.gains[0].mean() == pytest.approx(exact, rel=0.08)


def test_the_error_of_the_first_round_is_that_of_two_means() -> None:
    found = forecast_learning(scenario(1, control=0.3), 1, studies=10)
    learner = 10_000.0 * 0.7
    exact = DEVIATION * np.sqrt(2.0 / learner + 1.0 / (learner / 2.0 + 3_000.0))
    assert found.errors[0] == pytest.approx(exact)
    assert found.dilution[0] == pytest.approx(2.0)


def test_the_error_falls_as_the_blend_gets_the_traffic() -> None:
    found = forecast_learning(scenario(1, candidates=8), 150, studies=30)
    days = found.rounds[-1]
    least = DEVIATION * np.sqrt((1.0 / 9_000.0 + 1.0 / 1_000.0) / days)
    assert np.median(found.errors[-1]) == pytest.approx(least, rel=0.1)
    assert np.median(found.dilution[-1]) < 2.0 < np.median(found.dilution[0])


def test_the_chance_of_a_certificate_follows_from_the_error() -> None:
    found = forecast_learning(scenario(1), 1, studies=5)
    error = found.errors[0, 0, 0]
    slack = (norm.ppf(0.95) + norm.ppf(0.8)) * error
    assert found.certificate_chance(np.array([slack]), 0.95)[0, 0] == pytest.approx(0.8)


def test_certified_answers_keep_the_guardrail_with_the_confidence() -> None:
    plan = scenario(1, candidates=8, units=40_000.0, effects=np.array([[4.0, -3.0], [-3.0, 4.0]]))
    truth = _draw_truth(plan, 100, 0)
    found = forecast_learning(plan, 6, studies=100)
    assert found.certified.all()
    assert truth.shape == (100, 7, 2)
    # The goal of the answer is below that of the best blend, which uses the guardrail's true value.
    assert 0.2 * found.best.mean() < found.gains[-1].mean() < found.best.mean()


def test_a_level_needs_no_control() -> None:
    level = scenario(1, relative=np.zeros(1, dtype=bool), candidates=5)
    contrast = scenario(1, candidates=5)
    assert (
        forecast_learning(level, 10, studies=20).errors[-1].mean()
        < 0.6 * forecast_learning(contrast, 10, studies=20).errors[-1].mean()
    )


def test_more_of_everything_gains_more() -> None:
    usual = forecast_learning(scenario(1, candidates=6), 8, studies=80).gains[-1].mean()
    for better in (
        {"units": 40_000.0},
        {"deviations": np.full(2, 50.0)},
        {"slack": np.array([6.0])},
        {"penalties": np.array([0.01])},
        {"confidence": 0.6},
    ):
        assert forecast_learning(scenario(1, candidates=6, **better), 8, studies=80).gains[-1].mean() > usual


def test_lists_of_different_length_share_their_truth() -> None:
    short, long = (_draw_truth(scenario(candidates=count), 10, 3) for count in (4, 9))
    assert np.array_equal(short, long[:, :3])


def test_slots_are_allocated_as_by_the_learner() -> None:
    rng = np.random.default_rng(5)
    blends = rng.dirichlet(np.full(6, 0.3), (3, 16))
    variances, slot = rng.uniform(0.1, 1.0, (3, 6)), np.array([0.5, 1.0, 2.0])
    expected = [allocate(blends[study], variances[study], float(slot[study])) for study in range(3)]
    assert _allocate_slots(blends, variances, slot) == pytest.approx(np.array(expected))


def test_limits_of_exploration_slow_the_start() -> None:
    usual = forecast_learning(scenario(1, candidates=8), 2, studies=100)
    for limits in ({"new_candidate_share": 0.01}, {"max_share": 0.05}, {"loss_budgets": np.array([1.0])}):
        limited = forecast_learning(scenario(1, candidates=8, **limits), 2, studies=100)
        assert limited.gains[0].mean() < 0.9 * usual.gains[0].mean()


def test_rounds_that_mature_are_not_known_to_the_next_policy() -> None:
    late = forecast_learning(scenario(candidates=12, lag=1), 2, studies=50)
    assert np.median(late.dilution[1]) == pytest.approx(12.0)  # both rounds were shared out evenly
    known = forecast_learning(scenario(candidates=12), 2, studies=50)
    assert np.median(known.dilution[1]) < 8.0


def test_neighbours_share_what_was_measured() -> None:
    factors = np.linspace(-1.5, 1.5, 9)[:, None]
    alike = scenario(1, candidates=10, factors=factors, own_variance=0.05)
    alone = scenario(1, candidates=10)
    assert (
        forecast_learning(alike, 5, studies=60).errors[-1].mean()
        < forecast_learning(alone, 5, studies=60).errors[-1].mean()
    )
    truth = _draw_truth(alike, 3_000, 0)[..., 0]
    assert np.cov(truth.T)[0, 8] == pytest.approx(-(1.5**2) * SPREAD**2, rel=0.1)


def test_the_posterior_is_that_of_one_linear_model() -> None:
    """Compare means, own and shared covariance with one Gaussian over all candidates and metrics."""
    rng = np.random.default_rng(2)
    effects = np.array([[4.0, -1.0], [-1.0, 2.0]])
    plan = scenario(1, candidates=5, effects=effects, factors=rng.standard_normal((4, 2)), own_variance=0.3)
    units = rng.uniform(500.0, 2_000.0, (1, 4))
    sums = units[..., None] * rng.standard_normal((1, 4, 2))
    found = _Posterior.of(plan, _Evidence(units, sums, np.array([900.0]), np.zeros((1, 2))))
    assert plan.factors is not None
    between = 1e8 * np.ones((4, 4)) + plan.factors @ plan.factors.T + 0.3 * np.eye(4)
    prior = np.kron(between, effects) + np.kron(1e8 * np.ones((4, 4)), np.eye(2))
    noise = np.kron(np.diag(1.0 / units[0]), DEVIATION**2 * np.eye(2))
    gain = prior @ np.linalg.inv(prior + noise)
    assert found.mean[0].ravel() == pytest.approx(gain @ (sums / units[..., None])[0].ravel(), rel=1e-3, abs=1e-3)
    contrast = np.array([1.0, 0.0, 0.0, -2.0, 0.0, 0.0, -1.0, 2.0])  # the common mean cancels
    loadings = found.shared[0].reshape(8, -1)
    own = np.zeros((8, 8))
    for place in range(4):
        own[2 * place : 2 * place + 2, 2 * place : 2 * place + 2] = found.covariance[0, place]
    exact = contrast @ (prior - gain @ prior) @ contrast
    assert contrast @ (own + loadings @ loadings.T) @ contrast == pytest.approx(exact, rel=1e-3)
