"""Study plans: recommendations compared with closed forms, and input that allows no plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import pasto
from pasto.errors import MeansError, OptionError, UnsupportedError
from pasto.inference.power import plan_power
from pasto.planning import MetricFacts, RoundsOutline, StudyOutline, TrafficOutline, complete_facts
from pasto.planning.recommendations import (
    MAX_EXCESS_ERROR,
    plan_candidates,
    plan_confirmation,
    plan_control,
    plan_rounds,
)
from pasto.planning.study_outline import DAY_SECONDS

HOUR = 3600.0
OBJECTIVE = pasto.maximize("watch").keep("likes", at_least="-2%").keep("load", at_most=3.0)
FACTS = {
    "watch": MetricFacts(300.0, 420.0, 0.02),
    "likes": MetricFacts(0.5, 1.0, 0.03),
    "load": MetricFacts(2.5, 1.0, 0.01),
}


def outline(**changes: Any) -> StudyOutline:
    start = StudyOutline(OBJECTIVE, complete_facts(OBJECTIVE, FACTS), 10, TrafficOutline(100_000.0))
    return replace(start, **changes)


# The scenario


def test_a_scenario_counts_each_metric_as_the_objective_does() -> None:
    scenario = outline(competition=0.25).scenario(candidates=10, control=0.2, round_seconds=DAY_SECONDS / 2)
    assert scenario.units == 50_000
    assert scenario.deviations == pytest.approx([140.0, 200.0, 1.0])  # percent, percent, own units
    assert scenario.goal.tolist() == [1.0, 0.0, 0.0]
    assert scenario.rails.tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, -1.0]]
    assert scenario.slack == pytest.approx([2.0, 0.5])
    assert scenario.relative.tolist() == [True, False]
    assert np.sqrt(np.diag(scenario.effects)) == pytest.approx([2.0, 3.0, 0.025])
    # A gain in the goal comes with a loss in likes, and with a longer load.
    correlations = scenario.effects / np.outer([2.0, 3.0, 0.025], [2.0, 3.0, 0.025])
    assert correlations[0, 1:] == pytest.approx([-0.25, 0.25])
    assert correlations[1, 2] == pytest.approx(-0.25)


def test_maturity_delays_the_policy_by_whole_rounds() -> None:
    late = outline(rounds=RoundsOutline(maturity=7 * HOUR))
    assert [late.scenario(candidates=4, control=0.1, round_seconds=each * HOUR).lag for each in (1, 4, 24)] == [7, 2, 1]


# Rounds


@pytest.mark.parametrize(
    ("rounds", "units", "expected", "reason"),
    [
        (RoundsOutline(), 1e5, 24 * HOUR, "swing unknown"),
        (RoundsOutline(daily_swing="seen"), 1e5, 24 * HOUR, "swing seen"),
        (RoundsOutline(window=30 * HOUR), 1e5, 48 * HOUR, "window"),
        (RoundsOutline(), 300.0, 4 * 24 * HOUR, "few units"),
        (RoundsOutline(daily_swing="none"), 1e6, HOUR, "traffic"),
        (RoundsOutline(daily_swing="none"), 1e5, 3 * HOUR, "traffic"),
        (RoundsOutline(daily_swing="none", maturity=5 * HOUR), 1e6, 6 * HOUR, "maturity"),
        (RoundsOutline(daily_swing="none"), 2_000.0, 24 * HOUR, "traffic"),
    ],
)
def test_a_round_is_a_day_unless_something_else_is_known(
    rounds: RoundsOutline, units: float, expected: float, reason: str
) -> None:
    plan = plan_rounds(outline(rounds=rounds, traffic=TrafficOutline(units)))
    assert (plan.seconds, plan.reason) == (expected, reason)


# Control


@pytest.mark.parametrize("dilution", [1.0, 3.0, 16.0])
def test_the_best_control_minimizes_the_error(dilution: float) -> None:
    shares = np.linspace(0.005, 0.995, 1_981)
    errors = np.sqrt(dilution / (1.0 - shares) + 1.0 / shares)
    plan = plan_control(dilution, 0.01)
    assert plan.most_precise == pytest.approx(shares[errors.argmin()], abs=2e-3)
    for given in (0.01, 0.2, 0.9):
        plan = plan_control(dilution, given)
        assert plan.excess_error <= MAX_EXCESS_ERROR + 1e-9
        assert (plan.share == given) == (plan.given_excess_error <= MAX_EXCESS_ERROR)
        assert abs(plan.share - given) <= abs(plan.most_precise - given) + 1e-9


def test_a_quarter_of_the_units_is_planned_as_a_study_of_so_many_units() -> None:
    part = outline(traffic=TrafficOutline(400_000.0, explore=0.25))
    smaller = outline()
    size: dict[str, Any] = {"candidates": 10, "control": 0.2, "round_seconds": DAY_SECONDS}
    assert part.scenario(**size).units == smaller.scenario(**size).units == 100_000
    assert plan_rounds(part).seconds == plan_rounds(smaller).seconds
    assert plan_confirmation(part, 0.02) == plan_confirmation(smaller, 0.02)


# Candidates and confirmation


def test_the_shortest_list_with_nearly_the_largest_gain_is_worth_listing() -> None:
    assert plan_candidates(10, {5: 1.99, 10: 2.0, 20: 2.05}).worth_listing == 5
    assert plan_candidates(10, {5: 0.0, 10: -0.1}).worth_listing == 10


def test_a_confirmation_has_the_length_that_its_power_needs() -> None:
    plan = plan_confirmation(outline(stop_levels={"likes": -4.0, "load": 3.0}), 0.5)
    reach = norm.ppf(0.975) + norm.ppf(0.8)
    assert plan.goal_days == pytest.approx((reach * 140.0 / 0.5) ** 2 * 6.0 / 100_000)
    likes_days = (reach * 200.0 / 2.0) ** 2 * 6.0 / 100_000
    assert plan.guardrail_days == {"likes": pytest.approx(likes_days), "load": None}
    assert plan.days == int(np.ceil(max(plan.goal_days, likes_days)))
    assert plan.detectable_lift == pytest.approx(reach * 140.0 * np.sqrt(6.0 / 100_000 / plan.days))
    simulated = plan_power(0.5, 140.0, 100_000, control=1 / 3, treated=1 / 3, rounds=80, studies=4_000)
    assert simulated.rounds_at_horizon == pytest.approx(plan.goal_days, abs=3)


def test_a_confirmation_lasts_a_week_at_least_and_a_year_at_most() -> None:
    assert plan_confirmation(outline(), 50.0).days == 7
    assert plan_confirmation(outline(), 0.001).days is None
    assert plan_confirmation(outline(), -1.0).days is None


# Whole plans


def test_a_plan_repeats_itself_and_more_traffic_is_faster() -> None:
    arguments: dict[str, Any] = {"means": {"watch": 300}, "deviations": {"watch": 420}, "days": 14, "studies": 16}
    objective = pasto.maximize("watch").keep("likes", at_least="-2%")
    plan = pasto.plan_study(objective, 6, 100_000, **arguments)
    assert plan == pasto.plan_study(objective, 6, 100_000, **arguments)
    faster = pasto.plan_study(objective, 6, 400_000, **arguments)
    days, faster_days = plan.guardrails[0].days, faster.guardrails[0].days
    assert days is not None
    assert faster_days is not None
    assert faster_days < days
    assert {fact.source for fact in plan.facts if fact.metric == "likes"} == {"default"}
    assert plan.gain.after(14.0) == pytest.approx(plan.gain.at_end)
    assert 0 < plan.gain.after(0.1) == plan.gain.course[0].gain < plan.gain.at_end < plan.gain.possible


def test_guardrails_without_a_certificate_say_so() -> None:
    objective = pasto.maximize("x").keep("soft", at_least="-2%", penalty=1.0).keep("y", at_least="+1%")
    plan = pasto.plan_study(objective, 4, 1e6, days=3, studies=8)
    assert [guardrail.state for guardrail in plan.guardrails] == ["soft", "no slack"]
    slow = pasto.plan_study(pasto.maximize("x").keep("y", at_least="-1%"), 4, 1_000, days=3, studies=8)
    assert [guardrail.state for guardrail in slow.guardrails] == ["not in time"]


def test_a_plan_without_control_recommends_one() -> None:
    plan = pasto.plan_study(pasto.maximize("x"), 4, 1e5, means={"x": 1.0}, control_share=0.0, days=3, studies=8)
    assert plan.control.share > 0.1
    assert plan.given_days_to_half is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"units_per_day": 0}, "units_per_day must be a number of at least 1, got 0"),
        ({"candidates": 1}, "a plan needs from 2 to 500 candidates"),
        ({"candidates": 501}, "got 501"),
        ({"days": 0.5}, "days must be a number from 1 to 3660, got 0.5"),
        ({"maturity_days": 30}, "matures for 30 days"),
        ({"competition": 1.0}, "competition is a correlation from 0 to below 1"),
        ({"control_share": 1.0}, "the control is a share"),
        ({"confidence": 0.3}, "confidence lies from 0.5"),
        ({"stop_at": {"x": 1.0}}, "stop_at names 'x'; the guardrails are y"),
        ({"loss_budget": {"z": 1.0}}, "loss_budget names 'z'"),
        ({"means": {"z": 1.0}}, "'z' is not a metric of the goal or a guardrail; there are x, y"),
        ({"means": {"x": 0.0}}, "the mean of x"),
        ({"deviations": {"x": -1.0}, "means": {"x": 1.0}}, "the deviation of x must be a positive number, got -1"),
        ({"deviations": {"y": 1.0}}, "the standard deviation of y needs its mean"),
        ({"studies": 2}, "studies must be a whole number of at least 8, got 2"),
        ({"spread": 0.0}, "the spread of x must be a positive number, got 0"),
    ],
)
def test_a_plan_names_what_it_cannot_use(changes: dict[str, Any], message: str) -> None:
    objective = pasto.maximize("x").keep("y", at_least="-2%")
    arguments: dict[str, Any] = {"candidates": 5, "units_per_day": 1e5, **changes}
    if changes.get("means") == {"x": 0.0}:
        objective = pasto.maximize("x").keep("y", at_least=2.0)
        arguments["means"] = {"x": 0.0, "y": 3.0}
    with pytest.raises((OptionError, MeansError), match=message):
        pasto.plan_study(objective, **arguments)


def test_a_utility_cannot_be_planned() -> None:
    utility = pasto.utility(lambda x: x[..., 0], lambda x: np.ones_like(x), over={"x": (0.0, 1.0)})
    with pytest.raises(UnsupportedError, match="got a utility"):
        pasto.plan_study(utility, 5, 1e5)
