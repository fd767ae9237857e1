"""The breaker: whether what is served has fallen through a guardrail's floor, told at every round without crying wolf.

Every guardrail gets its share of the chance of error, so all of them together raise a false alarm in at most that share
of studies. A metric with a range or a cap is judged by a process that needs no large numbers; without one, by the
central limit theorem, which heavy tails deceive: declare a cap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pasto.errors import BadMeasurement
from pasto.estimate.intervals import (
    Cells,
    Quantity,
    Range,
    bounded_evidence_since,
    chance_of_error,
    evidence_since,
    pulls_of_contrast,
    pulls_of_mean,
    side,
    unit_covariances,
)
from pasto.estimate.intervals.cells import Array
from pasto.report.measured import Record

State = Literal["holds", "warning", "breach"]


@dataclass(frozen=True, slots=True)
class Floor:
    """At which level of a guardrail's metric traffic is pulled.

    >>> Floor("like_rate", Quantity(1, 2), -0.05, relative=True).relative
    True
    """

    name: str
    quantity: Quantity
    value: float
    """The level itself, or the change against the control: −0.05 is five percent below it."""
    relative: bool = False
    at_most: bool = False
    """For metrics that must not rise: the floor is then a ceiling."""
    within: Range | None = None
    """A unit's range, or the numerator's."""
    denominator_within: Range | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the breaker says of one guardrail."""

    name: str
    state: State
    p_value: float
    """Valid at any time and over all guardrails together."""
    round: int | None
    """Of the first alarm, counted from 0."""
    since: int | None
    """The round that the harm most likely began in, where there is a breach."""
    bounded: bool
    """Whether the metric's own range was used, and not the central limit theorem."""


def watch(
    record: Record, floors: Sequence[Floor], *, served: str = "learner", confidence: float = 0.95, warning: float = 0.8
) -> tuple[Verdict, ...]:
    """Hold what one arm was served against every floor, the rounds so far together.

    A breach stays one: only a person re-arms, and then the rounds from there on are what is handed in.

    >>> from pasto.report.measured import CellMoments, MeasuredRound, recorded
    >>> shares = {("control", 0): 0.5, ("learner", 1): 0.5}
    >>> means = {("control", 0): 1.0, ("learner", 1): 0.6}
    >>> cells = [CellMoments(*key, 200, (mean,), ((200.0,),)) for key, mean in means.items()]
    >>> record = recorded([MeasuredRound(version, shares, cells) for version in range(4)])
    >>> [verdict.state for verdict in watch(record, [Floor("likes", Quantity(0), -0.05, relative=True)])]
    ['breach']
    """
    cells, place, covariances = record.view(served, running=True)
    error, early = (chance_of_error(level, max(len(floors), 1)) for level in (confidence, warning))
    verdicts = []
    for floor in floors:
        against = None
        if floor.relative:
            against = record.control
        evidence, since = shortfall(cells, floor, place, against, covariances)
        highest = float(evidence.max())
        breached, warned = highest >= -np.log(error), bool(evidence[-1] >= -np.log(early))
        verdicts.append(
            Verdict(
                name=floor.name,
                state="breach" if breached else "warning" if warned else "holds",
                p_value=float(min(1.0, len(floors) * np.exp(-highest))),
                round=int(np.argmax(evidence >= -np.log(error))) if breached else None,
                since=int(since) if breached else None,
                bounded=_bounded(floor),
            )
        )
    return tuple(verdicts)


def shortfall(
    cells: Cells, floor: Floor, served: int, control: int | None, covariances: Array | None = None
) -> tuple[Array, NDArray[np.intp]]:
    """The logarithm of the evidence, after every round, that a cell has fallen through a floor; and since which round.

    For an absolute floor c the question is linear, c − y > 0, or cD − N > 0 for a ratio. Relative to the control it is
    (1 + f)·y₀ − y > 0, and for a ratio (1 + f)·N₀D − N·D₀ > 0, whose mean is exact because arms are independent.
    """
    if not floor.relative:
        return _absolute(cells, floor, served, covariances)
    if control is None:
        raise BadMeasurement(f"the floor of {floor.name!r} is relative to the control; the study has no control")
    return _relative(cells, floor, served, control, covariances)


def _absolute(cells: Cells, floor: Floor, served: int, covariances: Array | None) -> tuple[Array, NDArray[np.intp]]:
    sign = -1.0 if floor.at_most else 1.0
    form = np.zeros(cells.mean.shape[-1])
    form[floor.quantity.numerator] = sign
    limit = sign * floor.value
    if floor.quantity.denominator is not None:
        form[floor.quantity.denominator] = -limit
        limit = 0.0
    units, mean = cells.units[..., served], cells.mean[..., served, :] @ form
    if _bounded(floor):
        cross = np.einsum("i,...ij,j->...", form, cells.cross[..., served, :, :], form)
        within = _form_range(floor, form)
        return bounded_evidence_since(pulls_of_mean(units, mean, cross, within, upward=False, start=limit), limit)
    if covariances is None:
        covariances = unit_covariances(cells, running=True)
    variance = np.einsum("i,...ij,j->...", form, covariances[..., served, :, :], form)
    return evidence_since(units * (limit - mean), units * variance, units)


def _relative(
    cells: Cells, floor: Floor, served: int, control: int, covariances: Array | None
) -> tuple[Array, NDArray[np.intp]]:
    factor = 1.0 + floor.value
    if _bounded(floor) and floor.within is not None:
        column, within = floor.quantity.numerator, floor.within
        sign = -1.0 if floor.at_most else 1.0
        arms = [
            (cells.units[..., at], sign * cells.mean[..., at, column], cells.cross[..., at, column, column])
            for at in (served, control)
        ]
        turned = Range(-within.high, -within.low) if floor.at_most else within
        return bounded_evidence_since(pulls_of_contrast(arms[0], arms[1], factor, turned), 0.0)
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
    return evidence_since(weight * gap, weight**2 * variance, 2.0 * units)


def _bounded(floor: Floor) -> bool:
    if floor.quantity.denominator is None:
        return floor.within is not None
    return not floor.relative and floor.within is not None and floor.denominator_within is not None


def _form_range(floor: Floor, form: Array) -> Range:
    """Between which a unit's linear form lies."""
    low = high = 0.0
    for column, within in (
        (floor.quantity.numerator, floor.within),
        (floor.quantity.denominator, floor.denominator_within),
    ):
        if column is not None and within is not None:
            ends = sorted((form[column] * within.low, form[column] * within.high))
            low, high = low + ends[0], high + ends[1]
    return Range(float(low), float(high))
