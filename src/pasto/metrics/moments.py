"""What a round measured in one cell: units, mean, and centred sums of products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pasto.arrays import FloatArray

Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Moments:
    """The units of one arm on one candidate, as numbers that lose no digits when a mean dwarfs its deviation."""

    arm: str
    candidate: int
    units: int
    mean: tuple[float, ...]
    """Over units, one number a column."""
    cross: Matrix
    """Σ (x − mean)(x − mean)ᵀ over units."""
    clipped: tuple[int, ...]
    """By column: units whose number lay outside the stated range and was moved to its end."""


def build_moments(arm: str, candidate: int, values: FloatArray, clipped: Sequence[int]) -> Moments:
    """The moments of one cell's values, (units, columns), in the order of their rows.

    >>> import numpy as np
    >>> build_moments("learner", 0, np.array([[1.0, 0.0], [3.0, 2.0]]), (0, 0)).cross
    ((2.0, 2.0), (2.0, 2.0))
    """
    units, columns = values.shape
    rows = np.ascontiguousarray(values.T)
    rough = rows.sum(axis=1) / units
    centred = rows - rough[:, None]
    left = centred.sum(axis=1) / units  # what rounding left of the mean
    mean, centred = rough + left, centred - left[:, None]
    cross = np.empty((columns, columns))
    for i in range(columns):
        cross[i, i:] = cross[i:, i] = (centred[i] * centred[i:]).sum(axis=1)
    return Moments(
        arm, candidate, units, tuple(mean.tolist()), tuple(map(tuple, cross.tolist())), tuple(map(int, clipped))
    )


def covariances(measured: Sequence[Moments]) -> tuple[Matrix | None, ...]:
    """The covariance of each cell's mean; a cell of one unit takes what a unit of the whole round varies by.

    None for every cell where no cell has two units.

    >>> one = Moments("learner", 0, 2, (2.0,), ((2.0,),), (0,))
    >>> covariances([one, Moments("learner", 1, 1, (5.0,), ((0.0,),), (0,))])
    (((1.0,),), ((2.0,),))
    """
    freedom = sum(cell.units - 1 for cell in measured)
    if not freedom:
        return (None,) * len(measured)
    pooled = np.sum([cell.cross for cell in measured], axis=0) / freedom
    return tuple(
        tuple(
            map(tuple, (pooled if cell.units == 1 else np.array(cell.cross) / (cell.units - 1) / cell.units).tolist())
        )
        for cell in measured
    )


DIGITS = 1e-9
"""Up to which part two engines' sums must agree."""


def moments_match(recorded: Sequence[Moments], measured: Sequence[Moments]) -> bool:
    """Whether two engines measured the same, but for the last digits.

    >>> one, other = (Moments("control", 0, 3, (mean,), ((2.0,),), (0,)) for mean in (0.3, 0.1 + 0.2))
    >>> one == other, moments_match([one], [other])
    (False, True)
    """
    if [_cell(one) for one in recorded] != [_cell(one) for one in measured]:
        return False
    for one, other in zip(recorded, measured, strict=True):
        spread = np.sqrt(np.diag(one.cross) / one.units)
        scale = np.abs(one.mean) + spread
        if not (np.abs(np.subtract(one.mean, other.mean)) <= DIGITS * scale).all():
            return False
        if not (np.abs(np.subtract(one.cross, other.cross)) <= DIGITS * one.units * np.outer(scale, scale)).all():
            return False
    return True


def _cell(one: Moments) -> tuple[Any, ...]:
    return one.arm, one.candidate, one.units, one.clipped
