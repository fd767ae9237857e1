"""Comparison of two sides within every round, combined over rounds with weights that do not depend on outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import MeasurementError, OptionError
from pasto.inference.intervals import (
    TIGHTEST_ROUNDS,
    Interval,
    Sides,
    interval_around,
    reach_at_any_time,
    reach_at_horizon,
    relative_lift,
    relative_lift_by_logarithm,
    sequence_progress,
    welch_degrees,
)
from pasto.inference.round_data import CellStatistics

Weights = Literal["traffic", "even"]
MIN_SEQUENCE_UNITS = 50.0
"""Units on either side before a sequence is finite, because it uses the central limit theorem."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """Quantity computed from columns: a mean per unit, or the ratio of two such means.

    >>> Quantity(0), Quantity(1, 2)
    (Quantity(numerator=0, denominator=None), Quantity(numerator=1, denominator=2))
    """

    numerator: int
    denominator: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ComparisonSide:
    """One side of a comparison, round by round: an arm, a candidate, or a blend of candidates at fixed shares."""

    units: FloatArray
    """(…, rounds): effective units, 1 / Σ share² / units; 0 if a part of the side was not served."""
    mean: FloatArray
    """(…, rounds, columns)."""
    covariance: FloatArray
    """(…, rounds, columns, columns): of the mean."""
    degrees: FloatArray
    """(…, rounds): degrees of freedom of the covariance."""

    def split_rounds(self) -> ComparisonSide:
        """Return every round as a separate study: (…, rounds, 1)."""
        return ComparisonSide(
            self.units[..., None], self.mean[..., None, :], self.covariance[..., None, :, :], self.degrees[..., None]
        )


def build_side(cells: CellStatistics, covariances: FloatArray, shares: Mapping[int, float] | int) -> ComparisonSide:
    """Return a side with fixed shares of cells, by cell index; a single index is that cell alone.

    >>> from pasto.inference.round_data import unit_covariances
    >>> cells = CellStatistics(np.array([[50.0, 50.0]]), np.array([[[1.0], [3.0]]]), np.full((1, 2, 1, 1), 49.0))
    >>> half = build_side(cells, unit_covariances(cells), {0: 0.5, 1: 0.5})
    >>> half.units.tolist(), half.mean.ravel().tolist(), half.covariance.ravel().tolist()
    ([100.0], [2.0], [0.01])
    """
    used_shares = {shares: 1.0} if isinstance(shares, int) else {cell: share for cell, share in shares.items() if share}
    if not used_shares:
        raise MeasurementError("a side of a comparison needs at least one cell with a share")
    cell_indices, weights = list(used_shares), np.array(list(used_shares.values()))
    units = cells.units[..., cell_indices]
    usable = (units > 0).all(axis=-1)
    filled_units = np.where(units > 0, units, 1.0)
    inverse = (weights**2 / filled_units).sum(axis=-1)
    covariance = np.einsum("...k,...kij->...ij", weights**2 / filled_units, covariances[..., cell_indices, :, :])
    return ComparisonSide(
        units=np.where(usable, 1.0 / inverse, 0.0),
        mean=np.einsum("k,...km->...m", weights, cells.mean[..., cell_indices, :]),
        covariance=covariance,
        degrees=np.where(usable, np.maximum(units - 1.0, 0.0).sum(axis=-1), 0.0),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Levels of two sides over all rounds, or after every round if running."""

    treated: FloatArray
    control: FloatArray
    treated_variance: FloatArray
    control_variance: FloatArray
    treated_degrees: FloatArray
    """Degrees of freedom of the variance."""
    control_degrees: FloatArray
    information: FloatArray
    """In rounds of the size of the first; the progress of a sequence is counted in it."""
    smaller_units: FloatArray
    """Units of the smaller side so far."""

    @property
    def difference(self) -> FloatArray:
        """Treated − control."""
        return np.asarray(self.treated - self.control)

    @property
    def variance(self) -> FloatArray:
        """Variance of the difference."""
        return np.asarray(self.treated_variance + self.control_variance)

    def reach(self, error: float, *, sequential: bool, tight: float = TIGHTEST_ROUNDS, sides: Sides = 2) -> FloatArray:
        """Return the half-width in standard errors, for one look at a horizon or for any look."""
        if not sequential:
            degrees_of_sides = self.treated_degrees, self.control_degrees
            return reach_at_horizon(
                error, welch_degrees((self.treated_variance, self.control_variance), degrees_of_sides), sides
            )
        at_any_time = reach_at_any_time(sequence_progress(self.information, tight), error, sides)
        return np.asarray(np.where(self.smaller_units >= MIN_SEQUENCE_UNITS, at_any_time, np.inf))

    def lift(self, error: float, *, sequential: bool, tight: float = TIGHTEST_ROUNDS, sides: Sides = 2) -> Interval:
        """Return the difference with its interval."""
        return interval_around(
            self.difference, self.variance, self.reach(error, sequential=sequential, tight=tight, sides=sides)
        )

    def relative(self, error: float, *, sequential: bool, tight: float = TIGHTEST_ROUNDS, sides: Sides = 2) -> Interval:
        """Return the difference as a share of the control, with its interval."""
        reach = self.reach(error, sequential=sequential, tight=tight, sides=sides)
        return relative_lift(self.treated, self.control, self.treated_variance, self.control_variance, reach)

    def relative_by_logarithm(self, error: float) -> Interval:
        """Return the relative lift by logarithms, as other tools report it, at a horizon set beforehand."""
        shares = self.treated_variance / self.treated**2, self.control_variance / self.control**2
        reach = reach_at_horizon(error, welch_degrees(shares, (self.treated_degrees, self.control_degrees)))
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
    """Compare two sides round by round and combine the rounds.

    `traffic` weighs a round by the units of the treated side: the lift of the traffic as it was served. `even` weighs
    the standardised contrast of every round alike. A candidate whose share follows its outcomes needs `even`: only
    then is the sum normal. Weights depend on counts and shares only. `covariate` is a column, or a ratio of two, that
    was measured before units were assigned to their sides; it reduces the noise.
    """
    if weights not in ("traffic", "even"):
        raise OptionError(f"weights must be 'traffic' or 'even', got {weights!r}")
    usable = (treated.units > 0) & (control.units > 0)
    inverse = np.where(usable, 1.0 / np.maximum(treated.units, 1e-300) + 1.0 / np.maximum(control.units, 1e-300), 1.0)
    weight = np.where(usable, treated.units if weights == "traffic" else 1.0 / np.sqrt(inverse), 0.0)
    information = np.where(usable, weight**2 * inverse, 0.0)
    first_information = np.take_along_axis(information, np.argmax(usable, axis=-1)[..., None], axis=-1)[..., 0]
    total = _accumulate(weight, -1, running)
    filled_total = np.where(total > 0, total, 1.0)
    levels, spreads = [], []
    for side in (treated, control):
        levels.append(_accumulate(weight[..., None] * side.mean, -2, running) / filled_total[..., None])
        spreads.append(
            _accumulate((weight**2)[..., None, None] * side.covariance, -3, running)
            / filled_total[..., None, None] ** 2
        )
    evaluated = [_evaluate(level, quantity) for level in levels]
    values, forms = [value for value, _ in evaluated], [form for _, form in evaluated]
    if covariate is not None:
        covariate_quantity = covariate if isinstance(covariate, Quantity) else Quantity(covariate)
        values, forms = _adjust(values, forms, levels, spreads, covariate_quantity)
    variances = [
        np.einsum("...i,...ij,...j->...", form, spread, form) for form, spread in zip(forms, spreads, strict=True)
    ]
    # If no two units differ, as with a rare event that has not happened yet, the noise is unknown.
    unknown = (total <= 0) | (variances[0] + variances[1] <= 0)
    variances = [np.where(unknown, np.inf, np.maximum(variance, 0.0)) for variance in variances]
    degrees_of_sides = [
        np.maximum(_accumulate(np.where(usable, side.degrees, 0.0), -1, running), 1.0) for side in (treated, control)
    ]
    total_information = _accumulate(information, -1, running)
    reference = first_information[..., None] if running else first_information
    return Comparison(
        treated=values[0],
        control=values[1],
        treated_variance=variances[0],
        control_variance=variances[1],
        treated_degrees=degrees_of_sides[0],
        control_degrees=degrees_of_sides[1],
        information=np.asarray(total_information / np.where(reference > 0, reference, 1.0)),
        smaller_units=np.minimum(
            *(_accumulate(np.where(usable, side.units, 0.0), -1, running) for side in (treated, control))
        ),
    )


def _accumulate(values: FloatArray, axis: int, running: bool) -> FloatArray:
    return np.asarray(np.cumsum(values, axis=axis) if running else values.sum(axis=axis))


def _evaluate(level: FloatArray, quantity: Quantity) -> tuple[FloatArray, FloatArray]:
    """Return the value of a quantity and its derivative by the columns."""
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


def _adjust(
    values: list[FloatArray],
    forms: list[FloatArray],
    levels: list[FloatArray],
    spreads: list[FloatArray],
    covariate: Quantity,
) -> tuple[list[FloatArray], list[FloatArray]]:
    """Return values and forms adjusted by a covariate (CUPED), with both sides moved to the same covariate.

    The slope θ minimises the variance of the difference: it is that of all units within their sides and rounds, each
    side weighted by its part of the noise. A ratio enters by its linear form.
    """
    covariate_values = [_fill_missing(*_evaluate(level, covariate)) for level in levels]
    covariate_means, covariate_forms = [value for value, _ in covariate_values], [form for _, form in covariate_values]
    explained, noise = (
        [np.einsum("...i,...ij,...j->...", *parts) for parts in zip(left_forms, spreads, covariate_forms, strict=True)]
        for left_forms in (forms, covariate_forms)
    )
    total_noise = noise[0] + noise[1]
    filled_noise = np.where(total_noise > 0, total_noise, 1.0)
    slope = np.where(total_noise > 0, (explained[0] + explained[1]) / filled_noise, 0.0)
    common_mean = np.where(
        total_noise > 0,
        (noise[1] * covariate_means[0] + noise[0] * covariate_means[1]) / filled_noise,
        covariate_means[0],
    )
    adjusted_values = [
        np.asarray(value - slope * (covariate_mean - common_mean))
        for value, covariate_mean in zip(values, covariate_means, strict=True)
    ]
    adjusted_forms = [
        np.asarray(form - slope[..., None] * covariate_form)
        for form, covariate_form in zip(forms, covariate_forms, strict=True)
    ]
    return adjusted_values, adjusted_forms


def _fill_missing(value: FloatArray, form: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return a covariate that explains nothing if it is not finite, as a ratio of units without a past."""
    is_finite = np.isfinite(value) & np.isfinite(form).all(axis=-1)
    return np.asarray(np.where(is_finite, value, 0.0)), np.asarray(np.where(is_finite[..., None], form, 0.0))
