"""Recommendations of a plan: round length, control share, number of candidates, and length of the confirmation."""

from __future__ import annotations

import math
from collections.abc import Mapping

from scipy.special import ndtri

from pasto.inference import reach_at_horizon
from pasto.planning.plan_records import (
    CandidateGain,
    CandidatePlan,
    ConfirmationPlan,
    ControlPlan,
    RoundPlan,
    RoundReason,
)
from pasto.planning.study_outline import DAY_SECONDS, StudyOutline

CHANCE = 0.8
"""Chance with which a difference is shown, and with which a day is met."""
MAX_EXCESS_ERROR = 0.1
"""Part by which the error of the lift may exceed the smallest possible one, to save control traffic."""
MIN_GAIN_PART = 0.95
"""Part of the largest gain that a shorter list of candidates must have."""
MIN_UNITS_PER_CANDIDATE = 100.0
"""Units of each candidate in a round, below which a round is made longer."""
STEADY_UNITS_PER_CANDIDATE = 1_000.0
"""Units of each candidate in a round that is shorter than a day."""
STEADY_ROUND_SECONDS = (3_600.0, 7_200.0, 10_800.0, 14_400.0, 21_600.0, 28_800.0, 43_200.0)
"""Lengths of a round where the level does not follow the hour."""
CONFIRMATION_ARMS = 3
"""The control, the best single candidate and the blend."""
MIN_CONFIRMATION_DAYS, MAX_CONFIRMATION_DAYS = 7, 365


def plan_rounds(outline: StudyOutline) -> RoundPlan:
    """Recommend the length of a round.

    It is a whole day unless the level of the metrics is known not to follow the hour. It covers the longest window of
    a metric, and enough units of each candidate.
    """
    rounds, traffic = outline.rounds, outline.traffic
    per_second = traffic.enrolled_per_day / DAY_SECONDS * (1.0 - traffic.control) / outline.candidates
    reason: RoundReason = "swing seen" if rounds.daily_swing == "seen" else "swing unknown"
    seconds = DAY_SECONDS
    if rounds.daily_swing == "none":
        reason = "traffic"
        lengths = [length for length in STEADY_ROUND_SECONDS if per_second * length >= STEADY_UNITS_PER_CANDIDATE]
        seconds = lengths[0] if lengths else DAY_SECONDS
        if seconds < min(rounds.maturity, DAY_SECONDS):
            longer = [length for length in (*STEADY_ROUND_SECONDS, DAY_SECONDS) if length >= rounds.maturity]
            seconds, reason = longer[0] if longer else DAY_SECONDS, "maturity"
    if rounds.window > seconds:
        days = math.ceil(rounds.window / DAY_SECONDS)
        seconds, reason = days * DAY_SECONDS, "window"
    if per_second * seconds < MIN_UNITS_PER_CANDIDATE:
        seconds = DAY_SECONDS * math.ceil(MIN_UNITS_PER_CANDIDATE / per_second / DAY_SECONDS)
        reason = "few units"
    return RoundPlan(seconds, reason, rounds.every, rounds.window, rounds.maturity, per_second * seconds)


def plan_control(dilution: float, given: float) -> ControlPlan:
    """Recommend the share of the control: the one nearest to the given share whose error is near the smallest.

    A blend's lift has the variance a / (1 − c) + 1 / c for the control share c, in units of one unit's variance. Here
    a is the dilution of the blend over the traffic that the learner steers. The best share is 1 / (1 + √a).

    >>> plan = plan_control(4.0, 0.1)
    >>> round(plan.most_precise, 3), plan.share, round(plan.given_excess_error, 2)
    (0.333, 0.17, 0.27)
    >>> plan_control(81.0, 0.1).share
    0.1
    """
    cost = max(dilution, 1e-3)
    best = 1.0 / (1.0 + math.sqrt(cost))
    least = (1.0 + math.sqrt(cost)) ** 2
    bound = least * (1.0 + MAX_EXCESS_ERROR) ** 2
    middle = bound + 1.0 - cost
    root = math.sqrt(max(middle**2 - 4.0 * bound, 0.0))
    low, high = (middle - root) / (2.0 * bound), (middle + root) / (2.0 * bound)
    share = given
    if given < low:
        share = min(math.ceil(100.0 * low) / 100.0, best)
    elif given > high:
        share = max(math.floor(100.0 * high) / 100.0, best)

    def excess(control: float) -> float:
        return math.sqrt((cost / (1.0 - control) + 1.0 / control) / least) - 1.0 if control else math.inf

    return ControlPlan(share, given, best, excess(share), excess(given), dilution)


def plan_candidates(
    listed: int, gains: Mapping[int, float], *, neighbours: bool = False, is_space: bool = False
) -> CandidatePlan:
    """Recommend the shortest list whose expected gain is near the largest; a space has no list.

    >>> plan_candidates(10, {5: 1.0, 10: 1.4, 20: 1.5, 40: 1.3}).worth_listing
    20
    """
    most = max(gains.values())
    sizes = sorted(gains)
    worth = listed
    if most > 0 and not is_space:
        worth = next((size for size in sizes if gains[size] >= MIN_GAIN_PART * most), listed)
    return CandidatePlan(listed, worth, tuple(CandidateGain(size, gains[size]) for size in sizes), neighbours, is_space)


def plan_confirmation(outline: StudyOutline, expected_lift: float) -> ConfirmationPlan:
    """Recommend the length of a confirmation with a control, the best single candidate and the blend in equal parts.

    An interval of one look excludes a difference d with the chance 1 − β if d ≥ (z₁₋α/₂ + z₁₋β) · standard error.
    """
    reach = float(reach_at_horizon(1.0 - outline.confidence)) + float(ndtri(CHANCE))
    per_day = math.sqrt(2.0 * CONFIRMATION_ARMS / outline.traffic.enrolled_per_day)

    def days_for(deviation: float, difference: float) -> float:
        return (reach * deviation * per_day / difference) ** 2 if difference > 0 else math.inf

    guardrail_days: dict[str, float | None] = {}
    for name, rail in zip(outline.objective.names, outline.objective.guardrails, strict=True):
        if rail.penalty is None:
            distance = outline.stop_distance(name) or 0.0
            guardrail_days[name] = days_for(outline.deviation(rail.label), distance) if distance > 0 else None
    goal_days = days_for(outline.goal_deviation, expected_lift)
    needed = max([goal_days, *(each for each in guardrail_days.values() if each is not None)])
    enough = max(MIN_CONFIRMATION_DAYS, math.ceil(needed)) if needed <= MAX_CONFIRMATION_DAYS else None
    length = MAX_CONFIRMATION_DAYS if enough is None else enough
    detectable = reach * outline.goal_deviation * per_day / math.sqrt(length)
    return ConfirmationPlan(enough, detectable, expected_lift, goal_days, guardrail_days)
