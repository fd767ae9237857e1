"""Lift over the concurrent control: of an arm as it was served, of a fixed blend, and of single candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pasto.formatting import format_confidence, format_lift
from pasto.inference import (
    Comparison,
    ComparisonSide,
    Interval,
    Quantity,
    ValueRange,
    Weights,
    bounded_difference,
    bounded_relative,
    build_side,
    compare,
    error_per_claim,
)
from pasto.inference.round_data import RoundRecord


@dataclass(frozen=True, slots=True)
class LiftEstimate:
    """Estimate with its interval; the ends are infinite before there is enough data."""

    value: float
    low: float
    high: float

    @property
    def direction(self) -> str:
        """Direction of the lift: "up", "down", or "unclear" if the interval contains zero."""
        return "up" if self.low > 0 else "down" if self.high < 0 else "unclear"


@dataclass(frozen=True, slots=True)
class AdjustedLift:
    """Lift adjusted by the units' behaviour before the study (CUPED)."""

    absolute: LiftEstimate
    relative: LiftEstimate
    reduction: float
    """Share of the variance that the adjustment removes; 0 if the past explains nothing."""


@dataclass(frozen=True, slots=True)
class BoundedLift:
    """Lift with an interval from the metric's declared range, valid for small samples too."""

    absolute: LiftEstimate
    relative: LiftEstimate | None
    """None if the metric may be negative."""


@dataclass(frozen=True, slots=True)
class Lift:
    """Lift of one metric of one target over the control."""

    target: str
    metric: str
    level: float
    control: float
    absolute: LiftEstimate
    relative: LiftEstimate
    rounds: int
    """Rounds that have units on both sides."""
    confidence: float
    sequential: bool
    """True if the intervals hold at any look."""
    adjusted: AdjustedLift | None = None
    """None if the metric has no covariate."""
    bounded: BoundedLift | None = None
    """For a whole arm over several rounds, at any look; None for other targets and without a range."""

    @property
    def best(self) -> Lift:
        """Lift to rely on: the adjusted one if there is one, because the covariate was named before the study."""
        if self.adjusted is None:
            return self
        return replace(self, absolute=self.adjusted.absolute, relative=self.adjusted.relative)

    def __str__(self) -> str:
        span = f"{format_lift(self.relative.low)} to {format_lift(self.relative.high)}"
        verbs = {"up": "rose", "down": "fell", "unclear": "does not differ clearly from the control"}
        look = "at any look" if self.sequential else "at the horizon set beforehand"
        verb = verbs[self.absolute.direction]
        statement = verb if self.absolute.direction == "unclear" else f"{verb} by {abs(self.relative.value):.2%}"
        return f"{self.target}: {self.metric} {statement} ({span}, {format_confidence(self.confidence)} {look})"


@dataclass(frozen=True, slots=True)
class LiftTarget:
    """Target of a comparison with the control: a whole arm, or fixed shares of an arm's candidates.

    >>> LiftTarget("best", "learner", {3: 1.0}).weights
    'even'
    """

    name: str
    arm: str = "learner"
    shares: Mapping[int, float] | None = None
    """By candidate; None for the whole arm, as it was served."""

    @property
    def weights(self) -> Weights:
        """Weights of rounds: by traffic for a whole arm, evenly if shares depended on outcomes."""
        return "traffic" if self.shares is None else "even"


def estimate_lifts(
    record: RoundRecord,
    metrics: Mapping[str, Quantity],
    targets: Sequence[LiftTarget],
    *,
    confidence: float = 0.95,
    sequential: bool = True,
    covariates: Mapping[str, Quantity] | None = None,
    ranges: Mapping[str, ValueRange] | None = None,
    elapsed: float | None = None,
) -> tuple[Lift, ...]:
    """Return every target's lift in every metric, over all rounds.

    `covariates` are, by metric, quantities measured before units were assigned; the lift then also has an adjusted
    estimate with less noise. `ranges` are the declared ranges of a unit's value, by metric; the lift of a whole arm
    then also has an interval that is valid for small samples. If one record holds a whole phase, because units stay in
    their arm, `elapsed` is the number of rounds that it has run.

    >>> from pasto.inference.round_data import CellMoments, MeasuredRound, record_rounds
    >>> shares = {("control", 0): 0.5, ("learner", 1): 0.5}
    >>> def measure(level):
    ...     return [
    ...         CellMoments("control", 0, 2000, (level,), ((2000.0,),)),
    ...         CellMoments("learner", 1, 2000, (1.05 * level,), ((2000.0,),)),
    ...     ]
    >>> rounds = [MeasuredRound(number, shares, measure(level)) for number, level in enumerate([10.0, 14.0])]
    >>> record = record_rounds(rounds)
    >>> print(estimate_lifts(record, {"watch_time": Quantity(0)}, [LiftTarget("learner")])[0])
    learner: watch_time rose by 5.00% (+4.27% to +5.73%, 95% at any look)
    """
    error = error_per_claim(confidence)
    lifts = []
    sides = SideCache(record, running=sequential)
    for target in targets:
        rounds = sides.rounds(target)
        for name, quantity in metrics.items():
            raw = _with_elapsed_rounds(sides.compare(target, quantity, None), elapsed)
            absolute, relative = _absolute_and_relative(raw, error, sequential)
            adjusted = None
            if (covariate := (covariates or {}).get(name)) is not None:
                comparison = _with_elapsed_rounds(sides.compare(target, quantity, covariate), elapsed)
                adjusted = AdjustedLift(
                    *_absolute_and_relative(comparison, error, sequential), _variance_reduction(raw, comparison)
                )
            lifts.append(
                Lift(
                    target=target.name,
                    metric=name,
                    level=float(raw.treated),
                    control=float(raw.control),
                    absolute=absolute,
                    relative=relative,
                    rounds=rounds,
                    confidence=confidence,
                    sequential=sequential,
                    adjusted=adjusted,
                    bounded=None
                    if elapsed is not None or not sequential or name not in (ranges or {})
                    else _bounded_lift(record, target, quantity, (ranges or {})[name], error),
                )
            )
    return tuple(lifts)


@dataclass(frozen=True, slots=True, eq=False)
class LiftHistory:
    """History of a lift: by round, and cumulatively after every round, (rounds,) each."""

    by_round: Interval
    """Each round alone, at one look."""
    cumulative: Interval
    """All rounds so far, at any look."""


def estimate_history(
    record: RoundRecord,
    quantity: Quantity,
    target: LiftTarget,
    *,
    confidence: float = 0.95,
    covariate: Quantity | None = None,
) -> LiftHistory:
    """Return the history of a target's relative lift."""
    error = error_per_claim(confidence)
    sides = SideCache(record, running=True)
    cumulative = sides.compare(target, quantity, covariate, running=True)
    by_round = sides.compare(target, quantity, covariate, by_round=True)
    return LiftHistory(by_round.relative(error, sequential=False), cumulative.relative(error, sequential=True))


class SideCache:
    """Cache of the sides of a record."""

    def __init__(self, record: RoundRecord, *, running: bool) -> None:
        self._record = record
        self._running = running
        self._sides: dict[tuple[str, tuple[tuple[int, float], ...] | None], ComparisonSide] = {}

    def _side(self, target: LiftTarget) -> ComparisonSide:
        key = target.arm, None if target.shares is None else tuple(target.shares.items())
        if key not in self._sides:
            cells, cell, covariances = self._record.arm_view(target.arm, running=self._running)
            shares: Mapping[int, float] | int = cell
            if target.shares is not None:
                shares = {self._record.cell_index(target.arm, k): share for k, share in target.shares.items() if share}
            self._sides[key] = build_side(cells, covariances, shares)
        return self._sides[key]

    def _control(self) -> ComparisonSide:
        cells, place, covariances = self._record.arm_view("control", running=self._running)
        return build_side(cells, covariances, place)

    def rounds(self, target: LiftTarget) -> int:
        """Return the number of rounds with units on both sides."""
        return int(((self._side(target).units > 0) & (self._control().units > 0)).sum())

    def compare(
        self,
        target: LiftTarget,
        quantity: Quantity,
        covariate: Quantity | None,
        *,
        running: bool = False,
        by_round: bool = False,
    ) -> Comparison:
        """Compare a target with the control, over all rounds, cumulatively or by round."""
        sides = self._side(target), self._control()
        if by_round:
            sides = sides[0].split_rounds(), sides[1].split_rounds()
        return compare(*sides, quantity, weights=target.weights, covariate=covariate, running=running)


def _with_elapsed_rounds(comparison: Comparison, elapsed: float | None) -> Comparison:
    return comparison if elapsed is None else replace(comparison, information=np.asarray(float(elapsed)))


def _absolute_and_relative(comparison: Comparison, error: float, sequential: bool) -> tuple[LiftEstimate, LiftEstimate]:
    """Return the difference, and the difference as a share of the control."""
    lift, share = comparison.lift(error, sequential=sequential), comparison.relative(error, sequential=sequential)
    return _estimate(lift), _estimate(share)


def _bounded_lift(
    record: RoundRecord, target: LiftTarget, quantity: Quantity, within: ValueRange, error: float
) -> BoundedLift | None:
    """Return the bounded lift of a whole arm; the first round only sets the centres."""
    if target.shares is not None or quantity.denominator is not None or len(record.versions) < 2:
        return None
    column, arms = quantity.numerator, []
    for arm in (target.arm, "control"):
        cells, cell = record.join(arm)
        arms.append(
            (
                cells.units[:, cell],
                cells.mean[:, cell, column],
                np.maximum(cells.cross[:, cell, column, column], 0.0),
            )
        )
    difference = bounded_difference(arms[0], arms[1], within, error)
    last = Interval(*(np.asarray(end[-1]) for end in (difference.estimate, difference.low, difference.high)))
    relative = None if within.low < 0 else _estimate(bounded_relative(arms[0], arms[1], within, error))
    return BoundedLift(_estimate(last), relative)


def _variance_reduction(raw: Comparison, adjusted: Comparison) -> float:
    """Return the share of the difference's variance that an adjustment removes."""
    before, after = float(raw.variance), float(adjusted.variance)
    return max(0.0, 1.0 - after / before) if np.isfinite(before) and before > 0 else 0.0


def _estimate(interval: Interval) -> LiftEstimate:
    return LiftEstimate(float(interval.estimate), float(interval.low), float(interval.high))
