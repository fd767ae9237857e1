"""Study plan: round length, control, candidates, days to an answer and the confirmation, before a study starts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sized
from typing import Literal

import numpy as np
from scipy.special import ndtri

from pasto.arrays import FloatArray
from pasto.errors import OptionError
from pasto.objective import Objective
from pasto.objective.objective import check_objective
from pasto.planning.learning_forecast import LearningForecast, forecast_learning
from pasto.planning.plan_records import GainPlan, GainPoint, GuardrailPlan, GuardrailState, PlanFact, StudyPlan
from pasto.planning.recommendations import CHANCE, plan_candidates, plan_confirmation, plan_control, plan_rounds
from pasto.planning.study_outline import (
    DAY_SECONDS,
    DEFAULT_COMPETITION,
    DailySwing,
    MetricFacts,
    RoundsOutline,
    StudyOutline,
    TrafficOutline,
    complete_facts,
    planned_metrics,
)

HALF, MOST = 0.5, 0.75
"""Parts of the possible gain: of a blend that is worth serving, and of most of the gain."""
HORIZON_FACTOR = 3.0
"""The forecast covers so many times the days that the study may take."""
STUDIES = 96
"""Simulated studies; half as many for lists of other lengths."""
LARGE_STUDIES, MAX_SIMULATED_CANDIDATES = 24, 9_600
"""Simulated studies with many candidates, and the candidates of all studies together from which on there are fewer."""
DRAWS, SCAN_DRAWS = 16, 8
"""Posterior draws of each policy, and the same for lists of other lengths."""
SCAN_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Lengths of lists that are compared, as multiples of the present one."""
MAX_SCANNED_CANDIDATES = 200
MAX_FORECAST_CANDIDATES = 500
MIN_CONTROL = 0.01
"""Control of the first forecast of a study without one."""
MAX_DAYS = 3_660.0
MIN_STUDIES = 8
"""Fewest simulated studies from which a chance of 80 % can be read."""


def plan_study(
    objective: Objective,
    candidates: int | Sized,
    units_per_day: float,
    *,
    means: Mapping[str, float] | None = None,
    deviations: Mapping[str, float] | None = None,
    spread: float | Mapping[str, float] | None = None,
    competition: float = DEFAULT_COMPETITION,
    control_share: float = 0.1,
    max_share: float | None = None,
    new_candidate_share: float | None = None,
    loss_budget: Mapping[str, float] | None = None,
    stop_at: Mapping[str, float] | None = None,
    confidence: float = 0.95,
    maturity_days: float = 0.0,
    window_days: float = 0.0,
    daily_swing: DailySwing = "unknown",
    days: float = 28.0,
    studies: int = STUDIES,
    seed: int = 0,
) -> StudyPlan:
    """Plan a study before it starts: round length, control, candidates, days to an answer, and confirmation.

    `means` and `deviations` are those of one unit in one round, by metric or ratio; without them the deviation is
    assumed. `spread` is the standard deviation of the candidates' effects as a share of the mean, 2 % by default.
    `loss_budget` and `stop_at` are by guardrail, in its own terms. `days` is the time that the study may take. With
    fewer simulated `studies`, the plan is faster and less precise.

    >>> import pasto
    >>> objective = pasto.maximize("watch_time").keep("likes", at_least="-2%")
    >>> deviations = {"watch_time": 420, "likes": 2}
    >>> means = {"watch_time": 310, "likes": 0.8}
    >>> plan = pasto.plan_study(objective, 12, 200_000, means=means, deviations=deviations, studies=16)
    >>> plan.rounds.seconds / 86_400, plan.guardrails[0].state, plan.confirmation.days
    (1.0, 'reached', 7)
    """
    check_objective(objective)
    means, deviations = means or {}, deviations or {}
    spreads = spread if isinstance(spread, Mapping) else {}
    if isinstance(spread, (int, float)):
        spreads = dict.fromkeys(planned_metrics(objective), float(spread))
    facts = {
        name: MetricFacts(means.get(name), deviations.get(name), spreads.get(name))
        for name in {**means, **deviations, **spreads}
    }
    outline = StudyOutline(
        objective=objective,
        facts=complete_facts(objective, facts),
        candidates=len(candidates) if isinstance(candidates, Sized) else int(candidates),
        traffic=TrafficOutline(
            units_per_day, control_share, max_share=max_share, new_candidate_share=new_candidate_share
        ),
        rounds=RoundsOutline(
            maturity=maturity_days * DAY_SECONDS, window=window_days * DAY_SECONDS, daily_swing=daily_swing
        ),
        confidence=confidence,
        loss_budgets=loss_budget or {},
        stop_levels=stop_at or {},
        competition=competition,
    )
    return make_plan(outline, days=days, studies=studies, seed=seed)


def make_plan(outline: StudyOutline, *, days: float = 28.0, studies: int = STUDIES, seed: int = 0) -> StudyPlan:
    """Return the plan of an outlined study that may take some days."""
    _check(outline, days, studies)
    rounds = plan_rounds(outline)
    maturity = outline.rounds.maturity / DAY_SECONDS
    round_days = rounds.seconds / DAY_SECONDS
    horizon = max(HORIZON_FACTOR * days, 3.0 * round_days + maturity)
    ahead = max(3, int((horizon - maturity) / round_days))
    given = outline.traffic.control

    def forecast(candidates: int, control: float, rounds_ahead: int, count: int, draws: int) -> LearningForecast:
        scenario = outline.scenario(candidates=candidates, control=control, round_seconds=rounds.seconds)
        enough = min(count, max(LARGE_STUDIES, MAX_SIMULATED_CANDIDATES // candidates))
        return forecast_learning(scenario, rounds_ahead, studies=enough, draws=draws, seed=seed)

    first = forecast(outline.candidates, given or MIN_CONTROL, ahead, studies, DRAWS)
    first_days = np.asarray(maturity + round_days * first.rounds, dtype=float)
    control = plan_control(_dilution(first, first_days), given)
    final, given_days = first, None
    if control.share != given:
        final = forecast(outline.candidates, control.share, ahead, studies, DRAWS)
        given_days = first_day(first_days, _useful(first), CHANCE) if given else None
    days_of = np.asarray(maturity + round_days * final.rounds, dtype=float)
    gain = _plan_gain(final, days_of, days, percent=outline.objective.relative)
    end = max(3, int((days - maturity) / round_days))
    gains = {
        size: float(forecast(size, control.share, end, max(2, studies // 2), SCAN_DRAWS).gains[-1].mean())
        for size in _scan_sizes(outline.candidates)
    }
    return StudyPlan(
        objective=str(outline.objective),
        unit=outline.unit,
        units_per_day=outline.traffic.units_per_day,
        days=days,
        horizon=horizon,
        confidence=outline.confidence,
        rounds=rounds,
        control=control,
        candidates=plan_candidates(
            outline.candidates, gains, neighbours=outline.points is not None, is_space=outline.is_space
        ),
        guardrails=tuple(_plan_guardrail(outline, final, days_of, name) for name in outline.objective.names),
        gain=gain,
        given_days_to_half=given_days,
        confirmation=plan_confirmation(outline, gain.at_end),
        facts=tuple(_list_facts(outline)),
        competition=outline.competition,
        chance=CHANCE,
        most=MOST,
    )


def _check(outline: StudyOutline, days: float, studies: int) -> None:
    """Refuse numbers that no plan can be made from."""
    traffic = outline.traffic
    if not (math.isfinite(traffic.units_per_day) and traffic.units_per_day >= 1):
        raise OptionError(f"units_per_day must be a number of at least 1, got {traffic.units_per_day!r}")
    if not 2 <= outline.candidates <= MAX_FORECAST_CANDIDATES:
        raise OptionError(
            f"a plan needs from 2 to {MAX_FORECAST_CANDIDATES} candidates, the baseline among them, got "
            f"{outline.candidates}"
        )
    if not (math.isfinite(days) and 1 <= days <= MAX_DAYS):
        raise OptionError(f"days must be a number from 1 to {MAX_DAYS:g}, got {days!r}")
    if days * DAY_SECONDS <= outline.rounds.maturity:
        raise OptionError(
            f"the study may take {days:g} days, and a round matures for {outline.rounds.maturity / DAY_SECONDS:g} "
            "days; give it more days than that"
        )
    if studies < MIN_STUDIES:
        raise OptionError(f"studies must be a whole number of at least {MIN_STUDIES}, got {studies!r}")
    if not 0.0 <= outline.competition < 1.0:
        raise OptionError(f"competition is a correlation from 0 to below 1, got {outline.competition!r}")
    if not 0.0 <= traffic.control < 1.0:
        raise OptionError(f"the control is a share of traffic from 0 to below 1, got {traffic.control!r}")
    if not 0.5 <= outline.confidence < 1.0:
        raise OptionError(f"confidence lies from 0.5 to below 1, got {outline.confidence!r}")
    for label, table in (("loss_budget", outline.loss_budgets), ("stop_at", outline.stop_levels)):
        if unknown := [name for name in table if name not in outline.objective.names]:
            raise OptionError(
                f"{label} names {unknown[0]!r}; the guardrails are {', '.join(outline.objective.names) or 'none'}"
            )


def _scan_sizes(listed: int) -> list[int]:
    """Return the lengths of lists that are compared."""
    sizes = {max(2, round(listed * factor)) for factor in SCAN_FACTORS}
    return sorted({size for size in sizes if size <= max(listed, MAX_SCANNED_CANDIDATES)})


def _plan_gain(forecast: LearningForecast, days_of: FloatArray, days: float, *, percent: bool) -> GainPlan:
    mean = forecast.gains.mean(axis=1)
    certified = forecast.certified.mean(axis=1)
    course = tuple(
        GainPoint(float(day), float(gain), float(share))
        for day, gain, share in zip(days_of, mean, certified, strict=True)
    )
    return GainPlan(
        possible=float(forecast.best.mean()),
        feasible=float(forecast.feasible.mean()),
        percent=percent,
        days_to_half=first_day(days_of, _useful(forecast), CHANCE),
        days_to_most=first_day(days_of, forecast.relative_gain, MOST),
        at_end=float(np.interp(days, days_of, mean)),
        course=course,
    )


def _useful(forecast: LearningForecast) -> FloatArray:
    """Return the share of studies with a certified answer that has half of their possible gain, (checkpoints,)."""
    enough = forecast.gains >= HALF * forecast.best - 1e-9
    return np.asarray((enough & forecast.certified).mean(axis=1))


def _dilution(forecast: LearningForecast, days_of: FloatArray) -> float:
    """Return the dilution of a typical answer at the time when most of the gain is reached."""
    day = first_day(days_of, forecast.relative_gain, MOST)
    place = len(days_of) - 1 if day is None else int(np.searchsorted(days_of, day - 1e-9))
    return float(np.median(forecast.dilution[min(place, len(days_of) - 1)]))


def _plan_guardrail(outline: StudyOutline, forecast: LearningForecast, days_of: FloatArray, name: str) -> GuardrailPlan:
    place = outline.objective.names.index(name)
    rail = outline.objective.guardrails[place]
    slack = outline.slack(name)
    state: GuardrailState
    day = None
    if rail.penalty is not None:
        state = "soft"
    elif slack <= 0:
        state = "no slack"
    else:
        chances = forecast.certificate_chance(np.full(len(outline.objective.names), slack), outline.confidence)
        day = first_day(days_of, chances[:, place], CHANCE)
        state = "not in time" if day is None else "reached"
    margin = float(ndtri(outline.confidence) * np.median(forecast.errors[0, :, place]))
    return GuardrailPlan(
        name,
        rail.label,
        rail.lower,
        rail.at,
        rail.relative,
        state,
        day,
        slack,
        None if rail.penalty is not None else margin,
        outline.deviation(rail.label),
    )


def first_day(days_of: FloatArray, values: FloatArray, level: float) -> float | None:
    """Return the day from which a noisy, rising course is at a level, between its points; None if it never is.

    >>> first_day(np.array([1.0, 2.0, 8.0]), np.array([0.25, 0.5, 1.0]), 0.75)
    4.0
    """
    rising = 0.5 * (np.maximum.accumulate(values) + np.minimum.accumulate(values[::-1])[::-1])
    reached = np.flatnonzero(rising >= level)
    if not len(reached):
        return None
    place = int(reached[0])
    if place == 0:
        return float(days_of[0])
    low, high = float(rising[place - 1]), float(rising[place])
    part = (level - low) / (high - low)
    return float(days_of[place - 1] * (days_of[place] / days_of[place - 1]) ** part)


def _list_facts(outline: StudyOutline) -> list[PlanFact]:
    facts = []
    quantities: tuple[Literal["mean", "deviation", "spread"], ...] = ("mean", "deviation", "spread")
    for name, known in outline.facts.items():
        for quantity in quantities:
            value = getattr(known, quantity)
            facts.append(PlanFact(name, quantity, float(value), known.sources.get(quantity, "given")))
    return facts
