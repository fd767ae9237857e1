"""Checks of the demonstration can fail."""

from __future__ import annotations

import numpy as np
import pytest

from pasto.demo.checks import Check, Limit, build_checks
from pasto.demo.scenario import limits
from pasto.inference.lift import Lift, LiftEstimate
from pasto.sim import KnownMeans, feed, known_means, shop


@pytest.fixture(scope="module")
def truth() -> KnownMeans:
    return known_means(feed(), 4_000)


def verdicts(truth: KnownMeans, shares: object, lifts: tuple[Lift, ...] = (), single: int | None = None) -> list[bool]:
    built_checks: tuple[Check, ...] = build_checks(
        truth, np.asarray(shares, dtype=float), single, lifts, limits(feed())
    )
    return [check.held for check in built_checks]


def measured(target: str, low: float, high: float) -> Lift:
    estimate = LiftEstimate((low + high) / 2, low, high)
    return Lift(target, "watch_time", 1.0, 1.0, estimate, estimate, 1, 0.999, False)


def test_a_blend_within_its_limits_passes(truth: KnownMeans) -> None:
    best = np.array(truth.best().probabilities)
    careful = 0.8 * best + 0.2 * truth.single_shares(feed().baseline)
    assert verdicts(truth, careful) == [True, True, True]


def test_a_blend_at_its_limits_is_not_surely_within_them(truth: KnownMeans) -> None:
    assert verdicts(truth, truth.best().probabilities) == [True, False, False]


def test_the_baseline_does_not_beat_the_best_single_setting(truth: KnownMeans) -> None:
    assert verdicts(truth, truth.single_shares(feed().baseline)) == [False, True, True]


def test_the_best_single_setting_does_not_beat_itself(truth: KnownMeans) -> None:
    single = truth.best().best_single
    assert single is not None
    assert verdicts(truth, truth.single_shares(single)) == [False, True, True]


def test_a_broken_guardrail_fails_its_check(truth: KnownMeans) -> None:
    clips = feed().candidates.find({"like_weight": 0, "share_weight": 6})
    assert verdicts(truth, truth.single_shares(clips)) == [True, False, True]


def test_an_interval_without_the_truth_fails_its_check(truth: KnownMeans) -> None:
    best = truth.best()
    assert best.best_single is not None
    lifts = (
        measured("probabilistic", 0.30, 0.40),
        measured("best single", 0.02, 0.06),
        measured("best single", 0.2, 0.3),
    )
    assert verdicts(truth, best.probabilities, lifts, best.best_single)[3:] == [False, True, False]


def test_a_limit_from_above_is_checked_from_above() -> None:
    truth = known_means(shop(), 4_000)
    within = limits(shop())
    assert within == {"revenue": Limit(-0.02), "hides": Limit(0.05, lower=False)}
    matches, premium, bestsellers = (
        shop().candidates.find({"price_weight": price, "popularity_weight": popularity})
        for price, popularity in ((0, 0), (4, 0), (0, 4))
    )
    held = {
        k: [check.held for check in build_checks(truth, truth.single_shares(k), None, (), within)[1:]]
        for k in (matches, premium)
    }
    assert held == {matches: [True, True], premium: [True, False]}
    assert [check.held for check in build_checks(truth, truth.single_shares(bestsellers), None, (), within)] == [
        True,
        False,
        False,
    ]
    claims = [check.claim for check in build_checks(truth, truth.single_shares(premium), None, (), within)]
    assert claims[1:] == ["the blend's true revenue stays above -2%", "the blend's true hides stays below +5%"]
