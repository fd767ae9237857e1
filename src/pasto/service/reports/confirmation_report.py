"""Confirmation report: the frozen blend, the best single candidate and the baseline side by side on new units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pasto.inference.lift import Lift, LiftTarget, estimate_lifts
from pasto.inference.round_data import record_rounds
from pasto.inference.sample_ratio import check_sample_ratio
from pasto.report.lift_records import (
    ConfirmationReport,
    ConfirmationVerdict,
    LiftRecord,
    PredictedLift,
    SampleRatioReport,
)
from pasto.report.summary import horizon_note
from pasto.service.reports.lift_report import (
    BLEND_TARGET,
    SINGLE_TARGET,
    covariates,
    interval_estimate,
    lift_record,
    sample_ratio_report,
)
from pasto.service.reports.verdict import judge_lifts
from pasto.service.round_history import InterimLook
from pasto.service.study_file import StudySpec
from pasto.service.study_file.spec import build_quantities

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
    return ConfirmationVerdict("missing", True, *judge_lifts(spec, (), is_phase=True))


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
    goal, guardrails = judge_lifts(spec, lifts, is_phase=True)
    hard = [guardrail for guardrail in guardrails if guardrail.kind == "hard"]
    is_balanced = sample_ratio is None or not sample_ratio.alarm
    if not is_balanced:
        return ConfirmationVerdict("inconclusive", is_balanced, goal, guardrails)
    if goal.state == "worse" or any(guardrail.state == "broken" for guardrail in hard):
        return ConfirmationVerdict("failed", is_balanced, goal, guardrails)
    if goal.state == "better" and all(guardrail.clear_of_floor for guardrail in hard):
        return ConfirmationVerdict("confirmed", is_balanced, goal, guardrails)
    return ConfirmationVerdict("inconclusive", is_balanced, goal, guardrails)
