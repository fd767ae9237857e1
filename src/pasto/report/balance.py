"""Whether units arrived where they were sent: a sample-ratio check that shares may change under, at every look.

Every round is held against its own shares. For a cell that loses a part of its units, or gains some, the counts have a
likelihood of their own: n log r − N log(1 − p + p r) above the promised one, r being what is left. These are averaged
over cells and over r, so the average exceeds 1/α on a healthy study with a chance of at most α, however often one
looks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from pasto.errors import BadMeasurement
from pasto.estimate.intervals.cells import Array
from pasto.report.measured import Key, Record

LEFT = np.array([1e-3, 0.4, 0.7, 0.85, 0.9, 0.95, 1.05, 1.15, 1.5])
"""What is left of a cell's units, in the alternatives that are tried."""
ALARM = 1e-3
"""The chance of a false alarm over a whole study."""


@dataclass(frozen=True, slots=True)
class Balance:
    """What the counts say."""

    p_value: float
    """Valid at any time: below α on a healthy study with a chance of at most α, over all looks together."""
    alarm: bool
    round: int | None
    """Of the first alarm, counted from 0."""
    suspect: Key | None
    """The cell that explains the counts best, where there is an alarm."""
    left: float | None
    """Of the suspect's expected units, the share that was seen."""
    observed: dict[Key, float]
    expected: dict[Key, float]
    """Σ N_t p_t: by each round's own shares."""


def balance(record: Record, alarm: float = ALARM) -> Balance:
    """Hold a study's counts against the shares its units were drawn with.

    >>> from pasto.report.measured import CellMoments, MeasuredRound, recorded
    >>> shares = {("control", 0): 0.5, ("learner", 1): 0.5}
    >>> def cell(arm, candidate, units):
    ...     return CellMoments(arm, candidate, units, (0.0,), ((0.0,),))
    >>> rounds = [MeasuredRound(1, shares, [cell("control", 0, 5000), cell("learner", 1, 4500)])]
    >>> found = balance(recorded(rounds))
    >>> found.alarm, found.suspect, round(found.left, 2)
    (True, ('learner', 1), 0.9)
    """
    counts, shares = record.cells.units, record.shares
    evidence, suspects = imbalance(counts, shares)
    whole = np.maximum(shares.sum(axis=-1, keepdims=True), 1e-300)
    expected = counts.sum(axis=-1, keepdims=True) * shares / whole
    highest = float(evidence.max())
    tripped = bool(highest >= -np.log(alarm))
    suspect = int(suspects[-1])
    total, hoped = counts.sum(axis=0), expected.sum(axis=0)
    rest, rest_hoped = total.sum() - total[suspect], hoped.sum() - hoped[suspect]
    left = (
        float(total[suspect] / hoped[suspect] / max(rest / rest_hoped, 1e-12))
        if rest_hoped > 0 < hoped[suspect]
        else 0.0
    )
    return Balance(
        p_value=float(min(1.0, np.exp(-highest))),
        alarm=tripped,
        round=int(np.argmax(evidence >= -np.log(alarm))) if tripped else None,
        suspect=record.keys[suspect] if tripped else None,
        left=left if tripped else None,
        observed=dict(zip(record.keys, total.tolist(), strict=True)),
        expected=dict(zip(record.keys, hoped.tolist(), strict=True)),
    )


def imbalance(counts: Array, shares: Array) -> tuple[Array, NDArray[np.intp]]:
    """The logarithm of the evidence of a wrong sample ratio after every round, and the likeliest cell.

    (…, rounds, cells) go in, (…, rounds) come out. A unit where none could be is evidence without end.
    """
    if counts.shape != shares.shape:
        raise BadMeasurement(f"counts and shares need the same shape, got {counts.shape} and {shares.shape}")
    # Cells that were left out leave the others' shares among themselves.
    shares = shares / np.maximum(shares.sum(axis=-1, keepdims=True), 1e-300)
    total = counts.sum(axis=-1, keepdims=True)
    served = (shares > 0) & (shares < 1.0)
    terms = []
    for left in LEFT:
        gained = counts * np.log(left) - total * np.log1p(np.where(served, shares, 0.0) * (left - 1.0))
        terms.append(np.cumsum(np.where(served, gained, 0.0), axis=-2))
    by_cell = logsumexp(np.stack(terms, axis=-1), axis=-1) - np.log(len(LEFT))
    impossible = np.cumsum((counts > 0) & (shares <= 0), axis=-2) > 0
    by_cell = np.where(impossible, np.inf, by_cell)
    cells = counts.shape[-1]
    with np.errstate(invalid="ignore"):
        evidence = np.where(impossible.any(axis=-1), np.inf, logsumexp(by_cell, axis=-1) - np.log(cells))
    return np.asarray(evidence), np.asarray(by_cell.argmax(axis=-1))
