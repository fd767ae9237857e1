"""Mirror ascent: Algorithm 1 and S-SCGD, compared with the printed formulas."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import pasto
from pasto.errors import ObjectiveError, OptionError, StateError, UnsupportedError
from pasto.estimate import Sample, add_samples
from pasto.optimize.learners import Algorithm1, Learner, LearningProblem, RoundResult, Scgd, make_learner
from pasto.optimize.learners.mirror_ascent import Schedule, constant

OBJECTIVE = pasto.maximize("x").keep("y", at_least=0, penalty=5.0)
PROBLEM = LearningProblem(OBJECTIVE, ("one", "two", "three"))
TRUTH = np.array([[2.0, 0.0, 1.0], [-2.0, 2.0, 0.5]])


def drawn(served: list[float], candidates: list[int], metrics: Any) -> RoundResult:
    chosen = np.array(candidates)
    shares = np.full(len(candidates), 1 / len(candidates))
    return RoundResult(np.array(served), Sample(chosen, np.asarray(metrics, float), np.array(served)[chosen], shares))


@settings(max_examples=50)
@given(st.lists(st.floats(0.05, 1.0), min_size=3, max_size=3), st.integers(1, 3))
def test_the_sample_is_unbiased_exactly(weights: list[float], parallel: int) -> None:
    """Check E[Û] = μ by enumeration of every draw of Q candidates with its probability."""
    served = np.array(weights) / sum(weights)
    expected = np.zeros((2, 3))
    for candidates in itertools.product(range(3), repeat=parallel):
        chance = np.prod(served[list(candidates)])
        sample = drawn(served.tolist(), list(candidates), TRUTH[:, list(candidates)].T).sample
        expected += chance * sample.matrix(3)
    assert_allclose(expected, TRUTH, atol=1e-12)


def test_samples_of_many_runs_add_up_like_each_alone() -> None:
    rng = np.random.default_rng(0)
    sample = Sample(
        rng.integers(0, 3, (4, 5)), rng.normal(size=(4, 5, 2)), rng.uniform(0.1, 1, (4, 5)), np.full((4, 5), 0.2)
    )
    total = np.ones((4, 2, 3))
    add_samples(total, sample)
    for run in range(4):
        alone = Sample(sample.candidates[run], sample.metrics[run], sample.probabilities[run], sample.shares[run])
        assert_allclose(total[run], 1 + alone.matrix(3))


def test_algorithm_1_is_the_printed_one() -> None:
    """Compare three rounds with the recursion as the paper prints it, including weights."""
    learns = Algorithm1(initial=((0.5, 0.1, -0.2), (0.3, -0.4, 0.6)))
    state = learns.start(PROBLEM)
    weights, means, served = np.ones(3), np.array(learns.initial), []
    for t, (k, metrics) in enumerate([(0, [2.5, -1.0]), (2, [0.4, 0.7]), (1, [-3.0, 4.0])], start=1):
        floor = 0.1 / np.sqrt(t + 10)
        p = (1 - floor) * weights / weights.sum() + floor / 3
        assert_allclose(learns.propose(PROBLEM, state), p, rtol=1e-13)
        sample = np.zeros((2, 3))
        sample[:, k] = np.array(metrics) / p[k]
        means = t / (t + 1) * means + sample / (t + 1)
        y = means @ p
        gradient = means.T @ np.array([1.0, -10.0 * min(0.0, y[1])])
        weights = weights * np.exp(0.1 / 3 * gradient)
        served.append(p)
        state = learns.learn(PROBLEM, state, drawn(p.tolist(), [k], [metrics]))
        assert_allclose(state.total / (t + 1), means, rtol=1e-12)
        assert_allclose(np.exp(state.log_weights), weights / weights.max(), rtol=1e-12)
    assert_allclose(learns.answer(PROBLEM, state).probabilities, np.mean(served, axis=0), rtol=1e-12)


def test_scgd_is_the_printed_one() -> None:
    learns = Scgd()
    state = learns.start(PROBLEM)
    weights, inner = np.ones(3), np.zeros(2)
    for t, (k, metrics) in enumerate([(0, [2.5, -1.0]), (2, [0.4, 0.7]), (1, [-3.0, 4.0])], start=1):
        p = learns.propose(PROBLEM, state)
        sample = np.zeros((2, 3))
        sample[:, k] = np.array(metrics) / p[k]
        pace = 1 / np.sqrt(t + 1)
        inner = (1 - pace) * inner + pace * sample @ p
        weights = weights * np.exp(0.1 / 3 * sample.T @ np.array([1.0, -10.0 * min(0.0, inner[1])]))
        state = learns.learn(PROBLEM, state, drawn(p.tolist(), [k], [metrics]))
        assert_allclose(state.inner, inner, rtol=1e-12)
        assert_allclose(np.exp(state.log_weights), weights / weights.max(), rtol=1e-12)


@pytest.mark.parametrize("learns", [Algorithm1(step=0.02), Scgd(step=0.02)], ids=["algorithm1", "scgd"])
def test_many_runs_at_once_are_each_run_alone(learns: Algorithm1 | Scgd) -> None:
    rng = np.random.default_rng(1)
    batch: Any = learns.start(PROBLEM, runs=(4,))
    singles: list[Any] = [learns.start(PROBLEM) for _ in range(4)]
    kind: Any = learns
    for _ in range(6):
        served = kind.propose(PROBLEM, batch)
        candidates = rng.integers(0, 3, (4, 2))
        metrics = rng.normal(size=(4, 2, 2))
        probabilities = np.take_along_axis(served, candidates, axis=1)
        sample = Sample(candidates, metrics, probabilities, np.full((4, 2), 0.5))
        kind.advance(PROBLEM, batch, RoundResult(served, sample), kind.form(PROBLEM, batch))
        for run in range(4):
            alone = Sample(candidates[run], metrics[run], probabilities[run], np.full(2, 0.5))
            singles[run] = kind.learn(PROBLEM, singles[run], RoundResult(served[run], alone))
    assert_allclose(kind.propose(PROBLEM, batch), [kind.propose(PROBLEM, one) for one in singles], rtol=1e-12)
    assert_allclose(kind.means(batch), [kind.means(one) for one in singles], rtol=1e-12)


def test_learning_leaves_the_state_it_was_given_alone() -> None:
    learns = Algorithm1()
    state = learns.start(PROBLEM)
    learns.learn(PROBLEM, state, drawn([0.2, 0.3, 0.5], [1], [[1.0, 1.0]]))
    assert learns.save(state) == learns.save(learns.start(PROBLEM))


def test_means_carry_no_bias_from_an_empty_start() -> None:
    learns = Algorithm1()
    state = learns.start(PROBLEM)
    for _ in range(3):
        for k in range(3):  # every candidate once, each with probability a third: Û averages to the truth exactly
            state = learns.learn(PROBLEM, state, drawn([1 / 3] * 3, [k], [TRUTH[:, k]]))
    assert_allclose(learns.means(state), TRUTH, rtol=1e-12)
    assert_allclose(state.total / (state.rounds + 1), 9 / 10 * TRUTH, rtol=1e-12)


def test_percentages_wait_for_the_baseline_and_then_push_away_from_a_breach() -> None:
    objective = pasto.maximize("x").keep("y", at_least="-2%", penalty=5.0)
    problem = LearningProblem(objective, ("base", "greedy"), baseline=0)
    learns = Algorithm1(step=0.001)
    state = learns.learn(problem, learns.start(problem), drawn([0.5, 0.5], [1], [[2.0, 0.5]]))
    assert_allclose(state.log_weights, 0.0)
    state = learns.learn(problem, state, drawn([0.5, 0.5], [0], [[1.0, 1.0]]))
    state = learns.learn(problem, state, drawn([0.5, 0.5], [0], [[1.0, 1.0]]))
    assert state.log_weights[0] > state.log_weights[1]


@pytest.mark.parametrize("name", ["algorithm1", "scgd"])
def test_hard_guardrails_are_refused_with_the_fix(name: str) -> None:
    with pytest.raises(UnsupportedError, match="penalty="):
        pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x").keep("y", at_least=0), learner=name)


@pytest.mark.parametrize("name", ["algorithm1", "scgd"])
def test_a_ratio_goal_is_refused_with_the_fix(name: str) -> None:
    with pytest.raises(UnsupportedError, match=r"pasto\.solve"):
        pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize(pasto.ratio("n", "d")), learner=name)


def test_percentages_without_a_baseline_are_refused() -> None:
    with pytest.raises(ObjectiveError, match="baseline="):
        pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x").keep("y", at_least="-2%", penalty=1))


def test_initial_means_of_another_shape_are_refused() -> None:
    with pytest.raises(OptionError, match=r"\(2, 3\)"):
        Algorithm1(initial=((1.0, 2.0),)).check(PROBLEM)


def test_settings_survive_being_saved() -> None:
    for learns in (
        Algorithm1(initial=((1.0, 2.0, 3.0), (0.0, 0.0, 0.0)), step=0.25),
        Algorithm1.theorem(3.0, 100),
        Scgd(tracking=Schedule(1.0, offset=1, power=1.0), step=constant(0.005)),
    ):
        assert type(learns).from_settings(learns.settings()) == learns
    with pytest.raises(StateError, match="'pace'"):
        Algorithm1.from_settings({"pace": 1})
    with pytest.raises(StateError, match="log_weights"):
        Algorithm1().load(PROBLEM, {"rounds": 1})


def test_learners_go_by_name() -> None:
    assert make_learner("scgd") == Scgd()
    ready: Learner[Any] = Algorithm1(step=1.0)
    assert make_learner(ready) is ready
    with pytest.raises(OptionError, match="'algorithm1', 'scgd'"):
        make_learner("sgd")


def test_a_schedule_is_the_printed_one_and_refuses_negatives() -> None:
    assert Schedule(0.1, offset=10).at(15) == 0.1 / 5
    assert Schedule(4.0, limit=0.75).at(4) == 0.75
    assert Schedule(4.0, limit=0.75).at(64) == 0.5
    with pytest.raises(OptionError):
        Schedule(-1.0)
