"""A confirmation: the frozen blend, the best single candidate and the baseline side by side on new units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pasto.report.balance import balance
from pasto.report.lift import Lift, Target, lifts
from pasto.report.measured import recorded
from pasto.service.spec import Spec
from pasto.service.trust.confirmation_verdict import judge_confirmation
from pasto.service.trust.lifted import claimed, covariates, shown_balance, shown_estimate, shown_lift
from pasto.service.trust.measured import Look
from pasto.service.trust.quantities import quantities

ARMS = {"blend": "the blend", "single": "the best single candidate"}
ENOUGH = 50
"""Units in the control and in the blend's arm from which a confirmation has something to say."""


def confirmation(
    spec: Spec,
    looks: Sequence[Look],
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
    record = recorded([look.measured])
    targets = [Target(ARMS[arm], arm=arm) for arm in arms]
    found = lifts(
        record,
        quantities(spec),
        targets,
        confidence=spec.confidence,
        sequential=not reached,
        covariates=covariates(spec),
        elapsed=look.elapsed,
    )
    checked = balance(record)
    told["lifts"] = [shown_lift(lift) for lift in found]
    told["claims"] = claimed(spec, found, checked, names).replace("Over 1 round ", "Over the whole confirmation ")
    told["sample_ratio"] = shown_balance(checked, names)
    told["predicted"] = _predicted(found, promised or {})
    return {**told, "verdict": judge_confirmation(spec, told)}


def enough(units: Mapping[str, int]) -> bool:
    """Whether a confirmation has seen anything that a decision could rest on.

    >>> enough({"control": 60, "blend": 60}), enough({"control": 60})
    (True, False)
    """
    return min(units.get("control", 0), units.get("blend", 0)) >= ENOUGH


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
        realised = shown_estimate(told)
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
