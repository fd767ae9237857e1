from __future__ import annotations

import numpy as np
import pytest

from pasto import solve
from pasto.demo import learn, make_feed
from pasto.demo.feed import LIMIT, session, session_variances
from pasto.errors import BadOption


def test_metrics_compete() -> None:
    place = make_feed()
    blend = solve(place.truth, place.objective, names=place.candidates.names, baseline=place.baseline)
    assert blend.gain.value is not None
    assert blend.gain.value > 2
    assert len(blend.support) == 3
    assert blend.single != place.baseline
    # Serving every setting alike breaks a guardrail, so there is something to learn.
    everybody = place.truth.mean(axis=1) / place.truth[:, place.baseline]
    assert 100 * (everybody.min() - 1) < LIMIT


@pytest.mark.parametrize("soft", [False, True])
def test_the_best_single_setting_is_the_best_within_the_limit(soft: bool) -> None:
    place = make_feed(soft=soft)
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


def test_told_variances_are_those_of_the_means() -> None:
    place = make_feed()
    shares = (0.9, *[0.1 / 15] * 15)  # about 20 sessions for each of the others
    seen = place.traffic(shares, 0, 3_000, np.random.default_rng(2), control=500)
    assert [one.candidate for one in seen if one.control] == [place.baseline]
    assert next(one.units for one in seen if one.control) == 500
    for one in seen:
        truth = place.truth[:, one.candidate]
        covariance = np.array(one.covariance)
        assert (covariance == np.diag(np.diag(covariance))).all()
        variances = np.array([truth[0] ** 2, *truth[1:]]) / one.units
        assert np.diag(covariance) == pytest.approx(variances, rel=0.35)


def test_a_low_mean_is_not_told_to_be_surer_than_a_high_one() -> None:
    place = make_feed()
    rng = np.random.default_rng(3)
    shares = (0.9, *[0.1 / 15] * 15)
    rounds = [place.traffic(shares, 0, 3_000, rng) for _ in range(400)]
    small = [one for seen in rounds for one in seen if one.candidate == 5]
    means = np.array([one.mean for one in small])
    weights = np.array([1.0 / np.diag(one.covariance or ()) for one in small])
    average = (weights * means).sum(axis=0) / weights.sum(axis=0)
    errors = np.sqrt(1.0 / weights.sum(axis=0))
    assert (np.abs(average - place.truth[:, 5]) < 4 * errors).all()


def test_no_likes_at_all_are_not_certain() -> None:
    assert (session_variances(np.array([[20.0, 0.0, 0.0]]), np.array([10])) == [400.0, 0.1, 0.1]).all()


def test_candidates_that_nobody_saw_are_left_out() -> None:
    place = make_feed()
    seen = place.traffic((0.0, 1.0, *[0.0] * 14), 0, 100, np.random.default_rng(0))
    assert [observation.candidate for observation in seen] == [1]


@pytest.mark.parametrize("seed", range(20))
def test_every_seed_wins(seed: int) -> None:
    result = learn(rounds=20, seed=seed)
    assert result.won
    lifts = [one.lifts["watch_time"] for one in (result.baseline, result.single, result.blend, result.optimum)]
    assert lifts == sorted(lifts)
    assert lifts[2] > lifts[1] + 1
    assert min(result.blend.lifts["like_rate"], result.blend.lifts["share_rate"]) >= LIMIT
    assert result.certificate is not None
    assert result.certificate.certified
    assert all(chance > 0.99 for chance in result.certificate.holds.values())
    assert result.advice


def test_algorithm_1_learns_the_same_feed_softly() -> None:
    result = learn(rounds=300, seed=1, learner="pasto")
    assert result.won
    assert (result.certificate, result.advice) == (None, None)


def test_other_learners_are_refused() -> None:
    with pytest.raises(BadOption, match="'thompson' and 'pasto', got 'scgd'"):
        learn(learner="scgd")


def test_the_same_seed_learns_the_same() -> None:
    assert learn(rounds=5, seed=4) == learn(rounds=5, seed=4)


def test_updates_come_in_order_and_to_the_end() -> None:
    seen: list[int] = []
    learn(rounds=250, seed=1, learner="pasto", report=lambda update: seen.append(update.done))
    assert seen == sorted(seen)
    assert seen[-1] == 250
    assert len(seen) <= 130
