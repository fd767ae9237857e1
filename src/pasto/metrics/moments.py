"""Moments of a cell: its units, their mean, and their centred sums of products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pasto.arrays import FloatArray

Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Moments:
    """Sums over the units of one arm and candidate, for C columns.

    With x_u the numbers of unit u, of shape (C,), and n units: mean = Σ x_u / n, of shape (C,), and
    cross = Σ (x_u − mean)(x_u − mean)ᵀ, of shape (C, C). The covariance of a unit is cross / (n − 1), that of the mean
    cross / (n − 1) / n. Centred sums lose no digits if a mean is much larger than its deviation.
    """

    arm: str
    candidate: int
    units: int
    mean: tuple[float, ...]
    """(C,): mean over units."""
    cross: Matrix
    """(C, C): Σ (x − mean)(x − mean)ᵀ over units."""
    clipped: tuple[int, ...]
    """(C,): units whose number was outside the range of the column, and was clipped."""


def build_moments(arm: str, candidate: int, values: FloatArray, clipped: Sequence[int]) -> Moments:
    """Return the moments of one cell's values, of shape (units, columns), added in the order of their rows.

    >>> import numpy as np
    >>> build_moments("learner", 0, np.array([[1.0, 0.0], [3.0, 2.0]]), (0, 0)).cross
    ((2.0, 2.0), (2.0, 2.0))
    """
    units, columns = values.shape
    rows = np.ascontiguousarray(values.T)
    rough = rows.sum(axis=1) / units
    centred = rows - rough[:, None]
    correction = centred.sum(axis=1) / units  # rounding error of the mean
    mean, centred = rough + correction, centred - correction[:, None]
    cross = np.empty((columns, columns))
    for i in range(columns):
        cross[i, i:] = cross[i:, i] = (centred[i] * centred[i:]).sum(axis=1)
    return Moments(
        arm, candidate, units, tuple(mean.tolist()), tuple(map(tuple, cross.tolist())), tuple(map(int, clipped))
    )


def covariances(measured: Sequence[Moments]) -> tuple[Matrix | None, ...]:
    """Return the covariance (C, C) of each cell's mean: cross / (n − 1) / n.

    A cell of one unit takes the pooled covariance of a unit of the round: Σ cross / Σ (n − 1) over cells. None for
    every cell if no cell has two units.

    >>> pair = Moments("learner", 0, 2, (2.0,), ((2.0,),), (0,))
    >>> covariances([pair, Moments("learner", 1, 1, (5.0,), ((0.0,),), (0,))])
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


MAX_RELATIVE_DIFFERENCE = 1e-9
"""Largest difference between the sums of two engines, relative to their scale."""


def moments_match(recorded: Sequence[Moments], measured: Sequence[Moments]) -> bool:
    """Return whether two measurements are the same except for the last digits.

    >>> first, second = (Moments("control", 0, 3, (mean,), ((2.0,),), (0,)) for mean in (0.3, 0.1 + 0.2))
    >>> first == second, moments_match([first], [second])
    (False, True)
    """
    if list(map(_cell_key, recorded)) != list(map(_cell_key, measured)):
        return False
    for first, second in zip(recorded, measured, strict=True):
        deviation = np.sqrt(np.diag(first.cross) / first.units)
        scale = np.abs(first.mean) + deviation
        if not (np.abs(np.subtract(first.mean, second.mean)) <= MAX_RELATIVE_DIFFERENCE * scale).all():
            return False
        cross_scale = first.units * np.outer(scale, scale)
        if not (np.abs(np.subtract(first.cross, second.cross)) <= MAX_RELATIVE_DIFFERENCE * cross_scale).all():
            return False
    return True


def _cell_key(cell: Moments) -> tuple[Any, ...]:
    return cell.arm, cell.candidate, cell.units, cell.clipped
