"""Sample-ratio check that holds under changing shares and at every look: per cell, and arm against arm.

Every round is compared with its own shares. If a cell, or a whole arm, loses a part of its units or gains some, the
log likelihood of the counts exceeds the expected one by n log r − N log(1 − p + p r), with r the remaining part. The
likelihood ratios are averaged over cells, over arms and over r, with weights that are fixed beforehand. The average
exceeds 1/α on a healthy study with a chance of at most α, over all looks together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from pasto.arrays import FloatArray
from pasto.errors import MeasurementError
from pasto.inference.round_data import WHOLE_ARM, CellKey, RoundRecord

CELL_REMAINING_SHARES = np.array([1e-3, 0.4, 0.7, 0.85, 0.9, 0.95, 1.05, 1.15, 1.5])
"""Remaining parts r of a cell's units, in the alternatives that are tested."""
ARM_REMAINING_SHARES = np.array([0.5, 0.8, 0.9, 0.95, 0.98, 1.05])
"""Remaining parts of an arm's units. Large losses are found soon with any weight; a small one has most of it."""
ARM_REMAINING_WEIGHTS = np.array([0.03, 0.05, 0.08, 0.70, 0.06, 0.08])
ARM_WEIGHT = 0.75
"""Weight of the arms in the average; cells have the rest."""
MAX_FALSE_ALARM_RATE = 4e-3
"""The largest chance of a false alarm over a whole study: 1 in 1,000 by cells, 3 in 1,000 by arms."""
BASELINE_ARMS = ("control", "not_enrolled", "paused")
"""Arms that serve the baseline: they have one cell, and other arms are compared with them."""


@dataclass(frozen=True, slots=True)
class SampleRatioCheck:
    """Result of the check."""

    p_value: float
    """Valid at any time: below α on a healthy study with a chance of at most α, over all looks together."""
    alarm: bool
    round: int | None
    """Round of the first alarm, counted from 0."""
    suspect: CellKey | None
    """Cell that explains the counts best, if there is an alarm; for a whole arm, the candidate is WHOLE_ARM."""
    remaining_share: float | None
    """Observed share of the suspect's expected units."""
    observed: dict[CellKey, float]
    expected: dict[CellKey, float]
    """Σ N_t p_t: by each round's own shares."""


def check_sample_ratio(record: RoundRecord, error: float = MAX_FALSE_ALARM_RATE) -> SampleRatioCheck:
    """Compare a study's counts with the shares its units were drawn with.

    >>> from pasto.inference.round_data import CellMoments, MeasuredRound, record_rounds
    >>> shares = {("control", 0): 0.5, ("learner", 1): 0.5}
    >>> def cell(arm, candidate, units):
    ...     return CellMoments(arm, candidate, units, (0.0,), ((0.0,),))
    >>> rounds = [MeasuredRound(1, shares, [cell("control", 0, 5000), cell("learner", 1, 4500)])]
    >>> check = check_sample_ratio(record_rounds(rounds))
    >>> check.alarm, check.suspect, round(check.remaining_share, 2)
    (True, ('learner', 1), 0.9)
    """
    counts, shares = record.cells.units, record.shares
    groups = arm_groups(record.keys)
    evidence, suspects = imbalance_evidence(counts, shares, groups)
    total_share = np.maximum(shares.sum(axis=-1, keepdims=True), 1e-300)
    expected = counts.sum(axis=-1, keepdims=True) * shares / total_share
    highest = float(evidence.max())
    tripped = bool(highest >= -np.log(error))
    suspect, members = _describe_suspect(record.keys, groups, int(suspects[-1]))
    total, expected_total = counts.sum(axis=0), expected.sum(axis=0)
    suspect_units, other_units = float(total[members].sum()), float(total[~members].sum())
    suspect_expected, other_expected = float(expected_total[members].sum()), float(expected_total[~members].sum())
    remaining_share = (
        suspect_units / suspect_expected / max(other_units / other_expected, 1e-12)
        if other_expected > 0 < suspect_expected
        else 0.0
    )
    return SampleRatioCheck(
        p_value=float(min(1.0, np.exp(-highest))),
        alarm=tripped,
        round=int(np.argmax(evidence >= -np.log(error))) if tripped else None,
        suspect=suspect if tripped else None,
        remaining_share=remaining_share if tripped else None,
        observed=dict(zip(record.keys, total.tolist(), strict=True)),
        expected=dict(zip(record.keys, expected_total.tolist(), strict=True)),
    )


def arm_groups(keys: Sequence[CellKey]) -> NDArray[np.bool_]:
    """Return the cells that may lose units together, (groups, cells).

    They are each arm that does not serve the baseline and, if there are several, all of these. A group that is
    everything cannot be compared, and is left out.

    >>> arm_groups([("blend", 0), ("blend", 1), ("control", 0), ("best_single", 1)]).astype(int).tolist()
    [[1, 1, 0, 0], [0, 0, 0, 1], [1, 1, 0, 1]]
    """
    names = np.array([arm for arm, _ in keys])
    treated = [arm for arm in dict.fromkeys(names.tolist()) if arm not in BASELINE_ARMS]
    groups = [names == arm for arm in treated]
    if len(treated) > 1:
        groups.append(np.isin(names, treated))
    return np.array([group for group in groups if not group.all()], dtype=bool).reshape(-1, len(keys))


def imbalance_evidence(
    counts: FloatArray, shares: FloatArray, groups: NDArray[np.bool_] | None = None
) -> tuple[FloatArray, NDArray[np.intp]]:
    """Return the logarithm of the evidence of a wrong sample ratio after every round, and the likeliest suspect.

    (…, rounds, cells) go in, (…, rounds) come out. Groups (groups, cells) are cells that may lose units together; a
    suspect is a cell's place or, from the number of cells on, a group's. Without groups their part of the average is
    one. A unit in a cell without a share is infinite evidence.
    """
    if counts.shape != shares.shape:
        raise MeasurementError(f"counts and shares need the same shape, got {counts.shape} and {shares.shape}")
    # Without the cells that were left out, the shares of the others add up to one.
    shares = shares / np.maximum(shares.sum(axis=-1, keepdims=True), 1e-300)
    by_cell = _log_ratios(
        counts,
        counts.sum(axis=-1, keepdims=True),
        shares,
        CELL_REMAINING_SHARES,
        np.full(len(CELL_REMAINING_SHARES), 1.0 / len(CELL_REMAINING_SHARES)),
    )
    impossible = np.cumsum((counts > 0) & (shares <= 0), axis=-2) > 0
    by_cell = np.where(impossible, np.inf, by_cell)
    cells = counts.shape[-1]
    arms = np.zeros((0, cells), dtype=bool) if groups is None else groups
    members, others = arms.T.astype(float), (~arms).T.astype(float)
    arm_shares, other_shares = shares @ members, shares @ others
    arm_shares = np.where(
        other_shares > 0.0, arm_shares, 1.0
    )  # nothing else was served: such a round carries no information about a group
    by_group = _log_ratios(
        counts @ members, counts.sum(axis=-1, keepdims=True), arm_shares, ARM_REMAINING_SHARES, ARM_REMAINING_WEIGHTS
    )
    with np.errstate(invalid="ignore"):
        evidence = logsumexp(by_cell, axis=-1) - np.log(cells)
        arm_evidence = logsumexp(by_group, axis=-1) - np.log(len(arms)) if len(arms) else np.zeros_like(evidence)
        evidence = np.logaddexp(np.log(1.0 - ARM_WEIGHT) + evidence, np.log(ARM_WEIGHT) + arm_evidence)
        evidence = np.where(impossible.any(axis=-1), np.inf, evidence)
    return np.asarray(evidence), np.asarray(np.concatenate([by_cell, by_group], axis=-1).argmax(axis=-1))


def _log_ratios(
    counts: FloatArray, total: FloatArray, shares: FloatArray, remaining_parts: FloatArray, weights: FloatArray
) -> FloatArray:
    """Return the logarithm of each cell's likelihood ratio up to every round, averaged over left with weights."""
    served = (shares > 0) & (shares < 1.0)
    terms = []
    for remaining in remaining_parts:
        log_ratio = counts * np.log(remaining) - total * np.log1p(np.where(served, shares, 0.0) * (remaining - 1.0))
        terms.append(np.cumsum(np.where(served, log_ratio, 0.0), axis=-2))
    return np.asarray(logsumexp(np.stack(terms, axis=-1), axis=-1, b=weights))


def _describe_suspect(
    keys: Sequence[CellKey], groups: NDArray[np.bool_], suspect: int
) -> tuple[CellKey, NDArray[np.bool_]]:
    """Return the key and cells (cells,) of a suspect; for several arms together, those that they are compared with."""
    alone = np.arange(len(keys)) == suspect
    if suspect < len(keys):
        return keys[suspect], alone
    members = groups[suspect - len(keys)]
    arms = {keys[cell][0] for cell in np.flatnonzero(members).tolist()}
    if len(arms) > 1:
        members = ~members
        arms = {keys[cell][0] for cell in np.flatnonzero(members).tolist()}
    cells = np.flatnonzero(members).tolist()
    return (keys[cells[0]] if len(cells) == 1 else (min(arms), WHOLE_ARM)), members
