"""Sentences about guardrails, the same in the text report, on the page, on the dashboard and in the audit log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
    ('over whole days', 'against the control, -4.8% allowed')
    """
    return BASIS_TEXT[judged] if allowed is None else f"{BASIS_TEXT[judged]}, {allowed:+.1%} allowed"


def own_units_text(guardrails: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return how floors in a metric's own units are judged, a sentence for each way that occurs.

    >>> own_units_text([{"floor": "-5%", "judged": "control"}])
    ()
    """
    bases = dict.fromkeys(rail["judged"] for rail in guardrails if not isinstance(rail["floor"], str))
    return tuple(OWN_UNITS_TEXT[basis] for basis in bases)
