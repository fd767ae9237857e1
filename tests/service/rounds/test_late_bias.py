"""Late events leave no bias if rounds are open to correction; dropped late events do.

A/A: two candidates that are the same. 30 % of one candidate's events come one to three rounds late, and a unit without
an event counts 0.
"""

from __future__ import annotations

import numpy as np
import pytest

import pasto
from pasto.arrays import FloatArray
from pasto.observation import Observation
from pasto.optimize.learners import Thompson
from pasto.service.rounds.late_events import build_correction
from pasto.service.rounds.learner_step import RoundObservations, initial_update, update_learner

MEAN, DEVIATION = 0.5, 1.0
UNITS, ROUNDS, LATEST, SHARE = 6_000, 2, 3, 0.3


class Round:
    """One round's events: each unit's value, and the number of rounds that it comes late."""

    def __init__(self, number: int, rng: np.random.Generator) -> None:
        self.number = number
        self.values = rng.normal(MEAN, DEVIATION, (2, UNITS))
        self.delays = np.zeros((2, UNITS), dtype=int)
        late = rng.random(UNITS) < SHARE
        self.delays[1, late] = rng.integers(1, LATEST + 1, late.sum())

    def at(self, now: int) -> RoundObservations:
        """Return the round's data at the end of a later round."""
        known: FloatArray = np.where(self.number + self.delays <= now, self.values, 0.0)
        observations = [
            Observation(self.number - 1, k, UNITS, (float(row.mean()),), ((float(row.var() / UNITS),),))
            for k, row in enumerate(known)
        ]
        return RoundObservations(self.number, tuple(observations))


def estimate_candidates(rng: np.random.Generator, seed: int, *, window: int) -> FloatArray:
    """Return a study's estimates of both candidates; `window` is the number of rounds that stay open to correction."""
    study = pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x"), learner=Thompson(draws=2), seed=seed)
    learned = initial_update(study)
    rounds: dict[int, Round] = {}
    open_: list[int] = []
    for now in range(1, ROUNDS + LATEST + 1):
        due = [now] if now <= ROUNDS else []
        rounds |= {number: Round(number, rng) for number in due}
        stay = [number for number in (*open_, *due) if number + window > now]

        known = {number: rounds[number].at(now) for number in open_}
        correction = build_correction(open_, open_, due, stay, known.__getitem__)
        learned = update_learner(learned, [rounds[number].at(now) for number in due], correction)
        open_ = stay
    samples: FloatArray = learned.study.posterior_samples()[0, 0]
    return samples


def bias(runs: int, *, window: int) -> float:
    """Return the difference of the late candidate from its twin, in deviations of a unit."""
    rng = np.random.default_rng(17)
    found = [estimate_candidates(rng, seed, window=window) for seed in range(runs)]
    return float(np.mean([second - first for first, second in found]) / DEVIATION)


@pytest.mark.parametrize("runs", [200, pytest.param(2_000, marks=pytest.mark.services)])
def test_late_events_leave_no_bias_in_what_is_known(runs: int) -> None:
    assert abs(bias(runs, window=LATEST)) <= 0.005


def test_a_window_that_is_too_short_shows() -> None:
    assert bias(40, window=1) < -0.05


def test_dropping_what_is_late_is_biased() -> None:
    assert bias(40, window=0) == pytest.approx(-SHARE * MEAN, abs=0.02)
