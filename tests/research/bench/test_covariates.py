"""Learning with covariates against the truth, at sizes that fit the suite; `pasto bench covariates` runs it in full."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pasto_research.bench.covariate_worlds import (
    DRIFTING,
    FAMILIES,
    FEW_CANDIDATES,
    NORMAL_LEVELS,
    CovariateWorld,
    Normal,
)
from pasto_research.bench.covariates import (
    LEARNERS,
    SIDES,
    Checkpoint,
    Courses,
    StudyCourse,
    measure,
    relative_gain,
    run_study,
    share_held,
)

SMALL = replace(NORMAL_LEVELS, candidates=6, units=400, metric=Normal(2.0))


@pytest.mark.parametrize("world", FAMILIES[:2])
@pytest.mark.parametrize("explained", [0.0, 0.2, 0.6])
def test_units_have_the_stated_means_and_the_stated_share_of_variance_is_explained(
    world: CovariateWorld, explained: float
) -> None:
    values = world.metric.draw(np.array([1.0, 2.0]), explained, 400_000, np.random.default_rng(1))
    assert values[:, :2].mean(axis=0) == pytest.approx([1.0, 2.0], rel=0.05)
    correlations = np.array(np.corrcoef(values.T))
    assert correlations[0, 2] ** 2 == pytest.approx(explained, abs=0.02)
    assert correlations[0, 3] == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize("world", [SMALL, replace(SMALL, contrast=True), replace(DRIFTING, candidates=6, units=400)])
def test_every_learner_gives_answers_that_can_be_checked(world: CovariateWorld) -> None:
    seed = next(seed for seed in range(20) if run_study(world, "at least", "raw", seed, (1,)) is not None)
    courses = [run_study(world, "at least", name, seed, (1, 3)) for name in LEARNERS]
    assert all(course is not None and len(course.checkpoints) == 2 for course in courses)
    assert len({repr(course) for course in courses}) == len(LEARNERS)


def test_a_report_has_a_row_for_each_world_and_for_each_side() -> None:
    worlds = (SMALL, replace(SMALL, explained=0.0), replace(SMALL, units=200))
    report = measure(worlds, studies=2, marks=(1, 2), seed=3)
    assert [row["explained"] for row in report.rows] == ["60%", "0%", "60%", "60%"]
    assert report.rows[3]["world"] == "mean of the steady worlds"
    assert {"r at 1", "r at 2", "gained at 1", "rounds for 1"} <= report.rows[0].keys()
    certificates = report.tables[1].rows
    assert [row["side"] for row in certificates] == [*SIDES, *SIDES, *SIDES, "both"]
    assert certificates[6]["binding"] == sum(certificates[place]["binding"] for place in (0, 1, 4, 5))
    assert certificates[0].keys() == certificates[2].keys()
    assert certificates[2]["centred on the round"] is None


def test_errors_count_seeds_and_not_studies() -> None:
    """Compare two equal worlds with one: the errors are the same, because all truths are."""
    good = Checkpoint(gain=1.0, binding=2, holds=2, certified=True, understated=False)
    bad = replace(good, gain=0.0, holds=1)
    courses = Courses((None, *(StudyCourse(1.0, (mark,)) for mark in (good, bad, good))))
    share, error, binding = share_held([courses])
    assert share == pytest.approx(5 / 6)
    assert binding == 6
    assert error == pytest.approx(np.sqrt(2 * (1 / 3) ** 2 + (2 / 3) ** 2) / 6)
    assert share_held([courses, courses])[1] == pytest.approx(error)
    ratio, parts = relative_gain([[courses], [courses]])
    assert ratio == pytest.approx([2 / 3])
    assert parts[:, 0] == pytest.approx([0.0, 1 / 9, -2 / 9, 1 / 9])


@pytest.mark.services
def test_covariates_save_rounds_and_certificates_hold() -> None:
    """Run forty studies."""
    seeds, marks = range(900, 920), (5, 10, 20)
    courses: dict[str, list[Courses]] = {}
    for name in LEARNERS[:2]:
        found: Any = [[run_study(NORMAL_LEVELS, side, name, seed, marks) for seed in seeds] for side in SIDES]
        courses[name] = [Courses(tuple(studies)) for studies in found]
    (raw, _), (adjusted, _) = (relative_gain([courses[name]]) for name in LEARNERS[:2])
    assert adjusted[1] > raw[1] + 0.2
    assert adjusted[2] > raw[2] + 0.08
    assert share_held(courses["adjusted"])[0] > 0.92


@pytest.mark.services
def test_a_mutant_that_ignores_shared_noise_is_found() -> None:
    """Run forty studies of the world in which all cells share most of their noise."""
    held = {}
    for name in LEARNERS[1:3]:
        studies = [[run_study(FEW_CANDIDATES, side, name, seed, (5, 20)) for seed in range(900, 920)] for side in SIDES]
        held[name] = share_held([Courses(tuple(each)) for each in studies])[0]
    assert held["adjusted"] > 0.92
    assert held["centred on the round"] < 0.89
