"""Which candidates truly beat the control, and whether one beats all the others: claims that hold together.

The best-looking of many looks better than it is. So every candidate's claim gets its share of the chance of error, and
a claim made on any of them is wrong with at most the chance that was stated for all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pasto.errors import MeasurementError
from pasto.inference import Comparison, Quantity, chance_of_error, compare, side
from pasto.inference.lift import LiftEstimate
from pasto.inference.round_data import RoundRecord


@dataclass(frozen=True, slots=True)
class ComparisonWinners:
    """Simultaneous claims on one metric."""

    best: int
    """The best-looking candidate; looking best is no claim."""
    claims: dict[int, LiftEstimate]
    """Every candidate's difference to the control; all the intervals hold together."""
    winners: tuple[int, ...]
    """Candidates that beat the control."""
    winner: int | None
    """The one that beats the control and every other candidate; None where none can be told."""


def find_winners(
    record: RoundRecord,
    quantity: Quantity,
    *,
    arm: str = "learner",
    confidence: float = 0.95,
    sequential: bool = True,
    at_most: bool = False,
    leave_out: int | None = None,
) -> ComparisonWinners:
    """Which candidates of an arm beat the control in one metric; `leave_out` is the baseline's own index.

    >>> from pasto.inference.round_data import CellMoments, MeasuredRound, record_rounds
    >>> shares = {("control", 0): 0.2, ("learner", 1): 0.4, ("learner", 2): 0.4}
    >>> levels = {("control", 0): 5.0, ("learner", 1): 5.01, ("learner", 2): 5.6}
    >>> cells = [CellMoments(*key, 1000, (level,), ((1000.0,),)) for key, level in levels.items()]
    >>> found = find_winners(record_rounds([MeasuredRound(n, shares, cells) for n in range(5)]), Quantity(0))
    >>> found.best, found.winners, found.winner
    (2, (2,), 2)
    """
    candidates = [(place, record.keys[place][1]) for place in record.places(arm) if record.keys[place][1] != leave_out]
    if not candidates:
        raise MeasurementError(f"a winner needs candidates in the arm {arm!r}; no round has any")
    sign = -1.0 if at_most else 1.0
    cells, _, covariances = record.view("control", running=sequential)
    sides = {number: side(cells, covariances, place) for place, number in candidates}
    base = side(cells, covariances, record.control)
    measured = {n: one for n, one in sides.items() if ((one.units > 0) & (base.units > 0)).any()}
    if not measured:
        raise MeasurementError(f"no round has units both in the control and in the arm {arm!r}")
    error = chance_of_error(confidence, len(candidates))
    claims, beats = {}, []
    for number, one in measured.items():
        comparison = compare(one, base, quantity, weights="even")
        both = comparison.lift(error, sequential=sequential)
        claims[number] = LiftEstimate(float(both.estimate), float(both.low), float(both.high))
        if find_beating(comparison, error, sign, sequential=sequential):
            beats.append(number)
    best = max(claims, key=lambda number: sign * claims[number].value)
    alone = chance_of_error(confidence, max(len(candidates) - 1, 1))
    unbeaten = best in beats and all(
        find_beating(compare(measured[best], rival, quantity, weights="even"), alone, sign, sequential=sequential)
        for number, rival in measured.items()
        if number != best
    )
    return ComparisonWinners(best, claims, tuple(sorted(beats)), best if unbeaten else None)


def find_beating(comparison: Comparison, error: float, sign: float = 1.0, *, sequential: bool) -> NDArray[np.bool_]:
    """Whether the treated side is better, one-sided."""
    reach = comparison.reach(error, sequential=sequential, sides=1)
    return np.asarray(sign * comparison.difference - reach * np.sqrt(comparison.variance) > 0)
