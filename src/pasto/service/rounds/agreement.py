"""Whether two measurements of a round are the same, as far as engines that add up in their own order can tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pasto.measure import Moments

DIGITS = 1e-9
"""Up to which part two engines' sums must agree."""


def agree(recorded: Sequence[Moments], measured: Sequence[Moments]) -> bool:
    """Whether two engines measured the same, but for the last digits.

    >>> one, other = (Moments("control", 0, 3, (mean,), ((2.0,),), (0,)) for mean in (0.3, 0.1 + 0.2))
    >>> one == other, agree([one], [other])
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
