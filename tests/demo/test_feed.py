from __future__ import annotations

import numpy as np
import pytest

from pasto import solve
from pasto.demo import learn, make_feed
from pasto.demo.feed import LIMIT, session


def test_metrics_compete() -> None:
    place = make_feed()
    blend = solve(place.truth, place.objective, names=place.candidates.names, baseline=place.baseline)
    assert blend.gain.value is not None
    assert blend.gain.value > 2
    assert len(blend.support) == 3
    assert blend.single != place.baseline
    # Serving every setting alike is worse than the best single one, so there is something to learn.
    everybody = place.objective.value(place.truth.mean(axis=1), baseline=place.truth[:, place.baseline].tolist())
    assert blend.single_value is not None
    assert everybody < blend.single_value - 1


def test_the_best_single_setting_is_the_best_within_the_limit_too() -> None:
    place = make_feed()
    lifts = 100 * (place.truth / place.truth[:, [place.baseline]] - 1)
    allowed = np.flatnonzero((lifts[1:] >= LIMIT).all(axis=0))
    blend = solve(place.truth, place.objective, baseline=place.baseline)
    assert blend.single == allowed[np.argmax(lifts[0, allowed])]


def test_weights_raise_what_they_weigh() -> None:
    watched, liked, _ = np.array([session(weight, 0) for weight in range(4)]).T
    assert (np.diff(liked) > 0).all()
    assert (np.diff(watched) < 0).all()
    assert (np.diff([session(0, weight)[2] for weight in range(4)]) > 0).all()


def test_traffic_has_the_true_means_and_the_noise_of_sessions() -> None:
    place = make_feed()
    rng = np.random.default_rng(1)
    shares = tuple(np.full(16, 1 / 16).tolist())
    rounds = [place.traffic(shares, version, 1_600, rng) for version in range(400)]
    assert all(sum(seen.units for seen in one) == 1_600 for one in rounds)
    assert rounds[7][0].version == 7
    mine = [seen for one in rounds for seen in one if seen.candidate == 3]
    units = np.array([seen.units for seen in mine])
    means = np.array([seen.mean for seen in mine])
    truth = place.truth[:, 3]
    average = units @ means / units.sum()
    deviation = np.array([truth[0], *np.sqrt(truth[1:])])  # exponential, Poisson, Poisson
    assert (np.abs(average - truth) < 4 * deviation / np.sqrt(units.sum())).all()
    spread = np.sqrt(((means - truth) ** 2 * units[:, None]).mean(axis=0))
    assert spread == pytest.approx(deviation, rel=0.15)


def test_candidates_that_nobody_saw_are_left_out() -> None:
    place = make_feed()
    seen = place.traffic((0.0, 1.0, *[0.0] * 14), 0, 100, np.random.default_rng(0))
    assert [observation.candidate for observation in seen] == [1]


@pytest.mark.parametrize("seed", range(20))
def test_every_seed_wins(seed: int) -> None:
    result = learn(rounds=400, seed=seed)
    assert result.won
    assert result.blend.value > result.single.value + 1
    assert result.optimum.value >= result.blend.value


def test_the_same_seed_learns_the_same() -> None:
    assert learn(rounds=30, seed=4) == learn(rounds=30, seed=4)


def test_updates_come_in_order_and_to_the_end() -> None:
    seen: list[int] = []
    learn(rounds=250, seed=1, report=lambda update: seen.append(update.done))
    assert seen == sorted(seen)
    assert seen[-1] == 250
    assert len(seen) <= 130
