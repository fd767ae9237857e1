"""Sentences about guardrails, the same in the text report, on the page, on the dashboard and in the audit log."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pasto.formatting import format_confidence, format_lift, format_number, format_percent

SIDE_TEXT = {"at_least": "at least", "at_most": "at most"}
BASIS_TEXT = {"control": "against the control", "days": "over whole days"}
"""What a guardrail's floor is judged against."""
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
    """Return what a floor is judged against, with the change against the control that it allows now.

    >>> basis_text("days"), basis_text("control", -0.0483)
    ('over whole days', 'against the control, -4.83% allowed')
    """
    return BASIS_TEXT[judged] if allowed is None else f"{BASIS_TEXT[judged]}, {format_lift(allowed)} allowed"


def own_units_text(guardrails: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return how floors in a metric's own units are judged, a sentence for each way that occurs.

    >>> own_units_text([{"floor": "-5%", "judged": "control"}])
    ()
    """
    bases = dict.fromkeys(rail["judged"] for rail in guardrails if not isinstance(rail["floor"], str))
    return tuple(OWN_UNITS_TEXT[basis] for basis in bases)


def certificate_text(certificate: Mapping[str, Any], feasible: bool = True) -> str:
    """Return how surely the hard guardrails hold: each by itself, and all together if there are several.

    >>> certificate = {"confidence": 0.95, "certified": True, "hard": ["a", "b"], "joint_lower_bound": 0.9345}
    >>> print(certificate_text(certificate))
    Certified: each hard guardrail holds with 95% confidence, each by itself. Both together hold with at least 93.4%.
    >>> certificate_text({"confidence": 0.95, "certified": True, "hard": []})
    ''
    """
    hard = certificate.get("hard")
    if hard is not None and not hard:
        return ""
    if understated := certificate.get("understated_errors"):
        return (
            f"Not certified: standard errors are too small ({understated_text(understated)}). Rounds scatter more than "
            "the errors allow: several rows of one unit, or rounds that shift together, are the usual causes."
        )
    confidence, several = format_confidence(certificate["confidence"]), hard is None or len(hard) > 1
    if not feasible:
        return "Not certified yet: no blend is known to meet every hard guardrail."
    if not several:
        holds = "holds" if certificate["certified"] else "does not yet hold"
        return f"{_verdict(certificate)}: the hard guardrail {holds} with {confidence} confidence."
    if certificate["certified"]:
        text = f"Certified: each hard guardrail holds with {confidence} confidence, each by itself."
    else:
        text = f"Not certified yet: not each hard guardrail holds with {confidence} confidence."
    return f"{text}{_joint_text(certificate)}"


def understated_text(factors: Mapping[str, float]) -> str:
    """Return by which factor the standard errors of each metric are too small.

    >>> understated_text({"revenue": 2.14, "likes": 1.6})
    'revenue by a factor of 2.1, likes by a factor of 1.6'
    """
    return ", ".join(f"{metric} by a factor of {factor:.1f}" for metric, factor in factors.items())


def _verdict(certificate: Mapping[str, Any]) -> str:
    return "Certified" if certificate["certified"] else "Not certified yet"


def _joint_text(certificate: Mapping[str, Any]) -> str:
    bound, hard = certificate.get("joint_lower_bound"), certificate.get("hard") or ()
    if bound is None:
        return ""
    number = "Both" if len(hard) == 2 else f"All {len(hard)}"
    return f" {number} together hold with at least {math.floor(1000.0 * bound) / 10.0:.1f}%."


def contradiction_text(contradiction: Mapping[str, Any]) -> str:
    """Return the warning that a certificate and a measured lift disagree.

    >>> print(contradiction_text({"guardrail": "like_rate", "phase": "learning", "side": "at_least", "at": "-2%",
    ...                           "holds": 0.971, "relative": True,
    ...                           "measured": {"value": -0.051, "low": -0.068, "high": -0.032}}))
    The certificate of like_rate and its measured lift disagree: it is certified at least -2% with 97.1%, and the blend
    measured -5.10% (-6.80% to -3.20%) against the control while learning; do not deploy before a confirmation.
    """
    relative, interval = contradiction["relative"], contradiction["measured"]
    value, low, high = ((format_lift if relative else format_number)(interval[end]) for end in _ENDS)
    phase, limit = contradiction["phase"], f"{SIDE_TEXT[contradiction['side']]} {contradiction['at']}"
    advice = "do not deploy this blend" if phase == "confirming" else "do not deploy before a confirmation"
    return (
        f"The certificate of {contradiction['guardrail']} and its measured {'lift' if relative else 'level'} disagree: "
        f"it is certified {limit} with {format_percent(contradiction['holds'])}, and the blend measured {value} "
        f"({low} to {high}){' against the control' if relative else ''} while {phase}; {advice}."
    )


def verdict_text(verdict: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a confirmation has shown, a sentence each: the goal, the guardrails that hold, those not shown to.

    >>> rail = {"side": "at_least", "at": "-2%", "kind": "hard", "relative": True, "floor": "-5%"}
    >>> goal = {"name": "watch_time", "relative": True, "state": "unclear",
    ...         "measured": {"value": 0.3, "low": -0.131, "high": 0.87}}
    >>> rails = [{**rail, "name": "like_rate", "state": "unmeasured", "measured": None, "clear_of_floor": False}]
    >>> for sentence in verdict_text({"state": "inconclusive", "balanced": True, "goal": goal, "guardrails": rails}):
    ...     print(sentence)
    The confirmation is inconclusive.
    It was not shown that watch_time improved (+30.00%, -13.10% to +87.00%).
    Shown to hold: no guardrail.
    Not shown to hold: like_rate at least -2% (not measured).
    """
    state, goal, rails = verdict["state"], verdict["goal"], verdict["guardrails"]
    if state == "missing":
        found = ["The blend was not confirmed: its lift was never measured on fresh traffic."]
    else:
        words = {"confirmed": "The blend is confirmed", "failed": "The confirmation failed"}
        found = [f"{words.get(state, 'The confirmation is inconclusive')}."]
        if not verdict["balanced"]:
            found.append("Units did not arrive where they were sent, so nothing can be claimed.")
        ends = "" if goal["measured"] is None else f" ({_ends_text(goal)})"
        found.append(f"{_GOAL_TEXT[goal['state']].format(goal['name'])}{ends}.")
    if rails:
        holding = [rail for rail in rails if rail["state"] == "holds"]
        others = [rail for rail in rails if rail["state"] != "holds"]
        found.append(f"Shown to hold: {_rails_text(holding) or 'no guardrail'}.")
        if others:
            found.append(f"Not shown to hold: {_rails_text(others)}.")
    return tuple(found)


_GOAL_TEXT = {
    "better": "It was shown that {} improved",
    "worse": "It was shown that {} got worse",
    "unclear": "It was not shown that {} improved",
    "unmeasured": "{} was not measured in both arms",
}


def _rails_text(rails: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(
        f"{rail['name'].split(' (')[0]} {SIDE_TEXT[rail['side']]} {rail['at']} ({_state_text(rail)})" for rail in rails
    )


def _state_text(rail: Mapping[str, Any]) -> str:
    if rail["measured"] is None:
        return "not measured"
    floor = "clear of" if rail["clear_of_floor"] else "it may be beyond"
    words = {"holds": "", "broken": "; it is broken", "unclear": f"; {floor} its floor {rail['floor']}"}
    return f"{_ends_text(rail)}{words[rail['state']]}"


def _ends_text(part: Mapping[str, Any]) -> str:
    value, low, high = ((format_lift if part["relative"] else format_number)(part["measured"][end]) for end in _ENDS)
    return f"{value}, {low} to {high}"


_ENDS = ("value", "low", "high")
