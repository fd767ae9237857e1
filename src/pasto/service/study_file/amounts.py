"""Amounts as people write them: shares of traffic, levels of a metric."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import NamedTuple

from pasto.validation import ProblemList, show_value

_PERCENT = re.compile(r"([+-]?)\s*(\d{1,15}(?:\.\d{0,400})?|\.\d{1,400})\s*%")


class GuardrailLevel(NamedTuple):
    """A place on a metric's scale: in its own units, or in percent over the baseline.

    >>> GuardrailLevel(-2.0, True).written(), GuardrailLevel(0.03, False).written()
    ('-2%', 0.03)
    """

    number: float
    relative: bool

    def moved(self, by: float) -> GuardrailLevel:
        """Another level, as far away as a person would reckon it.

        >>> GuardrailLevel(-0.3, True).moved(-0.1)
        GuardrailLevel(number=-0.4, relative=True)
        """
        return GuardrailLevel(float(Decimal(repr(self.number)) + Decimal(repr(by))), self.relative)

    def written(self) -> str | float:
        """As a study file writes it, signed where it is relative."""
        return f"{plain(self.number, signed=True)}%" if self.relative else self.number


def plain(number: float, *, signed: bool = False) -> str:
    """A number in full, without an exponent; it reads back as the same number.

    >>> plain(1e-07), plain(2.0, signed=True)
    ('0.0000001', '+2')
    """
    text = format(Decimal(repr(number)), "+f" if signed else "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def read_level(problems: ProblemList, path: str, given: object) -> GuardrailLevel | None:
    """A number in the metric's own units, or a signed percentage."""
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
    """How much of a metric may be lost, in the units of its guardrail: percent, or the metric's own."""
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
    """A share: '10%' or 0.1; `open_ends` tells which ends ("low", "high") it may not reach."""
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
