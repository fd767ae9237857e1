"""Lengths of time as people write them."""

from __future__ import annotations

import re

from pasto.validation import LARGEST, ProblemList, show_value

_SPAN = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*(ms|s|min|m|h|d|w)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
YEAR = 366 * 86400.0


def parse_duration(
    problems: ProblemList, path: str, given: object, *, low: float = 0.0, high: float = YEAR
) -> float | None:
    """A length of time in seconds: '90s', '1h', '2d', or a number of seconds.

    >>> parse_duration(ProblemList(), "rounds.every", "90m")
    5400.0
    """
    seconds: float | None = None
    if isinstance(given, str):
        match = _SPAN.fullmatch(given.strip())
        seconds = None if match is None else float(match[1]) * _SECONDS[match[2]]
    elif isinstance(given, (int, float)) and not isinstance(given, bool) and abs(given) <= LARGEST:
        seconds = float(given)
    if seconds is None or not low <= seconds <= high:
        problems.add(
            path,
            f"must be a length of time from {low:g} s to {high / 86400:g} d, such as '90s', '30m', '1h' or '2d', or a "
            f"number of seconds, got {show_value(given)}",
        )
        return None
    return seconds


def format_duration(seconds: float) -> str:
    """A length of time in the largest unit that leaves a whole number, for messages.

    >>> written_span(7200.0), written_span(604800.0), format_duration(0.5)
    ('2h', '7d', '0.5s')
    """
    for unit in ("d", "h", "m"):
        if seconds and seconds % _SECONDS[unit] == 0:
            return f"{seconds / _SECONDS[unit]:g}{unit}"
    return f"{seconds:g}s"
