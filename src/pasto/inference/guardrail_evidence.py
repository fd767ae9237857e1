"""How far what is served has fallen through a guardrail's floor: the evidence for it, round by round.

A metric with a range or a cap is judged by a process that needs no large numbers; without one, by the central limit
theorem. Either carries on from what earlier rounds have left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import MeasurementError
from pasto.inference import (
    CellStatistics,
    ChangeDetectorState,
    Quantity,
    ValueRange,
    bounded_evidence_since,
    contrast_increments,
    evidence_since,
    mean_increments,
    side,
    sums_of,
    unit_covariances,
)
from pasto.inference.betting import Sums
from pasto.inference.change_detection import LOG_WEIGHTS

Basis = Literal["control", "days"]
"""What a level in a metric's own units is judged against: the concurrent control, or whole days."""


@dataclass(frozen=True, slots=True)
class StopLevel:
    """At which level of a guardrail's metric traffic is pulled.

    >>> StopLevel("like_rate", Quantity(1, 2), -0.05, relative=True).relative
    True
    """

    name: str
    quantity: Quantity
    value: float
    """The level itself, or the change against the control: −0.05 is five percent below it."""
    relative: bool = False
    at_most: bool = False
    """For metrics that must not rise: the floor is then a ceiling."""
    within: ValueRange | None = None
    """A unit's range, or the numerator's."""
    denominator_within: ValueRange | None = None
    basis: Basis | None = None
    """For a level in the metric's own units; None compares every round with the number itself."""


@dataclass(frozen=True, slots=True, eq=False)
class FloorEvidence:
    """What rounds leave to the judging of those behind them, for one floor."""

    starts: ChangeDetectorState
    sums: tuple[Sums, ...] = ()
    """Units and sums of the served arm and the control, where the metric's own range is used."""

    @property
    def since(self) -> NDArray[np.intp]:
        """The round that the harm most likely began in, counted from 0 unless rounds have numbers of their own."""
        return self.starts.likely(0.0 if self.sums else LOG_WEIGHTS)


def shortfall(
    cells: CellStatistics,
    floor: StopLevel,
    served: int,
    control: int | None,
    covariances: FloatArray | None = None,
    before: FloorEvidence | None = None,
    numbers: Sequence[int] | None = None,
) -> tuple[FloatArray, FloorEvidence]:
    """The logarithm of the evidence, after every round, that a cell has fallen through a floor; and what to go on from.

    For an absolute floor c the question is linear, c − y > 0, or cD − N > 0 for a ratio. Relative to the control it is
    (1 + f)·y₀ − y > 0, and for a ratio (1 + f)·N₀D − N·D₀ > 0, whose mean is exact because arms are independent.
    """
    if not floor.relative:
        return absolute_evidence(cells, floor, served, covariances, before, numbers)
    if control is None:
        raise MeasurementError(f"the floor of {floor.name!r} is relative to the control; the study has no control")
    return relative_evidence(cells, floor, served, control, covariances, before, numbers)


def absolute_evidence(
    cells: CellStatistics,
    floor: StopLevel,
    served: int,
    covariances: FloatArray | None,
    before: FloorEvidence | None,
    numbers: Sequence[int] | None,
) -> tuple[FloatArray, FloorEvidence]:
    """Return the evidence that every round lies beyond the number itself."""
    sign = -1.0 if floor.at_most else 1.0
    form = np.zeros(cells.mean.shape[-1])
    form[floor.quantity.numerator] = sign
    limit = sign * floor.value
    if floor.quantity.denominator is not None:
        form[floor.quantity.denominator] = -limit
        limit = 0.0
    units, mean = cells.units[..., served], cells.mean[..., served, :] @ form
    starts = None if before is None else before.starts
    if bounded(floor):
        cross = np.einsum("i,...ij,j->...", form, cells.cross[..., served, :, :], form)
        first = before.sums[0] if before else None
        pulls = mean_increments(units, mean, cross, _form_range(floor, form), upward=False, start=limit, before=first)
        evidence, starts = bounded_evidence_since(pulls, limit, starts, numbers)
        return evidence, FloorEvidence(starts, (sums_of(units, mean, first),))
    if covariances is None:
        covariances = unit_covariances(cells, running=True)
    variance = np.einsum("i,...ij,j->...", form, covariances[..., served, :, :], form)
    evidence, starts = evidence_since(units * (limit - mean), units * variance, units, starts, numbers)
    return evidence, FloorEvidence(starts)


def relative_evidence(
    cells: CellStatistics,
    floor: StopLevel,
    served: int,
    control: int,
    covariances: FloatArray | None,
    before: FloorEvidence | None,
    numbers: Sequence[int] | None,
    factor: FloatArray | None = None,
) -> tuple[FloatArray, FloorEvidence]:
    """Return the evidence that every round lies beyond a share of its control.

    The share is 1 + the floor's value, or `factor` (…, rounds), of which a round's may depend on earlier rounds only.
    """
    factor = np.asarray(1.0 + floor.value) if factor is None else factor
    starts = None if before is None else before.starts
    if floor.quantity.denominator is None and floor.within is not None:
        column, within = floor.quantity.numerator, floor.within
        sign = -1.0 if floor.at_most else 1.0
        arms = [
            (cells.units[..., at], sign * cells.mean[..., at, column], cells.cross[..., at, column, column])
            for at in (served, control)
        ]
        turned = ValueRange(-within.high, -within.low) if floor.at_most else within
        first = (before.sums[0], before.sums[1]) if before else None
        pulls = contrast_increments(arms[0], arms[1], factor, turned, first)
        evidence, starts = bounded_evidence_since(pulls, 0.0, starts, numbers)
        left = first or (None, None)
        return evidence, FloorEvidence(
            starts, tuple(sums_of(*arm[:2], sums) for arm, sums in zip(arms, left, strict=True))
        )
    if covariances is None:
        covariances = unit_covariances(cells, running=True)
    here, there = (side(cells, covariances, at) for at in (served, control))
    usable = (here.units > 0) & (there.units > 0)
    inverse = 1.0 / np.where(usable, here.units, 1.0) + factor**2 / np.where(usable, there.units, 1.0)
    weight = np.where(usable, 1.0 / inverse, 0.0) * (-1.0 if floor.at_most else 1.0)
    top, bottom = floor.quantity.numerator, floor.quantity.denominator
    own, other = np.zeros_like(here.mean), np.zeros_like(there.mean)
    if bottom is None:
        own[..., top], other[..., top] = -1.0, factor
        gap = factor * there.mean[..., top] - here.mean[..., top]
    else:
        own[..., top], own[..., bottom] = -there.mean[..., bottom], factor * there.mean[..., top]
        other[..., top], other[..., bottom] = factor * here.mean[..., bottom], -here.mean[..., top]
        gap = factor * there.mean[..., top] * here.mean[..., bottom] - here.mean[..., top] * there.mean[..., bottom]
    variance = np.einsum("...i,...ij,...j->...", own, here.covariance, own)
    variance = variance + np.einsum("...i,...ij,...j->...", other, there.covariance, other)
    units = np.where(usable, np.minimum(here.units, there.units), 0.0)
    evidence, starts = evidence_since(weight * gap, weight**2 * variance, 2.0 * units, starts, numbers)
    return evidence, FloorEvidence(starts)


def bounded(floor: StopLevel) -> bool:
    """Whether a floor's metric is judged by its own range."""
    if floor.quantity.denominator is None:
        return floor.within is not None
    return not _by_control(floor) and floor.within is not None and floor.denominator_within is not None


def _by_control(floor: StopLevel) -> bool:
    return floor.relative or floor.basis == "control"


def _form_range(floor: StopLevel, form: FloatArray) -> ValueRange:
    """Between which a unit's linear form lies."""
    low = high = 0.0
    for column, within in (
        (floor.quantity.numerator, floor.within),
        (floor.quantity.denominator, floor.denominator_within),
    ):
        if column is not None and within is not None:
            ends = sorted((form[column] * within.low, form[column] * within.high))
            low, high = low + ends[0], high + ends[1]
    return ValueRange(float(low), float(high))
