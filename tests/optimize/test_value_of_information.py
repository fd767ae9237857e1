"""Value of information: forecasts of more rounds, compared with formulas, and the decision to stop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm

import pasto
from pasto.arrays import FloatArray
from pasto.blend import Blend, Outlook
from pasto.errors import OptionError
from pasto.estimate import IndependentPosterior, JointPosterior
from pasto.objective import Objective
from pasto.optimize.chance_constrained.robust_blend import solve_robust
from pasto.optimize.learners import LearningProblem, Thompson
from pasto.optimize.learners.base import TrafficPlan, draw_blends
from pasto.optimize.learners.certificate import solve_certified
from pasto.optimize.learners.value_of_information import (
    LearningValue,
    RoundEvidence,
    _Forecaster,
    _PresentAnswer,
    forecast_learning,
    lookahead_rounds,
)

DRAWS = 8_000
GOAL = pasto.maximize("x")


def gaussian(means: FloatArray, deviations: FloatArray) -> IndependentPosterior:
    """Return independent candidates and metrics, (metrics, candidates) each."""
    blocks = [np.diag(np.square(column)) for column in deviations.T]
    return IndependentPosterior(means, np.array(blocks))


def forecast(
    objective: Objective,
    posterior: IndependentPosterior,
    *,
    noise: float = 1.0,
    units: float = 1.0,
    shares: FloatArray | None = None,
    baseline: int | None = None,
    has_free_level: bool = False,
    draws: int = DRAWS,
    **traffic: float,
) -> LearningValue:
    """Return the forecasts for a posterior, from many draws."""
    metrics, count = posterior.mean.shape
    problem = LearningProblem(objective, tuple(f"c{k}" for k in range(count)), baseline)
    rng = np.random.default_rng(3)
    samples = posterior.draw(rng.standard_normal((draws, metrics, count)))
    best, _ = draw_blends(problem, posterior.mean, samples)
    evidence = RoundEvidence(noise**2 * np.eye(metrics), units, has_free_level=has_free_level)
    plan = TrafficPlan(np.full(count, 1.0 / count) if shares is None else shares, **traffic)
    return forecast_learning(
        problem, posterior, solve_certified(problem, posterior), evidence, plan, samples, best, rng
    )


def expected_maximum(difference: float, deviation: float) -> float:
    """Return E max(d + s Z, 0) − max(d, 0)."""
    score = difference / deviation
    return float(deviation * (norm.pdf(score) + score * norm.cdf(score)) - max(difference, 0.0))


@pytest.mark.parametrize("difference", [0.0, 0.3, -0.8])
def test_two_candidates_have_the_gain_of_the_knowledge_gradient(difference: float) -> None:
    posterior = gaussian(np.array([[difference, 0.0]]), np.array([[0.6, 0.4]]))
    value = forecast(GOAL, posterior, units=2.0, shares=np.array([0.75, 0.25]))
    for each in value.forecasts:
        after = 1.0 / (1.0 / np.array([0.36, 0.16]) + each.rounds * np.array([1.5, 0.5]))
        learned = float(np.sqrt((np.array([0.36, 0.16]) - after).sum()))
        assert each.gain == pytest.approx(expected_maximum(difference, learned), abs=0.015)
        assert each.cost == pytest.approx(each.rounds * value.round_cost)
        assert each.net == pytest.approx(180 * each.gain - each.cost)


def test_the_cost_is_what_the_traffic_has_less_than_the_blend() -> None:
    posterior = gaussian(np.array([[1.0, 3.0, 2.0]]), np.full((1, 3), 0.1))
    shares = np.array([0.2, 0.5, 0.3])
    assert forecast(GOAL, posterior, shares=shares, draws=8).round_cost == pytest.approx(3.0 - 2.3)
    held = forecast(GOAL, posterior, shares=shares, baseline=0, control_share=0.1, draws=8)
    assert held.round_cost == pytest.approx(3.0 - (0.9 * 2.3 + 0.1 * 1.0))
    partly = forecast(GOAL, posterior, shares=shares, baseline=0, control_share=0.1, explore_share=0.5, draws=8)
    assert partly.round_cost == pytest.approx(3.0 - (0.45 * 2.3 + 0.55 * 1.0))


def test_a_soft_guardrail_costs_its_expected_penalty() -> None:
    objective = pasto.maximize("x").keep("y", at_least=0, penalty=2.0)
    posterior = gaussian(np.array([[1.0, 2.0], [1.0, -1.0]]), np.array([[1e-6, 1e-6], [1e-6, 0.5]]))
    value = forecast(objective, posterior, shares=np.array([0.0, 1.0]), draws=64)
    slack = -1.0 + 0.5 * np.random.default_rng(1).standard_normal(400_000)
    penalty = 2.0 * np.square(np.minimum(slack, 0.0)).mean()
    present = max(
        (1.0 + p) - 2.0 * np.square(np.minimum(1.0 - p + p * slack, 0.0)).mean() for p in np.linspace(0, 1, 101)
    )
    assert value.round_cost == pytest.approx(present - (2.0 - penalty), abs=0.02)


def test_a_hard_guardrail_gains_what_its_margin_shrinks() -> None:
    """Check a blend with slack 1.9 p less a margin of 1.64 deviations; more rounds shrink the margin."""
    objective = pasto.maximize("x").keep("y", at_least=0)
    posterior = gaussian(np.array([[0.0, 1.0], [1.0, -0.9]]), np.array([[1e-6, 1e-6], [1e-6, 0.3]]))
    value = forecast(objective, posterior, noise=0.3, shares=np.array([0.0, 1.0]), draws=1_000)

    def best_share(mean: float, deviation: float) -> float:
        return float(np.clip(1.0 / (1.0 - mean + norm.ppf(0.95) * deviation), 0.0, 1.0))

    rng = np.random.default_rng(5)
    present = best_share(-0.9, 0.3)
    for each in value.forecasts:
        after = 0.3 / np.sqrt(1.0 + each.rounds)
        means = -0.9 + np.sqrt(0.09 - after**2) * rng.standard_normal(4_000)
        expected = float(np.mean([best_share(mean, after) for mean in means])) - present
        assert each.gain == pytest.approx(expected, abs=0.25 * expected)


def test_the_gain_is_that_of_the_robust_solver() -> None:
    """Compare with the robust solver on each simulated posterior, as a close would run it."""
    objective = pasto.maximize("x").keep("y", at_least=0).keep("z", at_least=0)
    rng = np.random.default_rng(8)
    means = np.array([[3.0, 2.0, 1.0, 2.5, 0.0], [-1.0, 1.0, 1.0, -0.5, 2.0], [1.0, -1.0, 1.0, 0.5, 1.5]])
    roots = 0.15 * rng.normal(size=(5, 3, 3))
    posterior = IndependentPosterior(means, roots @ roots.transpose(0, 2, 1) + 0.01 * np.eye(3))
    problem = LearningProblem(objective, tuple("abcde"))
    samples = posterior.draw(rng.standard_normal((30, 3, 5)))
    solution = solve_certified(problem, posterior)
    present = _PresentAnswer.of(problem, posterior, solution)
    evidence = RoundEvidence(0.2 * np.eye(3), 1.0, has_free_level=False)
    plan = TrafficPlan(np.full(5, 0.2))
    forecaster = _Forecaster.of(problem, posterior, present, evidence, plan, np.arange(5), samples, rng)
    for count, approximate in zip((2, 20), forecaster.gains([2, 20]), strict=True):
        after = forecaster._learn_covariance(count)
        blocks = after.reshape(3, 5, 3, 5)[:, range(5), :, range(5)]
        exact = []
        for mean in forecaster._learn_means(count, after):
            answer = solve_robust(objective.form(), IndependentPosterior(mean, blocks))
            exact.append(mean[0] @ answer.probabilities - mean[0] @ solution.probabilities)
        assert approximate == pytest.approx(float(np.mean(exact)), rel=0.1)


def test_without_a_certificate_the_gain_is_that_of_reaching_one() -> None:
    objective = pasto.maximize("x").keep("y", at_least=0)
    posterior = gaussian(np.array([[1.0, 3.0], [-5.0, 0.5]]), np.array([[0.1, 0.1], [0.1, 1.0]]))
    gains = [each.gain for each in forecast(objective, posterior, units=1.0, draws=500).forecasts]
    assert gains[0] < 0.8 * gains[-1]
    assert gains[-1] == pytest.approx(norm.cdf(0.5 - 0.3) * (3.0 - 2.0), abs=0.3)  # above the average candidate
    hopeless = gaussian(np.array([[1.0, 3.0], [-5.0, -5.0]]), np.full((2, 2), 0.1))
    assert max(each.gain for each in forecast(objective, hopeless, draws=200).forecasts) == 0.0


def test_a_free_level_teaches_only_differences() -> None:
    posterior = gaussian(np.array([[0.0, 0.0]]), np.array([[1.0, 1.0]]))
    alone = np.array([1.0, 0.0])
    known, free = (
        forecast(GOAL, posterior, shares=alone, has_free_level=flag, draws=2_000).forecasts[-1].gain
        for flag in (False, True)
    )
    assert known > 0.3
    assert free == 0.0
    with_control = forecast(
        GOAL, posterior, shares=alone, has_free_level=True, baseline=1, control_share=0.5, draws=2_000
    )
    assert with_control.forecasts[-1].gain > 0.3


def test_percent_guardrails_and_other_goals_have_forecasts() -> None:
    means, deviations = np.array([[5.0, 6.0, 7.0], [2.0, 2.1, 1.9]]), np.full((2, 3), 0.2)
    posterior = gaussian(means, deviations)
    relative = pasto.maximize("x").keep("y", at_least="-2%")
    utility = pasto.utility(lambda y: np.log(y).sum(-1), lambda y: 1 / y, over={"x": (1, 9), "y": (1, 9)})
    for objective in (relative, pasto.maximize(pasto.ratio("x", "y")), utility):
        value = forecast(objective, posterior, baseline=0, draws=200)
        gains = [each.gain for each in value.forecasts]
        assert gains == sorted(gains)
        assert gains[-1] > 0.0
        assert value.round_cost > 0.0 or objective is relative  # there, the certified answer has less of the goal


def test_only_candidates_that_matter_are_simulated() -> None:
    count = 200
    means = np.concatenate([np.zeros((1, count - 2)), [[5.0, 5.1]]], axis=1)
    posterior = gaussian(means, np.full((1, count), 0.2))
    shares = np.zeros(count)
    shares[-2:] = 0.5
    few = gaussian(means[:, -2:], np.full((1, 2), 0.2))
    many_gain = forecast(GOAL, posterior, shares=shares, draws=2_000).forecasts[-1].gain
    assert many_gain == pytest.approx(forecast(GOAL, few, draws=2_000).forecasts[-1].gain, rel=0.1)


@pytest.mark.parametrize("kind", ["independent", "joint"])
def test_the_dense_covariance_has_the_spread_of_every_blend(kind: str) -> None:
    rng = np.random.default_rng(2)
    metrics, count = 3, 5
    mean, shared = rng.normal(size=(metrics, count)), rng.normal(size=(count, metrics, 2))
    posterior: Any
    if kind == "independent":
        roots = rng.normal(size=(count, metrics, metrics))
        posterior = IndependentPosterior(mean, roots @ roots.transpose(0, 2, 1), shared)
    else:
        roots = rng.normal(size=(2, count, count))
        posterior = JointPosterior(mean, roots @ roots.transpose(0, 2, 1), rng.normal(size=(metrics, 2)), shared)
    covariance = posterior.covariance()
    for _ in range(5):
        row, weights = rng.normal(size=metrics), rng.normal(size=count)
        line = np.outer(row, weights).ravel()
        assert_allclose(np.sqrt(line @ covariance @ line), posterior.spread(row, weights), rtol=1e-9)


def test_simulated_means_have_the_variance_that_is_learned() -> None:
    posterior = gaussian(np.zeros((2, 3)), np.array([[1.0, 0.5, 0.2], [0.3, 1.0, 0.7]]))
    problem = LearningProblem(pasto.maximize("m0").keep("m1", at_least=-9, penalty=1.0), ("a", "b", "c"), 1)
    rng = np.random.default_rng(4)
    samples = posterior.draw(rng.standard_normal((DRAWS, 2, 3)))
    present = _PresentAnswer.of(problem, posterior, solve_certified(problem, posterior))
    evidence = RoundEvidence(np.array([[1.0, 0.4], [0.4, 2.0]]), 5.0, has_free_level=True)
    traffic = TrafficPlan(np.array([0.2, 0.3, 0.5]), control_share=0.2)
    forecaster = _Forecaster.of(problem, posterior, present, evidence, traffic, np.arange(3), samples, rng)
    after = forecaster._learn_covariance(3)
    means = forecaster._learn_means(3, after).reshape(DRAWS, -1)
    assert_allclose(np.cov(means.T), posterior.covariance() - after, atol=0.03)
    assert (np.linalg.eigvalsh(posterior.covariance() - after) > -1e-12).all()


def learned(rounds: int, *, means: FloatArray, deviation: float, seed: int = 3, **options: Any) -> pasto.Study:
    """Return a study of candidates with these means that has learned some rounds."""
    rng = np.random.default_rng(seed)
    study = pasto.Study([{"w": k} for k in range(means.shape[1])], GOAL, seed=seed, **options)
    for _ in range(rounds):
        assignments = study.ask(parallel=20)
        drawn = means[:, [each.candidate for each in assignments]].T
        drawn = drawn + deviation * rng.standard_normal(drawn.shape)
        study.tell(assignments, drawn, standard_errors=np.full(drawn.shape, deviation))
    return study


CLEAR, HIDDEN = np.array([[0.0, 1.0, 3.0]]), np.array([[0.0, 0.1, 0.2, 0.3]])


def decision(blend: Blend) -> str:
    assert blend.outlook is not None
    return blend.outlook.decision


def test_a_clear_winner_ends_the_study_and_a_hidden_one_does_not() -> None:
    clear = learned(6, means=CLEAR, deviation=0.1).blend()
    assert decision(clear) == "stop"
    assert clear.outlook is not None
    assert clear.outlook.equal_single == 2
    assert decision(learned(6, means=HIDDEN, deviation=1.0).blend()) == "learn"


def test_a_longer_deployment_is_worth_more_learning() -> None:
    study = learned(40, means=HIDDEN, deviation=1.0)
    assert [decision(study.blend(deploy_rounds=count)) for count in (2, 100_000)] == ["stop", "learn"]


def test_a_study_continues_until_half_of_the_candidates_are_measured() -> None:
    many = learned(1, means=np.zeros((1, 50)), deviation=1e-9)
    outlook = many.blend().outlook
    assert outlook is not None
    assert outlook.decision == "learn"
    assert outlook.forecast.net <= 0.0 or outlook.forecast.gain > 0.0


def test_the_outlook_can_be_left_out_and_the_blend_stays() -> None:
    study = learned(4, means=HIDDEN, deviation=0.5)
    assert study.blend(deploy_rounds=None).outlook is None
    assert replace(study.blend(), outlook=None) == study.blend(deploy_rounds=None)
    space = pasto.Study(pasto.Space(a=(0, 1)), GOAL, seed=1)
    assignments = space.ask(parallel=20)
    values = [[-abs(0.3 - 0.1 * each.candidate)] for each in assignments]
    space.tell(assignments, values, standard_errors=[[0.01]] * 20)
    assert replace(space.blend(), outlook=None) == space.blend(deploy_rounds=None)


def test_labels_do_not_matter() -> None:
    """Check that the same candidates in another order have the same forecast."""
    means = np.array([0.1, 0.3, 0.2])

    def outlook(order: list[int]) -> Outlook:
        study = pasto.Study([{"w": k} for k in order], GOAL, learner=Thompson(structure="independent"), seed=4)
        rng = np.random.default_rng(1)
        noise = {k: rng.standard_normal(4) for k in range(3)}
        for number in range(4):
            observations = [
                pasto.Observation(study.policy.version, place, 100, (means[k] + 0.1 * noise[k][number],), ((0.01,),))
                for place, k in enumerate(order)
            ]
            study.observe(observations)
        outlook = study.blend().outlook
        assert outlook is not None
        return outlook

    first, second = outlook([0, 1, 2]), outlook([2, 0, 1])
    assert first.round_cost == pytest.approx(second.round_cost, rel=1e-6)
    assert_allclose([f.gain for f in first.forecasts], [f.gain for f in second.forecasts], rtol=1e-6)


def test_a_deployment_without_rounds_is_an_error() -> None:
    study = learned(2, means=CLEAR, deviation=0.1)
    with pytest.raises(OptionError, match=r"deploy_rounds is a number of rounds of at least 1, got 0$"):
        study.blend(deploy_rounds=0)
    with pytest.raises(OptionError, match=r"explore_share is a share of traffic above 0 and up to 1, got 1\.5"):
        study.blend(explore_share=1.5)


def test_the_rounds_ahead_end_at_a_quarter_of_the_deployment() -> None:
    assert lookahead_rounds(4_320.0) == [1, 4, 16, 66, 267, 1080]
    assert lookahead_rounds(1.0) == [1]
