"""Moments of a cell: its units, their mean, and their centred sums of products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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
    member_cross: Matrix | None = None
    """(C, C): Σ (y − ȳ)(y − ȳ)ᵀ over the members of clusters, if the units are clusters; otherwise None."""


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
        if (first.member_cross is None) != (second.member_cross is None):
            return False
    return True


def _cell_key(cell: Moments) -> tuple[Any, ...]:
    return cell.arm, cell.candidate, cell.units, cell.clipped
