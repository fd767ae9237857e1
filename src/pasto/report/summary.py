"""Sentences that sum up a study: the claims that its numbers allow, the advice to go on or stop, and prices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pasto.blend import Blend, LearningForecast
from pasto.formatting import (
    format_confidence,
    format_count,
    format_duration,
    format_lift,
    format_number,
    format_percent,
)
from pasto.inference.guardrail_monitor import GuardrailVerdict
from pasto.inference.lift import Lift
from pasto.inference.round_data import WHOLE_ARM
from pasto.inference.sample_ratio import SampleRatioCheck

if TYPE_CHECKING:
    from pasto.objective import Guardrail, Objective

NEGLIGIBLE_PRICE = 1e-9
NOTHING_MEASURED = "Nothing was measured yet, and nothing can be claimed."
TOO_FEW_UNITS = "Too little was measured yet to claim anything: a side of a comparison needs fifty units at least."
WHAT_IF_ASSUMPTIONS = (
    "Computed from what the study believes now, without new traffic: candidates are taken to stay as they were "
    "measured, hard guardrails are met by the expected means and not with a stated confidence, and a blend's metrics "
    "are taken to be the shares' average of its candidates'. Confirm before you rely on it."
)
NOTHING_CONFIRMED = "No unit has been measured in this confirmation yet."


def summary_paragraph(
    lifts: Sequence[Lift],
    *,
    balance: SampleRatioCheck | None = None,
    verdicts: Sequence[GuardrailVerdict] = (),
    names: Sequence[str] = (),
    is_confirmation: bool = False,
) -> str:
    """Return the claims that lifts, sample ratio and guardrail verdicts allow; `names` are the candidates'.

    A lift that is adjusted by what units did before is claimed as adjusted.

    >>> from pasto.inference.lift import LiftEstimate
    >>> def lift(metric, low, value, high):
    ...     estimate = LiftEstimate(value, low, high)
    ...     return Lift("the blend", metric, 1.0, 1.0, estimate, estimate, 24, 0.95, True)
    >>> print(summary_paragraph([lift("watch_time", 0.012, 0.02, 0.031), lift("like_rate", -0.01, 0.002, 0.015)]))
    Over 24 rounds the blend raised watch_time by 2.00% (+1.20% to +3.10%); like_rate cannot be distinguished from the
    control's (-1.00% to +1.50%). Each interval holds with 95% confidence, however often it is looked at.
    """
    if balance is not None and balance.alarm:
        return _sample_ratio_text(balance, names)
    targets = dict.fromkeys(lift.target for lift in lifts)
    sentences = [_target_text([lift for lift in lifts if lift.target == target], is_confirmation) for target in targets]
    for verdict in verdicts:
        if verdict.state == "breach":
            since = "" if verdict.since is None else f" since round {verdict.since + 1}"
            sentences.append(f"The guardrail {verdict.name} has been broken{since}: traffic must be pulled.")
        elif verdict.state == "warning":
            sentences.append(f"The guardrail {verdict.name} may be about to break.")
    if lifts:
        first = lifts[0]
        look = "however often it is looked at" if first.sequential else "at this one look, set beforehand"
        sentences.append(f"Each interval holds with {format_confidence(first.confidence)} confidence, {look}.")
        if adjusted := list(dict.fromkeys(lift.metric for lift in lifts if lift.adjusted is not None)):
            verb = "is" if len(adjusted) == 1 else "are"
            sentences.append(f"{' and '.join(adjusted)} {verb} adjusted by what units did before.")
    return " ".join(sentences) if sentences else NOTHING_MEASURED


def _target_text(lifts: Sequence[Lift], is_confirmation: bool) -> str:
    rounds = max(lift.rounds for lift in lifts)
    target = lifts[0].target
    if not rounds:
        return f"Nothing can be claimed of {target}: no round had units both there and in the control."
    parts = [_lift_text(lift.best) for lift in lifts]
    span = "the whole confirmation" if is_confirmation else format_count(rounds, "round")
    colon = ":" if lifts[0].best.absolute.direction == "unclear" else ""
    return f"Over {span} {target}{colon} {'; '.join(parts)}."


def _lift_text(lift: Lift) -> str:
    interval = f"({format_lift(lift.relative.low)} to {format_lift(lift.relative.high)})"
    if lift.absolute.direction == "unclear":
        return f"{lift.metric} cannot be distinguished from the control's {interval}"
    verb = "raised" if lift.absolute.direction == "up" else "lowered"
    return f"{verb} {lift.metric} by {format_lift(abs(lift.relative.value)).lstrip('+')} {interval}"


def _sample_ratio_text(balance: SampleRatioCheck, names: Sequence[str]) -> str:
    if balance.suspect is None or balance.remaining_share is None:
        return "Nothing can be claimed: units did not arrive where they were sent."
    arm, candidate = balance.suspect
    units = f"the units of the arm {arm}"
    if candidate != WHOLE_ARM:
        name = names[candidate] if candidate < len(names) else f"candidate {candidate}"
        units = f"the units that the arm {arm} sent to {name}"
    return (
        f"Nothing can be claimed: of {units}, {format_percent(balance.remaining_share, 0)} arrived, and what "
        "lost or doubled them may have picked them by what they did. Find the cause first."
    )


def horizon_note(horizon: float | None, *, is_reached: bool) -> str:
    """Return a sentence on the horizon of a confirmation; nothing if none was set.

    >>> horizon_note(None, is_reached=False)
    ''
    """
    if horizon is None:
        return ""
    if is_reached:
        return "The horizon that was set has been reached; this is the look that counts."
    return "The horizon that was set has not been reached; until then these are intervals for any look."


def write_advice(blend: Blend, round_seconds: float | None = None) -> str:
    """Return the advice of a blend's outlook, without a capital letter or a full stop; empty without outlook.

    Numbers of rounds are also written as times if the length of a round is given.

    >>> import pasto
    >>> study = pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x"), seed=1)
    >>> for _ in range(3):
    ...     assignments = study.ask(parallel=20)
    ...     study.tell(assignments, [[float(a.candidate)] for a in assignments], standard_errors=[[0.1]] * 20)
    >>> write_advice(study.blend(), round_seconds=86_400)
    'stop learning and ship w=1, since mixing gains nothing: 1 more round (1d) is expected to improve x by 0 ...'
    """
    outlook, certificate = blend.outlook, blend.certificate
    if outlook is None or certificate is None:
        return ""
    if certificate.understated_errors:
        metrics = ", ".join(certificate.understated_errors)
        return f"first find out why the standard errors of {metrics} are too small; nothing can be certified until then"
    forecast = outlook.forecast
    expected = _write_forecast(blend, forecast, outlook.deploy_rounds, outlook.round_cost, round_seconds)
    if not certificate.certified:
        wanted = f"that holds every guardrail with {format_confidence(certificate.confidence)}"
        if outlook.decision == "stop":
            return f"stop learning: {_rounds(forecast.rounds, round_seconds)} are not expected to find a blend {wanted}"
        return f"keep learning: there is no blend yet {wanted}"
    if outlook.decision == "learn":
        if forecast.net <= 0.0:
            return "keep learning: most candidates have not been measured yet"
        return f"keep learning: {expected}"
    if outlook.equal_single is not None:
        return f"stop learning and ship {blend.names[outlook.equal_single]}, since mixing gains nothing: {expected}"
    return f"stop learning and confirm the blend: {expected}"


def _write_forecast(
    blend: Blend, forecast: LearningForecast, deploy_rounds: float, round_cost: float, round_seconds: float | None
) -> str:
    goal, unit = blend.goal.removeprefix("-") or "f", "%" if blend.percent else ""
    verb = "is" if forecast.rounds == 1 else "are"
    length = f"each of the {forecast.rounds:,} rounds" if forecast.rounds > 1 else "that round"
    return (
        f"{_rounds(forecast.rounds, round_seconds)} {verb} expected to improve {goal} by "
        f"{format_number(forecast.gain)}{unit} in each of the {_count(deploy_rounds, round_seconds)} of deployment, "
        f"and to cost {format_number(round_cost)}{unit} in {length}"
    )


def _rounds(count: int, round_seconds: float | None) -> str:
    """Return the words for more rounds.

    >>> _rounds(1, None), _rounds(48, 3600.0)
    ('1 more round', '48 more rounds (2d)')
    """
    noun = "round" if count == 1 else "rounds"
    return f"{count:,} more {noun}{_time(count, round_seconds)}"


def _count(count: float, round_seconds: float | None) -> str:
    return f"{format_number(count)} rounds{_time(count, round_seconds)}"


def _time(count: float, round_seconds: float | None) -> str:
    return "" if round_seconds is None else f" ({format_duration(round(count * round_seconds, 3))})"


def price_text(
    guardrail: Guardrail,
    objective: Objective,
    price: float | None,
    low: float | None = None,
    high: float | None = None,
    *,
    confidence: float | None = None,
) -> str:
    """Return the gain in the goal if a guardrail is relaxed by a step that suits its threshold.

    >>> import pasto
    >>> objective = pasto.maximize("watch").keep("likes", at_least="-2%")
    >>> price_text(objective.guardrails[0], objective, 0.5, 0.41, 0.62, confidence=0.95)
    'relaxing likes by one percentage point buys 0.5% of watch (0.41% to 0.62% with 95% probability)'
    """
    if price is None:
        return f"the price of {guardrail.label} is not known"
    if abs(price) < NEGLIGIBLE_PRICE and not high:
        return f"relaxing {guardrail.label} buys nothing"
    step, size = _price_step(guardrail, objective)
    unit = "%" if objective.relative else ""
    verb = "buys" if objective.sign > 0 else "saves"
    gain = f"{format_number(price * size)}{unit} {_goal_text(objective)}"
    text = f"relaxing {guardrail.label} by {step} {verb} {gain}"
    if low is None or high is None or confidence is None:
        return text
    ends = f"{format_number(low * size)}{unit} to {format_number(high * size)}{unit}"
    return f"{text} ({ends} with {format_confidence(confidence)} probability)"


def _price_step(guardrail: Guardrail, objective: Objective) -> tuple[str, float]:
    """Return a step in words and as a number: one unit, or a hundredth of a small threshold."""
    if guardrail.relative:
        return "one percentage point", 1.0
    size = abs(guardrail.at)
    if objective.relative or size >= 1 or size == 0:
        return "one unit", 1.0
    step = 10.0 ** (math.floor(math.log10(size)) - 1)
    return f"{step:g}", step


def _goal_text(objective: Objective) -> str:
    if len(objective.goal_metrics) != 1:
        return "of the goal"
    (goal,) = objective.goal_metrics
    name = goal if isinstance(goal, str) else goal.name
    return f"of {name}" if objective.relative else name
