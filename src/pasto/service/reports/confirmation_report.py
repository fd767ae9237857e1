"""A confirmation: the frozen blend, the best single candidate and the baseline side by side on new units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pasto.inference.lift import Lift, LiftTarget, estimate_lifts
from pasto.inference.round_data import record_rounds
from pasto.inference.sample_ratio import check_sample_ratio
from pasto.service.reports.contradictions import BLEND, is_beyond, is_within, measured_interval
from pasto.service.reports.lift_report import (
    aimed_quantities,
    covariates,
    estimate_document,
    lift_document,
    report_claims,
    sample_ratio_document,
)
from pasto.service.round_history import InterimLook
from pasto.service.rounds.guardrail_check import grows_with_phase
from pasto.service.study_file import GuardrailSpec, StudySpec
from pasto.service.study_file.amounts import GuardrailLevel
from pasto.service.study_file.quantities import build_quantities


def judge_confirmation(spec: StudySpec, confirmation: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the verdict on a confirmation as a report shows it; None stands for a blend that was never confirmed.

    `confirmed`: the goal improved and every hard guardrail is clear of its floor, each by its whole interval. `failed`:
    the goal got worse or a hard guardrail is broken, each by its whole interval. Everything else is `inconclusive`, and
    so is a confirmation whose units did not arrive where they were sent.

    The best blend lies at the limits of its guardrails, so few confirmations can show that these hold. What each of
    them must show is that a guardrail stays clear of the level at which traffic is pulled.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> verdict = judge_confirmation(read_spec(EXAMPLE, "yaml"), None)
    >>> verdict["state"], [(rail["name"], rail["state"]) for rail in verdict["guardrails"]]
    ('missing', [('like_rate', 'unmeasured')])
    """
    measured = {lift["metric"]: lift for lift in (confirmation or {}).get("lifts", ()) if lift["target"] == BLEND}
    goal = _judge_goal(spec, measured)
    rails = [_judge_rail(spec, rail, measured) for rail in spec.guardrails]
    hard = [rail for rail in rails if rail["kind"] == "hard"]
    broken, clear = any(rail["state"] == "broken" for rail in hard), all(rail["clear_of_floor"] for rail in hard)
    balanced = not ((confirmation or {}).get("sample_ratio") or {}).get("alarm")
    if confirmation is None:
        state = "missing"
    elif not balanced:
        state = "inconclusive"
    elif goal["state"] == "worse" or broken:
        state = "failed"
    else:
        state = "confirmed" if goal["state"] == "better" and clear else "inconclusive"
    return {"state": state, "balanced": balanced, "goal": goal, "guardrails": rails}


def _judge_goal(spec: StudySpec, measured: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the goal's lift over the control: a weighted sum adds the ends of its parts, which is the safe side.

    As in the objective, parts count in percent of the control if any guardrail does, and in their own units otherwise.
    """
    objective = spec.objective
    weights = objective.target if isinstance(objective.target, Mapping) else dict.fromkeys(objective.goal_metrics, 1.0)
    parts = dict(zip(aimed_quantities(spec), weights.values(), strict=False))  # the goal's metrics come first
    relative = objective.relative
    name = next(iter(parts)) if len(parts) == 1 else "the goal"
    judged: dict[str, Any] = {"name": name, "relative": relative, "measured": None}
    total = {"value": 0.0, "low": 0.0, "high": 0.0}
    for metric, weight in parts.items():
        lift = measured.get(metric)
        ends = None if lift is None else (lift.get("adjusted") or lift)["relative" if relative else "absolute"]
        if ends is None or any(ends[end] is None for end in total):
            return {**judged, "state": "unmeasured"}
        low, high = ("low", "high") if weight > 0 else ("high", "low")
        for end, source in (("value", "value"), ("low", low), ("high", high)):
            total[end] += weight * ends[source]
    up, down = total["low"] > 0, total["high"] < 0
    if objective.sign < 0:
        up, down = down, up
    return {**judged, "measured": total, "state": "better" if up else "worse" if down else "unclear"}


def _judge_rail(spec: StudySpec, rail: GuardrailSpec, measured: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    interval = _interval(spec, rail, rail.at, measured)
    above_floor = _interval(spec, rail, rail.stop_at, measured)
    state = "unmeasured"
    if interval is not None and is_within(rail.at, rail.lower, interval):
        state = "holds"
    elif interval is not None:
        state = "broken" if is_beyond(rail.at, rail.lower, interval) else "unclear"
    clear = state == "holds" or (above_floor is not None and is_within(rail.stop_at, rail.lower, above_floor))
    return {
        "name": rail.name,
        "side": "at_least" if rail.lower else "at_most",
        "at": rail.at.written(),
        "kind": "hard" if rail.penalty is None else "soft",
        "relative": rail.at.relative,
        "measured": interval,
        "state": state,
        "floor": rail.stop_at.written(),
        "clear_of_floor": clear and state != "unmeasured",
    }


def _interval(
    spec: StudySpec, rail: GuardrailSpec, level: GuardrailLevel, measured: Mapping[str, Mapping[str, Any]]
) -> dict[str, float] | None:
    """Return what was measured in a level's terms; None if it cannot be compared with the level."""
    # A level in a metric's own units is that of a round, and a sum over the whole phase is not comparable with it.
    comparable = level.relative or not grows_with_phase(spec, spec.metrics[rail.metric])
    lift = measured.get(rail.metric)
    return measured_interval(level, lift) if lift is not None and comparable else None


ARMS = {"blend": "the blend", "single": "the best single candidate"}


def build_confirmation(
    spec: StudySpec,
    looks: Sequence[InterimLook],
    names: Sequence[str],
    *,
    horizon: float | None = None,
    promised: Mapping[str, Mapping[str, float]] | None = None,
) -> dict[str, Any] | None:
    """The latest confirmation's table; None where no look has been taken yet.

    Units keep their arm and are one row each, so the phase is compared whole. With a horizon, the first look behind it
    counts, by an interval for that one look; before it, and without one, by intervals for any look. `promised` are the
    lifts that the frozen answer was expected to have, by arm and metric.
    """
    confirming = [look for look in looks if look.state == "confirming"]
    if not confirming:
        return None
    phase = [look for look in confirming if look.version == confirming[-1].version]
    reached = [look for look in phase if horizon is not None and look.at >= horizon]
    look = reached[0] if reached else phase[-1]
    units: dict[str, int] = {}
    for cell in look.measured.cells:
        units[cell.arm] = units.get(cell.arm, 0) + cell.units
    told: dict[str, Any] = {
        "state": look.state,
        "version": look.version,
        "looks": len(phase),
        "at": look.at,
        "units": units,
        "horizon": horizon,
        "sequential": not reached,
        "confidence": spec.confidence,
        "note": _note(horizon, bool(reached)),
        "lifts": [],
        "predicted": [],
        "sample_ratio": None,
        "claims": "No unit has been measured in this confirmation yet.",
    }
    arms = [arm for arm in ARMS if units.get(arm)]
    if not arms or not units.get("control"):
        return {**told, "verdict": judge_confirmation(spec, told)}
    record = record_rounds([look.measured])
    targets = [LiftTarget(ARMS[arm], arm=arm) for arm in arms]
    found = estimate_lifts(
        record,
        build_quantities(spec),
        targets,
        confidence=spec.confidence,
        sequential=not reached,
        covariates=covariates(spec),
        elapsed=look.elapsed,
    )
    checked = check_sample_ratio(record)
    told["lifts"] = [lift_document(lift) for lift in found]
    told["claims"] = report_claims(spec, found, checked, names).replace("Over 1 round ", "Over the whole confirmation ")
    told["sample_ratio"] = sample_ratio_document(checked, names)
    told["predicted"] = _predicted(found, promised or {})
    return {**told, "verdict": judge_confirmation(spec, told)}


def _note(horizon: float | None, reached: bool) -> str:
    if horizon is None:
        return ""
    if reached:
        return "The horizon that was set has been reached; this is the look that counts."
    return "The horizon that was set has not been reached; until then these are intervals for any look."


def _predicted(found: Sequence[Lift], promised: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """What was promised beside what was measured: the winner's curse, made visible."""
    rows = []
    for lift in found:
        arm = next(arm for arm, name in ARMS.items() if name == lift.target)
        expected = promised.get(arm, {}).get(lift.metric)
        if expected is None:
            continue
        told = lift.best.relative
        realised = estimate_document(told)
        known = realised["low"] is not None and realised["high"] is not None
        rows.append(
            {
                "target": lift.target,
                "metric": lift.metric,
                "predicted": expected,
                "realised": realised,
                "inside": told.low <= expected <= told.high if known else None,
            }
        )
    return rows
