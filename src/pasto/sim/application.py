"""Simulated applications: users are served candidates and send events, and the true means are known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pasto.arrays import FloatArray
from pasto.blend import Blend
from pasto.errors import OptionError
from pasto.objective import Objective
from pasto.optimize import solve
from pasto.space import Candidates

Indices = NDArray[np.intp]

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class VisitBatch:
    """Events of simulated users: one row for each event that a real application would send."""

    unit: Indices
    """(rows,): index of the user, in rising order."""
    fields: Counts
    """(rows, columns): integers, so that sums do not depend on the order in which events arrive."""

    def totals(self, users: int) -> Counts:
        """Return the sums of each user, (users, columns).

        >>> import numpy as np
        >>> VisitBatch(np.array([0, 2, 2]), np.array([[5, 1], [1, 0], [2, 1]])).totals(3).tolist()
        [[5, 1], [0, 0], [3, 1]]
        """
        sums = np.zeros((users, self.fields.shape[1]), dtype=np.int64)
        np.add.at(sums, self.unit, self.fields)
        return sums


@dataclass(frozen=True, slots=True)
class SimulatedMetric:
    """Metric of a simulated application, by its columns."""

    numerator: int
    denominator: int | None = None


class SimulatedApplication(Protocol):
    """Application whose simulated users are served one of several candidates."""

    def __hash__(self) -> int:
        """Hash by identity, so that `known_means` can cache its result."""

    @property
    def name(self) -> str:
        """Name of the application and its study."""

    @property
    def candidates(self) -> Candidates:
        """Candidates that a request may be served."""

    @property
    def baseline(self) -> int:
        """Index of the baseline."""

    @property
    def event(self) -> str:
        """Name of the events that its users send."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the numeric fields of an event."""

    @property
    def measures(self) -> Mapping[str, SimulatedMetric]:
        """Metrics: the goal first, then those of the guardrails."""

    @property
    def objective(self) -> Objective:
        """Objective over the columns."""

    @property
    def document(self) -> dict[str, Any]:
        """Study file with the same objective."""

    @property
    def night(self) -> float:
        """Daily swing of its users' mood, as a share: the default of `Conditions.night`."""

    def visit(self, chosen: Indices, rng: np.random.Generator, mood: float = 1.0) -> VisitBatch:
        """Serve each of these candidates to one user, (users,); `mood` is the effect of the hour on all users."""

    def expected(self, users: int, rng: np.random.Generator) -> FloatArray:
        """Return the expected columns of some users under every candidate, (users, candidates, columns)."""


SIMULATED_USERS = 40_000
"""Default number of users that true means are computed from."""

BATCH_USERS = 2_000
"""Users simulated in one batch, to stay within a processor's caches."""


@dataclass(frozen=True, slots=True)
class MetricTruth:
    """True value from a simulation, with its standard error."""

    value: float
    error: float


@dataclass(frozen=True, slots=True, eq=False)
class KnownMeans:
    """True means of every candidate, from the same users under each, so that differences have the least error.

    The metric of a blend is the mean over its shares; ratios are ratios of means.
    """

    application: SimulatedApplication
    means: FloatArray
    """(columns, candidates)."""
    covariance: FloatArray
    """(columns · candidates, columns · candidates), of the means as one row."""

    def level(self, metric: str, shares: ArrayLike) -> float:
        """Return the level of a metric under a blend."""
        return self._value_and_gradient(self.application.measures[metric], np.asarray(shares, dtype=float))[0]

    def lift(self, metric: str, shares: ArrayLike, against: ArrayLike | None = None) -> MetricTruth:
        """Return the relative lift of a metric over another blend, or over the baseline.

        The error is that of the delta method: every mean was simulated with the same users.
        """
        measure = self.application.measures[metric]
        level, gradient = self._value_and_gradient(measure, np.asarray(shares, dtype=float))
        base_shares = (
            self.single_shares(self.application.baseline) if against is None else np.asarray(against, dtype=float)
        )
        base, base_gradient = self._value_and_gradient(measure, base_shares)
        gradient_of_lift = (gradient - level / base * base_gradient) / base
        return MetricTruth(
            level / base - 1.0, math.sqrt(max(0.0, float(gradient_of_lift @ self.covariance @ gradient_of_lift)))
        )

    def lifts(self, shares: ArrayLike) -> dict[str, MetricTruth]:
        """Return the lift of every metric over the baseline."""
        return {name: self.lift(name, shares) for name in self.application.measures}

    def single_shares(self, candidate: int) -> FloatArray:
        """Return the shares of a single candidate, (candidates,)."""
        shares = np.zeros(self.means.shape[1])
        shares[candidate] = 1.0
        return shares

    def best(self) -> Blend:
        """Return the best blend, which also names the best single candidate."""
        objective = self.application.objective
        rows = dict(zip(self.application.columns, self.means.tolist(), strict=True))
        return solve(rows, objective, names=self.application.candidates.names, baseline=self.application.baseline)

    def _value_and_gradient(self, measure: SimulatedMetric, shares: FloatArray) -> tuple[float, FloatArray]:
        """Return a metric and its gradient by all means, as one row."""
        gradient = np.zeros(self.means.shape)
        numerator = float(self.means[measure.numerator] @ shares)
        if measure.denominator is None:
            gradient[measure.numerator] = shares
            return numerator, gradient.ravel()
        denominator = float(self.means[measure.denominator] @ shares)
        gradient[measure.numerator] = shares / denominator
        gradient[measure.denominator] = -numerator / denominator**2 * shares
        return numerator / denominator, gradient.ravel()


@lru_cache(maxsize=8)
def known_means(application: SimulatedApplication, users: int = SIMULATED_USERS, seed: int = 0) -> KnownMeans:
    """Return the true means from simulated users under every candidate; cached per application."""
    rng = np.random.default_rng([seed, users])
    total: FloatArray | None = None
    square: FloatArray | None = None
    for start in range(0, users, BATCH_USERS):
        expected = application.expected(min(BATCH_USERS, users - start), rng)
        rows = expected.transpose(0, 2, 1).reshape(len(expected), -1)
        total = rows.sum(axis=0) + (0.0 if total is None else total)
        square = rows.T @ rows + (0.0 if square is None else square)
    assert total is not None and square is not None  # noqa: S101, PT018 -- there is at least one user
    means = total / users
    covariance = (square / users - np.outer(means, means)) / (users - 1)
    return KnownMeans(application, means.reshape(len(application.columns), -1), covariance)


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions of simulated traffic: daily swing, late events and lost events; none by default.

    They affect all candidates alike: levels change, but lifts over a concurrent control do not.

    >>> Conditions(night=0.3, day=4).mood(1), Conditions(night=0.3, day=4).mood(3)
    (1.3, 0.7)
    """

    night: float = 0.0
    """Daily swing of the users' mood, up and down, as a share."""
    day: int = 12
    """Rounds in a day."""
    late: float = 0.0
    """Share of events that come after the end of their round."""
    lost: float = 0.0
    """Share of events that never come."""

    def __post_init__(self) -> None:
        for name in ("night", "late", "lost"):
            if not 0 <= getattr(self, name) < 1:
                raise OptionError(f"{name}= must be a share from 0 to below 1, got {getattr(self, name)!r}")
        if self.late + self.lost >= 1:
            raise OptionError(f"late= and lost= must leave some events, got {self.late:g} and {self.lost:g}")
        if self.day < 2:
            raise OptionError(f"day= must be at least 2 rounds, got {self.day!r}")

    def mood(self, round: int) -> float:
        """Return the effect of the hour on all users; 1 on average over a day."""
        return 1.0 + self.night * math.sin(2.0 * math.pi * round / self.day)

    def draw_delays(self, events: int, rng: np.random.Generator) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which events come late and which never come, (events,) each."""
        chance = rng.random(events)
        return chance < self.late, (chance >= self.late) & (chance < self.late + self.lost)
