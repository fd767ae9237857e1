"""Durations as people write them: `90s`, `30min`, `1h30min`, `7d`, or a number of seconds."""

from __future__ import annotations

import re

from pasto.document_validation import LARGEST, FieldKind, ProblemList, show_value
from pasto.formatting import format_duration

_UNIT_SECONDS = {"w": 604800.0, "d": 86400.0, "h": 3600.0, "min": 60.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,6})?"
_PART = re.compile(rf"({_NUMBER})\s*(ms|min|[wdhms])\s*")
DURATION_PATTERN = rf"^\s*(?:{_NUMBER}\s*(?:(?:ms|min|[wdhms])\s*(?:{_NUMBER}\s*(?:ms|min|[wdhms])\s*)*)?)$"
"""Regular expression of a duration that is written as text, for JSON Schema and OpenAPI."""
_TEXT = re.compile(DURATION_PATTERN)

YEAR_SECONDS = 366 * 86400.0


def parse_duration(given: object) -> float:
    """Return a duration in seconds, or raise ValueError.

    A number, or a text without a unit, is a number of seconds.

    >>> [parse_duration(text) for text in ("30min", "1h30min", "7d", "90", 90)]
    [1800.0, 5400.0, 604800.0, 90.0, 90.0]
    """
    if isinstance(given, str) and _TEXT.match(given):
        parts = _PART.findall(given)
        return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts) if parts else float(given)
    if isinstance(given, (int, float)) and not isinstance(given, bool) and 0 <= given <= LARGEST:
        return float(given)
    raise ValueError(f"not a duration: {show_value(given)}")


def describe_durations(low: float, high: float) -> str:
    """Return the words with which an error message asks for a duration.

    >>> describe_durations(0.0, 3600.0)
    "a duration from 0s to 1h, such as '90s', '30min' or '1h30min', or a number of seconds"
    """
    ends = f"from {format_duration(low)} to {format_duration(high)}"
    return f"a duration {ends}, such as '90s', '30min' or '1h30min', or a number of seconds"


def read_duration(
    problems: ProblemList, path: str, given: object, *, low: float = 0.0, high: float = YEAR_SECONDS
) -> float | None:
    """Return a duration in seconds, or None and a problem at `path`.

    >>> read_duration(ProblemList(), "rounds.every", "90min")
    5400.0
    """
    try:
        seconds = parse_duration(given)
    except ValueError:
        seconds = -1.0
    if not low <= seconds <= high:
        problems.add(path, f"must be {describe_durations(low, high)}, got {show_value(given)}")
        return None
    return seconds


def duration_kind(low: float = 0.0, high: float = YEAR_SECONDS) -> FieldKind:
    """Return the kind of fields that hold a duration in a range."""
    number = {"type": "number", "minimum": low, "maximum": high}
    return FieldKind(
        "duration",
        {"anyOf": [number, {"type": "string", "pattern": DURATION_PATTERN}]},
        lambda problems, path, given: read_duration(problems, path, given, low=low, high=high),
    )
