"""Learner conformance: the same requirements for every learner, through the study API.

A new learner joins by one line in `LEARNERS` below; requirements of importance-weighted learners only are in
tests/optimize/test_mirror_ascent.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import pasto
from pasto.observation import Observation
from pasto.optimize.learners import Algorithm1, Learner, Scgd, Thompson

TRUTH = np.array([[2.0, 0.0, 1.0, -1.0], [-2.0, 2.0, 0.3, 0.1], [0.2, 0.4, -0.7, 0.9]])
NAMES = ("delta", "alpha", "charlie", "bravo")
OBJECTIVE = pasto.maximize("x").keep("y", at_least=0, penalty=5.0).keep("z", at_least=0.1, penalty=2.0)
LEARNERS: dict[str, Callable[[], str | Learner[Any]]] = {
    "algorithm1": lambda: "algorithm1",
    "pasto, quick": lambda: Algorithm1(step=0.05),
    "pasto, theorem": lambda: Algorithm1.theorem(gradient_bound=5.0, horizon=50),
    "thompson": lambda: "thompson",
    "thompson, forgetful": lambda: Thompson(half_life=5.0, draws=8),
    "scgd": lambda: "scgd",
    "scgd, quick": lambda: Scgd(step=0.01),
}
every_learner = pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS.keys())
Make = Callable[[], str | Learner[Any]]
measurements = st.floats(-50, 50).map(lambda value: round(value, 6))


def build(learner: Make, order: tuple[int, ...] = (0, 1, 2, 3), seed: int = 3) -> pasto.Study:
    rows = pasto.Candidates.from_rows([{"w": k} for k in order], names=[NAMES[k] for k in order])
    return pasto.Study(rows, OBJECTIVE, learner=learner(), seed=seed)


def measured(assignment: pasto.study.assignment.Assignment, salt: int) -> list[float]:
    """Return noise keyed by the candidate's name, so that a relabelled study gets the same values."""
    place = NAMES.index(assignment.name)
    return list(TRUTH[:, place] + np.random.default_rng([salt, place]).normal(size=3))


def teach(study: pasto.Study, rounds: int, parallel: int = 5) -> None:
    for number in range(rounds):
        assignments = study.ask(parallel)
        study.tell(assignments, [measured(a, number * 100 + slot) for slot, a in enumerate(assignments)])


@every_learner
@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(measurements, min_size=3, max_size=3), min_size=1, max_size=8), st.integers(0, 9))
def test_the_policy_stays_on_the_simplex_and_above_its_floor(learner: Make, rows: list[list[float]], seed: int) -> None:
    study = build(learner, seed=seed)
    for metrics in rows:
        study.tell(study.ask(), metrics)
        shares = np.array(study.policy.probabilities)
        assert np.isfinite(shares).all()
        assert abs(shares.sum() - 1.0) < 1e-12
        kind: Any = study._learner
        floor = kind.floor if isinstance(kind, Thompson) else kind.floor.at(study.rounds + 1)
        assert shares.min() >= floor / len(shares) * (1 - 1e-12)
        answer = np.array(study.blend().probabilities)
        assert abs(answer.sum() - 1.0) < 1e-9
        assert (answer >= 0).all()


@every_learner
@settings(max_examples=6, deadline=None)
@given(order=st.permutations(range(4)))
def test_relabelling_the_candidates_relabels_policy_draws_and_answer(learner: Make, order: list[int]) -> None:
    plain, shuffled = build(learner), build(learner, tuple(order))
    teach(plain, 12)
    teach(shuffled, 12)
    where = [NAMES.index(name) for name in shuffled.candidates.names]
    assert_allclose(shuffled.policy.probabilities, np.array(plain.policy.probabilities)[where], rtol=1e-9)
    assert_allclose(shuffled.blend().probabilities, np.array(plain.blend().probabilities)[where], rtol=1e-9)
    assert [a.name for a in shuffled.ask(20)] == [a.name for a in plain.ask(20)]


@every_learner
def test_a_restart_in_mid_study_changes_nothing(learner: Make) -> None:
    study = build(learner)
    teach(study, 7)
    early, late = study.ask(4), study.ask(3)
    study.tell(early[:2], [[1.0, 2.0, 3.0], [0.1, 0.2, 0.3]], standard_errors=[[0.1, 0.1, 0.1]] * 2)
    study.drop(late[:1])
    text = json.dumps(study.state())
    again = pasto.Study.from_state(json.loads(text))
    assert json.dumps(again.state()) == text
    assert again.pending == study.pending
    for each in (study, again):
        each.tell([late[2].id, late[1]], [[1.0, -1.0, 0.5], [2.0, 0.0, -0.5]])
        each.tell(early[2:], np.ones((2, 3)))
        teach(each, 3)
    assert json.dumps(again.state()) == json.dumps(study.state())
    assert again.ask(50) == study.ask(50)
    assert again.blend() == study.blend()


@every_learner
def test_a_copy_continues_like_the_study_and_changes_nothing_in_it(learner: Make) -> None:
    study = build(learner)
    teach(study, 7)
    open_assignments = study.ask(4)
    before = json.dumps(study.state())
    copied = study.copy()
    assert json.dumps(copied.state()) == before
    copied.tell(open_assignments[:2], np.ones((2, 3)))
    copied.drop(open_assignments[2:])
    teach(copied, 3)
    assert json.dumps(study.state()) == before
    study.tell(open_assignments[:2], np.ones((2, 3)))
    study.drop(open_assignments[2:])
    teach(study, 3)
    assert json.dumps(study.state()) == json.dumps(copied.state())


@every_learner
def test_a_copy_corrects_rounds_of_its_own(learner: Make) -> None:
    study = build(learner)

    def observed(version: int, shift: float) -> list[Observation]:
        return [Observation(version, k, 50, tuple((TRUTH[:, k] + shift).tolist())) for k in range(4)]

    for version in range(3):
        study.observe(observed(version, 0.1 * version), final=False)
    before = json.dumps(study.state())
    copied, again = study.copy(), pasto.Study.from_state(json.loads(before))
    for each in (copied, again):
        each.rewind()
        for version in range(3):
            each.observe(observed(version, 0.5), final=False, publish=False)
        each.settle(observed(0, 0.5))
        each.publish()
    assert json.dumps(study.state()) == before
    assert json.dumps(copied.state()) == json.dumps(again.state()) != before


@every_learner
def test_asking_never_learns(learner: Make) -> None:
    study = build(learner)
    teach(study, 3)
    before = study.policy
    study.ask(5)
    study.ask(5)
    assert study.policy == before


@every_learner
def test_late_observations_are_learned_with_their_propensity(learner: Make) -> None:
    study = build(learner)
    teach(study, 2)
    late = study.ask(4)
    drawn = [study.policy.probabilities[a.candidate] for a in late]
    teach(study, 10)
    now = [study.policy.probabilities[a.candidate] for a in late]
    assert drawn != now
    assert [a.propensity for a in late] == drawn
    assert [a.propensity for a in study.pending] == drawn
    version = study.policy.version
    study.tell(late, np.ones((4, 3)))
    assert study.policy.version == version + 1


@every_learner
def test_the_order_of_observations_within_a_round_does_not_matter(learner: Make) -> None:
    forward, backward = build(learner), build(learner)
    for study, step in ((forward, 1), (backward, -1)):
        assignments = study.ask(6)
        measurements = [measured(a, slot) for slot, a in enumerate(assignments)]
        for slot in range(6)[::step]:
            study.tell(assignments[slot], measurements[slot])
    assert forward.state() == backward.state()


@every_learner
def test_an_observed_round_equals_the_same_round_of_ask_and_tell(learner: Make) -> None:
    asking, observing = build(learner), build(learner)
    assignments = asking.ask(20)
    asking.tell(assignments, [TRUTH[:, a.candidate] for a in assignments], standard_errors=np.full((20, 3), 0.5))
    counts = np.bincount([a.candidate for a in assignments], minlength=4)
    observing.observe(
        [
            Observation(0, k, int(n), tuple(TRUTH[:, k].tolist()), tuple(map(tuple, (0.25 / n * np.eye(3)).tolist())))
            for k, n in enumerate(counts)
            if n
        ]
        + [Observation(0, 0, 7, (100.0, 100.0, 100.0), control=True)]
    )
    assert_allclose(observing.policy.probabilities, asking.policy.probabilities, rtol=1e-6)


@every_learner
def test_a_round_of_drops_teaches_nothing(learner: Make) -> None:
    study = build(learner)
    before = study.policy
    study.drop(study.ask(3))
    assert study.policy == before
    assert study.pending == ()


@every_learner
def test_the_answer_has_its_expected_metrics(learner: Make) -> None:
    study = build(learner)
    teach(study, 40)
    blend = study.blend()
    assert set(blend.metrics) == {"x", "y", "z"}
    assert blend.names == NAMES
    assert set(blend.prices) == {"y", "z"}
    assert_array_equal([k for k, share in enumerate(blend.probabilities) if share > 0], blend.support)


@every_learner
def test_huge_and_tiny_metrics_leave_a_usable_policy(learner: Make) -> None:
    study = build(learner)
    for size in (1e15, -1e15, 5e-324, 1e6, -1e6, 0.0):
        study.tell(study.ask(2), np.full((2, 3), size))
        assert np.isfinite(study.policy.probabilities).all()
        assert abs(sum(study.policy.probabilities) - 1.0) < 1e-12
