"""Guardrail evidence: the evidence, round by round, that a served arm is beyond a guardrail's stop level.

A metric with a declared range is judged by a bounded process, which is valid for small samples. Other metrics are
judged by the central limit theorem. Both continue from the state after earlier rounds.
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
    add_round_sums,
    bounded_drift_evidence,
    build_side,
    contrast_increments,
    drift_evidence,
    mean_increments,
    unit_covariances,
)
from pasto.inference.betting import RunningSums
from pasto.inference.change_detection import LOG_BET_WEIGHTS

Basis = Literal["control", "days"]
"""Basis on which a level in a metric's own units is judged: the concurrent control, or whole days."""


@dataclass(frozen=True, slots=True)
class StopLevel:
    """Level of a guardrail's metric at which its traffic is stopped.

    >>> StopLevel("like_rate", Quantity(1, 2), -0.05, relative=True).relative
    True
    """

    name: str
    quantity: Quantity
    value: float
    """The level itself, or the change against the control: −0.05 is five percent below it."""
    relative: bool = False
    at_most: bool = False
    """True for metrics that must not rise above the level."""
    within: ValueRange | None = None
    """Range of a unit's value or, for a ratio, of its numerator."""
    denominator_within: ValueRange | None = None
    basis: Basis | None = None
    """Basis for a level in the metric's own units; None compares every round with the number itself."""


@dataclass(frozen=True, slots=True, eq=False)
class FloorEvidence:
    """State of the evidence on one floor, from which later rounds continue."""

    detector: ChangeDetectorState
    sums: tuple[RunningSums, ...] = ()
    """Units and sums of the served arm and the control, if the metric's own range is used."""

    @property
    def since(self) -> NDArray[np.intp]:
        """Round in which the harm most likely began, counted from 0 unless rounds have numbers of their own."""
        return self.detector.likely_start(0.0 if self.sums else LOG_BET_WEIGHTS)


def floor_evidence(
    cells: CellStatistics,
    floor: StopLevel,
    served: int,
    control: int | None,
    covariances: FloatArray | None = None,
    before: FloorEvidence | None = None,
    numbers: Sequence[int] | None = None,
) -> tuple[FloatArray, FloorEvidence]:
    """Return the log evidence after every round that a cell is beyond a floor, and the state to continue from.

    For an absolute floor c the hypothesis is linear, c − y > 0, or cD − N > 0 for a ratio. Relative to the control it
    is (1 + f)·y₀ − y > 0, and for a ratio (1 + f)·N₀D − N·D₀ > 0. Its mean is exact because arms are independent.
    """
    if not floor.relative:
        return absolute_evidence(cells, floor, served, covariances, before, numbers)
    if control is None:
        raise MeasurementError(f"the floor of {floor.name!r} is relative to the control, but the study has no control")
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
    detector = None if before is None else before.detector
    if has_value_range(floor):
        cross = np.einsum("i,...ij,j->...", form, cells.cross[..., served, :, :], form)
        arm_sums = before.sums[0] if before else None
        increments = mean_increments(
            units, mean, cross, _form_range(floor, form), upward=False, start=limit, before=arm_sums
        )
        evidence, detector = bounded_drift_evidence(increments, limit, detector, numbers)
        return evidence, FloorEvidence(detector, (add_round_sums(units, mean, arm_sums),))
    if covariances is None:
        covariances = unit_covariances(cells, running=True)
    variance = np.einsum("i,...ij,j->...", form, covariances[..., served, :, :], form)
    evidence, detector = drift_evidence(units * (limit - mean), units * variance, units, detector, numbers)
    return evidence, FloorEvidence(detector)


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

    The share is 1 + the floor's value, or `factor` (…, rounds), which may depend on earlier rounds only.
    """
    factor = np.asarray(1.0 + floor.value) if factor is None else factor
    detector = None if before is None else before.detector
    if floor.quantity.denominator is None and floor.within is not None:
        column, within = floor.quantity.numerator, floor.within
        sign = -1.0 if floor.at_most else 1.0
        arms = [
            (cells.units[..., cell], sign * cells.mean[..., cell, column], cells.cross[..., cell, column, column])
            for cell in (served, control)
        ]
        oriented_range = ValueRange(-within.high, -within.low) if floor.at_most else within
        arm_sums = (before.sums[0], before.sums[1]) if before else None
        increments = contrast_increments(arms[0], arms[1], factor, oriented_range, arm_sums)
        evidence, detector = bounded_drift_evidence(increments, 0.0, detector, numbers)
        earlier_sums = arm_sums or (None, None)
        return evidence, FloorEvidence(
            detector, tuple(add_round_sums(*arm[:2], sums) for arm, sums in zip(arms, earlier_sums, strict=True))
        )
    if covariances is None:
        covariances = unit_covariances(cells, running=True)
    served_side, control_side = (build_side(cells, covariances, cell) for cell in (served, control))
    usable = (served_side.units > 0) & (control_side.units > 0)
    inverse = 1.0 / np.where(usable, served_side.units, 1.0) + factor**2 / np.where(usable, control_side.units, 1.0)
    weight = np.where(usable, 1.0 / inverse, 0.0) * (-1.0 if floor.at_most else 1.0)
    numerator, denominator = floor.quantity.numerator, floor.quantity.denominator
    served_form, control_form = np.zeros_like(served_side.mean), np.zeros_like(control_side.mean)
    if denominator is None:
        served_form[..., numerator], control_form[..., numerator] = -1.0, factor
        shortfall = factor * control_side.mean[..., numerator] - served_side.mean[..., numerator]
    else:
        served_form[..., numerator], served_form[..., denominator] = (
            -control_side.mean[..., denominator],
            factor * control_side.mean[..., numerator],
        )
        control_form[..., numerator], control_form[..., denominator] = (
            factor * served_side.mean[..., denominator],
            -served_side.mean[..., numerator],
        )
        shortfall = (
            factor * control_side.mean[..., numerator] * served_side.mean[..., denominator]
            - served_side.mean[..., numerator] * control_side.mean[..., denominator]
        )
    variance = np.einsum("...i,...ij,...j->...", served_form, served_side.covariance, served_form)
    variance = variance + np.einsum("...i,...ij,...j->...", control_form, control_side.covariance, control_form)
    units = np.where(usable, np.minimum(served_side.units, control_side.units), 0.0)
    evidence, detector = drift_evidence(weight * shortfall, weight**2 * variance, 2.0 * units, detector, numbers)
    return evidence, FloorEvidence(detector)


def has_value_range(floor: StopLevel) -> bool:
    """Return True if a floor's metric is judged by its declared range."""
    if floor.quantity.denominator is None:
        return floor.within is not None
    return not _uses_control(floor) and floor.within is not None and floor.denominator_within is not None


def _uses_control(floor: StopLevel) -> bool:
    return floor.relative or floor.basis == "control"


def _form_range(floor: StopLevel, form: FloatArray) -> ValueRange:
    """Return the range of a unit's linear form."""
    low = high = 0.0
    for column, within in (
        (floor.quantity.numerator, floor.within),
        (floor.quantity.denominator, floor.denominator_within),
    ):
        if column is not None and within is not None:
            ends = sorted((form[column] * within.low, form[column] * within.high))
            low, high = low + ends[0], high + ends[1]
    return ValueRange(float(low), float(high))
