"""What can be claimed, in one plain paragraph."""

from __future__ import annotations

from collections.abc import Sequence

from pasto.formatting import format_confidence, format_lift, format_percent
from pasto.inference.guardrail_monitor import GuardrailVerdict
from pasto.inference.lift import Lift
from pasto.inference.round_data import WHOLE_ARM
from pasto.inference.sample_ratio import SampleRatioCheck


def summary_paragraph(
    lifts: Sequence[Lift],
    *,
    balance: SampleRatioCheck | None = None,
    verdicts: Sequence[GuardrailVerdict] = (),
    names: Sequence[str] = (),
) -> str:
    """Say what a report's numbers allow to be said, and nothing else; `names` are the candidates'.

    Of a lift that is adjusted by what units did before, the adjusted one is told.

    >>> from pasto.inference.lift import LiftEstimate
    >>> def lift(metric, low, value, high):
    ...     told = LiftEstimate(value, low, high)
    ...     return Lift("the blend", metric, 1.0, 1.0, told, told, 24, 0.95, True)
    >>> print(summary_paragraph([lift("watch_time", 0.012, 0.02, 0.031), lift("like_rate", -0.01, 0.002, 0.015)]))
    Over 24 rounds the blend raised watch_time by 2.00% (+1.20% to +3.10%); like_rate cannot be told from the control's
    (-1.00% to +1.50%). Each interval holds with 95% confidence, however often it is looked at.
    """
    if balance is not None and balance.alarm:
        return _unbalanced(balance, names)
    targets = dict.fromkeys(lift.target for lift in lifts)
    told = [_of_target([lift for lift in lifts if lift.target == target]) for target in targets]
    for verdict in verdicts:
        if verdict.state == "breach":
            since = "" if verdict.since is None else f" since round {verdict.since + 1}"
            told.append(f"The guardrail {verdict.name} has been broken{since}: traffic must be pulled.")
        elif verdict.state == "warning":
            told.append(f"The guardrail {verdict.name} may be about to break.")
    if lifts:
        first = lifts[0]
        when = "however often it is looked at" if first.sequential else "at this one look, set beforehand"
        told.append(f"Each interval holds with {format_confidence(first.confidence)} confidence, {when}.")
        if adjusted := list(dict.fromkeys(lift.metric for lift in lifts if lift.adjusted is not None)):
            verb = "is" if len(adjusted) == 1 else "are"
            told.append(f"{' and '.join(adjusted)} {verb} adjusted by what units did before.")
    return " ".join(told) if told else "Nothing was measured yet, and nothing can be claimed."


def _of_target(lifts: Sequence[Lift]) -> str:
    rounds = max(lift.rounds for lift in lifts)
    if not rounds:
        return f"Nothing can be said of {lifts[0].target}: no round had units both there and in the control."
    parts = []
    lifts = [lift.best for lift in lifts]
    for lift in lifts:
        span = f"({format_lift(lift.relative.low)} to {format_lift(lift.relative.high)})"
        if lift.absolute.direction == "unclear":
            parts.append(f"{lift.metric} cannot be told from the control's {span}")
        else:
            verb = "raised" if lift.absolute.direction == "up" else "lowered"
            parts.append(f"{verb} {lift.metric} by {abs(lift.relative.value):.2%} {span}")
    opening = f"Over {rounds} round{'s' if rounds > 1 else ''} {lifts[0].target}"
    if lifts[0].absolute.direction == "unclear":
        return f"{opening}: {'; '.join(parts)}."
    return f"{opening} {'; '.join(parts)}."


def _unbalanced(balance: SampleRatioCheck, names: Sequence[str]) -> str:
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
