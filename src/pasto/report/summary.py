"""Claims of a report: one paragraph with what its numbers allow to be claimed."""

from __future__ import annotations

from collections.abc import Sequence

from pasto.formatting import format_confidence, format_count, format_lift, format_percent
from pasto.inference.guardrail_monitor import GuardrailVerdict
from pasto.inference.lift import Lift
from pasto.inference.round_data import WHOLE_ARM
from pasto.inference.sample_ratio import SampleRatioCheck

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
