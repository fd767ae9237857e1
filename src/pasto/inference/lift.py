"""Lift over the concurrent control: of what the learner served, of a fixed blend, and of single candidates."""

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
    chance_of_error,
    compare,
    side,
)
from pasto.inference.round_data import RoundRecord


@dataclass(frozen=True, slots=True)
class LiftEstimate:
    """A number and the ends it lies between; infinite ends where nothing is known yet."""

    value: float
    low: float
    high: float

    @property
    def told(self) -> str:
        """Which way it lies from zero: "up", "down", or "unclear"."""
        return "up" if self.low > 0 else "down" if self.high < 0 else "unclear"


@dataclass(frozen=True, slots=True)
class AdjustedLift:
    """The same lift with what units did before taken into account (CUPED)."""

    absolute: LiftEstimate
    relative: LiftEstimate
    reduction: float
    """The share of the variance that is gone; 0 where the past explains nothing."""


@dataclass(frozen=True, slots=True)
class BoundedLift:
    """The same lift by an interval that needs no large numbers, from the range that the metric was given."""

    absolute: LiftEstimate
    relative: LiftEstimate | None
    """None where the metric may be negative."""


@dataclass(frozen=True, slots=True)
class Lift:
    """One metric of one side against the control."""

    target: str
    metric: str
    level: float
    control: float
    absolute: LiftEstimate
    relative: LiftEstimate
    rounds: int
    """With both sides in them."""
    confidence: float
    sequential: bool
    """Whether it may be looked at whenever one likes."""
    adjusted: AdjustedLift | None = None
    """None where the metric has no covariate."""
    bounded: BoundedLift | None = None
    """Of a whole arm over several rounds, at any look; None for anything else, and without a range."""

    @property
    def best(self) -> Lift:
        """The lift to rely on: the adjusted one where there is one, for the covariate was named before the study."""
        if self.adjusted is None:
            return self
        return replace(self, absolute=self.adjusted.absolute, relative=self.adjusted.relative)

    def __str__(self) -> str:
        span = f"{format_lift(self.relative.low)} to {format_lift(self.relative.high)}"
        ways = {"up": "rose", "down": "fell", "unclear": "cannot be told from the control's"}
        when = "at any look" if self.sequential else "at the horizon set beforehand"
        way = ways[self.absolute.told]
        told = way if self.absolute.told == "unclear" else f"{way} by {abs(self.relative.value):.2%}"
        return f"{self.target}: {self.metric} {told} ({span}, {format_confidence(self.confidence)} {when})"


@dataclass(frozen=True, slots=True)
class LiftTarget:
    """What is compared with the control: a whole arm, or fixed shares of an arm's candidates.

    >>> LiftTarget("best", "learner", {3: 1.0}).weights
    'even'
    """

    name: str
    arm: str = "learner"
    shares: Mapping[int, float] | None = None
    """By candidate; None for all that the arm was served, as it was served."""

    @property
    def weights(self) -> Weights:
        """How rounds count: by traffic for what was served, evenly where shares depended on outcomes."""
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
    """Every target's lift in every metric, all rounds together.

    `covariates` are, by metric, what was settled before units were dealt: beside the raw lift stands one that is
    adjusted by it, with less noise. `ranges` are those between which a unit's number lies, by metric: what a whole arm
    was served is then also told by an interval that needs no large numbers. Where one record holds a whole phase,
    because units stay in their arm, `elapsed` is how many rounds it has run.

    >>> from pasto.inference.round_data import CellMoments, MeasuredRound, record_rounds
    >>> shares = {("control", 0): 0.5, ("learner", 1): 0.5}
    >>> def told(level):
    ...     return [
    ...         CellMoments("control", 0, 2000, (level,), ((2000.0,),)),
    ...         CellMoments("learner", 1, 2000, (1.05 * level,), ((2000.0,),)),
    ...     ]
    >>> rounds = [MeasuredRound(number, shares, told(level)) for number, level in enumerate([10.0, 14.0])]
    >>> record = record_rounds(rounds)
    >>> print(estimate_lifts(record, {"watch_time": Quantity(0)}, [LiftTarget("learner")])[0])
    learner: watch_time rose by 5.00% (+4.27% to +5.73%, 95% at any look)
    """
    error = chance_of_error(confidence)
    found = []
    sides = _Sides(record, running=sequential)
    for target in targets:
        rounds = sides.rounds(target)
        for name, quantity in metrics.items():
            raw = _phase(sides.compare(target, quantity, None), elapsed)
            absolute, relative = _both(raw, error, sequential)
            adjusted = None
            if (covariate := (covariates or {}).get(name)) is not None:
                other = _phase(sides.compare(target, quantity, covariate), elapsed)
                adjusted = AdjustedLift(*_both(other, error, sequential), _reduction(raw, other))
            found.append(
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
                    else _bounded(record, target, quantity, (ranges or {})[name], error),
                )
            )
    return tuple(found)


@dataclass(frozen=True, slots=True, eq=False)
class LiftHistory:
    """A lift round by round, and cumulatively after every round: (rounds,) each."""

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
    """A target's relative lift as it came in."""
    error = chance_of_error(confidence)
    sides = _Sides(record, running=True)
    along = sides.compare(target, quantity, covariate, running=True)
    alone = sides.compare(target, quantity, covariate, alone=True)
    return LiftHistory(alone.relative(error, sequential=False), along.relative(error, sequential=True))


class _Sides:
    """A record's sides, each worked out once."""

    def __init__(self, record: RoundRecord, *, running: bool) -> None:
        self._record = record
        self._running = running
        self._sides: dict[tuple[str, tuple[tuple[int, float], ...] | None], ComparisonSide] = {}

    def _side(self, target: LiftTarget) -> ComparisonSide:
        asked = target.arm, None if target.shares is None else tuple(target.shares.items())
        if asked not in self._sides:
            cells, place, covariances = self._record.view(target.arm, running=self._running)
            shares: Mapping[int, float] | int = place
            if target.shares is not None:
                shares = {self._record.place(target.arm, k): share for k, share in target.shares.items() if share}
            self._sides[asked] = side(cells, covariances, shares)
        return self._sides[asked]

    def _control(self) -> ComparisonSide:
        cells, place, covariances = self._record.view("control", running=self._running)
        return side(cells, covariances, place)

    def rounds(self, target: LiftTarget) -> int:
        return int(((self._side(target).units > 0) & (self._control().units > 0)).sum())

    def compare(
        self,
        target: LiftTarget,
        quantity: Quantity,
        covariate: Quantity | None,
        *,
        running: bool = False,
        alone: bool = False,
    ) -> Comparison:
        both = self._side(target), self._control()
        if alone:
            both = both[0].alone(), both[1].alone()
        return compare(*both, quantity, weights=target.weights, covariate=covariate, running=running)


def _phase(comparison: Comparison, elapsed: float | None) -> Comparison:
    return comparison if elapsed is None else replace(comparison, information=np.asarray(float(elapsed)))


def _both(comparison: Comparison, error: float, sequential: bool) -> tuple[LiftEstimate, LiftEstimate]:
    """A difference, and the same as a share of the control."""
    lift, share = comparison.lift(error, sequential=sequential), comparison.relative(error, sequential=sequential)
    return _estimate(lift), _estimate(share)


def _bounded(
    record: RoundRecord, target: LiftTarget, quantity: Quantity, within: ValueRange, error: float
) -> BoundedLift | None:
    """What a whole arm was served, without large numbers; the first round only says where to begin."""
    if target.shares is not None or quantity.denominator is not None or len(record.versions) < 2:
        return None
    column, arms = quantity.numerator, []
    for arm in (target.arm, "control"):
        cells, place = record.joined(arm)
        arms.append(
            (
                cells.units[:, place],
                cells.mean[:, place, column],
                np.maximum(cells.cross[:, place, column, column], 0.0),
            )
        )
    difference = bounded_difference(arms[0], arms[1], within, error)
    last = Interval(*(np.asarray(end[-1]) for end in (difference.estimate, difference.low, difference.high)))
    relative = None if within.low < 0 else _estimate(bounded_relative(arms[0], arms[1], within, error))
    return BoundedLift(_estimate(last), relative)


def _reduction(raw: Comparison, adjusted: Comparison) -> float:
    """The share of the difference's variance that an adjustment takes away."""
    before, after = float(raw.variance), float(adjusted.variance)
    return max(0.0, 1.0 - after / before) if np.isfinite(before) and before > 0 else 0.0


def _estimate(interval: Interval) -> LiftEstimate:
    return LiftEstimate(float(interval.estimate), float(interval.low), float(interval.high))
