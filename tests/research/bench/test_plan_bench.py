"""Plan benchmark: its worlds, and one comparison of a plan with a simulated study."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pasto_research.bench.plan import PlanCheck, check_world, compared_days, summarize
from pasto_research.bench.plan_worlds import PlanWorld, UnitMetric, draw_world


@pytest.mark.parametrize(
    "metric", [UnitMetric("bell", 30.0, 1.5), UnitMetric("share", 0.1), UnitMetric("purchases", 1.0)]
)
def test_cells_have_the_mean_and_deviation_of_their_units(metric: UnitMetric) -> None:
    rng = np.random.default_rng(3)
    drawn = np.array([metric.sample(1.1 * metric.mean, 50_000, rng) for _ in range(2_000)])
    error = metric.deviation / np.sqrt(50_000)
    assert drawn[:, 0].mean() == pytest.approx(1.1 * metric.mean, abs=4 * error / np.sqrt(2_000) * 1.2)
    assert drawn[:, 0].std() == pytest.approx(error, rel=0.15)
    assert np.sqrt(drawn[:, 1].mean()) == pytest.approx(metric.deviation, rel=0.15)


@pytest.mark.parametrize("shape", ["independent", "sparse", "line"])
def test_effects_have_the_stated_spread(shape: str) -> None:
    world = PlanWorld(
        "",
        21,
        1e5,
        (UnitMetric("bell", 1.0),) * 3,
        (-2.0, -2.0),
        (2.0, 3.0, 1.0),
        effects=shape,  # type: ignore[arg-type]
    )
    rng = np.random.default_rng(1)
    effects = np.array([world.draw_effects(rng) for _ in range(2_000)])
    assert (effects[..., 0] == 0).all()
    others = effects[..., 1:]
    assert np.sqrt(np.square(others).mean(axis=(0, 2))) == pytest.approx([2.0, 3.0, 1.0], rel=0.08)
    correlations = np.corrcoef(others.transpose(1, 0, 2).reshape(3, -1))
    assert correlations[0, 1:] == pytest.approx([-0.5, -0.5], abs=0.08)


def test_a_plan_is_compared_with_studies() -> None:
    seed = next(seed for seed in range(100) if 5 < draw_world(seed).candidates < 12 and not draw_world(seed).soft)
    check = check_world(seed, 2)
    assert check.days.tolist() == compared_days(check.plan)
    assert set(check.ratios) <= {"half", "most", *check.world.labels[1:]}
    report = summarize([check], 2)
    assert report.rows[0]["world"] == check.world.name
    ratios = {row["forecast"]: row for row in report.tables[1].rows}
    assert next(iter(ratios)) == "certificate, every hard guardrail"
    assert sum(row["number"] for row in ratios.values()) == len(check.ratios) + 1
    assert ratios["gain at the last day"]["median"] == round(check.gain_ratio, 2)
    (guardrails,) = report.tables[2].rows
    assert guardrails["effects"] == "all"
    assert guardrails["binding"] == sum(course.guardrail_counts[0] for course in check.courses)


def test_certified_guardrails_of_planned_studies_are_compared_with_the_truth() -> None:
    check = check_world(9_004, 1)
    course = check.courses[0]
    assert 0 <= course.guardrail_counts[1] <= course.guardrail_counts[0]
    good, bad = replace(course, guardrail_counts=(3, 3)), replace(course, guardrail_counts=(1, 0))
    line = replace(check.world, effects="line" if check.world.effects != "line" else "sparse")
    checks = [replace(check, courses=(good,)), replace(check, world=line, courses=(good, bad))]
    rows = summarize(checks, 1).tables[2].rows
    assert [row["binding"] for row in rows] == [3, 4, 7]
    assert [row["hold"] for row in rows][:2] == ["3 of 3", "75.0 ± 26.5 %"]


def test_a_world_knows_the_true_slack_of_its_guardrails() -> None:
    world = PlanWorld("", 2, 1e5, (UnitMetric("bell", 1.0),) * 2, (-2.0,), (2.0, 3.0))
    effects = np.array([[0.0, 5.0], [0.0, -3.0]])
    assert world.slack(effects, np.array([0.5, 0.5])) == pytest.approx([0.5])
    assert world.slack(effects, np.array([0.0, 1.0])) == pytest.approx([-1.0])


def test_ratios_compare_days_within_the_simulated_ones() -> None:
    check = check_world(9_004, 1)
    course = check.courses[0]
    certified = np.ones_like(course.certified)
    early = replace(course, gains=np.full(len(check.days), course.best), certified=certified)
    ratios = PlanCheck(check.world, check.plan, check.days, (early,)).ratios
    half = check.plan.gain.days_to_half
    assert ratios["half"] == pytest.approx(min(half or check.days[-1], check.days[-1]) / check.days[0])
    late = replace(course, gains=np.full(len(check.days), -1.0), certified=~certified)
    ratios = PlanCheck(check.world, replace(check.plan, gain=replace(check.plan.gain, days_to_half=None)),
                       check.days, (late,)).ratios  # fmt: skip
    assert "half" not in ratios


@pytest.mark.services
@pytest.mark.parametrize("seed", [9_000, 9_003])
def test_a_plan_agrees_with_the_learner(seed: int) -> None:
    """Require agreement within a factor of two in 20 studies; the benchmark has more worlds and a narrower band."""
    ratios = check_world(seed, 20).ratios
    assert ratios
    assert all(0.5 <= ratio <= 2.0 for ratio in ratios.values()), ratios
