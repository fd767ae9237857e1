"""Goals and guardrails of an objective.

A goal is a weighted sum of metrics, a ratio of two, or any concave utility. Each has a value (...) and a gradient
(..., metrics) over an array of metric vectors (..., metrics).
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import ObjectiveError, PastoWarning
from pasto.objective.ratio_metric import Ratio

if TYPE_CHECKING:
    from pasto.objective.objective import Objective

_PERCENT = re.compile(r"\s*([+-]?)\s*(\d+(?:\.\d*)?|\.\d+)\s*%\s*")


class Goal(Protocol):
    """Concave (or, for a ratio, quasi-concave) function of the metric vector."""

    def value(self, metrics: FloatArray) -> FloatArray:
        """Return the goal at each metric vector."""
        ...

    def gradient(self, metrics: FloatArray) -> FloatArray:
        """Return its gradient at each metric vector."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LinearGoal:
    """Linear goal: row · y + offset."""

    row: FloatArray
    offset: float = 0.0

    def value(self, metrics: FloatArray) -> FloatArray:
        """Return the weighted sum."""
        return np.asarray(np.einsum("...m,m->...", metrics, self.row) + self.offset)

    def gradient(self, metrics: FloatArray) -> FloatArray:
        """Return the weights, which are the same everywhere."""
        return np.broadcast_to(self.row, metrics.shape)


@dataclass(frozen=True, slots=True, eq=False)
class RatioGoal:
    """Ratio as a goal: scale · (numerator · y) / (denominator · y) + offset, for a positive denominator."""

    numerator: FloatArray
    denominator: FloatArray
    scale: float = 1.0
    offset: float = 0.0

    def value(self, metrics: FloatArray) -> FloatArray:
        """Return the ratio of the blended halves."""
        return np.asarray(self.scale * (metrics @ self.numerator) / (metrics @ self.denominator) + self.offset)

    def gradient(self, metrics: FloatArray) -> FloatArray:
        """Return (N' − (N/D) D') / D."""
        bottom = metrics @ self.denominator
        level = (metrics @ self.numerator) / bottom
        return np.asarray(self.scale * (self.numerator - level[..., None] * self.denominator) / bottom[..., None])


@dataclass(frozen=True, slots=True, eq=False)
class UtilityGoal:
    """Concave function of some of the metrics, with its gradient."""

    function: Callable[[FloatArray], FloatArray]
    derivative: Callable[[FloatArray], FloatArray]
    over: Mapping[str, tuple[float, float]]
    """Metrics that it reads, in its own order, each with the range on which it was checked."""
    columns: tuple[int, ...]
    """Places of those metrics in the objective's order."""

    def value(self, metrics: FloatArray) -> FloatArray:
        """Return the function at its own columns."""
        return np.asarray(self.function(metrics[..., list(self.columns)]), dtype=float)

    def gradient(self, metrics: FloatArray) -> FloatArray:
        """Return the derivative in the objective's columns."""
        full = np.zeros(metrics.shape)
        full[..., list(self.columns)] = self.derivative(metrics[..., list(self.columns)])
        return full


def check_utility(
    function: Callable[[FloatArray], FloatArray],
    derivative: Callable[[FloatArray], FloatArray],
    over: Mapping[str, tuple[float, float]],
) -> None:
    """Refuse a function that is not vectorised, not concave, or not the antiderivative of its gradient.

    512 random pairs of points in the box `over` are checked. A fault smaller than about a millionth of the function's
    own range is not found.
    """
    names = tuple(over)
    low, high = (np.array([float(over[name][side]) for name in names]) for side in (0, 1))
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise ObjectiveError(
            f"over= needs a finite range (low, high) with low < high for each metric, got {dict(over)!r}"
        )
    rng = np.random.default_rng(0)
    first, second = (low + (high - low) * rng.uniform(size=(512, len(names))) for _ in range(2))
    values, _ = _evaluate(function, derivative, first, names)
    others, _ = _evaluate(function, derivative, second, names)
    middles, _ = _evaluate(function, derivative, (first + second) / 2, names)
    scale = float(np.ptp(np.concatenate([values, others]))) or 1.0
    worst = int(np.argmax((values + others) / 2 - middles))
    if (values[worst] + others[worst]) / 2 > middles[worst] + 1e-6 * scale:
        raise ObjectiveError(
            f"the utility is not concave: halfway between {_format_point(names, first[worst])} and "
            f"{_format_point(names, second[worst])} it is {middles[worst]:.6g}, below the mean "
            f"{(values[worst] + others[worst]) / 2:.6g} of its ends; PASTO can only promise the best blend of a "
            "concave one"
        )
    steps = 1e-6 * (high - low)
    for column, name in enumerate(names):
        shift = np.zeros(len(names))
        shift[column] = steps[column]
        inside = np.clip(first, low + steps, high - steps)
        above, _ = _evaluate(function, derivative, inside + shift, names)
        below, _ = _evaluate(function, derivative, inside - shift, names)
        _, claimed = _evaluate(function, derivative, inside, names)
        measured = (above - below) / (2 * steps[column])
        error = np.abs(measured - claimed[:, column])
        wrong = error > 1e-3 * (np.abs(measured) + scale / (high - low)[column])
        if np.count_nonzero(wrong) > 5:  # a kink may make a point or two differ
            worst = int(np.argmax(error))
            raise ObjectiveError(
                f"the gradient is wrong in {name!r}: at {_format_point(names, inside[worst])} it is "
                f"{claimed[worst, column]:.6g}, but the utility's slope there is {measured[worst]:.6g}"
            )


def _evaluate(
    function: Callable[[FloatArray], FloatArray],
    derivative: Callable[[FloatArray], FloatArray],
    points: FloatArray,
    names: tuple[str, ...],
) -> tuple[FloatArray, FloatArray]:
    values, slopes = np.asarray(function(points), dtype=float), np.asarray(derivative(points), dtype=float)
    if values.shape != points.shape[:-1] or slopes.shape != points.shape:
        raise ObjectiveError(
            f"a utility works on many metric vectors at once: given an array of shape {points.shape} in the order "
            f"{names}, value must return {points.shape[:-1]} and gradient {points.shape}, got {values.shape} and "
            f"{slopes.shape}; index metrics as y[..., 0]"
        )
    broken = ~(np.isfinite(values) & np.isfinite(slopes).all(axis=-1))
    if broken.any():
        raise ObjectiveError(
            f"the utility or its gradient is not finite at {_format_point(names, points[broken][0])}; narrow the "
            "ranges in over="
        )
    return values, slopes


def _format_point(names: tuple[str, ...], values: FloatArray) -> str:
    return "(" + ", ".join(f"{name}={value:.4g}" for name, value in zip(names, values, strict=True)) + ")"


@dataclass(frozen=True, slots=True)
class Guardrail:
    """Limit on one side of a metric; soft if it has a penalty, hard if it has none.

    >>> Guardrail.parse("like_rate", at_least="-2%", penalty=5.0)
    Guardrail(metric='like_rate', at=-2.0, lower=True, penalty=5.0, relative=True, within=None)
    """

    metric: str | Ratio
    at: float
    """Target (soft) or limit (hard): in the metric's units, or in percent over the baseline if relative."""
    lower: bool
    """True for at_least, False for at_most."""
    penalty: float | None
    """λ: goal units per squared unit of breach; None makes the guardrail hard."""
    relative: bool
    within: str | None = None
    """The segment whose own traffic it limits, or "each" for every segment by itself; None for all traffic."""

    @classmethod
    def parse(
        cls,
        metric: str | Ratio,
        *,
        at_least: float | str | None = None,
        at_most: float | str | None = None,
        penalty: float | None = None,
        within: str | None = None,
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
        if within is not None and (not isinstance(within, str) or not within):
            raise ObjectiveError(
                f"keep({label!r}) got within={within!r}; write within='each' for every segment, or a segment's name"
            )
        return cls(metric, at, at_least is not None, None if penalty is None else float(penalty), relative, within)

    @property
    def label(self) -> str:
        """Name of the metric or ratio."""
        return self.metric.name if isinstance(self.metric, Ratio) else self.metric

    def __str__(self) -> str:
        place = f"{self.at:+g}%" if self.relative else f"{self.at:g}"
        where = "" if self.within is None else f" within {self.within}"
        firmness = "" if self.penalty is None else f" (penalty {self.penalty:g})"
        return f"{self.label} {'>=' if self.lower else '<='} {place}{where}{firmness}"


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


def warn_useless_bounds(objective: Objective, values: FloatArray, where: str, *, stacklevel: int = 2) -> None:
    """Warn of guardrails at less than a negative number whose metric is negative nowhere in values (metrics, n).

    >>> import numpy as np, pasto
    >>> objective = pasto.maximize("watch").keep("likes", at_least=-0.02)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_useless_bounds(objective, np.array([[30.0, 33.0], [0.03, 0.02]]), "among the candidates")
    >>> print(caught[0].message)
    keep('likes', at_least=-0.02) cannot fail: likes is never negative among the candidates. For a change ... '-2%'
    """
    for rail in objective.guardrails:
        if rail.relative or not rail.lower or rail.at >= 0:
            continue
        top = rail.metric.numerator if isinstance(rail.metric, Ratio) else rail.metric  # a denominator is positive
        if np.min(values[objective.metrics.index(top)]) >= 0:
            warnings.warn(
                f"keep({rail.label!r}, at_least={rail.at:g}) cannot fail: {rail.label} is never negative {where}. For "
                f"a change against the baseline write '{likely_percentage(rail.at)}'",
                PastoWarning,
                stacklevel=stacklevel + 1,
            )
