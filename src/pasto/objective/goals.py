"""Goals: a weighted sum of metrics, a ratio of two, or any concave utility.

Each has a value (...) and a gradient (..., metrics) over an array of metric vectors (..., metrics).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import ObjectiveError


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
class Ratio:
    """Ratio N/D of two metrics, each of which is measured per unit.

    A blend's ratio is the ratio of the blended halves, never the blend of the ratios: at 50/50, like rates of 1/10
    and 6/100 make 7/110 = 0.0636, not 0.080. So a guardrail N/D ≥ c enters the optimisation as N − cD ≥ 0, which is
    linear in the blend.
    """

    numerator: str
    denominator: str
    name: str


def ratio(numerator: str, denominator: str, name: str | None = None) -> Ratio:
    """Name a ratio of two metrics, to be maximised or kept like any other metric.

    >>> import pasto
    >>> like_rate = pasto.ratio("likes", "views", name="like_rate")
    >>> objective = pasto.maximize("watch_time").keep(like_rate, at_least=0.05)
    >>> objective.metrics
    ('watch_time', 'likes', 'views')
    >>> truth = {"watch_time": [1, 3], "likes": [1, 6], "views": [10, 100]}
    >>> blend = pasto.solve(truth, pasto.maximize("watch_time").keep(like_rate, at_least=7 / 110))
    >>> [round(share, 9) for share in blend.probabilities], round(blend.metrics["like_rate"], 4)
    ([0.5, 0.5], 0.0636)
    """
    for part in (numerator, denominator):
        if not isinstance(part, str) or not part:
            raise ObjectiveError(f"a ratio needs the names of two metrics, got {part!r}")
    if numerator == denominator:
        raise ObjectiveError(f"a ratio needs two different metrics, got {numerator!r} twice")
    return Ratio(numerator, denominator, name or f"{numerator}/{denominator}")
