"""Late corrections in the learner step: the order of arrival does not matter, and a failing learner stops no study."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pasto
from pasto.errors import SolverError
from pasto.observation import Observation
from pasto.optimize.learners import Thompson
from pasto.service.rounds.late_events import build_correction
from pasto.service.rounds.learner_step import Correction, RoundObservations, initial_update, update_learner
from pasto.study import Study

COVARIANCE = ((0.02, 0.0), (0.0, 0.03))


def study() -> Study:
    rows = [{"w": k} for k in range(3)]
    objective = pasto.maximize("x").keep("y", at_least=0)
    return Study(rows, objective, learner=Thompson(draws=2), seed=7, baseline=0, control_share=0.1)


def measured_round(number: int, units: int) -> RoundObservations:
    """Return the measurements of a round after the events of this many units; none before the first."""
    values = np.random.default_rng(number).normal(size=(3, 50, 2)) if units else np.empty((0, 0, 2))
    observations = [
        Observation(number - 1, k, units, tuple(row[:units].mean(axis=0).tolist()), COVARIANCE)
        for k, row in enumerate(values)
    ]
    control = Observation(number - 1, 0, 20, (0.1, 0.2), COVARIANCE, control=True)
    return RoundObservations(number, (*observations, control))


def learn_in_order(known: list[list[int]], window: int) -> str:
    """Return a study after closes with this many units per round, one row per close, with an open window."""
    learned = initial_update(study())
    open_: list[int] = []
    for now, units in enumerate(known, start=1):
        due = [now] if now <= len(units) else []
        stay = [number for number in (*open_, *due) if number + window > now]
        before = known[now - 2] if now > 1 else units
        corrected = [number for number in open_ if units[number - 1] != before[number - 1]]
        now_known = {number: measured_round(number, units[number - 1]) for number in (*open_, *due)}
        correction = build_correction(open_, corrected, due, stay, now_known.__getitem__)
        learned = update_learner(learned, [now_known[number] for number in due], correction)
        open_ = stay
    return learned.text


@settings(max_examples=12)
@given(data=st.data())
def test_lateness_inside_the_window_does_not_matter(data: st.DataObject) -> None:
    rounds, window = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    unit_counts = [data.draw(st.integers(1, 50)) for _ in range(rounds)]
    closes = rounds + window
    late = np.zeros((closes, rounds), dtype=int)
    for place, units in enumerate(unit_counts):
        came = sorted(data.draw(st.lists(st.integers(0, units), min_size=window, max_size=window)))
        late[place : place + window, place] = came
        late[place + window :, place] = units
    on_time = [unit_counts] * closes
    ends = [json.loads(learn_in_order(known, window)) for known in (late.tolist(), on_time)]
    assert ends[0]["learned"] == ends[1]["learned"]
    assert ends[0]["learned_rounds"] == ends[1]["learned_rounds"] == rounds
    assert "correctable" not in ends[0]


def test_a_step_that_corrects_publishes_on_what_is_known_now() -> None:
    first = update_learner(initial_update(study()), [measured_round(1, 5)], Correction(final=0))
    again = update_learner(first, [], Correction(again=(measured_round(1, 50),), ended=False))
    assert (again.study.rounds, again.study.policy.version, again.problems) == (1, 2, ())
    assert again.text == update_learner(first, [], Correction(again=(measured_round(1, 50),), ended=False)).text
    assert again.study.policy.probabilities != update_learner(first, []).study.policy.probabilities
    served = dict(again.study.state()["correctable"]["policies"])
    assert served[0] == list(study().policy.probabilities)


def test_a_round_that_cannot_be_learned_again_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    learned = update_learner(
        initial_update(study()),
        [
            measured_round(1, 5),
        ],
        Correction(final=0),
    )
    learned = update_learner(learned, [measured_round(2, 5)], Correction(ended=False, final=0))
    learn = Thompson.learn

    def failing(self: Thompson, problem: Any, state: Any, round: Any) -> Any:
        if round.units.max() == 41:
            raise SolverError("no")
        return learn(self, problem, state, round)

    monkeypatch.setattr(Thompson, "learn", failing)
    again = update_learner(
        learned,
        [measured_round(3, 9)],
        Correction(again=(measured_round(1, 41), measured_round(2, 30)), ended=False, final=0),
    )
    assert again.problems == ("round 1 could not be learned again: no",)
    assert (again.study.rounds, again.study.correctable) == (2, (1, 2))
    better = update_learner(
        again, [], Correction(again=(measured_round(1, 40), measured_round(2, 30), measured_round(3, 9)), ended=False)
    )
    assert (better.problems, better.study.correctable) == ((), (0, 1, 2))


def test_a_study_without_its_correction_state_continues_without_corrections(monkeypatch: pytest.MonkeyPatch) -> None:
    learned = initial_update(study())
    for number in (1, 2):
        learned = update_learner(learned, [measured_round(number, 5)], Correction(ended=False, final=0))

    def failing(self: Study, observations: Any) -> None:
        raise SolverError("no")

    monkeypatch.setattr(Study, "settle", failing)
    after = update_learner(
        learned, [measured_round(3, 9)], Correction(settled=(measured_round(1, 5),), ended=False, final=0)
    )
    assert after.problems == ("learned rounds could not be corrected: no; they are final now",)
    assert (after.study.rounds, after.study.correctable) == (3, (2,))


@pytest.mark.parametrize("trouble", [MemoryError, OSError])
def test_a_machine_error_does_not_lose_a_round(monkeypatch: pytest.MonkeyPatch, trouble: type[Exception]) -> None:
    learned = update_learner(initial_update(study()), [measured_round(1, 5)], Correction(final=0))

    def failing(*given: Any, **named: Any) -> None:
        raise trouble

    monkeypatch.setattr(Thompson, "learn", failing)
    with pytest.raises(trouble):
        update_learner(learned, [], Correction(again=(measured_round(1, 9),), ended=False))
