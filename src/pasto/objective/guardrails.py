"""Guardrail of an objective: a metric, a side, a threshold and a penalty."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from pasto.errors import ObjectiveError
from pasto.objective.goals import Ratio

_PERCENT = re.compile(r"\s*([+-]?)\s*(\d+(?:\.\d*)?|\.\d+)\s*%\s*")


@dataclass(frozen=True, slots=True)
class Guardrail:
    """Limit on one side of a metric; soft if it has a penalty, hard if it has none.

    >>> Guardrail.parse("like_rate", at_least="-2%", penalty=5.0)
    Guardrail(metric='like_rate', at=-2.0, lower=True, penalty=5.0, relative=True)
    """

    metric: str | Ratio
    at: float
    """Target (soft) or limit (hard): in the metric's units, or in percent over the baseline if relative."""
    lower: bool
    """True for at_least, False for at_most."""
    penalty: float | None
    """λ: goal units per squared unit of breach; None makes the guardrail hard."""
    relative: bool

    @classmethod
    def parse(
        cls,
        metric: str | Ratio,
        *,
        at_least: float | str | None = None,
        at_most: float | str | None = None,
        penalty: float | None = None,
    ) -> Guardrail:
        """Return the guardrail of the arguments of `keep`, or raise ObjectiveError."""
        label = metric.name if isinstance(metric, Ratio) else metric
        if not isinstance(label, str) or not label:
            raise ObjectiveError(f"keep needs a metric's name or a ratio, got {metric!r}")
        given = at_least if at_least is not None else at_most
        if given is None or (at_least is not None and at_most is not None):
            raise ObjectiveError(f"keep({label!r}) needs either at_least= or at_most=, and one of them only")
        at, relative = _read_threshold(given, label)
        if penalty is not None and not (_is_number(penalty) and 0 < penalty < math.inf):
            raise ObjectiveError(
                f"keep({label!r}) got penalty={penalty!r}; a penalty is a positive number, and leaving it out makes "
                "the guardrail hard"
            )
        return cls(metric, at, at_least is not None, None if penalty is None else float(penalty), relative)

    @property
    def label(self) -> str:
        """Name of the metric or ratio."""
        return self.metric.name if isinstance(self.metric, Ratio) else self.metric

    def __str__(self) -> str:
        place = f"{self.at:+g}%" if self.relative else f"{self.at:g}"
        firmness = "" if self.penalty is None else f" (penalty {self.penalty:g})"
        return f"{self.label} {'>=' if self.lower else '<='} {place}{firmness}"


def likely_percentage(number: float) -> str:
    """Return the percentage against the baseline that was probably meant by a number.

    >>> likely_percentage(-0.02), likely_percentage(-2), likely_percentage(0)
    ('-2%', '-2%', '0%')
    """
    percent = 100.0 * number if abs(number) < 1 else number
    return f"{percent:+.4g}%" if percent else "0%"


def _read_threshold(given: float | str, label: str) -> tuple[float, bool]:
    """Read 0.03 as absolute and "-2%" as relative to the baseline."""
    if isinstance(given, str):
        match = _PERCENT.fullmatch(given)
        if match is None:
            raise ObjectiveError(
                f"keep({label!r}) got the threshold {given!r}; write a number for the metric's own units (0.03) or a "
                "signed percentage for a change against the baseline ('-2%')"
            )
        sign, digits = match.groups()
        percent = float(digits)
        if not sign and percent:
            raise ObjectiveError(
                f"keep({label!r}) got {given!r}, which could mean a rise or a fall; write '+{digits}%' or '-{digits}%'"
            )
        return (-percent if sign == "-" else percent), True
    if not _is_number(given) or not math.isfinite(given):
        raise ObjectiveError(f"keep({label!r}) got the threshold {given!r}; it must be a finite number")
    return float(given), False


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
