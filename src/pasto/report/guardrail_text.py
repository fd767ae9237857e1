"""Sentences about guardrails, the same in the text report, on the page, on the dashboard and in the audit log."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pasto.formatting import format_confidence, format_lift
from pasto.report.records import CertificateRecord, GuardrailReport

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
