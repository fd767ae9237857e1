"""Applications: simulated users behave as expected, their metrics compete, and a blend is better than one candidate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pasto.demo.scenario import limits
from pasto.sim import Conditions, ads, feed, shop
from pasto.sim.application import KnownMeans, SimulatedApplication, known_means

MAKERS: list[Callable[[], Any]] = [feed, ads, shop]
USERS = 6_000
GOAL_EXPONENT = {"feed": 1.0, "ads": 1.0, "shop": 1.65}
"""The goal's level is this power of the mood."""


@pytest.fixture(params=MAKERS, ids=["feed", "ads", "shop"])
def application(request: pytest.FixtureRequest) -> SimulatedApplication:
    made: SimulatedApplication = request.param()
    return made


@pytest.fixture
def truth(application: SimulatedApplication) -> KnownMeans:
    return known_means(application, USERS)


def test_visits_are_on_average_what_is_expected(application: SimulatedApplication, truth: KnownMeans) -> None:
    rng = np.random.default_rng(1)
    for candidate in (application.baseline, 0, len(application.candidates) - 1):
        totals = application.visit(np.full(20_000, candidate), rng).totals(20_000)
        simulated = np.sqrt(np.diag(truth.covariance).reshape(truth.means.shape)[:, candidate])
        error = np.sqrt(totals.var(axis=0) / len(totals) + simulated**2)
        assert (np.abs(totals.mean(axis=0) - truth.means[:, candidate]) <= 4.5 * error + 1e-9).all(), candidate


def test_users_on_different_candidates_come_in_one_call(application: SimulatedApplication) -> None:
    chosen = np.arange(len(application.candidates)).repeat(50)
    visits = application.visit(chosen, np.random.default_rng(2))
    if application.name == "shop":  # a visitor who does nothing leaves no event
        assert 0.4 < len(visits.unit) / len(chosen) < 0.7
        assert visits.fields.any(axis=1).all()
    else:
        assert set(visits.unit.tolist()) == set(range(len(chosen)))
    assert (np.diff(visits.unit) >= 0).all()
    assert visits.fields.shape == (len(visits.unit), len(application.columns))
    assert (visits.fields >= 0).all()


def test_the_same_seed_brings_the_same_visits(application: SimulatedApplication) -> None:
    chosen = np.zeros(100, dtype=np.intp)
    one, two = (application.visit(chosen, np.random.default_rng(3)) for _ in range(2))
    assert (one.fields == two.fields).all()
    assert (one.unit == two.unit).all()


def test_a_common_swing_raises_the_goal_of_all_candidates(application: SimulatedApplication) -> None:
    measure = next(iter(application.measures.values()))
    for candidate in (application.baseline, 0):
        calm, merry = (
            application.visit(np.full(20_000, candidate), np.random.default_rng(4), mood).totals(20_000).mean(axis=0)
            for mood in (1.0, 1.3)
        )
        expected = 1.3 ** GOAL_EXPONENT[application.name]
        assert merry[measure.numerator] / calm[measure.numerator] == pytest.approx(expected, abs=0.03)


def test_no_candidate_is_best_in_everything(truth: KnownMeans) -> None:
    metrics, within = list(truth.application.measures), limits(truth.application)
    signs = {name: within[name].sign if name in within else 1.0 for name in metrics}
    best = {
        max(range(truth.means.shape[1]), key=lambda k: signs[name] * truth.level(name, truth.single_shares(k)))
        for name in metrics
    }
    assert len(best) == len(metrics)


def test_the_best_blend_beats_the_best_single_candidate_by_far(truth: KnownMeans) -> None:
    best = truth.best()
    assert best.best_single is not None
    assert best.best_single != truth.application.baseline
    goal = next(iter(truth.application.measures))
    ahead = truth.lift(goal, best.probabilities, truth.single_shares(best.best_single))
    assert ahead.value - 5 * ahead.error > 0.12


def test_the_best_single_candidate_is_the_best_within_the_limits(truth: KnownMeans) -> None:
    goal, *guarded = truth.application.measures
    singles = range(truth.means.shape[1])
    within = limits(truth.application)
    assert list(within) == guarded
    allowed = [
        k
        for k in singles
        if all(limit.allows(truth.lift(name, truth.single_shares(k)).value) for name, limit in within.items())
    ]
    assert truth.best().best_single == max(allowed, key=lambda k: truth.lift(goal, truth.single_shares(k)).value)


def test_the_best_blend_is_at_its_limits(truth: KnownMeans) -> None:
    best = truth.best()
    for name, limit in limits(truth.application).items():
        assert truth.lift(name, best.probabilities).value == pytest.approx(limit.at, abs=1e-6)


def test_the_truth_has_the_stated_error(application: SimulatedApplication) -> None:
    """Check that lifts from other users differ by about their standard errors, for single candidates and for blends."""
    shares = np.full(len(application.candidates), 1.0 / len(application.candidates))
    apart = []
    for seed in range(20):
        one, two = known_means(application, 400, seed=2 * seed + 1), known_means(application, 400, seed=2 * seed + 2)
        for name in application.measures:
            first, second = one.lift(name, shares), two.lift(name, shares)
            apart.append((first.value - second.value) / np.hypot(first.error, second.error))
    assert 0.7 < np.sqrt(np.mean(np.square(apart))) < 1.35


def test_the_truth_is_simulated_once(application: SimulatedApplication) -> None:
    assert known_means(application, 400) is known_means(application, 400)


def test_the_study_file_asks_the_same_question(truth: KnownMeans) -> None:
    from pasto.optimize import solve
    from pasto.service.study_file import parse_spec

    application = truth.application
    spec = parse_spec(application.document)
    assert spec.candidates.names == application.candidates.names  # type: ignore[union-attr]
    measures = application.measures
    place: dict[str, int | None] = {}
    for name, metric in spec.metrics.items():
        place[metric.numerator.name] = measures[name].numerator
        if metric.denominator is not None:
            place[metric.denominator.name] = measures[name].denominator
    means = {column.name: truth.means[place[column.name]].tolist() for column in spec.columns}
    blend = solve(means, spec.objective, names=application.candidates.names, baseline=application.baseline)
    assert blend.value == pytest.approx(truth.best().value)
    assert blend.probabilities == pytest.approx(truth.best().probabilities, abs=1e-6)


def test_weights_pull_up_what_they_weigh() -> None:
    application = feed()
    truth = known_means(application, 2_000)

    def level(metric: str, like_weight: int, share_weight: int) -> float:
        found = application.candidates.find({"like_weight": like_weight, "share_weight": share_weight})
        return truth.level(metric, truth.single_shares(found))

    assert level("like_rate", 0, 2) < level("like_rate", 2, 2) < level("like_rate", 6, 2)
    assert level("share_rate", 2, 0) < level("share_rate", 2, 2) < level("share_rate", 2, 6)
    assert level("watch_time", 6, 6) < min(level("watch_time", 0, 6), level("watch_time", 6, 0))


def test_quotas_stay_within_the_budget() -> None:
    rows = [dict(row) for row in ads().candidates]
    assert all(2 * row["deep"] + row["similar"] + row["fresh"] <= 24 for row in rows)  # type: ignore[operator]
    assert all(isinstance(row[module], int) for row in rows for module in row)


def test_revenue_of_the_shop_is_rare_and_heavy_tailed() -> None:
    application = shop()
    totals = application.visit(np.full(200_000, application.baseline), np.random.default_rng(5)).totals(200_000)
    dollars = totals[:, application.measures["revenue"].numerator]
    orders = dollars[dollars > 0]
    assert len(orders) / len(dollars) == pytest.approx(0.018, abs=0.002)
    assert np.log(np.percentile(orders, 75) / np.percentile(orders, 25)) == pytest.approx(2 * 0.674 * 1.5, abs=0.25)
    assert dollars.std() / dollars.mean() > 12
    assert dollars.max() <= 500


def test_levels_of_the_shop_swing_and_its_lifts_do_not() -> None:
    application = shop()
    moods = [Conditions(night=application.night).mood(round) for round in range(1, 13)]
    assert (min(moods), max(moods)) == pytest.approx((0.6, 1.4))
    other = application.candidates.find({"price_weight": 0, "popularity_weight": 4})
    saves = np.array(
        [
            [
                application.visit(np.full(60_000, k), np.random.default_rng(6), mood).totals(60_000)[:, 0].mean()
                for k in (application.baseline, other)
            ]
            for mood in (0.6, 1.4)
        ]
    )
    assert saves[1] / saves[0] == pytest.approx([4.05, 4.05], rel=0.05)
    truth = known_means(application, USERS).lift("saves", np.eye(len(application.candidates))[other])
    assert saves[:, 1] / saves[:, 0] - 1.0 == pytest.approx([truth.value] * 2, abs=0.04)
