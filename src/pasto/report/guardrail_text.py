"""Sentences about guardrails, the same in the text report, on the page, on the dashboard and in the audit log."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pasto.formatting import format_confidence, format_lift, format_number, format_percent
from pasto.report.lift_records import ConfirmationVerdict, ConfirmedGuardrail, MeasuredInterval
from pasto.report.records import CertificateRecord, ContradictionReport, GuardrailReport

if TYPE_CHECKING:
    pass

SIDE_TEXT = {"at_least": "at least", "at_most": "at most"}
BASIS_TEXT = {"control": "against the control", "days": "over whole days"}
"""Basis that a guardrail's floor is judged on."""
OWN_UNITS_TEXT = {
    "control": (
        "A floor in a metric's own units is judged against the control: as a share of the control of the same rounds, "
        "and over whole days if the policy is also worse than the control. An hour in which everybody's level moves "
        "does not count. On the first day only a crash counts: beyond the floor by more than a factor of two."
    ),
    "days": (
        "A floor in a metric's own units is judged over whole days, because single hours move for everybody. Within a "
        "day only a crash counts: beyond the floor by more than a factor of two."
    ),
}


def basis_text(judged: str, allowed: float | None = None) -> str:
    """Return the basis that a floor is judged on, with the change against the control that it allows now.

    >>> basis_text("days"), basis_text("control", -0.0483)
    ('over whole days', 'against the control, -4.83% allowed')
    """
    return BASIS_TEXT[judged] if allowed is None else f"{BASIS_TEXT[judged]}, {format_lift(allowed)} allowed"


def own_units_text(guardrails: Sequence[GuardrailReport]) -> tuple[str, ...]:
    """Return how floors in a metric's own units are judged, a sentence for each basis that occurs."""
    bases = dict.fromkeys(guardrail.judged for guardrail in guardrails if not isinstance(guardrail.floor, str))
    return tuple(OWN_UNITS_TEXT[basis] for basis in bases)


def certificate_text(certificate: CertificateRecord, feasible: bool = True) -> str:
    """Return how surely the hard guardrails hold: each by itself, and all together if there are several.

    >>> holds = {"a": 0.97, "b": 0.9645}
    >>> print(certificate_text(CertificateRecord(0.95, True, holds, hard=("a", "b"), joint_lower_bound=0.9345)))
    Certified: each hard guardrail holds with 95% confidence, each by itself. Both together hold with at least 93.4%.
    >>> certificate_text(CertificateRecord(0.95, True, {}, hard=()))
    ''
    """
    hard = certificate.hard
    if hard is not None and not hard:
        return ""
    if certificate.understated_errors:
        return (
            f"Not certified: standard errors are too small ({understated_text(certificate.understated_errors)}). "
            "Rounds scatter more than the errors allow: several rows of one unit, or rounds that shift together, are "
            "the usual causes."
        )
    if not feasible:
        return "Not certified yet: no blend is known to meet every hard guardrail."
    confidence = format_confidence(certificate.confidence)
    if hard is not None and len(hard) == 1:
        if certificate.certified:
            return f"Certified: the hard guardrail holds with {confidence} confidence."
        return f"Not certified yet: the hard guardrail does not yet hold with {confidence} confidence."
    if certificate.certified:
        text = f"Certified: each hard guardrail holds with {confidence} confidence, each by itself."
    else:
        text = f"Not certified yet: not each hard guardrail holds with {confidence} confidence."
    return f"{text}{_joint_text(certificate)}"


def understated_text(factors: Mapping[str, float]) -> str:
    """Return the factor by which the standard errors of each metric are too small.

    >>> understated_text({"revenue": 2.14, "likes": 1.6})
    'revenue by a factor of 2.1, likes by a factor of 1.6'
    """
    return ", ".join(f"{metric} by a factor of {factor:.1f}" for metric, factor in factors.items())


def _joint_text(certificate: CertificateRecord) -> str:
    bound, hard = certificate.joint_lower_bound, certificate.hard or ()
    if bound is None:
        return ""
    number = "Both" if len(hard) == 2 else f"All {len(hard)}"
    return f" {number} together hold with at least {math.floor(1000.0 * bound) / 10.0:.1f}%."


def contradiction_text(contradiction: ContradictionReport) -> str:
    """Return the warning that a certificate and a measured lift disagree.

    >>> measured = MeasuredInterval(-0.051, -0.068, -0.032)
    >>> print(contradiction_text(ContradictionReport("like_rate", "like_rate", "learning", "at_least", "-2%", 0.971,
    ...                                              measured, relative=True)))
    The certificate of like_rate and its measured lift disagree: it is certified at least -2% with 97.1%, and the blend
    measured -5.10% (-6.80% to -3.20%) against the control while learning; do not deploy before a confirmation.
    """
    relative, phase = contradiction.relative, contradiction.phase
    value, low, high = _format_ends(contradiction.measured, relative)
    limit = f"{SIDE_TEXT[contradiction.side]} {contradiction.at}"
    advice = "do not deploy this blend" if phase == "confirming" else "do not deploy before a confirmation"
    return (
        f"The certificate of {contradiction.guardrail} and its measured {'lift' if relative else 'level'} disagree: "
        f"it is certified {limit} with {format_percent(contradiction.holds)}, and the blend measured {value} "
        f"({low} to {high}){' against the control' if relative else ''} while {phase}; {advice}."
    )


def verdict_text(verdict: ConfirmationVerdict) -> tuple[str, ...]:
    """Return the result of a confirmation, a sentence each: the goal, the guardrails that hold, and the others.

    >>> from pasto.report.lift_records import GoalVerdict
    >>> goal = GoalVerdict("watch_time", True, MeasuredInterval(0.3, -0.131, 0.87), "unclear")
    >>> likes = ConfirmedGuardrail("like_rate", "at_least", "-2%", "hard", True, None, "unmeasured", "-5%", False)
    >>> for sentence in verdict_text(ConfirmationVerdict("inconclusive", True, goal, (likes,))):
    ...     print(sentence)
    The confirmation is inconclusive.
    It was not shown that watch_time improved (+30.00%, -13.10% to +87.00%).
    Shown to hold: no guardrail.
    Not shown to hold: like_rate at least -2% (not measured).
    """
    goal = verdict.goal
    if verdict.state == "missing":
        sentences = ["The blend was not confirmed: its lift was never measured on fresh traffic."]
    else:
        opening = {"confirmed": "The blend is confirmed", "failed": "The confirmation failed"}
        sentences = [f"{opening.get(verdict.state, 'The confirmation is inconclusive')}."]
        if not verdict.balanced:
            sentences.append("Units did not arrive where they were sent, so nothing can be claimed.")
        interval = "" if goal.measured is None else f" ({_interval_text(goal.measured, goal.relative)})"
        sentences.append(f"{_GOAL_TEXT[goal.state].format(goal.name)}{interval}.")
    if verdict.guardrails:
        holding = [guardrail for guardrail in verdict.guardrails if guardrail.state == "holds"]
        others = [guardrail for guardrail in verdict.guardrails if guardrail.state != "holds"]
        sentences.append(f"Shown to hold: {_guardrails_text(holding) or 'no guardrail'}.")
        if others:
            sentences.append(f"Not shown to hold: {_guardrails_text(others)}.")
    return tuple(sentences)


_GOAL_TEXT = {
    "better": "It was shown that {} improved",
    "worse": "It was shown that {} got worse",
    "unclear": "It was not shown that {} improved",
    "unmeasured": "{} was not measured in both arms",
}


def _guardrails_text(guardrails: Sequence[ConfirmedGuardrail]) -> str:
    return ", ".join(
        f"{guardrail.name.split(' (')[0]} {SIDE_TEXT[guardrail.side]} {guardrail.at} ({_state_text(guardrail)})"
        for guardrail in guardrails
    )


def _state_text(guardrail: ConfirmedGuardrail) -> str:
    if guardrail.measured is None:
        return "not measured"
    floor = "clear of" if guardrail.clear_of_floor else "it may be beyond"
    endings = {"holds": "", "broken": "; it is broken", "unclear": f"; {floor} its stop level {guardrail.floor}"}
    return f"{_interval_text(guardrail.measured, guardrail.relative)}{endings[guardrail.state]}"


def _interval_text(measured: MeasuredInterval, relative: bool) -> str:
    value, low, high = _format_ends(measured, relative)
    return f"{value}, {low} to {high}"


def _format_ends(measured: MeasuredInterval, relative: bool) -> tuple[str, str, str]:
    format_end = format_lift if relative else format_number
    return format_end(measured.value), format_end(measured.low), format_end(measured.high)
