"""Betting confidence sequences for metrics with a declared range: valid for small samples too.

They use an empirical-Bernstein process. For a unit's deviation ξ ≥ −c from a centre chosen before the unit,
exp(λξ − ψ(λ)ξ²) has a mean of at most exp(λ E ξ), with ψ(λ) = (−log(1 − cλ) − cλ)/c² and 0 ≤ λ < 1/c. The squares are
summed about the centre, so the moments of a round suffice. The evidence is the mean over several bets λ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import OptionError
from pasto.inference.intervals import Interval

BET_SIZES = 4.0 * 0.5 ** np.arange(12)
"""λ times the range: each half of the one before, for effects from large to small."""

MAX_BET_SHARE = 0.9
"""λ stays below this share of 1/c, where ψ goes to infinity."""


@dataclass(frozen=True, slots=True)
class ValueRange:
    """Range of a unit's value, declared before the study.

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
        """Distance between the ends."""
        return self.high - self.low


@dataclass(frozen=True, slots=True, eq=False)
class BetIncrements:
    """Increments of a bounded process by round: (…, rounds) each.

    The upward sum Σ(ξ − E ξ) is `gain` − `counted` · θ, with θ the mean that is tested.
    """

    gain: FloatArray
    """Σ ξ if θ is zero."""
    counted: FloatArray
    """Coefficient of θ in E Σ ξ."""
    squares: FloatArray
    """Σ ξ² about the centre."""
    scale: FloatArray
    """c: no single ξ is below −c."""
    width: float
    """Width of the range, by which bets are scaled."""


RunningSums = tuple[FloatArray, FloatArray]
"""Units so far and the sum of their values, (…) each."""


def mean_increments(
    units: FloatArray,
    mean: FloatArray,
    cross: FloatArray,
    within: ValueRange,
    *,
    upward: bool = True,
    start: float | None = None,
    before: RunningSums | None = None,
) -> BetIncrements:
    """Return the increments of a test of a metric's mean, (…, rounds) each.

    The first round is centred at `start`; without a start it only sets the centre. `before` holds the sums of earlier
    rounds.

    >>> units, mean, cross = np.array([10.0, 10.0]), np.array([0.2, 0.4]), np.array([1.6, 2.4])
    >>> mean_increments(units, mean, cross, ValueRange(0, 1)).squares.round(6).tolist()
    [0.0, 2.8]
    """
    centre = earlier_means(units, mean, before)
    if start is not None:
        centre = np.where(np.isnan(centre), min(max(start, within.low), within.high), centre)
    sign = 1.0 if upward else -1.0
    counted = units * np.isfinite(centre)
    filled_centre = np.where(counted > 0, centre, within.low)
    offset = np.where(counted > 0, mean - filled_centre, 0.0)
    scale = filled_centre - within.low if upward else within.high - filled_centre
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
    before: tuple[RunningSums, RunningSums] | None = None,
) -> BetIncrements:
    """Return the increments of a test of factor · control − treated > 0, from each arm's (units, mean, cross).

    Every unit counts by its arm's share of the round's information, 1/(1/n₁ + factor²/n₀). θ is the shortfall of the
    treated arm. The first round of both arms only sets their centres.

    >>> arm = (np.array([10.0, 10.0]), np.array([0.2, 0.4]), np.array([1.6, 2.4]))
    >>> contrast_increments(arm, arm, 1.0, ValueRange(0, 1)).scale.round(3).tolist()
    [1.0, 0.4]
    """
    earlier_sums = (None, None) if before is None else before
    arm_centres = [
        earlier_means(arm[0], arm[1], sums) for arm, sums in zip((treated, control), earlier_sums, strict=True)
    ]
    usable = np.isfinite(arm_centres[0]) & np.isfinite(arm_centres[1]) & (treated[0] > 0) & (control[0] > 0)
    parts = []
    units = [np.where(usable, arm[0], 1.0) for arm in (treated, control)]
    information = 1.0 / (1.0 / units[0] + factor**2 / units[1])
    for arm, arm_units, arm_centre, sign in zip(
        (treated, control), units, arm_centres, (np.array(-1.0), factor), strict=True
    ):
        centre, mean = np.where(usable, arm_centre, within.low), np.where(usable, arm[1], within.low)
        weight = np.abs(sign) * information / arm_units
        squares = weight**2 * (np.where(usable, arm[2], 0.0) + arm_units * (mean - centre) ** 2)
        slack = np.where(np.less(sign, 0.0), within.high - centre, centre - within.low)
        parts.append((sign * information * mean, squares, weight * slack))
    scale = np.where(usable, np.maximum(parts[0][2], parts[1][2]), within.width)
    return BetIncrements(
        gain=np.where(usable, parts[0][0] + parts[1][0], 0.0),
        counted=np.where(usable, information, 0.0),
        squares=np.where(usable, parts[0][1] + parts[1][1], 0.0),
        scale=np.maximum(scale, 1e-12 * within.width),
        width=within.width,
    )


def earlier_means(units: FloatArray, mean: FloatArray, before: RunningSums | None = None) -> FloatArray:
    """Return the mean over the units of all earlier rounds, (…, rounds); NaN if there are none.

    >>> earlier_means(np.array([10.0, 30.0, 5.0]), np.array([1.0, 2.0, 9.0])).tolist()
    [nan, 1.0, 1.75]
    """
    initial = add_round_sums(units[..., :0], mean[..., :0]) if before is None else before
    running_units = _cumulate(initial[0], units)[..., :-1]
    running_sum = _cumulate(initial[1], units * np.where(units > 0, mean, 0.0))[..., :-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(running_units > 0, running_sum / running_units, np.nan))


def add_round_sums(units: FloatArray, mean: FloatArray, before: RunningSums | None = None) -> RunningSums:
    """Return the sums after these rounds, for the rounds that follow.

    >>> [float(part) for part in add_round_sums(np.array([10.0, 30.0]), np.array([1.0, 2.0]))]
    [40.0, 70.0]
    """
    initial = before or (np.zeros(units.shape[:-1]), np.zeros(units.shape[:-1]))
    values = units * np.where(units > 0, mean, 0.0)
    return _cumulate(initial[0], units)[..., -1], _cumulate(initial[1], values)[..., -1]


def _cumulate(initial: FloatArray, values: FloatArray) -> FloatArray:
    """Return the sums before every value, and after the last."""
    return np.asarray(np.cumsum(np.concatenate([np.asarray(initial)[..., None], values], axis=-1), axis=-1))


def log_growth(increments: BetIncrements, theta: float | FloatArray) -> FloatArray:
    """Return the increments of each bet's log evidence that the mean lies beyond θ, (…, rounds, bets)."""
    bets = np.minimum(BET_SIZES / increments.width, MAX_BET_SHARE / increments.scale[..., None])
    reduced = bets * increments.scale[..., None]
    with np.errstate(invalid="ignore"):
        penalty = np.where(
            reduced > 1e-4, (-np.log1p(-reduced) - reduced) / increments.scale[..., None] ** 2, 0.5 * bets**2
        )
    deviation = increments.gain - increments.counted * np.asarray(theta)
    return np.asarray(bets * deviation[..., None] - penalty * increments.squares[..., None])


def log_wealth(increments: BetIncrements, theta: float | FloatArray) -> FloatArray:
    """Return each bet's log evidence after every round that the mean lies beyond θ, (…, rounds, bets)."""
    return np.asarray(np.cumsum(log_growth(increments, theta), axis=-2))


def wealth_slopes(increments: BetIncrements) -> FloatArray:
    """Return the rate at which each bet's log wealth falls as θ rises, (…, rounds, bets)."""
    bets = np.minimum(BET_SIZES / increments.width, MAX_BET_SHARE / increments.scale[..., None])
    return np.asarray(np.cumsum(bets * increments.counted[..., None], axis=-2))


def log_sum(values: FloatArray) -> FloatArray:
    """Return log Σ exp over the last axis, if at least one value is finite; ten times as fast as SciPy's.

    >>> round(float(log_sum(np.log([1.0, 2.0, 3.0]))), 12) == round(float(np.log(6.0)), 12)
    True
    """
    largest = values.max(axis=-1, keepdims=True)
    return np.asarray(np.log(np.exp(values - largest).sum(axis=-1)) + largest[..., 0])


def log_bounded_evidence(increments: BetIncrements, theta: float | FloatArray) -> FloatArray:
    """Return the log evidence of all bets together, (…, rounds); it exceeds log(1/α) with a chance of at most α.

    >>> rng = np.random.default_rng(1)
    >>> draws = (rng.random((20, 500)) < 0.03).astype(float)
    >>> increments = mean_increments(np.full(20, 500.0), draws.mean(axis=1), 500 * draws.var(axis=1), ValueRange(0, 1))
    >>> (log_bounded_evidence(increments, np.array([[0.01], [0.03]]))[:, -1] > np.log(20)).tolist()
    [True, False]
    """
    return np.asarray(log_sum(log_wealth(increments, theta)) - np.log(len(BET_SIZES)))


def bounded_mean(units: FloatArray, mean: FloatArray, cross: FloatArray, within: ValueRange, error: float) -> Interval:
    """Return a confidence sequence for the constant mean of a bounded metric, after every round (…, rounds).

    >>> rng = np.random.default_rng(1)
    >>> draws = (rng.random((20, 500)) < 0.03).astype(float)
    >>> interval = bounded_mean(np.full(20, 500.0), draws.mean(axis=1), 500 * draws.var(axis=1), ValueRange(0, 1), 0.05)
    >>> [round(float(end[-1]), 3) for end in (interval.low, interval.high)], float(interval.high[0])
    ([0.023, 0.036], 1.0)
    """
    ends = []
    for upward in (True, False):
        increments = mean_increments(units, mean, cross, within, upward=upward)
        ends.append(_bound_of_mean(increments, within, np.log(2.0 / error), upward=upward))
    total = np.cumsum(units, axis=-1)
    estimate = np.cumsum(units * np.where(units > 0, mean, 0.0), axis=-1) / np.maximum(total, 1.0)
    return Interval(np.asarray(estimate), *ends)


def _bound_of_mean(increments: BetIncrements, within: ValueRange, threshold: float, *, upward: bool) -> FloatArray:
    """Return, by bisection, the rejected θ nearest to the estimate after each round."""
    wealth_at_zero, slope = log_wealth(increments, 0.0), wealth_slopes(increments)
    outer = np.full(increments.gain.shape, within.low if upward else within.high)
    inner = np.full(increments.gain.shape, within.high if upward else within.low)
    for _ in range(40):
        middle = 0.5 * (outer + inner)
        evidence = log_sum(wealth_at_zero - middle[..., None] * slope) - np.log(len(BET_SIZES))
        rejected = evidence >= threshold
        outer, inner = np.where(rejected, middle, outer), np.where(rejected, inner, middle)
    return np.asarray(outer)


ArmRounds = tuple[FloatArray, FloatArray, FloatArray]
"""Units, means and centred squares by round, (…, rounds) each."""

BISECTION_STEPS = 50


def bounded_difference(treated: ArmRounds, control: ArmRounds, within: ValueRange, error: float) -> Interval:
    """Return a confidence sequence for the constant difference treated − control, after every round.

    >>> rng = np.random.default_rng(1)
    >>> arms = [(rng.random((20, 500)) < rate).astype(float) for rate in (0.10, 0.05)]
    >>> treated, control = ((np.full(20, 500.0), arm.mean(axis=1), 500 * arm.var(axis=1)) for arm in arms)
    >>> interval = bounded_difference(treated, control, ValueRange(0, 1), 0.05)
    >>> [round(float(end[-1]), 3) for end in (interval.low, interval.high)]
    [0.034, 0.062]
    """
    high = -_bound_of_shortfall(contrast_increments(treated, control, 1.0, within), within.width, error)
    low = _bound_of_shortfall(
        contrast_increments(_negate_arm(treated), _negate_arm(control), 1.0, _negate_range(within)), within.width, error
    )
    usable = (treated[0] > 0) & (control[0] > 0)
    weight = np.where(usable, 1.0 / (1.0 / np.maximum(treated[0], 1.0) + 1.0 / np.maximum(control[0], 1.0)), 0.0)
    difference = np.where(usable, treated[1] - control[1], 0.0)
    estimate = np.cumsum(weight * difference, axis=-1) / np.maximum(np.cumsum(weight, axis=-1), 1e-300)
    return Interval(np.asarray(estimate), low, high)


def bounded_relative(
    treated: ArmRounds, control: ArmRounds, within: ValueRange, error: float, max_lift: float = 10.0
) -> Interval:
    """Return the relative lift after the last round, up to `max_lift`, of a metric that is never negative.

    It contains every r for which treated = (1 + r) · control is not rejected.

    >>> rng = np.random.default_rng(1)
    >>> arms = [(rng.random((20, 500)) < rate).astype(float) for rate in (0.10, 0.05)]
    >>> treated, control = ((np.full(20, 500.0), arm.mean(axis=1), 500 * arm.var(axis=1)) for arm in arms)
    >>> interval = bounded_relative(treated, control, ValueRange(0, 1), 0.05)
    >>> [round(float(end), 2) for end in (interval.low, interval.high)]
    [0.58, 1.31]
    """
    threshold = np.log(2.0 / error)

    def evidence_below(factor: FloatArray) -> FloatArray:
        return _last_evidence(lambda factors: contrast_increments(treated, control, factors, within), factor)

    def evidence_above(factor: FloatArray) -> FloatArray:
        return _last_evidence(
            lambda factors: contrast_increments(
                _negate_arm(treated), _negate_arm(control), factors, _negate_range(within)
            ),
            factor,
        )

    shape = treated[0].shape[:-1]
    with np.errstate(divide="ignore", invalid="ignore"):  # an arm may have no units
        levels = [np.asarray((arm[0] * arm[1]).sum(axis=-1) / arm[0].sum(axis=-1)) for arm in (treated, control)]
        ratio = levels[0] / levels[1]
    middle = np.clip(np.nan_to_num(ratio, nan=1.0, posinf=1.0 + max_lift, neginf=0.0), 0.0, 1.0 + max_lift)
    high = _bound_of_factor(evidence_below, middle, np.full(shape, 1.0 + max_lift), threshold)
    low = _bound_of_factor(evidence_above, middle, np.zeros(shape), threshold)
    return Interval(
        np.asarray(ratio - 1.0), np.where(low > 0, low - 1.0, -np.inf), np.where(high <= max_lift, high - 1.0, np.inf)
    )


def _bound_of_shortfall(increments: BetIncrements, width: float, error: float) -> FloatArray:
    """Return the largest shortfall of the treated side with enough evidence, after every round."""
    wealth_at_zero, slope = log_wealth(increments, 0.0), wealth_slopes(increments)
    lower = np.full(increments.gain.shape, -width)
    upper = np.full(increments.gain.shape, width)
    for _ in range(BISECTION_STEPS):
        middle = 0.5 * (lower + upper)
        rejected = log_sum(wealth_at_zero - middle[..., None] * slope) - np.log(len(BET_SIZES)) >= np.log(2.0 / error)
        lower, upper = np.where(rejected, middle, lower), np.where(rejected, upper, middle)
    return np.asarray(lower)


def _last_evidence(increments: Callable[[FloatArray], BetIncrements], factor: FloatArray) -> FloatArray:
    return log_bounded_evidence(increments(factor[..., None]), 0.0)[..., -1]


def _bound_of_factor(
    evidence: Callable[[FloatArray], FloatArray], inner: FloatArray, outer: FloatArray, threshold: float
) -> FloatArray:
    """Return, by bisection, the rejected factor nearest to the estimate; the outer end if none is rejected."""
    outer_rejected = evidence(outer) >= threshold
    rejected_end, open_end = outer, inner
    for _ in range(BISECTION_STEPS):
        middle = 0.5 * (rejected_end + open_end)
        rejected = evidence(middle) >= threshold
        rejected_end, open_end = np.where(rejected, middle, rejected_end), np.where(rejected, open_end, middle)
    return np.asarray(np.where(outer_rejected, rejected_end, outer))


def _negate_arm(arm: ArmRounds) -> ArmRounds:
    return arm[0], -arm[1], arm[2]


def _negate_range(within: ValueRange) -> ValueRange:
    return ValueRange(-within.high, -within.low)
