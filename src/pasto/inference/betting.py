"""Confidence sequences that need no large numbers: for metrics with a range or a cap declared beforehand.

An empirical-Bernstein process: for a unit's deviation ξ ≥ −c from a centre chosen before it was seen,
exp(λξ − ψ(λ)ξ²) has a mean of at most exp(λ E ξ), with ψ(λ) = (−log(1 − cλ) − cλ)/c² and 0 ≤ λ < 1/c. The squares are
summed about the centre, so what a round's moments say is all that is needed. Several λ are tried side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import OptionError
from pasto.inference.intervals import Interval

BETS = 4.0 * 0.5 ** np.arange(12)
"""λ times the range: each half of the one before, for effects from large to tiny."""

EDGE = 0.9
"""λ stays below this share of 1/c, where ψ goes to infinity."""


@dataclass(frozen=True, slots=True)
class ValueRange:
    """Between which a unit's value lies, declared before the study.

    >>> ValueRange(0.0, 7200.0).width
    7200.0
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.low) and np.isfinite(self.high) and self.low < self.high):
            raise OptionError(f"a range needs two finite ends, the lower first, got [{self.low}, {self.high}]")

    @property
    def width(self) -> float:
        """From end to end."""
        return self.high - self.low


@dataclass(frozen=True, slots=True, eq=False)
class BetIncrements:
    """What every round adds to a bounded process: (…, rounds) each.

    The upward sum Σ(ξ − E ξ) is `gain` − `counted` · θ, with θ the mean that is asked for.
    """

    gain: FloatArray
    """Σ ξ, had θ been at the origin."""
    counted: FloatArray
    """How much of θ is in E Σ ξ."""
    squares: FloatArray
    """Σ ξ² about the centre."""
    scale: FloatArray
    """c: no single ξ is below −c."""
    width: float
    """The range that bets are scaled by."""


Sums = tuple[FloatArray, FloatArray]
"""Units so far and the sum of what they measured, (…) each."""


def mean_increments(
    units: FloatArray,
    mean: FloatArray,
    cross: FloatArray,
    within: ValueRange,
    *,
    upward: bool = True,
    start: float | None = None,
    before: Sums | None = None,
) -> BetIncrements:
    """A metric's rounds as pulls on its mean, (…, rounds) each.

    The first round is centred at `start`; without one, it sets the centre and tells nothing else. `before` is what
    earlier rounds have left.

    >>> units, mean, cross = np.array([10.0, 10.0]), np.array([0.2, 0.4]), np.array([1.6, 2.4])
    >>> mean_increments(units, mean, cross, ValueRange(0, 1)).squares.round(6).tolist()
    [0.0, 2.8]
    """
    centre = centres(units, mean, before)
    if start is not None:
        centre = np.where(np.isnan(centre), min(max(start, within.low), within.high), centre)
    sign = 1.0 if upward else -1.0
    counted = units * np.isfinite(centre)
    middle = np.where(counted > 0, centre, within.low)
    offset = np.where(counted > 0, mean - middle, 0.0)
    scale = middle - within.low if upward else within.high - middle
    return BetIncrements(
        gain=sign * counted * np.where(counted > 0, mean, 0.0),
        counted=sign * counted,
        squares=np.where(counted > 0, cross + units * offset**2, 0.0),
        scale=np.maximum(scale, 1e-12 * within.width),
        width=within.width,
    )


def contrast_increments(
    treated: tuple[FloatArray, FloatArray, FloatArray],
    control: tuple[FloatArray, FloatArray, FloatArray],
    factor: float | FloatArray,
    within: ValueRange,
    before: tuple[Sums, Sums] | None = None,
) -> BetIncrements:
    """Two arms' (units, mean, cross) as pulls on factor · control − treated: evidence that the treated falls short.

    Every unit counts by its arm's share of the round's information, 1/(1/n₁ + factor²/n₀); θ is the shortfall, and the
    first round of both arms only sets their centres.

    >>> arm = (np.array([10.0, 10.0]), np.array([0.2, 0.4]), np.array([1.6, 2.4]))
    >>> contrast_increments(arm, arm, 1.0, ValueRange(0, 1)).scale.round(3).tolist()
    [1.0, 0.4]
    """
    left = (None, None) if before is None else before
    middles = [centres(arm[0], arm[1], sums) for arm, sums in zip((treated, control), left, strict=True)]
    usable = np.isfinite(middles[0]) & np.isfinite(middles[1]) & (treated[0] > 0) & (control[0] > 0)
    parts = []
    units = [np.where(usable, arm[0], 1.0) for arm in (treated, control)]
    information = 1.0 / (1.0 / units[0] + factor**2 / units[1])
    for arm, size, middle, sign in zip((treated, control), units, middles, (np.array(-1.0), factor), strict=True):
        centre, mean = np.where(usable, middle, within.low), np.where(usable, arm[1], within.low)
        each = np.abs(sign) * information / size
        squares = each**2 * (np.where(usable, arm[2], 0.0) + size * (mean - centre) ** 2)
        room = np.where(np.less(sign, 0.0), within.high - centre, centre - within.low)
        parts.append((sign * information * mean, squares, each * room))
    scale = np.where(usable, np.maximum(parts[0][2], parts[1][2]), within.width)
    return BetIncrements(
        gain=np.where(usable, parts[0][0] + parts[1][0], 0.0),
        counted=np.where(usable, information, 0.0),
        squares=np.where(usable, parts[0][1] + parts[1][1], 0.0),
        scale=np.maximum(scale, 1e-12 * within.width),
        width=within.width,
    )


def centres(units: FloatArray, mean: FloatArray, before: Sums | None = None) -> FloatArray:
    """The mean over all earlier rounds' units, (…, rounds); NaN before there were any.

    >>> centres(np.array([10.0, 30.0, 5.0]), np.array([1.0, 2.0, 9.0])).tolist()
    [nan, 1.0, 1.75]
    """
    first = sums_of(units[..., :0], mean[..., :0]) if before is None else before
    counted = _running(first[0], units)[..., :-1]
    summed = _running(first[1], units * np.where(units > 0, mean, 0.0))[..., :-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(counted > 0, summed / counted, np.nan))


def sums_of(units: FloatArray, mean: FloatArray, before: Sums | None = None) -> Sums:
    """What rounds leave to those behind them.

    >>> [float(part) for part in sums_of(np.array([10.0, 30.0]), np.array([1.0, 2.0]))]
    [40.0, 70.0]
    """
    first = before or (np.zeros(units.shape[:-1]), np.zeros(units.shape[:-1]))
    summed = units * np.where(units > 0, mean, 0.0)
    return _running(first[0], units)[..., -1], _running(first[1], summed)[..., -1]


def _running(first: FloatArray, values: FloatArray) -> FloatArray:
    """Sums before every value, and after the last."""
    return np.asarray(np.cumsum(np.concatenate([np.asarray(first)[..., None], values], axis=-1), axis=-1))


def log_growth(pulls: BetIncrements, theta: float | FloatArray) -> FloatArray:
    """What every round adds to each bet's logarithm of evidence that the mean lies beyond θ: (…, rounds, bets)."""
    bets = np.minimum(BETS / pulls.width, EDGE / pulls.scale[..., None])
    reduced = bets * pulls.scale[..., None]
    with np.errstate(invalid="ignore"):
        cost = np.where(reduced > 1e-4, (-np.log1p(-reduced) - reduced) / pulls.scale[..., None] ** 2, 0.5 * bets**2)
    deviation = pulls.gain - pulls.counted * np.asarray(theta)
    return np.asarray(bets * deviation[..., None] - cost * pulls.squares[..., None])


def log_wealth(pulls: BetIncrements, theta: float | FloatArray) -> FloatArray:
    """Each bet's logarithm of evidence that the mean lies beyond θ, added up round by round: (…, rounds, bets)."""
    return np.asarray(np.cumsum(log_growth(pulls, theta), axis=-2))


def slopes(pulls: BetIncrements) -> FloatArray:
    """How fast each bet's wealth falls as θ rises, (…, rounds, bets)."""
    bets = np.minimum(BETS / pulls.width, EDGE / pulls.scale[..., None])
    return np.asarray(np.cumsum(bets * pulls.counted[..., None], axis=-2))


def log_sum(values: FloatArray) -> FloatArray:
    """log Σ exp over the last axis, of numbers of which at least one is finite; a tenth of the time of SciPy's.

    >>> round(float(log_sum(np.log([1.0, 2.0, 3.0]))), 12) == round(float(np.log(6.0)), 12)
    True
    """
    most = values.max(axis=-1, keepdims=True)
    return np.asarray(np.log(np.exp(values - most).sum(axis=-1)) + most[..., 0])


def log_bounded_evidence(pulls: BetIncrements, theta: float | FloatArray) -> FloatArray:
    """The bets' evidence together, (…, rounds): that it ever exceeds 1/α has a chance of at most α.

    >>> rng = np.random.default_rng(1)
    >>> draws = (rng.random((20, 500)) < 0.03).astype(float)
    >>> pulls = mean_increments(np.full(20, 500.0), draws.mean(axis=1), 500 * draws.var(axis=1), ValueRange(0, 1))
    >>> (log_bounded_evidence(pulls, np.array([[0.01], [0.03]]))[:, -1] > np.log(20)).tolist()
    [True, False]
    """
    return np.asarray(log_sum(log_wealth(pulls, theta)) - np.log(len(BETS)))


def bounded_mean(units: FloatArray, mean: FloatArray, cross: FloatArray, within: ValueRange, error: float) -> Interval:
    """A confidence sequence for a bounded metric's mean after every round, (…, rounds) each, the mean standing still.

    >>> rng = np.random.default_rng(1)
    >>> draws = (rng.random((20, 500)) < 0.03).astype(float)
    >>> found = bounded_mean(np.full(20, 500.0), draws.mean(axis=1), 500 * draws.var(axis=1), ValueRange(0, 1), 0.05)
    >>> [round(float(end[-1]), 3) for end in (found.low, found.high)], float(found.high[0])
    ([0.023, 0.036], 1.0)
    """
    ends = []
    for upward in (True, False):
        pulls = mean_increments(units, mean, cross, within, upward=upward)
        ends.append(_last_refused(pulls, within, np.log(2.0 / error), upward=upward))
    total = np.cumsum(units, axis=-1)
    estimate = np.cumsum(units * np.where(units > 0, mean, 0.0), axis=-1) / np.maximum(total, 1.0)
    return Interval(np.asarray(estimate), *ends)


def _last_refused(pulls: BetIncrements, within: ValueRange, enough: float, *, upward: bool) -> FloatArray:
    """The θ nearest to the estimate against which there is enough evidence after each round, by halving."""
    fixed, slope = log_wealth(pulls, 0.0), slopes(pulls)
    outer = np.full(pulls.gain.shape, within.low if upward else within.high)
    inner = np.full(pulls.gain.shape, within.high if upward else within.low)
    for _ in range(40):
        middle = 0.5 * (outer + inner)
        evidence = log_sum(fixed - middle[..., None] * slope) - np.log(len(BETS))
        refused = evidence >= enough
        outer, inner = np.where(refused, middle, outer), np.where(refused, inner, middle)
    return np.asarray(outer)


Arm = tuple[FloatArray, FloatArray, FloatArray]
"""Units, means and centred squares by round, (…, rounds) each."""

HALVINGS = 50


def bounded_difference(treated: Arm, control: Arm, within: ValueRange, error: float) -> Interval:
    """A confidence sequence for treated less control after every round, the difference standing still.

    >>> rng = np.random.default_rng(1)
    >>> arms = [(rng.random((20, 500)) < rate).astype(float) for rate in (0.10, 0.05)]
    >>> treated, control = ((np.full(20, 500.0), arm.mean(axis=1), 500 * arm.var(axis=1)) for arm in arms)
    >>> found = bounded_difference(treated, control, ValueRange(0, 1), 0.05)
    >>> [round(float(end[-1]), 3) for end in (found.low, found.high)]
    [0.034, 0.062]
    """
    high = -_refused_shortfall(contrast_increments(treated, control, 1.0, within), within.width, error)
    low = _refused_shortfall(
        contrast_increments(_turned(treated), _turned(control), 1.0, _turn(within)), within.width, error
    )
    usable = (treated[0] > 0) & (control[0] > 0)
    weight = np.where(usable, 1.0 / (1.0 / np.maximum(treated[0], 1.0) + 1.0 / np.maximum(control[0], 1.0)), 0.0)
    gap = np.where(usable, treated[1] - control[1], 0.0)
    estimate = np.cumsum(weight * gap, axis=-1) / np.maximum(np.cumsum(weight, axis=-1), 1e-300)
    return Interval(np.asarray(estimate), low, high)


def bounded_relative(treated: Arm, control: Arm, within: ValueRange, error: float, most: float = 10.0) -> Interval:
    """The relative lift after the last round, up to `most`, of a metric that is never negative.

    It holds every r for which treated = (1 + r) · control is not refuted.

    >>> rng = np.random.default_rng(1)
    >>> arms = [(rng.random((20, 500)) < rate).astype(float) for rate in (0.10, 0.05)]
    >>> treated, control = ((np.full(20, 500.0), arm.mean(axis=1), 500 * arm.var(axis=1)) for arm in arms)
    >>> found = bounded_relative(treated, control, ValueRange(0, 1), 0.05)
    >>> [round(float(end), 2) for end in (found.low, found.high)]
    [0.58, 1.31]
    """
    enough = np.log(2.0 / error)

    def below(factor: FloatArray) -> FloatArray:
        return _evidence(lambda one: contrast_increments(treated, control, one, within), factor)

    def above(factor: FloatArray) -> FloatArray:
        return _evidence(
            lambda one: contrast_increments(_turned(treated), _turned(control), one, _turn(within)), factor
        )

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


def _refused_shortfall(pulls: BetIncrements, width: float, error: float) -> FloatArray:
    """The largest shortfall of the treated side that there is enough evidence for, after every round."""
    fixed, slope = log_wealth(pulls, 0.0), slopes(pulls)
    refused = np.full(pulls.gain.shape, -width)
    open_ = np.full(pulls.gain.shape, width)
    for _ in range(HALVINGS):
        middle = 0.5 * (refused + open_)
        told = log_sum(fixed - middle[..., None] * slope) - np.log(len(BETS)) >= np.log(2.0 / error)
        refused, open_ = np.where(told, middle, refused), np.where(told, open_, middle)
    return np.asarray(refused)


def _evidence(pulls: Callable[[FloatArray], BetIncrements], factor: FloatArray) -> FloatArray:
    return log_bounded_evidence(pulls(factor[..., None]), 0.0)[..., -1]


def _last(
    evidence: Callable[[FloatArray], FloatArray], inner: FloatArray, outer: FloatArray, enough: float
) -> FloatArray:
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


def _turn(within: ValueRange) -> ValueRange:
    return ValueRange(-within.high, -within.low)
