"""Text forms of numbers, shares, intervals and times, the same in the terminal, the report and the dashboard.

The dashboard's charts are drawn in the browser; `dashboard/static/formatting.js` follows the same rules.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime

SIGNIFICANT_DIGITS = 5
ROUNDING_NOISE = 1e-12
"""Smaller amounts come from rounding and are written as 0."""
UNKNOWN = "–"
"""Stands for a number that is not known."""


def format_number(value: float | None) -> str:
    """Return a number with five significant digits and with commas between thousands; larger ones are whole.

    >>> format_number(12345.678), format_number(0.031254789), format_number(1234567.8), format_number(2.0)
    ('12,346', '0.031255', '1,234,568', '2')
    >>> format_number(-1e-17), format_number(None)
    ('0', '–')
    """
    if value is None or math.isnan(value):
        return UNKNOWN
    if abs(value) < ROUNDING_NOISE:
        return "0"
    is_whole = 10**SIGNIFICANT_DIGITS <= abs(value) < 1e15
    return f"{value:,.0f}" if is_whole else f"{value:,.{SIGNIFICANT_DIGITS}g}"


def format_signed(value: float | None) -> str:
    """Return a difference as a number with its sign.

    >>> format_signed(0.5), format_signed(-12345.678), format_signed(0.0), format_signed(None)
    ('+0.5', '-12,346', '0', '–')
    """
    text = format_number(value)
    return f"+{text}" if value is not None and value >= ROUNDING_NOISE else text


def format_percent(share: float | None, decimals: int = 1) -> str:
    """Return a share in percent; a small share is not rounded to none, and a share near 1 is not rounded to all.

    >>> format_percent(0.25), format_percent(0.0004), format_percent(0.99999), format_percent(1.0), format_percent(None)
    ('25.0%', '< 0.1%', '> 99.9%', '100.0%', '–')
    """
    if share is None or math.isnan(share):
        return UNKNOWN
    half_step = 0.5 * 10.0 ** (-decimals - 2)
    if 0 < share < half_step:
        return f"< {10.0**-decimals:g}%"
    if 1 - half_step <= share < 1:
        return f"> {100 - 10.0**-decimals:g}%"
    return f"{share:.{decimals}%}"


def format_lift(lift: float | None) -> str:
    """Return a relative change as a signed percentage.

    >>> format_lift(0.0344), format_lift(-0.02), format_lift(None)
    ('+3.44%', '-2.00%', '–')
    """
    return UNKNOWN if lift is None or math.isnan(lift) else f"{lift:+,.2%}"


def format_interval(value: float | None, low: float | None, high: float | None, *, percent: bool = False) -> str:
    """Return a difference with the ends of its interval; `percent` if all three are relative changes.

    >>> format_interval(0.0344, 0.0215, 0.0477, percent=True), format_interval(1.5, None, None)
    ('+3.44% (+2.15% to +4.77%)', '+1.5 (unknown)')
    """
    if value is None:
        return UNKNOWN
    format_end = format_lift if percent else format_signed
    if low is None or high is None:
        return f"{format_end(value)} (unknown)"
    return f"{format_end(value)} ({format_end(low)} to {format_end(high)})"


def format_confidence(confidence: float) -> str:
    """Return a confidence with every digit that was asked for.

    >>> format_confidence(0.95), format_confidence(0.99999), format_confidence(0.975)
    ('95%', '99.999%', '97.5%')
    """
    return f"{100 * confidence:.10g}%"


def format_p_value(p_value: float | None) -> str:
    """Return a p-value with two significant digits; nothing if there is none.

    >>> format_p_value(2.51e-9), format_p_value(None)
    ('2.5e-09', '')
    """
    return "" if p_value is None else f"{p_value:.2g}"


def format_count(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun.

    >>> format_count(1, "round"), format_count(1200, "round"), format_count(2, "policy", "policies")
    ('1 round', '1,200 rounds', '2 policies')
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def format_duration(seconds: float) -> str:
    """Return a duration in the largest unit that leaves a whole number.

    >>> format_duration(7200.0), format_duration(5400.0), format_duration(604800.0), format_duration(0.5)
    ('2h', '90min', '7d', '0.5s')
    """
    for unit, unit_seconds in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds and seconds % unit_seconds == 0:
            return f"{seconds / unit_seconds:.15g}{unit}"
    return f"{seconds:.15g}s"


def format_time_span(seconds: float | None) -> str:
    """Return a time span in its two largest units.

    >>> format_time_span(42), format_time_span(3900), format_time_span(200000), format_time_span(None)
    ('42 s', '1 h 5 min', '2 d 7 h', '–')
    """
    if seconds is None:
        return UNKNOWN
    rounded = max(0, round(seconds))
    for name, size, part_name, part_size in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if rounded >= size:
            rest = rounded % size // part_size
            return f"{rounded // size} {name}" + (f" {rest} {part_name}" if rest else "")
    return f"{rounded} s"


def format_time(seconds: float | None) -> str:
    """Return a moment, in seconds since 1970, as date and time in UTC.

    >>> format_time(0)
    '1970-01-01 00:00:00'
    """
    return UNKNOWN if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
