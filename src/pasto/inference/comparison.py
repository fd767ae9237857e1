"""Two sides compared within every round, and the rounds put together with weights that no outcome had a say in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import OptionError
from pasto.inference.cell_statistics import ComparisonSide
from pasto.inference.intervals import (
    TIGHT,
    Interval,
    Sides,
    interval_around,
    progress_of,
    reach_at_any_time,
    reach_at_horizon,
    relative_lift,
    relative_lift_by_logarithm,
    welch_freedom,
)

Weights = Literal["traffic", "even"]
WARM = 50.0
"""Units on either side before a sequence says anything: it leans on the central limit theorem."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A metric by its columns: a mean per unit, or the ratio of two such means.

    >>> Quantity(0), Quantity(1, 2)
    (Quantity(numerator=0, denominator=None), Quantity(numerator=1, denominator=2))
    """

    numerator: int
    denominator: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """What two sides measured over all rounds, or after every round where it was asked to run along."""

    treated: FloatArray
    control: FloatArray
    treated_variance: FloatArray
    control_variance: FloatArray
    treated_freedom: FloatArray
    """Degrees of freedom behind the variance."""
    control_freedom: FloatArray
    information: FloatArray
    """In rounds the size of the first: what the sequence's progress is counted in."""
    warm: FloatArray
    """The smaller side's units so far."""

    @property
    def difference(self) -> FloatArray:
        """Treated less control."""
        return np.asarray(self.treated - self.control)

    @property
    def variance(self) -> FloatArray:
        """Of the difference."""
        return np.asarray(self.treated_variance + self.control_variance)

    def reach(self, error: float, *, sequential: bool, tight: float = TIGHT, sides: Sides = 2) -> FloatArray:
        """Standard errors to either side, for one look at a horizon or for looking at any time."""
        if not sequential:
            freedoms = self.treated_freedom, self.control_freedom
            return reach_at_horizon(
                error, welch_freedom((self.treated_variance, self.control_variance), freedoms), sides
            )
        at_any_time = reach_at_any_time(progress_of(self.information, tight), error, sides)
        return np.asarray(np.where(self.warm >= WARM, at_any_time, np.inf))

    def lift(self, error: float, *, sequential: bool, tight: float = TIGHT, sides: Sides = 2) -> Interval:
        """The difference, with its interval."""
        return interval_around(
            self.difference, self.variance, self.reach(error, sequential=sequential, tight=tight, sides=sides)
        )

    def relative(self, error: float, *, sequential: bool, tight: float = TIGHT, sides: Sides = 2) -> Interval:
        """The difference as a share of the control, with its interval."""
        reach = self.reach(error, sequential=sequential, tight=tight, sides=sides)
        return relative_lift(self.treated, self.control, self.treated_variance, self.control_variance, reach)

    def relative_by_logarithm(self, error: float) -> Interval:
        """The relative lift as tools report it that take logarithms first; at a horizon set beforehand."""
        shares = self.treated_variance / self.treated**2, self.control_variance / self.control**2
        reach = reach_at_horizon(error, welch_freedom(shares, (self.treated_freedom, self.control_freedom)))
        return relative_lift_by_logarithm(
            self.treated, self.control, self.treated_variance, self.control_variance, reach
        )


def compare(
    treated: ComparisonSide,
    control: ComparisonSide,
    quantity: Quantity,
    *,
    weights: Weights = "traffic",
    covariate: Quantity | int | None = None,
    running: bool = False,
) -> Comparison:
    """Compare two sides round by round and combine.

    `traffic` weighs a round by the treated side's units: the lift of what was served, whatever changed meanwhile.
    `even` weighs every round's standardised contrast alike: for a candidate whose share rises and falls with what it
    showed, only that leaves a normal law (information that depends on outcomes does not). Either way a weight knows
    counts and shares only. `covariate` is a column, or a ratio of two, that was settled before units were dealt to
    their sides: it takes noise away.
    """
    if weights not in ("traffic", "even"):
        raise OptionError(f"rounds are weighed by 'traffic' or 'even', got {weights!r}")
    usable = (treated.units > 0) & (control.units > 0)
    inverse = np.where(usable, 1.0 / np.maximum(treated.units, 1e-300) + 1.0 / np.maximum(control.units, 1e-300), 1.0)
    weight = np.where(usable, treated.units if weights == "traffic" else 1.0 / np.sqrt(inverse), 0.0)
    added = np.where(usable, weight**2 * inverse, 0.0)
    first = np.take_along_axis(added, np.argmax(usable, axis=-1)[..., None], axis=-1)[..., 0]
    total = _add(weight, -1, running)
    safe = np.where(total > 0, total, 1.0)
    levels, spreads = [], []
    for one in (treated, control):
        levels.append(_add(weight[..., None] * one.mean, -2, running) / safe[..., None])
        spreads.append(_add((weight**2)[..., None, None] * one.covariance, -3, running) / safe[..., None, None] ** 2)
    found = [_value(level, quantity) for level in levels]
    values, forms = [value for value, _ in found], [form for _, form in found]
    if covariate is not None:
        known = covariate if isinstance(covariate, Quantity) else Quantity(covariate)
        values, forms = _adjusted(values, forms, levels, spreads, known)
    variances = [
        np.einsum("...i,...ij,...j->...", form, spread, form) for form, spread in zip(forms, spreads, strict=True)
    ]
    # Where no two units differ, as with a rare event that has not come yet, nothing is known of the noise.
    nothing = (total <= 0) | (variances[0] + variances[1] <= 0)
    variances = [np.where(nothing, np.inf, np.maximum(variance, 0.0)) for variance in variances]
    freedoms = [np.maximum(_add(np.where(usable, one.freedom, 0.0), -1, running), 1.0) for one in (treated, control)]
    counted = _add(added, -1, running)
    reference = first[..., None] if running else first
    return Comparison(
        treated=values[0],
        control=values[1],
        treated_variance=variances[0],
        control_variance=variances[1],
        treated_freedom=freedoms[0],
        control_freedom=freedoms[1],
        information=np.asarray(counted / np.where(reference > 0, reference, 1.0)),
        warm=np.minimum(*(_add(np.where(usable, one.units, 0.0), -1, running) for one in (treated, control))),
    )


def _add(values: FloatArray, axis: int, running: bool) -> FloatArray:
    return np.asarray(np.cumsum(values, axis=axis) if running else values.sum(axis=axis))


def _value(level: FloatArray, quantity: Quantity) -> tuple[FloatArray, FloatArray]:
    """A quantity's value and its derivative by the columns."""
    form = np.zeros_like(level)
    value = level[..., quantity.numerator]
    if quantity.denominator is None:
        form[..., quantity.numerator] = 1.0
        return value, form
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = value / level[..., quantity.denominator]
        form[..., quantity.numerator] = 1.0 / level[..., quantity.denominator]
        form[..., quantity.denominator] = -ratio / level[..., quantity.denominator]
    return np.asarray(ratio), form


def _adjusted(
    values: list[FloatArray],
    forms: list[FloatArray],
    levels: list[FloatArray],
    spreads: list[FloatArray],
    covariate: Quantity,
) -> tuple[list[FloatArray], list[FloatArray]]:
    """Values less what the covariate explains of them (CUPED), both sides moved to the same covariate.

    The slope θ is that of the smallest variance of the difference: of all units within their sides and rounds, each
    side weighed by what it adds to the noise. A ratio goes in by its linear form.
    """
    found = [_known(*_value(level, covariate)) for level in levels]
    here, along = [value for value, _ in found], [form for _, form in found]
    explained, noise = (
        [np.einsum("...i,...ij,...j->...", *parts) for parts in zip(one, spreads, along, strict=True)]
        for one in (forms, along)
    )
    whole = noise[0] + noise[1]
    filled = np.where(whole > 0, whole, 1.0)
    slope = np.where(whole > 0, (explained[0] + explained[1]) / filled, 0.0)
    middle = np.where(whole > 0, (noise[1] * here[0] + noise[0] * here[1]) / filled, here[0])
    moved = [np.asarray(value - slope * (place - middle)) for value, place in zip(values, here, strict=True)]
    lean = [np.asarray(form - slope[..., None] * less) for form, less in zip(forms, along, strict=True)]
    return moved, lean


def _known(value: FloatArray, form: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A covariate that explains nothing where it is none, as a ratio of units without a past."""
    there = np.isfinite(value) & np.isfinite(form).all(axis=-1)
    return np.asarray(np.where(there, value, 0.0)), np.asarray(np.where(there[..., None], form, 0.0))
