"""An application with users in it: they are served candidates, act on them, and leave events; the truth is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pasto.arrays import FloatArray
from pasto.errors import OptionError
from pasto.objective import Objective
from pasto.optimize import solve
from pasto.records import Blend
from pasto.space import Candidates

Indices = NDArray[np.intp]

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class VisitBatch:
    """What users did, one row for each event that a real application would send."""

    unit: Indices
    """(rows,): which of the users, in rising order."""
    fields: Counts
    """(rows, columns): whole numbers, so that sums do not depend on the order in which events arrive."""

    def totals(self, users: int) -> Counts:
        """Each user's sums, (users, columns).

        >>> import numpy as np
        >>> VisitBatch(np.array([0, 2, 2]), np.array([[5, 1], [1, 0], [2, 1]])).totals(3).tolist()
        [[5, 1], [0, 0], [3, 1]]
        """
        sums = np.zeros((users, self.fields.shape[1]), dtype=np.int64)
        np.add.at(sums, self.unit, self.fields)
        return sums


@dataclass(frozen=True, slots=True)
class SimulatedMetric:
    """A metric by the columns it is made of."""

    numerator: int
    denominator: int | None = None


class Application(Protocol):
    """Users whose requests are served by one of several candidates."""

    def __hash__(self) -> int:
        """Made once, so that what was simulated of it is known when it is asked for again."""

    @property
    def name(self) -> str:
        """Of the application and its study."""

    @property
    def candidates(self) -> Candidates:
        """What a request may be served with."""

    @property
    def baseline(self) -> int:
        """What is served today."""

    @property
    def event(self) -> str:
        """The name of the events that its users leave."""

    @property
    def columns(self) -> tuple[str, ...]:
        """What an event carries."""

    @property
    def measures(self) -> Mapping[str, SimulatedMetric]:
        """The metrics: the goal first, then those of the guardrails."""

    @property
    def objective(self) -> Objective:
        """What is asked, over the columns."""

    @property
    def document(self) -> dict[str, Any]:
        """The same question as a study file."""

    @property
    def night(self) -> float:
        """How far the mood of its users swings over a day, as a share: its own `Conditions.night`."""

    def visit(self, chosen: Indices, rng: np.random.Generator, mood: float = 1.0) -> VisitBatch:
        """Serve one user each of these candidates, (users,); `mood` is what the hour does to all of them alike."""

    def expected(self, users: int, rng: np.random.Generator) -> FloatArray:
        """What each of some users would do under every candidate, on average, (users, candidates, columns)."""


USERS = 40_000

AT_ONCE = 2_000
"""Users simulated in one go, to stay within a processor's caches."""


@dataclass(frozen=True, slots=True)
class MetricTruth:
    """A number that was simulated, and the standard error of that."""

    value: float
    error: float


@dataclass(frozen=True, slots=True, eq=False)
class KnownMeans:
    """Every candidate's mean columns from the same many users under each, so that differences are known best.

    A blend's metric is what its shares make of the means; ratios are ratios of means.
    """

    application: Application
    means: FloatArray
    """(columns, candidates)."""
    covariance: FloatArray
    """(columns · candidates, columns · candidates), of the means as one row."""

    def level(self, metric: str, shares: ArrayLike) -> float:
        """A metric under a blend."""
        return self._part(self.application.measures[metric], np.asarray(shares, dtype=float))[0]

    def lift(self, metric: str, shares: ArrayLike, against: ArrayLike | None = None) -> MetricTruth:
        """How far a metric lies above that of another blend, as a share of it; without one, above the baseline's.

        The error is the delta method's: every mean was simulated with the same users.
        """
        one = self.application.measures[metric]
        level, slope = self._part(one, np.asarray(shares, dtype=float))
        other = self.alone(self.application.baseline) if against is None else np.asarray(against, dtype=float)
        base, base_slope = self._part(one, other)
        whole = (slope - level / base * base_slope) / base
        return MetricTruth(level / base - 1.0, math.sqrt(max(0.0, float(whole @ self.covariance @ whole))))

    def lifts(self, shares: ArrayLike) -> dict[str, MetricTruth]:
        """Every metric's lift over the baseline."""
        return {name: self.lift(name, shares) for name in self.application.measures}

    def alone(self, candidate: int) -> FloatArray:
        """One candidate as a blend."""
        shares = np.zeros(self.means.shape[1])
        shares[candidate] = 1.0
        return shares

    def best(self) -> Blend:
        """The best blend there is, with the best single candidate beside it."""
        asked = self.application.objective
        rows = dict(zip(self.application.columns, self.means.tolist(), strict=True))
        return solve(rows, asked, names=self.application.candidates.names, baseline=self.application.baseline)

    def _part(self, measure: SimulatedMetric, shares: FloatArray) -> tuple[float, FloatArray]:
        """A metric, and its slope in every mean, as one row."""
        slope = np.zeros(self.means.shape)
        above = float(self.means[measure.numerator] @ shares)
        if measure.denominator is None:
            slope[measure.numerator] = shares
            return above, slope.ravel()
        below = float(self.means[measure.denominator] @ shares)
        slope[measure.numerator] = shares / below
        slope[measure.denominator] = -above / below**2 * shares
        return above / below, slope.ravel()


@lru_cache(maxsize=8)
def known_means(application: Application, users: int = USERS, seed: int = 0) -> KnownMeans:
    """Simulate that many users under every candidate; an application that was simulated before is remembered."""
    rng = np.random.default_rng([seed, users])
    total: FloatArray | None = None
    square: FloatArray | None = None
    for start in range(0, users, AT_ONCE):
        seen = application.expected(min(AT_ONCE, users - start), rng)
        rows = seen.transpose(0, 2, 1).reshape(len(seen), -1)
        total = rows.sum(axis=0) + (0.0 if total is None else total)
        square = rows.T @ rows + (0.0 if square is None else square)
    assert total is not None and square is not None  # noqa: S101, PT018 -- there is at least one user
    means = total / users
    covariance = (square / users - np.outer(means, means)) / (users - 1)
    return KnownMeans(application, means.reshape(len(application.columns), -1), covariance)


@dataclass(frozen=True, slots=True)
class Conditions:
    """How rough traffic is; by default it is as smooth as can be.

    None of it favours a candidate, so lifts over a concurrent control stay what they are, while levels do not.

    >>> Conditions(night=0.3, day=4).mood(1), Conditions(night=0.3, day=4).mood(3)
    (1.3, 0.7)
    """

    night: float = 0.0
    """How far the users' mood swings up and down, as a share."""
    day: int = 12
    """Rounds from one noon to the next."""
    late: float = 0.0
    """The share of events that come when their round is over."""
    lost: float = 0.0
    """The share of events that never come."""

    def __post_init__(self) -> None:
        for name in ("night", "late", "lost"):
            if not 0 <= getattr(self, name) < 1:
                raise OptionError(f"{name}= must be a share from 0 to below 1, got {getattr(self, name)!r}")
        if self.late + self.lost >= 1:
            raise OptionError(f"late= and lost= must leave some events, got {self.late:g} and {self.lost:g}")
        if self.day < 2:
            raise OptionError(f"day= must be at least 2 rounds, got {self.day!r}")

    def mood(self, round: int) -> float:
        """What the hour does to all users alike; 1 on average over a day."""
        return 1.0 + self.night * math.sin(2.0 * math.pi * round / self.day)

    def fates(self, events: int, rng: np.random.Generator) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which of some events come late, and which never; (events,) each."""
        chance = rng.random(events)
        return chance < self.late, (chance >= self.late) & (chance < self.late + self.lost)
