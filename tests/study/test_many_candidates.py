"""Studies of many candidates: their policies take more posterior draws, and small studies and old settings do not."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import pasto
from pasto.errors import OptionError
from pasto.estimate import JointPosterior
from pasto.observation import Observation
from pasto.optimize.learners import Thompson
from pasto.optimize.learners.thompson import FEW_CANDIDATES, MIN_DRAWS, count_draws

OBJECTIVE = pasto.maximize("x").keep("y", at_least=0.0)


def learn(count: int, users: int, *, learner: Any = "thompson", labels: Any = None, rounds: int = 2) -> pasto.Study:
    """Return a study of settings s000, s001, ... at the places of the labels, after a few even rounds."""
    labels = np.arange(count) if labels is None else labels
    rows = pasto.Candidates.from_rows([{"w": int(k)} for k in labels], names=[f"s{k:03}" for k in labels])
    study = pasto.Study(rows, OBJECTIVE, learner=learner, seed=5)
    units = users // count
    truth = np.random.default_rng(1).standard_normal((2, count))
    error = 30.0 / np.sqrt(units)
    for number in range(rounds):
        means = truth + error * np.random.default_rng([2, number]).standard_normal(truth.shape)
        covariance = ((error**2, 0.0), (0.0, error**2))
        version = study.policy.version
        study.observe(
            [Observation(version, place, units, tuple(means[:, k]), covariance) for place, k in enumerate(labels)]
        )
    return study


def independent(draws: int | None = None) -> Thompson:
    return Thompson(draws=draws, structure="independent")


def shares(study: pasto.Study) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.array(study.policy.probabilities)


@pytest.mark.parametrize(
    ("candidates", "units", "draws"),
    [
        (2, 1e9, 32),
        (100, 1e9, 32),
        (101, 1e9, 101),
        (101, 3_000, 32),
        (700, 50_000, 500),
        (1_000, 1e6, 500),
        (1_000, 10, 32),
        (5_000, 1e6, 100),
        (100_000, 1e9, 32),
    ],
)
def test_draws_follow_candidates_and_traffic(candidates: int, units: float, draws: int) -> None:
    assert count_draws(candidates, units) == draws


@pytest.mark.parametrize(("count", "users"), [(FEW_CANDIDATES, 1_000_000), (FEW_CANDIDATES + 20, 2_400)])
def test_a_small_study_has_the_policies_of_32_draws_bit_for_bit(count: int, users: int) -> None:
    assert np.array_equal(shares(learn(count, users)), shares(learn(count, users, learner=Thompson(draws=MIN_DRAWS))))


def test_a_large_study_explores_more_candidates_than_32_draws_name() -> None:
    floor = 0.01 / 300 * 1.001
    many = learn(300, 100_000, learner=independent(), rounds=1)
    few = learn(300, 100_000, learner=independent(32), rounds=1)
    assert int((shares(few) > floor).sum()) <= 32
    assert int((shares(many) > floor).sum()) > 50


def test_settings_that_state_the_draws_keep_them() -> None:
    study = learn(300, 300_000, learner=independent(32))
    assert study.state()["learner"]["settings"]["draws"] == 32
    again = pasto.Study.from_state(json.loads(json.dumps(study.state())))
    assert again.state() == study.state()
    assert learn(300, 300_000, learner=independent()).state()["learner"]["settings"]["draws"] is None


@pytest.mark.parametrize(("draws", "count", "is_ordered"), [(None, 120, True), (None, 90, False), (40, 120, False)])
def test_only_policies_of_more_draws_by_default_use_triangular_roots(
    monkeypatch: pytest.MonkeyPatch, draws: int | None, count: int, is_ordered: bool
) -> None:
    # Other roots give other policies: studies of earlier versions, which state their draws, would not replay.
    orders = []
    draw = JointPosterior.draw

    def spy(self: JointPosterior, noise: Any, order: Any = None) -> Any:
        orders.append((len(noise), order is not None))
        return draw(self, noise, order)

    monkeypatch.setattr(JointPosterior, "draw", spy)
    learn(count, 120_000, learner=Thompson(draws=draws, structure="process"))
    assert orders[-1] == (draws or count_draws(count, 120_000), is_ordered)


@pytest.mark.parametrize("structure", ["independent", "process"])
def test_relabelling_many_candidates_relabels_their_policy(structure: Any) -> None:
    labels = np.random.default_rng(3).permutation(120)
    learner = Thompson(structure=structure)
    plain, shuffled = (learn(120, 120_000, learner=learner, labels=order) for order in (None, labels))
    assert count_draws(120, 120_000) > MIN_DRAWS
    assert_allclose(shares(shuffled), shares(plain)[labels], atol=2.5 / 120)
    assert np.mean(np.abs(shares(shuffled) - shares(plain)[labels]) < 1e-9) > 0.95


@pytest.mark.parametrize("draws", [0, -1, 1.5, "many"])
def test_other_draws_are_refused(draws: Any) -> None:
    with pytest.raises(OptionError, match="or None"):
        Thompson(draws=draws)
