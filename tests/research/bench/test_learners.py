"""Race of learners at a tenth of its size, and the claims that it supports."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from pasto.sim.random_streams import stream
from pasto_research.bench.learner_courses import Judge
from pasto_research.bench.learners import ADAPTERS, measure, race
from pasto_research.bench.worlds import SETTINGS, WorldFamily, uniform

SMALL = WorldFamily("small", uniform(0.2, candidates=12))


def test_every_player_finishes_on_the_same_instances() -> None:
    courses = race(SMALL, instances=3, rounds=15, seed=2)
    assert {course.player for course in courses} == {*ADAPTERS, *GRADIENTS} - {"posterior blend, no geometry"}
    for course in courses:
        assert_allclose(course.gaps, courses[0].gaps, rtol=1e-6)
        assert course.marks == (5, 10, 15)
        assert np.isfinite(course.gains).all()
        assert (course.gains <= course.gaps[:, None] + 1e-9).all()
        assert course.loss >= 0


GRADIENTS = {"Algorithm 1 as printed", "Algorithm 1, best of a sweep", "S-SCGD"}


def test_the_posterior_blend_beats_the_best_single_candidate_in_thirty_rounds() -> None:
    """Check Setting B at σ = 0.1, where Algorithm 1 needs tens of thousands of rounds."""
    ours, printed = None, None
    for course in race(SETTINGS["B, σ = 0.1"], instances=4, rounds=30, seed=3):
        if course.player == "posterior blend":
            ours = course
        if course.player == "Algorithm 1 as printed":
            printed = course
    assert ours is not None
    assert printed is not None
    assert ours.relative[-1] > 0.75
    assert printed.relative[-1] < -5


def test_the_oracle_is_the_limit_and_a_scalar_bandit_cannot_pass_the_best_single() -> None:
    named = {course.player: course for course in race(SMALL, instances=4, rounds=30, seed=5)}
    assert named["oracle that knows the support"].relative[-1] > 0.9
    assert named["Thompson on f(û)"].relative.max() <= 1e-9


def test_hard_guardrails_race_without_the_learners_that_follow_a_gradient() -> None:
    setting = WorldFamily("hard", uniform(0.2, candidates=10, hard=True), follows_gradients=False)
    courses = race(setting, instances=2, rounds=10)
    assert not {course.player for course in courses} & GRADIENTS


def test_two_processes_run_the_same_race() -> None:
    setting = SETTINGS["B, σ = 0.1"]
    one, two = (race(setting, instances=2, rounds=5, players=["posterior blend"], workers=n)[0] for n in (1, 2))
    assert_allclose(one.gains, two.gains)


def test_a_missed_hard_guardrail_is_charged() -> None:
    world = uniform(0.1, candidates=30, hard=True)(stream(1, 0, "truth"))
    judge = Judge(world.objective.form(), world.truth)
    greedy = np.eye(30)[int(np.argmax(world.truth[0]))]
    assert judge.value(greedy) < float(world.truth[0] @ greedy)
    assert judge.loss(greedy) > 0
    assert judge.best >= judge.single


def test_rounds_to_a_level_count_to_the_first_round_that_stays_above_it() -> None:
    course = race(SMALL, instances=2, rounds=20, players=["oracle that knows the support"])[0]
    assert course.rounds_to(-1e9) == 5
    assert course.rounds_to(1e9) is None


def test_the_report_has_a_row_for_each_learner_and_a_figure() -> None:
    report = measure(["B, σ = 0.1"], instances=1, rounds=10)
    assert {row["learner"] for row in report.rows} >= {"posterior blend", *GRADIENTS}
    assert len(report.figures["learners"]().axes) == 1
    with pytest.raises(KeyError):
        measure(["nothing"], instances=1, rounds=5)
