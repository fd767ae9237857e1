"""Amounts as people write them: shares of traffic, levels and losses of a metric."""

from __future__ import annotations

import re
from decimal import Decimal
from itertools import pairwise
from typing import Any

from pasto.document_validation import LARGEST, FieldKind, ProblemList, show_value
from pasto.service.study_file.spec import GuardrailLevel

_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{0,400})?|\.[0-9]{1,400}"
_PERCENT = re.compile(rf"([+-]?)\s*({_NUMBER})\s*%")
_ROUNDS = re.compile(r"([0-9]{1,4})\s*rounds?")
MAX_RAMP_STEPS = 20
MAX_RAMP_ROUNDS = 1_000
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
        if share is not None and 1 < share <= 100 and not isinstance(given, str):
            hint = f"; for {share:g} percent write '{share:g}%'"
        problems.add(
            path,
            f"must be a share {above} {low:g} {below} {high:g}, such as '10%' or 0.1, got {show_value(given)}{hint}",
        )
        return None
    return share


def parse_share(given: object) -> float | None:
    """Return the share that a text or a number names; None if it names none.

    >>> parse_share("25%"), parse_share(0.25), parse_share("next")
    (0.25, 0.25, None)
    """
    return read_share(ProblemList(), "", given)


def _read_ramp(problems: ProblemList, path: str, given: object) -> tuple[float, ...] | None:
    if not isinstance(given, (list, tuple)) or not 2 <= len(given) <= MAX_RAMP_STEPS:
        needed = f"must be a list of 2 to {MAX_RAMP_STEPS} shares, such as [1%, 5%, 25%, 100%]"
        problems.add(path, f"{needed}, got {show_value(given)}; for one share write explore")
        return None
    shares = [read_share(problems, f"{path}[{place}]", share, open_ends="low") for place, share in enumerate(given)]
    steps = tuple(share for share in shares if share is not None)
    if len(steps) == len(shares) and any(share >= larger for share, larger in pairwise(steps)):
        problems.add(path, f"must increase from step to step, got {show_value(given)}; put the smallest share first")
    return steps


def _read_rounds(problems: ProblemList, path: str, given: object) -> int | None:
    match = _ROUNDS.fullmatch(given.strip()) if isinstance(given, str) else None
    number = int(match[1]) if match is not None else given
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MAX_RAMP_ROUNDS:
        problems.add(
            path, f"must be a number of rounds from 1 to {MAX_RAMP_ROUNDS}, such as '3 rounds', got {show_value(given)}"
        )
        return None
    return number


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


RAMP = FieldKind(
    "list of shares",
    {
        "type": "array",
        "items": share_kind(open_ends="low").schema,
        "minItems": 2,
        "maxItems": MAX_RAMP_STEPS,
    },
    _read_ramp,
)
ROUNDS = FieldKind(
    "number of rounds",
    {
        "anyOf": [
            {"type": "integer", "minimum": 1, "maximum": MAX_RAMP_ROUNDS},
            {"type": "string", "pattern": r"^\s*[0-9]{1,4}\s*rounds?\s*$"},
        ]
    },
    _read_rounds,
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
