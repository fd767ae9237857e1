"""Guardrail evidence: the evidence, round by round, that a served arm is beyond a guardrail's stop level.

A metric with a declared range is judged by a bounded process, which is valid for small samples. Other metrics are
judged by the central limit theorem. Both continue from the state after earlier rounds.

Harm may begin at any round, also after a long good past. A sum over the whole study would first have to lose all that
it gained before. So evidence is gathered from every round onward. Each start has a share of the total, and the first
round has one half. The weighted sum still exceeds 1/α with a chance of at most α. Every bet λ multiplies the evidence
of all its starts by the same factor, so the state holds only their sum: a round costs the same after any number of
rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from pasto.arrays import FloatArray
from pasto.errors import MeasurementError
from pasto.inference.betting import (
    BET_SIZES,
    BetIncrements,
    RunningSums,
    ValueRange,
    add_round_sums,
    contrast_increments,
    log_growth,
    mean_increments,
)
from pasto.inference.comparison import build_side
from pasto.inference.round_data import CellStatistics, unit_covariances

if TYPE_CHECKING:
    from pasto.inference.stop_level import StopLevel

MIXTURE_ROUNDS = 2.0
"""ρ in rounds of the size of the first: fast for an effect that is visible within about ten rounds."""
MIN_START_UNITS = 100.0
"""Units since a start before the central limit theorem is applied to it."""
BET_SCALES = 4.0 * 0.5 ** (0.5 * np.arange(40))
"""λ times √ρ of the bets by the central limit theorem. They cover effects visible in one round or in 100,000, and
rounds that vary up to 100,000 times as widely as the first one with any variance."""


def _log_weights() -> FloatArray:
    """Return the logarithm of the half-normal probability around each of `BET_SCALES`, (bets,)."""
    edges = np.concatenate([[np.inf], np.sqrt(BET_SCALES[1:] * BET_SCALES[:-1]), [0.0]])
    return np.asarray(np.log(-np.diff(erf(edges / np.sqrt(2.0)))))


LOG_BET_WEIGHTS = _log_weights()


@dataclass(frozen=True, slots=True, eq=False)
class ChangeDetectorState:
    """State of a change detector: log evidence of every bet, summed over its starts."""

    rounds: int
    log_totals: FloatArray
    """(…, bets): sum over starts of share times evidence."""
    log_largest: FloatArray
    """(…, bets): the largest term of the sum."""
    largest_start: NDArray[np.intp]
    """(…, bets): number of the round in which that term starts."""
    scale: FloatArray
    """(…): ρ of the bets by the central limit theorem; 0 before a round had any variance."""
    pending_sums: FloatArray
    """(…, starts, 3): deviation, variance and units since each start that has fewer than `MIN_START_UNITS`."""
    pending_log_shares: FloatArray
    """(…, starts): logarithms of their shares; −∞ if a study's start counts already."""
    pending_rounds: tuple[int, ...]
    """Numbers of the rounds in which they start."""

    @classmethod
    def empty(cls, shape: tuple[int, ...], bets: int) -> ChangeDetectorState:
        """Return the state before the first round."""
        empty = np.full((*shape, bets), -np.inf)
        largest_start = np.zeros((*shape, bets), dtype=np.intp)
        pending_sums, pending_log_shares = np.zeros((*shape, 0, 3)), np.zeros((*shape, 0))
        return cls(0, empty, empty, largest_start, np.zeros(shape), pending_sums, pending_log_shares, ())

    def likely_start(self, log_weights: FloatArray | float = 0.0) -> NDArray[np.intp]:
        """Return the round in which the harm most likely began."""
        index = np.argmax(self.log_largest + log_weights, axis=-1)[..., None]
        return np.asarray(np.take_along_axis(self.largest_start, index, axis=-1)[..., 0])


def start_shares(rounds: int) -> FloatArray:
    """Return the share of every start: one half for the first round, then 1/(2 s(s + 1)).

    >>> start_shares(4).round(4).tolist()
    [0.5, 0.25, 0.0833, 0.0417]
    """
    return np.array([_share(start) for start in range(rounds)])


def _share(start: int) -> float:
    return 0.5 / (start * (start + 1.0)) if start else 0.5


def drift_evidence(
    deviation: FloatArray,
    variance: FloatArray,
    units: FloatArray,
    before: ChangeDetectorState | None = None,
    numbers: Sequence[int] | None = None,
) -> tuple[FloatArray, ChangeDetectorState]:
    """Return the log evidence that a sum drifts upward since any round, and the state to continue from.

    The inputs are the deviations, variances and units of single rounds, and the evidence is that after every round,
    (…, rounds) each. It is the mean of exp(λS − λ²V/2) over bets λ that discretise a half-normal law of variance 1/ρ.
    `before` is the state after earlier rounds, and `numbers` are the numbers of the rounds.

    >>> quiet, loud = np.zeros(50), np.concatenate([np.full(40, -5.0), np.full(10, 2.0)])
    >>> evidence, state = drift_evidence(np.stack([quiet, loud]), np.ones((2, 50)), np.full((2, 50), 200.0))
    >>> (evidence[:, -1] > np.log(20)).tolist(), state.likely_start(LOG_BET_WEIGHTS)[1].item()
    ([False, True], 40)
    """
    state = ChangeDetectorState.empty(deviation.shape[:-1], len(BET_SCALES)) if before is None else before
    evidence = np.empty(deviation.shape)
    added = np.stack([deviation, np.maximum(variance, 0.0), units], axis=-1)
    for index in range(deviation.shape[-1]):
        number = state.rounds if numbers is None else numbers[index]
        state = _add_round(_add_start(state, number), added[..., index, :])
        evidence[..., index] = np.logaddexp.reduce(state.log_totals + LOG_BET_WEIGHTS, axis=-1)
    return evidence, state


def _add_start(state: ChangeDetectorState, number: int) -> ChangeDetectorState:
    """Add a start at the next round; it replaces the last start if that has no units yet."""
    share = np.log(_share(state.rounds))
    if state.pending_rounds and not state.pending_sums[..., -1, :].any():
        pending_log_shares = state.pending_log_shares.copy()
        pending_log_shares[..., -1] = np.logaddexp(pending_log_shares[..., -1], share)
        return replace(
            state, pending_log_shares=pending_log_shares, pending_rounds=(*state.pending_rounds[:-1], number)
        )
    return replace(
        state,
        pending_sums=np.concatenate([state.pending_sums, np.zeros((*state.pending_sums.shape[:-2], 1, 3))], axis=-2),
        pending_log_shares=np.concatenate(
            [state.pending_log_shares, np.full((*state.pending_log_shares.shape[:-1], 1), share)], axis=-1
        ),
        pending_rounds=(*state.pending_rounds, number),
    )


def _add_round(state: ChangeDetectorState, added: FloatArray) -> ChangeDetectorState:
    """Add a round: update the bets, and include starts that now have enough units."""
    pending_sums = state.pending_sums + added[..., None, :]
    is_ready = (pending_sums[..., 2] >= MIN_START_UNITS) & (state.pending_log_shares > -np.inf)
    has_scale = state.scale > 0
    scale = np.where(has_scale, state.scale, MIXTURE_ROUNDS * added[..., 1])
    state = _rescale_bets(state, ~has_scale & (scale > 0))
    # Sums without any variance so far use the default scale.
    bets = BET_SCALES / np.sqrt(np.where(scale > 0, scale, MIXTURE_ROUNDS))[..., None]
    growth = bets * added[..., 0, None] - 0.5 * bets**2 * added[..., 1, None]
    log_totals, log_largest, largest_start = state.log_totals + growth, state.log_largest + growth, state.largest_start
    for index in np.flatnonzero(is_ready.any(axis=tuple(range(is_ready.ndim - 1)))):
        evidence = bets * pending_sums[..., index, 0, None] - 0.5 * bets**2 * pending_sums[..., index, 1, None]
        weighted_evidence = (
            np.where(is_ready[..., index], state.pending_log_shares[..., index], -np.inf)[..., None] + evidence
        )
        log_totals = np.logaddexp(log_totals, weighted_evidence)
        largest_start = np.where(weighted_evidence > log_largest, state.pending_rounds[index], largest_start)
        log_largest = np.maximum(log_largest, weighted_evidence)
    pending_log_shares = np.where(is_ready, -np.inf, state.pending_log_shares)
    remaining = np.flatnonzero((pending_log_shares > -np.inf).any(axis=tuple(range(pending_log_shares.ndim - 1))))
    return ChangeDetectorState(
        state.rounds + 1,
        log_totals,
        log_largest,
        largest_start,
        scale,
        pending_sums[..., remaining, :],
        pending_log_shares[..., remaining],
        tuple(state.pending_rounds[index] for index in remaining),
    )


def _rescale_bets(state: ChangeDetectorState, changes: NDArray[np.bool_]) -> ChangeDetectorState:
    """Distribute the evidence over the bets again, in studies whose bets change their scale now."""
    if not changes.any():
        return state
    largest = (state.log_largest + LOG_BET_WEIGHTS).max(axis=-1)
    is_changed = changes[..., None]
    return replace(
        state,
        log_totals=np.where(
            is_changed, np.logaddexp.reduce(state.log_totals + LOG_BET_WEIGHTS, axis=-1)[..., None], state.log_totals
        ),
        log_largest=np.where(is_changed, largest[..., None], state.log_largest),
        largest_start=np.where(is_changed, state.likely_start(LOG_BET_WEIGHTS)[..., None], state.largest_start),
    )


def bounded_drift_evidence(
    increments: BetIncrements,
    theta: float | FloatArray,
    before: ChangeDetectorState | None = None,
    numbers: Sequence[int] | None = None,
) -> tuple[FloatArray, ChangeDetectorState]:
    """Return the log evidence of a bounded process beyond θ since any round, and the state to continue from.

    >>> from pasto.inference.betting import ValueRange, mean_increments
    >>> rate = np.concatenate([np.full(40, 0.5), np.full(10, 0.2)])
    >>> increments = mean_increments(np.full(50, 100.0), rate, 100 * rate * (1 - rate), ValueRange(0, 1), upward=False)
    >>> evidence, state = bounded_drift_evidence(increments, 0.4)
    >>> bool(evidence[39] > np.log(20)), bool(evidence[-1] > np.log(20)), state.likely_start().item()
    (False, True, 40)
    """
    growth = log_growth(increments, theta)
    state = ChangeDetectorState.empty(growth.shape[:-2], len(BET_SIZES)) if before is None else before
    evidence = np.empty(growth.shape[:-1])
    for index in range(growth.shape[-2]):
        number = state.rounds if numbers is None else numbers[index]
        share = np.log(_share(state.rounds))
        increment = growth[..., index, :]
        state = replace(
            state,
            rounds=state.rounds + 1,
            log_totals=np.logaddexp(state.log_totals, share) + increment,
            log_largest=np.maximum(state.log_largest, share) + increment,
            largest_start=np.where(share > state.log_largest, number, state.largest_start),
        )
        evidence[..., index] = np.logaddexp.reduce(state.log_totals, axis=-1)
    return evidence - np.log(len(BET_SIZES)), state


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
    if floor.has_value_range:
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
