"""Multiple comparisons: simultaneous claims on the candidates that beat the control, and on a single winner.

The best estimate of many is biased upward. So every candidate's claim gets its share of the error rate, and the chance
that any claim is wrong is at most the stated one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pasto.errors import MeasurementError
from pasto.inference import Comparison, Quantity, build_side, compare, error_per_claim
from pasto.inference.lift import LiftEstimate
from pasto.inference.round_data import RoundRecord


@dataclass(frozen=True, slots=True)
class ComparisonWinners:
    """Simultaneous claims on one metric."""

    best: int
    """Candidate with the best estimate; this is not a claim."""
    claims: dict[int, LiftEstimate]
    """Difference of every candidate to the control; all intervals hold together."""
    winners: tuple[int, ...]
    """Candidates that beat the control."""
    winner: int | None
    """Candidate that beats the control and every other candidate; None if there is none."""


def find_winners(
    record: RoundRecord,
    quantity: Quantity,
    *,
    arm: str = "learner",
    confidence: float = 0.95,
    sequential: bool = True,
    at_most: bool = False,
    leave_out: int | None = None,
    covariate: Quantity | None = None,
) -> ComparisonWinners:
    """Return the candidates of an arm that beat the control in one metric; `leave_out` is the baseline's index.

    `covariate` was measured before units were assigned, and takes noise out of each comparison.

    >>> from pasto.inference.round_data import CellMoments, MeasuredRound, record_rounds
    >>> shares = {("control", 0): 0.2, ("learner", 1): 0.4, ("learner", 2): 0.4}
    >>> levels = {("control", 0): 5.0, ("learner", 1): 5.01, ("learner", 2): 5.6}
    >>> cells = [CellMoments(*key, 1000, (level,), ((1000.0,),)) for key, level in levels.items()]
    >>> record = record_rounds([MeasuredRound(number, shares, cells) for number in range(5)])
    >>> winners = find_winners(record, Quantity(0))
    >>> winners.best, winners.winners, winners.winner
    (2, (2,), 2)
    """
    candidates = [
        (cell, record.keys[cell][1]) for cell in record.cell_indices(arm) if record.keys[cell][1] != leave_out
    ]
    if not candidates:
        raise MeasurementError(f"a winner needs candidates in the arm {arm!r}; no round has any")
    sign = -1.0 if at_most else 1.0
    cells, _, covariances = record.arm_view("control", running=sequential)
    sides = {number: build_side(cells, covariances, cell) for cell, number in candidates}
    control = build_side(cells, covariances, record.control)
    measured = {
        number: candidate_side
        for number, candidate_side in sides.items()
        if ((candidate_side.units > 0) & (control.units > 0)).any()
    }
    if not measured:
        raise MeasurementError(f"no round has units both in the control and in the arm {arm!r}")
    error = error_per_claim(confidence, len(candidates))
    claims, winners = {}, []
    for number, candidate_side in measured.items():
        comparison = compare(candidate_side, control, quantity, weights="even", covariate=covariate)
        interval = comparison.lift(error, sequential=sequential)
        claims[number] = LiftEstimate(float(interval.estimate), float(interval.low), float(interval.high))
        if is_better(comparison, error, sign, sequential=sequential):
            winners.append(number)
    best = max(claims, key=lambda number: sign * claims[number].value)
    rival_error = error_per_claim(confidence, max(len(candidates) - 1, 1))
    beats_all = best in winners and all(
        is_better(
            compare(measured[best], rival, quantity, weights="even", covariate=covariate),
            rival_error,
            sign,
            sequential=sequential,
        )
        for number, rival in measured.items()
        if number != best
    )
    return ComparisonWinners(best, claims, tuple(sorted(winners)), best if beats_all else None)


def is_better(comparison: Comparison, error: float, sign: float = 1.0, *, sequential: bool) -> NDArray[np.bool_]:
    """Return True if the treated side is better, by a one-sided test."""
    reach = comparison.reach(error, sequential=sequential, sides=1)
    return np.asarray(sign * comparison.difference - reach * np.sqrt(comparison.variance) > 0)
