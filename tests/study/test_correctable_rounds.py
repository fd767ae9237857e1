"""Correctable rounds: after corrections, the state equals that of a study with the final data only."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pasto
from pasto.errors import AlreadyAnsweredError, OptionError
from pasto.observation import Observation
from pasto.optimize.learners import Learner, Thompson
from pasto.space import Real
from pasto.study import Study
from pasto.study.assignment import Policy
from pasto.study.observation_validation import build_round

OBJECTIVE = pasto.maximize("x").keep("y", at_least=0, penalty=5.0)
LEARNERS: dict[str, Callable[[], str | Learner[Any]]] = {
    "thompson": lambda: "thompson",
    "thompson, forgetful": lambda: Thompson(half_life=5.0, draws=8),
    "thompson, against the control": lambda: Thompson(contrast="difference", draws=8),
    "algorithm1": lambda: "algorithm1",
    "scgd": lambda: "scgd",
}
every_learner = pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS.keys())
Make = Callable[[], str | Learner[Any]]


def build(learner: Make = LEARNERS["thompson"]) -> Study:
    rows = [{"w": k} for k in range(3)]
    return Study(rows, OBJECTIVE, learner=learner(), seed=3, baseline=0, control_share=0.1)


def observe_round(version: int, salt: int = 0) -> list[Observation]:
    """Return a round under a policy; another salt gives the same round with more data."""
    rng = np.random.default_rng([version, salt])
    covariance = ((0.02, 0.0), (0.0, 0.03))
    found = [Observation(version, k, 50 + salt, tuple(rng.normal(size=2)), covariance) for k in range(3)]
    return [*found, Observation(version, 0, 30, tuple(rng.normal(size=2)), covariance, control=True)]


def learn_each_round_once(study: Study, policies: dict[int, Policy], rounds: list[list[Observation]]) -> Any:
    """Return the learner's state after the final data of each round once, in order."""
    state = study._learner.start(study._problem)
    for one in rounds:
        state = study._learner.learn(study._problem, state, build_round(one, policies[one[0].version]))
    return study._learner.save(state)


@every_learner
def test_what_is_corrected_is_known_as_if_it_had_been_on_time(learner: Make) -> None:
    study, policies = build(learner), {}
    for version in range(5):
        policies[version] = study.policy
        study.observe(observe_round(version), final=False)
    served = {version: policy.probabilities for version, policy in policies.items()}
    right = [observe_round(version, 7 if version in (1, 3) else 0) for version in range(5)]
    study.rewind()
    for one in right:
        study.observe(one, final=False, publish=False)
    assert (study.rounds, study.policy.version) == (5, 5)
    assert study.state()["learned"] == learn_each_round_once(study, policies, right)
    assert study.state()["learned"] != learn_each_round_once(
        study, policies, [observe_round(version) for version in range(5)]
    )
    assert {version: study._correctable.policies[version].probabilities for version in served} == served  # type: ignore[union-attr]


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_neither_order_nor_lateness_of_corrections_matters(data: st.DataObject) -> None:
    """Correct rounds in any order; some become final in between, and a restart may come at any moment."""
    study, policies, known = build(), {}, {}
    count = data.draw(st.integers(1, 6))
    settled = 0
    for version in range(count):
        policies[version] = study.policy
        known[version] = 0
        study.observe(observe_round(version), final=False)
        wrong = data.draw(st.sets(st.integers(settled, version)))
        if wrong:
            known |= {one: data.draw(st.integers(0, 9)) for one in sorted(wrong)}
            study.rewind()
            for one in range(settled, version + 1):
                study.observe(observe_round(one, known[one]), final=False, publish=False)
        for one in range(settled, settled + data.draw(st.integers(0, version - settled))):
            study.settle(observe_round(one, known[one]))
            settled += 1
        if data.draw(st.booleans()):
            study = Study.from_state(json.loads(json.dumps(study.state())))
        assert study.correctable == tuple(range(settled, version + 1))
    expected = learn_each_round_once(
        study, policies, [observe_round(version, known[version]) for version in range(count)]
    )
    assert study.state()["learned"] == expected
    assert study.rounds == count


@every_learner
def test_a_study_without_open_rounds_is_as_it_always_was(learner: Make) -> None:
    plain, open_ = build(learner), build(learner)
    for version in range(4):
        plain.observe(observe_round(version))
        open_.observe(observe_round(version), final=False)
        assert open_.policy == plain.policy
    assert "correctable" in open_.state()
    assert "correctable" not in plain.state()
    open_.settle_all()
    assert open_.state() == plain.state()


def test_a_round_that_came_empty_takes_its_place_when_its_units_come() -> None:
    study, policies = build(), {}
    for version in range(3):
        policies[version] = study.policy
        if version == 1:
            study.publish()
        else:
            study.observe(observe_round(version), final=False)
    study.rewind()
    for version in range(3):
        study.observe(observe_round(version), final=False, publish=False)
    assert study.correctable == (0, 1, 2)
    assert study.state()["learned"] == learn_each_round_once(
        study, policies, [observe_round(version) for version in range(3)]
    )


def test_candidates_that_came_meanwhile_stay() -> None:
    study = build()
    study.observe(observe_round(0), final=False)
    study.add([{"w": 9}])
    study.observe(observe_round(2), final=False)
    again = Study.from_state(json.loads(json.dumps(study.state())))
    again.rewind()
    again.observe(observe_round(0, 4), final=False, publish=False)
    again.observe(observe_round(2), final=False)
    assert len(again.candidates) == len(again.policy.probabilities) == 4
    assert again.rounds == 2


def test_a_continuous_space_keeps_the_points_it_found() -> None:
    study = Study(pasto.Space({"w": Real(0.0, 1.0)}), pasto.maximize("x"), seed=5)
    first, rounds = len(study.candidates), []
    for _ in range(4):
        version, shares = study.policy.version, study.policy.probabilities
        served = [k for k, share in enumerate(shares) if share > 0]
        peak = [-((float(study.candidates[k]["w"]) - 0.37) ** 2) for k in served]
        rounds.append([Observation(version, k, 400, (y,), ((1e-4,),)) for k, y in zip(served, peak, strict=True)])
        study.observe(rounds[-1], final=False)
    points = list(study.candidates)
    assert len(points) > first
    again = Study.from_state(json.loads(json.dumps(study.state())))
    again.rewind()
    for one in rounds:
        again.observe(one, final=False, publish=False)
    assert list(again.candidates) == points
    np.testing.assert_allclose(again.posterior_samples(), study.posterior_samples(), atol=1e-6)
    again.publish()
    assert len(again.policy.probabilities) == len(points)


def test_refusals_name_the_reason() -> None:
    study = build()
    with pytest.raises(OptionError, match="not the oldest one that may be corrected; those are, in order: none"):
        study.settle(observe_round(0))
    study.observe(observe_round(0), final=False)
    study.observe(observe_round(1), final=False)
    with pytest.raises(OptionError, match="in order: 0, 1"):
        study.settle(observe_round(1))
    with pytest.raises(OptionError, match="settle those first"):
        study.observe(observe_round(2))
    with pytest.raises(AlreadyAnsweredError):
        study.observe(observe_round(1), final=False)
    assignments = study.ask(parallel=10)
    study.tell(assignments, np.zeros((10, 2)), standard_errors=np.ones((10, 2)))
    with pytest.raises(OptionError, match=r"call settle_all\(\) instead"):
        study.rewind()
