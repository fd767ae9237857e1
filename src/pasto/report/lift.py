"""Lift over the concurrent control: of what the learner served, of a fixed blend, and of single candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pasto.estimate.intervals import (
    Comparison,
    Interval,
    Quantity,
    Side,
    Weights,
    chance_of_error,
    compare,
    side,
)
from pasto.report.measured import Record


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and the ends it lies between; infinite ends where nothing is known yet."""

    value: float
    low: float
    high: float

    @property
    def told(self) -> str:
        """Which way it lies from zero: "up", "down", or "unclear"."""
        return "up" if self.low > 0 else "down" if self.high < 0 else "unclear"


@dataclass(frozen=True, slots=True)
class Lift:
    """One metric of one side against the control."""

    target: str
    metric: str
    level: float
    control: float
    absolute: Estimate
    relative: Estimate
    rounds: int
    """With both sides in them."""
    confidence: float
    sequential: bool
    """Whether it may be looked at whenever one likes."""

    def __str__(self) -> str:
        span = f"{self.relative.low:+.2%} to {self.relative.high:+.2%}"
        ways = {"up": "rose", "down": "fell", "unclear": "cannot be told from the control's"}
        when = "at any look" if self.sequential else "at the horizon set beforehand"
        way = ways[self.absolute.told]
        told = way if self.absolute.told == "unclear" else f"{way} by {abs(self.relative.value):.2%}"
        return f"{self.target}: {self.metric} {told} ({span}, {self.confidence:.0%} {when})"


@dataclass(frozen=True, slots=True)
class Target:
    """What is compared with the control: a whole arm, or fixed shares of an arm's candidates.

    >>> Target("best", "learner", {3: 1.0}).weights
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


def lifts(
    record: Record,
    metrics: Mapping[str, Quantity],
    targets: Sequence[Target],
    *,
    confidence: float = 0.95,
    sequential: bool = True,
    covariates: Mapping[str, int] | None = None,
    elapsed: float | None = None,
) -> tuple[Lift, ...]:
    """Every target's lift in every metric, all rounds together.

    `covariates` names, by metric, a column measured before the study: it takes noise away and leaves the lift. Where
    one record holds a whole phase because units stay in their arm, `elapsed` is how many rounds it has run.

    >>> from pasto.report.measured import CellMoments, MeasuredRound, recorded
    >>> shares = {("control", 0): 0.5, ("learner", 1): 0.5}
    >>> def told(level):
    ...     return [
    ...         CellMoments("control", 0, 2000, (level,), ((2000.0,),)),
    ...         CellMoments("learner", 1, 2000, (1.05 * level,), ((2000.0,),)),
    ...     ]
    >>> record = recorded([MeasuredRound(number, shares, told(level)) for number, level in enumerate([10.0, 14.0])])
    >>> print(lifts(record, {"watch_time": Quantity(0)}, [Target("learner")])[0])
    learner: watch_time rose by 5.00% (+4.27% to +5.73%, 95% at any look)
    """
    error = chance_of_error(confidence)
    found = []
    sides = _Sides(record, running=sequential)
    for target in targets:
        rounds = sides.rounds(target)
        for name, quantity in metrics.items():
            comparison = sides.compare(target, quantity, (covariates or {}).get(name))
            if elapsed is not None:
                comparison = replace(comparison, information=np.asarray(float(elapsed)))
            found.append(
                Lift(
                    target=target.name,
                    metric=name,
                    level=float(comparison.treated),
                    control=float(comparison.control),
                    absolute=_estimate(comparison.lift(error, sequential=sequential)),
                    relative=_estimate(comparison.relative(error, sequential=sequential)),
                    rounds=rounds,
                    confidence=confidence,
                    sequential=sequential,
                )
            )
    return tuple(found)


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """A lift round by round, and cumulatively after every round: (rounds,) each."""

    by_round: Interval
    """Each round alone, at one look."""
    cumulative: Interval
    """All rounds so far, at any look."""


def history(
    record: Record, quantity: Quantity, target: Target, *, confidence: float = 0.95, covariate: int | None = None
) -> History:
    """A target's relative lift as it came in."""
    error = chance_of_error(confidence)
    sides = _Sides(record, running=True)
    along = sides.compare(target, quantity, covariate, running=True)
    alone = sides.compare(target, quantity, covariate, alone=True)
    return History(alone.relative(error, sequential=False), along.relative(error, sequential=True))


class _Sides:
    """A record's sides, each worked out once."""

    def __init__(self, record: Record, *, running: bool) -> None:
        self._record = record
        self._running = running
        self._sides: dict[tuple[str, tuple[tuple[int, float], ...] | None], Side] = {}

    def _side(self, target: Target) -> Side:
        asked = target.arm, None if target.shares is None else tuple(target.shares.items())
        if asked not in self._sides:
            cells, place, covariances = self._record.view(target.arm, running=self._running)
            shares: Mapping[int, float] | int = place
            if target.shares is not None:
                shares = {self._record.place(target.arm, k): share for k, share in target.shares.items() if share}
            self._sides[asked] = side(cells, covariances, shares)
        return self._sides[asked]

    def _control(self) -> Side:
        cells, place, covariances = self._record.view("control", running=self._running)
        return side(cells, covariances, place)

    def rounds(self, target: Target) -> int:
        return int(((self._side(target).units > 0) & (self._control().units > 0)).sum())

    def compare(
        self,
        target: Target,
        quantity: Quantity,
        covariate: int | None,
        *,
        running: bool = False,
        alone: bool = False,
    ) -> Comparison:
        both = self._side(target), self._control()
        if alone:
            both = both[0].alone(), both[1].alone()
        return compare(*both, quantity, weights=target.weights, covariate=covariate, running=running)


def _estimate(interval: Interval) -> Estimate:
    return Estimate(float(interval.estimate), float(interval.low), float(interval.high))
