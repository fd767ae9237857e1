"""Lifts of a bounded metric that need no large numbers: differences by round, relative lifts after the last one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pasto.estimate.intervals.bounded import (
    BETS,
    Pulls,
    Range,
    log_bounded_evidence,
    log_sum,
    log_wealth,
    pulls_of_contrast,
    slopes,
)
from pasto.estimate.intervals.interval import Array, Interval

Arm = tuple[Array, Array, Array]
"""Units, means and centred squares by round, (…, rounds) each."""
HALVINGS = 50


def bounded_difference(treated: Arm, control: Arm, within: Range, error: float) -> Interval:
    """A confidence sequence for treated less control after every round, the difference standing still.

    >>> rng = np.random.default_rng(1)
    >>> arms = [(rng.random((20, 500)) < rate).astype(float) for rate in (0.10, 0.05)]
    >>> treated, control = ((np.full(20, 500.0), arm.mean(axis=1), 500 * arm.var(axis=1)) for arm in arms)
    >>> found = bounded_difference(treated, control, Range(0, 1), 0.05)
    >>> [round(float(end[-1]), 3) for end in (found.low, found.high)]
    [0.034, 0.062]
    """
    high = -_refused_shortfall(pulls_of_contrast(treated, control, 1.0, within), within.width, error)
    low = _refused_shortfall(
        pulls_of_contrast(_turned(treated), _turned(control), 1.0, _turn(within)), within.width, error
    )
    usable = (treated[0] > 0) & (control[0] > 0)
    weight = np.where(usable, 1.0 / (1.0 / np.maximum(treated[0], 1.0) + 1.0 / np.maximum(control[0], 1.0)), 0.0)
    gap = np.where(usable, treated[1] - control[1], 0.0)
    estimate = np.cumsum(weight * gap, axis=-1) / np.maximum(np.cumsum(weight, axis=-1), 1e-300)
    return Interval(np.asarray(estimate), low, high)


def bounded_relative(treated: Arm, control: Arm, within: Range, error: float, most: float = 10.0) -> Interval:
    """The relative lift after the last round, up to `most`, of a metric that is never negative.

    It holds every r for which treated = (1 + r) · control is not refuted.

    >>> rng = np.random.default_rng(1)
    >>> arms = [(rng.random((20, 500)) < rate).astype(float) for rate in (0.10, 0.05)]
    >>> treated, control = ((np.full(20, 500.0), arm.mean(axis=1), 500 * arm.var(axis=1)) for arm in arms)
    >>> found = bounded_relative(treated, control, Range(0, 1), 0.05)
    >>> [round(float(end), 2) for end in (found.low, found.high)]
    [0.58, 1.31]
    """
    enough = np.log(2.0 / error)

    def below(factor: Array) -> Array:
        return _evidence(lambda one: pulls_of_contrast(treated, control, one, within), factor)

    def above(factor: Array) -> Array:
        return _evidence(lambda one: pulls_of_contrast(_turned(treated), _turned(control), one, _turn(within)), factor)

    shape = treated[0].shape[:-1]
    with np.errstate(divide="ignore", invalid="ignore"):  # an arm may have had no units at all
        levels = [np.asarray((arm[0] * arm[1]).sum(axis=-1) / arm[0].sum(axis=-1)) for arm in (treated, control)]
        ratio = levels[0] / levels[1]
    middle = np.clip(np.nan_to_num(ratio, nan=1.0, posinf=1.0 + most, neginf=0.0), 0.0, 1.0 + most)
    high = _last(below, middle, np.full(shape, 1.0 + most), enough)
    low = _last(above, middle, np.zeros(shape), enough)
    return Interval(
        np.asarray(ratio - 1.0), np.where(low > 0, low - 1.0, -np.inf), np.where(high <= most, high - 1.0, np.inf)
    )


def _refused_shortfall(pulls: Pulls, width: float, error: float) -> Array:
    """The largest shortfall of the treated side that there is enough evidence for, after every round."""
    fixed, slope = log_wealth(pulls, 0.0), slopes(pulls)
    refused = np.full(pulls.gain.shape, -width)
    open_ = np.full(pulls.gain.shape, width)
    for _ in range(HALVINGS):
        middle = 0.5 * (refused + open_)
        told = log_sum(fixed - middle[..., None] * slope) - np.log(len(BETS)) >= np.log(2.0 / error)
        refused, open_ = np.where(told, middle, refused), np.where(told, open_, middle)
    return np.asarray(refused)


def _evidence(pulls: Callable[[Array], Pulls], factor: Array) -> Array:
    return log_bounded_evidence(pulls(factor[..., None]), 0.0)[..., -1]


def _last(evidence: Callable[[Array], Array], inner: Array, outer: Array, enough: float) -> Array:
    """The factor nearest to the estimate against which there is enough evidence; the outer end where none is."""
    far = evidence(outer) >= enough
    refused, open_ = outer, inner
    for _ in range(HALVINGS):
        middle = 0.5 * (refused + open_)
        told = evidence(middle) >= enough
        refused, open_ = np.where(told, middle, refused), np.where(told, open_, middle)
    return np.asarray(np.where(far, refused, outer))


def _turned(arm: Arm) -> Arm:
    return arm[0], -arm[1], arm[2]


def _turn(within: Range) -> Range:
    return Range(-within.high, -within.low)
