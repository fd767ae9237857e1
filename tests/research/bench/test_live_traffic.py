"""Race on live traffic at a small size, and its worlds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from pasto.observation import Observation
from pasto_research.bench.live_traffic import measure_live_traffic, race_live_traffic
from pasto_research.bench.live_traffic_learners import (
    LIVE_LEARNERS,
    ConstrainedImprovement,
    EvenTest,
    GoalThompson,
)
from pasto_research.bench.live_traffic_worlds import LIVE_TRAFFIC, LiveTraffic, LiveTrafficWorld

REVENUE, CLICKS = LIVE_TRAFFIC


def _days(world: LiveTrafficWorld, shares: np.ndarray, count: int, seed: int = 1) -> list[list[Observation]]:
    rng = np.random.default_rng(seed)
    return [world.draw_day(shares, day, day, rng) for day in range(count)]


def _even(family: LiveTraffic) -> np.ndarray:
    return np.full(len(family.candidates), 1.0 / len(family.candidates))


def test_a_day_has_the_control_and_skewed_revenue() -> None:
    world = CLICKS.draw(np.random.default_rng(3))
    cells = _days(world, _even(CLICKS), 1)[0]
    (control,) = (cell for cell in cells if cell.control)
    assert (control.candidate, control.units) == (CLICKS.baseline, 10_000)
    assert sum(cell.units for cell in cells) == 100_000
    covariance = control.units * np.array(control.covariance)
    clicks, revenue = control.mean
    assert covariance[0, 0] == pytest.approx(clicks * (1 - clicks), rel=1e-3)
    assert covariance[1, 1] > 20 * revenue**2  # most users spend nothing
    assert 0 < covariance[0, 1] < np.sqrt(covariance[0, 0] * covariance[1, 1])


def test_stated_errors_are_those_of_the_world() -> None:
    world = CLICKS.draw(np.random.default_rng(3))
    rng = np.random.default_rng(4)
    cells = [world._draw_cell(7, 2_000, False, (1.0, 1.0), 0, rng) for _ in range(1_500)]
    means = np.array([cell.mean for cell in cells])
    stated = np.mean([np.array(cell.covariance) for cell in cells], axis=0)
    assert_allclose(means.mean(axis=0), world.means[:, 7], rtol=0.03)
    assert_allclose(np.cov(means.T), stated, rtol=0.15)


@pytest.mark.parametrize("family", LIVE_TRAFFIC, ids=lambda family: family.goal)
def test_lifts_are_found_despite_the_week(family: LiveTraffic) -> None:
    large = replace(family, users=5_000_000)
    world = large.draw(np.random.default_rng(5))
    test = EvenTest(large, 0)
    for day, cells in enumerate(_days(world, _even(large), 9)):
        test.observe([cell for cell in cells if day < 4 or cell.candidate > 20 or cell.control])  # uneven days
    truth = world.means / world.means[:, [large.baseline]] - 1.0
    errors = test.lifts() - truth
    assert np.abs(errors).max() < 0.05
    assert np.abs(errors[:, :21].mean(axis=1) - errors[:, 21:].mean(axis=1)).max() < 0.01  # 0.05 without levels of days


def test_thompson_ignores_the_guardrail_and_the_constrained_search_does_not() -> None:
    large = replace(REVENUE, users=5_000_000, limit="+2%")
    world = large.draw(np.random.default_rng(6))
    bandit, search = GoalThompson(large, 0), ConstrainedImprovement(large, 0)
    for learner in (bandit, search):
        rng = np.random.default_rng(1)
        for day in range(6):
            shares = learner.propose()
            assert shares.sum() == pytest.approx(1.0)
            learner.observe(world.draw_day(shares, day, day, rng))
    assert int(np.argmax(bandit.answer())) == int(np.argmax(world.means[0]))
    answer = search.answer()
    assert sorted(answer)[-2:] == [0.0, 1.0]
    assert world.judge().holds(answer)
    assert not world.judge().holds(bandit.answer())


def test_without_effects_nothing_can_be_gained() -> None:
    flat = replace(CLICKS, effect=0.0)
    judge = flat.draw(np.random.default_rng(1)).judge()
    assert judge.best == pytest.approx(0.0, abs=1e-9)
    assert judge.value(_even(flat)) == pytest.approx(0.0, abs=1e-9)


def test_every_learner_races_in_the_same_worlds() -> None:
    small = replace(REVENUE, users=20_000)
    courses = race_live_traffic(small, instances=2, days=3, seed=7)
    assert [course.player for course in courses] == list(LIVE_LEARNERS)
    for course in courses:
        assert_allclose(course.gaps, courses[0].gaps)
        assert course.marks == (1, 2, 3)
        assert (course.gains <= course.gaps[:, None] + 1e-9).all()
        assert course.holds is not None
        assert course.holds.shape == (2, 3)


def test_certified_guardrails_are_compared_with_the_truth() -> None:
    ours, even = race_live_traffic(
        CLICKS, instances=2, days=6, seed=9, players=["posterior blend", "even A/B/n test, best blend"]
    )
    assert ours.guardrail_counts is not None
    assert even.guardrail_counts is not None
    assert not even.guardrail_counts.any()  # it has no certificate
    binding, holds = ours.guardrail_counts.T
    assert binding.sum() > 0
    assert (holds <= binding).all()
    assert (binding <= len(ours.marks)).all()  # one guardrail


def test_two_processes_run_the_same_race_on_live_traffic() -> None:
    small = replace(REVENUE, users=5_000)
    player = ["even A/B/n test, best blend"]
    one, two = (race_live_traffic(small, instances=2, days=2, players=player, workers=n)[0] for n in (1, 2))
    assert_allclose(one.gains, two.gains)


def test_a_study_learns_more_than_an_even_test() -> None:
    players = ["posterior blend", "even A/B/n test, best single", "Thompson on the goal alone"]
    ours, even, bandit = race_live_traffic(REVENUE, instances=2, days=10, seed=8, players=players)
    assert ours.relative[-1] > 0.5
    assert ours.relative[-1] > max(even.relative[-1], bandit.relative[-1])
    assert ours.loss < even.loss


def test_the_report_has_a_row_for_each_world_and_learner() -> None:
    player = "even A/B/n test, best single"
    report = measure_live_traffic(instances=2, days=7, players=[player])
    assert [(row["world"], row["learner"]) for row in report.rows] == [(family.name, player) for family in LIVE_TRAFFIC]
    assert report.rows[0]["gain after 28"] is None
    assert len(report.figures["live-traffic"]().axes) == 2
