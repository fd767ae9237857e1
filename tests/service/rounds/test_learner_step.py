"""Learner step: equal arguments give equal states, and a failing learner does not stop its study."""

from __future__ import annotations

import json
from typing import Any

import pytest

import pasto
from pasto.errors import SolverError
from pasto.observation import Observation
from pasto.service.rounds.learner_step import RoundObservations, initial_update, update_learner
from pasto.study import Study


@pytest.fixture
def study() -> Study:
    return pasto.Study(
        [{"w": 0}, {"w": 1}], pasto.maximize("x").keep("y", at_least=0), seed=7, baseline=0, control_share=0.1
    )


def _lesson(number: int, version: int) -> RoundObservations:
    observations = [Observation(version, k, 50, (2.0 - k, k - 1.0), ((0.1, 0.0), (0.0, 0.1))) for k in (0, 1)]
    control = Observation(version, 0, 20, (2.0, -1.0), ((0.1, 0.0), (0.0, 0.1)), control=True)
    return RoundObservations(number, (*observations, control))


def test_equal_arguments_give_an_equal_state(study: Study) -> None:
    first = initial_update(study)
    once, again = update_learner(first, [_lesson(1, 0)]), update_learner(first, [_lesson(1, 0)])
    assert once.text == again.text
    assert once.checksum == again.checksum != initial_update(study).checksum
    assert once.study.rounds == 1
    assert update_learner(once, [_lesson(2, 1)]).study.rounds == 2


def test_every_step_has_a_new_version(study: Study) -> None:
    start = initial_update(study)
    for expected in (1, 2, 3):
        after = update_learner(start, [])
        assert (after.study.policy.version, after.problems) == (expected, ())
        start = after


def test_rounds_may_be_learned_late_and_several_at_once(study: Study) -> None:
    start = update_learner(update_learner(initial_update(study), []), [])
    after = update_learner(start, [_lesson(1, 0), _lesson(2, 1)])
    assert (after.study.rounds, after.problems) == (2, ())


@pytest.mark.parametrize("observations", [(), (Observation(0, 0, 20, (2.0, -1.0), control=True),)])
def test_a_round_without_units_of_the_learner_teaches_nothing(
    study: Study, observations: tuple[Observation, ...]
) -> None:
    after = update_learner(initial_update(study), [RoundObservations(4, observations)])
    assert after.problems == ("round 4 had no units of the learner, so it taught nothing",)
    assert (after.study.rounds, after.study.policy.version) == (0, 1)


def test_a_learner_that_cannot_learn_keeps_its_state_and_continues(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = initial_update(study)
    good = update_learner(start, [_lesson(2, 0)])

    def fail(*_: Any) -> None:
        raise SolverError("no progress")

    with monkeypatch.context() as patch:
        patch.setattr("pasto.optimize.learners.Thompson.learn", fail)
        after = update_learner(start, [_lesson(1, 0)])
    assert after.problems == ("round 1 could not be learned: no progress",)
    assert (after.study.rounds, after.study.policy.version) == (0, 1)
    later = update_learner(after, [_lesson(2, 1)])
    assert later.study.rounds == good.study.rounds == 1
    assert later.problems == ()


def test_a_learner_that_cannot_propose_serves_its_last_policy_once_more(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = initial_update(study)
    propose = pasto.optimize.learners.Thompson.propose
    calls: list[int] = []

    def fail_later(self: Any, problem: Any, state: Any, rng: Any) -> Any:
        calls.append(1)
        if len(calls) in (1, 3):  # learning creates the first state, reading creates the second, and so on
            raise SolverError("no progress")
        return propose(self, problem, state, rng)

    with monkeypatch.context() as patch:
        patch.setattr("pasto.optimize.learners.Thompson.propose", fail_later)
        after = update_learner(start, [_lesson(1, 0)])
    assert len(after.problems) == 2
    assert "the last one is kept" in after.problems[1]
    assert after.study.policy.version == 1
    assert after.study.policy.probabilities == study.policy.probabilities
    assert update_learner(after, [_lesson(1, 0), _lesson(2, 1)]).study.rounds == 2


def test_a_policy_that_is_no_distribution_is_not_served(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    start = initial_update(study)
    propose = pasto.optimize.learners.Thompson.propose
    shares = iter([False, True])

    def spoiled(self: Any, problem: Any, state: Any, rng: Any) -> Any:
        fine = propose(self, problem, state, rng)
        return fine if next(shares) else fine * float("nan")

    with monkeypatch.context() as patch:
        patch.setattr("pasto.optimize.learners.Thompson.propose", spoiled)
        after = update_learner(start, [])
    assert len(after.problems) == 1
    assert "not a distribution" in after.problems[0]
    assert after.study.policy.probabilities == study.policy.probabilities
    assert "NaN" not in after.text
    json.loads(after.text)
