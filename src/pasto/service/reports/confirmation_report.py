"""Confirmation report: the frozen blend, the best single candidate and the baseline side by side on new units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pasto.inference.lift import Lift, LiftTarget, estimate_lifts
from pasto.inference.round_data import record_rounds
from pasto.inference.sample_ratio import check_sample_ratio
from pasto.report.lift_records import (
    ConfirmationReport,
    ConfirmationVerdict,
    ConfirmedGuardrail,
    GoalVerdict,
    LiftRecord,
    MeasuredInterval,
    PredictedLift,
    SampleRatioReport,
)
from pasto.report.summary import NOTHING_CONFIRMED, horizon_note
from pasto.service.reports.guardrail_report import guardrail_side, is_beyond, is_within, measured_interval
from pasto.service.reports.lift_report import (
    BLEND_TARGET,
    SINGLE_TARGET,
    aimed_quantities,
    covariates,
    interval_estimate,
    lift_record,
    report_claims,
    sample_ratio_report,
)
from pasto.service.round_history import InterimLook
from pasto.service.study_file import GuardrailSpec, StudySpec
from pasto.service.study_file.spec import GuardrailLevel, build_quantities

TARGET_BY_ARM = {"blend": BLEND_TARGET, "best_single": SINGLE_TARGET}


def report_confirmation(
    spec: StudySpec,
    looks: Sequence[InterimLook],
    names: Sequence[str],
    *,
    horizon: float | None = None,
    promised: Mapping[str, Mapping[str, float]] | None = None,
) -> ConfirmationReport | None:
    """Report the latest confirmation; None before its first look.

    Units keep their arm and are one row each, so the phase is compared as a whole. With a horizon, the first look
    after it counts, by an interval for that one look. Before it, and without one, intervals hold at any look.
    `promised` are the lifts that the frozen answer was expected to have, by arm and metric.
    """
    confirming = [look for look in looks if look.state == "confirming"]
    if not confirming:
        return None
    phase = [look for look in confirming if look.version == confirming[-1].version]
    reached = [look for look in phase if horizon is not None and look.at >= horizon]
    look = reached[0] if reached else phase[-1]
    units = _count_units(look)
    lifts: tuple[Lift, ...] = ()
    sample_ratio: SampleRatioReport | None = None
    claims = NOTHING_CONFIRMED
    arms = [arm for arm in TARGET_BY_ARM if units.get(arm)]
    if arms and units.get("control"):
        record = record_rounds([look.measured])
        lifts = estimate_lifts(
            record,
            build_quantities(spec),
            [LiftTarget(TARGET_BY_ARM[arm], arm=arm) for arm in arms],
            confidence=spec.confidence,
            sequential=not reached,
            covariates=covariates(spec),
            elapsed=look.elapsed,
        )
        check = check_sample_ratio(record)
        sample_ratio = sample_ratio_report(check, names)
        claims = report_claims(spec, lifts, check, names, is_confirmation=True)
    lift_records = tuple(map(lift_record, lifts))
    return ConfirmationReport(
        state=look.state,
        version=look.version,
        looks=len(phase),
        at=look.at,
        units=units,
        horizon=horizon,
        sequential=not reached,
        confidence=spec.confidence,
        note=horizon_note(horizon, is_reached=bool(reached)),
        claims=claims,
        lifts=lift_records,
        predicted=_compare_predictions(lifts, promised or {}),
        sample_ratio=sample_ratio,
        verdict=judge_confirmation(spec, lift_records, sample_ratio),
    )


def _count_units(look: InterimLook) -> dict[str, int]:
    """Return the units of a look by arm."""
    units: dict[str, int] = {}
    for cell in look.measured.cells:
        units[cell.arm] = units.get(cell.arm, 0) + cell.units
    return units


def _compare_predictions(
    lifts: Sequence[Lift], promised: Mapping[str, Mapping[str, float]]
) -> tuple[PredictedLift, ...]:
    """Return promised and measured lifts side by side, which shows the winner's curse."""
    arm_by_target = {target: arm for arm, target in TARGET_BY_ARM.items()}
    predictions = []
    for lift in lifts:
        predicted = promised.get(arm_by_target[lift.target], {}).get(lift.metric)
        if predicted is None:
            continue
        realised = interval_estimate(lift.best.relative)
        inside = None
        if realised.low is not None and realised.high is not None:
            inside = realised.low <= predicted <= realised.high
        predictions.append(PredictedLift(lift.target, lift.metric, predicted, realised, inside))
    return tuple(predictions)


# The verdict


def judge_missing_confirmation(spec: StudySpec) -> ConfirmationVerdict:
    """Return the verdict on a blend that was never confirmed.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> verdict = judge_missing_confirmation(read_spec(EXAMPLE, "yaml"))
    >>> verdict.state, [(guardrail.name, guardrail.state) for guardrail in verdict.guardrails]
    ('missing', [('like_rate', 'unmeasured')])
    """
    guardrails = tuple(_judge_guardrail(spec, guardrail, {}) for guardrail in spec.guardrails)
    return ConfirmationVerdict("missing", True, _judge_goal(spec, {}), guardrails)


def judge_confirmation(
    spec: StudySpec, lifts: Sequence[LiftRecord], sample_ratio: SampleRatioReport | None
) -> ConfirmationVerdict:
    """Return the verdict on a confirmation.

    `confirmed`: the goal improved and every hard guardrail is clear of its floor, each by its whole interval. `failed`:
    the goal got worse or a hard guardrail is broken, each by its whole interval. Everything else is `inconclusive`, and
    so is a confirmation whose units did not arrive at the arms they were sent to.

    The best blend lies at the limits of its guardrails, so few confirmations can show that these hold. Each must show
    that a guardrail stays clear of the level at which traffic is stopped.
    """
    measured = {lift.metric: lift for lift in lifts if lift.target == BLEND_TARGET}
    goal = _judge_goal(spec, measured)
    guardrails = tuple(_judge_guardrail(spec, guardrail, measured) for guardrail in spec.guardrails)
    hard = [guardrail for guardrail in guardrails if guardrail.kind == "hard"]
    is_balanced = sample_ratio is None or not sample_ratio.alarm
    if not is_balanced:
        return ConfirmationVerdict("inconclusive", is_balanced, goal, guardrails)
    if goal.state == "worse" or any(guardrail.state == "broken" for guardrail in hard):
        return ConfirmationVerdict("failed", is_balanced, goal, guardrails)
    if goal.state == "better" and all(guardrail.clear_of_floor for guardrail in hard):
        return ConfirmationVerdict("confirmed", is_balanced, goal, guardrails)
    return ConfirmationVerdict("inconclusive", is_balanced, goal, guardrails)


def _judge_goal(spec: StudySpec, measured: Mapping[str, LiftRecord]) -> GoalVerdict:
    """Judge the goal's lift over the control; a weighted sum adds the ends of its parts, which is the safe side.

    As in the objective, parts count in percent of the control if any guardrail does, and in their own units otherwise.
    """
    objective = spec.objective
    weights = objective.target if isinstance(objective.target, Mapping) else dict.fromkeys(objective.goal_metrics, 1.0)
    parts = dict(zip(aimed_quantities(spec), weights.values(), strict=False))  # the goal's metrics come first
    relative = objective.relative
    name = next(iter(parts)) if len(parts) == 1 else "the goal"
    value = low = high = 0.0
    for metric, weight in parts.items():
        lift = measured.get(metric)
        if lift is None:
            return GoalVerdict(name, relative, None, "unmeasured")
        estimate = lift.best.relative if relative else lift.best.absolute
        if estimate.value is None or estimate.low is None or estimate.high is None:
            return GoalVerdict(name, relative, None, "unmeasured")
        value += weight * estimate.value
        low += weight * (estimate.low if weight > 0 else estimate.high)
        high += weight * (estimate.high if weight > 0 else estimate.low)
    is_up, is_down = low > 0, high < 0
    if objective.sign < 0:
        is_up, is_down = is_down, is_up
    interval = MeasuredInterval(value, low, high)
    return GoalVerdict(name, relative, interval, "better" if is_up else "worse" if is_down else "unclear")


def _judge_guardrail(
    spec: StudySpec, guardrail: GuardrailSpec, measured: Mapping[str, LiftRecord]
) -> ConfirmedGuardrail:
    interval = _comparable_interval(spec, guardrail, guardrail.at, measured)
    floor_interval = _comparable_interval(spec, guardrail, guardrail.stop_at, measured)
    holds = interval is not None and is_within(guardrail.at, guardrail.lower, interval)
    broken = interval is not None and is_beyond(guardrail.at, guardrail.lower, interval)
    above_floor = floor_interval is not None and is_within(guardrail.stop_at, guardrail.lower, floor_interval)
    return ConfirmedGuardrail(
        name=guardrail.name,
        side=guardrail_side(guardrail),
        at=guardrail.at.written(),
        kind="hard" if guardrail.penalty is None else "soft",
        relative=guardrail.at.relative,
        measured=interval,
        state="unmeasured" if interval is None else "holds" if holds else "broken" if broken else "unclear",
        floor=guardrail.stop_at.written(),
        clear_of_floor=interval is not None and (holds or above_floor),
    )


def _comparable_interval(
    spec: StudySpec, guardrail: GuardrailSpec, level: GuardrailLevel, measured: Mapping[str, LiftRecord]
) -> MeasuredInterval | None:
    """Return the measured interval in the terms of a level; None if it cannot be compared with the level."""
    # A level in a metric's own units is that of a round, and a sum over the whole phase is not comparable with it.
    is_comparable = level.relative or not spec.grows_with_phase(spec.metrics[guardrail.metric])
    lift = measured.get(guardrail.metric)
    return measured_interval(level, lift) if lift is not None and is_comparable else None
