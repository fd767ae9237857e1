"""Amounts as people write them: shares of traffic, levels and losses of a metric."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from pasto.document_validation import LARGEST, FieldKind, ProblemList, show_value
from pasto.service.study_file.spec import GuardrailLevel

_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{0,400})?|\.[0-9]{1,400}"
_PERCENT = re.compile(rf"([+-]?)\s*({_NUMBER})\s*%")
_ANY_NUMBER = {"type": "number", "minimum": -LARGEST, "maximum": LARGEST}


def read_level(problems: ProblemList, path: str, given: object) -> GuardrailLevel | None:
    """Return a level from a number in the metric's own units, or from a signed percentage."""
    if not isinstance(given, str):
        number = problems.number(path, given)
        return None if number is None else GuardrailLevel(number, False)
    match = _PERCENT.fullmatch(given.strip())
    if match is None:
        problems.add(
            path,
            f"must be a number in the metric's own units (0.03) or a signed percentage over the baseline ('-2%'), got "
            f"{show_value(given)}",
        )
        return None
    number = float(match[2])
    if not match[1] and number:
        problems.add(path, f"is {given!r}, which could mean a rise or a fall; write '+{match[2]}%' or '-{match[2]}%'")
        return None
    return GuardrailLevel((-number if match[1] == "-" else number) + 0.0, True)


def read_loss(problems: ProblemList, path: str, given: object, *, relative: bool) -> float | None:
    """Return a loss of a metric in the units of its guardrail: percent, or the metric's own."""
    if relative:
        match = _PERCENT.fullmatch(given.strip()) if isinstance(given, str) else None
        if match is None or match[1]:
            problems.add(path, f"must be a percentage such as '1%', as its guardrail is one, got {show_value(given)}")
            return None
        return float(match[2])
    if isinstance(given, str) and given.strip().endswith("%"):
        problems.add(
            path, f"must be a number in the metric's own units, as its guardrail is one, got {show_value(given)}"
        )
        return None
    return problems.number(path, given, low=0.0)


def read_share(
    problems: ProblemList, path: str, given: object, *, low: float = 0.0, high: float = 1.0, open_ends: str = ""
) -> float | None:
    """Return a share from '10%' or 0.1; `open_ends` names the ends ("low", "high") that it may not reach."""
    share: float | None
    if isinstance(given, str):
        match = _PERCENT.fullmatch(given.strip())
        share = None if match is None or match[1] == "-" else float(Decimal(match[2]) / 100)
    else:
        share = None if isinstance(given, bool) or not isinstance(given, (int, float)) else float(given)
    outside = share is None or not low <= share <= high
    if outside or (share == low and "low" in open_ends) or (share == high and "high" in open_ends):
        above = "above" if "low" in open_ends else "from"
        below = "to below" if "high" in open_ends else "to"
        hint = ""
        if share is not None and 1 < share <= 100:
            hint = f"; for {share:g} percent write '{share:g}%'"
        problems.add(
            path,
            f"must be a share {above} {low:g} {below} {high:g}, such as '10%' or 0.1, got {show_value(given)}{hint}",
        )
        return None
    return share


def share_kind(low: float = 0.0, high: float = 1.0, open_ends: str = "") -> FieldKind:
    """Return the kind of fields that hold a share; `open_ends` names the ends that it may not reach."""
    number: dict[str, Any] = {
        "type": "number",
        "exclusiveMinimum" if "low" in open_ends else "minimum": low,
        "exclusiveMaximum" if "high" in open_ends else "maximum": high,
    }
    percentage = {"type": "string", "pattern": rf"^\s*\+?\s*(?:{_NUMBER})\s*%\s*$"}
    return FieldKind(
        "share",
        {"anyOf": [number, percentage]},
        lambda problems, path, given: read_share(problems, path, given, low=low, high=high, open_ends=open_ends),
    )


LEVEL: FieldKind = FieldKind(
    "number or percentage",
    {"anyOf": [_ANY_NUMBER, {"type": "string", "pattern": rf"^\s*(?:[+-]\s*(?:{_NUMBER})|0+(?:\.0*)?)\s*%\s*$"}]},
    read_level,
)
LOSS: FieldKind = FieldKind(
    "number or percentage",
    {
        "anyOf": [
            {"type": "number", "minimum": 0.0, "maximum": LARGEST},
            {"type": "string", "pattern": rf"^\s*(?:{_NUMBER})\s*%\s*$"},
        ]
    },
)
"""Loss in the units of its guardrail, so only the guardrail's parser can read it."""
