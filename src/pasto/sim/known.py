"""The truth of an application by long simulation, and how surely it is known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from pasto.objective import Array
from pasto.optimize import solve
from pasto.records import Blend
from pasto.sim.application import Application, Measure

USERS = 40_000
AT_ONCE = 2_000
"""Users simulated in one go, to stay within a processor's caches."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that was simulated, and the standard error of that."""

    value: float
    error: float


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """Every candidate's mean columns from the same many users under each, so that differences are known best.

    A blend's metric is what its shares make of the means; ratios are ratios of means.
    """

    application: Application
    means: Array
    """(columns, candidates)."""
    covariance: Array
    """(columns · candidates, columns · candidates), of the means as one row."""

    def level(self, metric: str, shares: ArrayLike) -> float:
        """A metric under a blend."""
        return self._part(self.application.measures[metric], np.asarray(shares, dtype=float))[0]

    def lift(self, metric: str, shares: ArrayLike, against: ArrayLike | None = None) -> Figure:
        """How far a metric lies above that of another blend, as a share of it; without one, above the baseline's.

        The error is the delta method's: every mean was simulated with the same users.
        """
        one = self.application.measures[metric]
        level, slope = self._part(one, np.asarray(shares, dtype=float))
        other = self.alone(self.application.baseline) if against is None else np.asarray(against, dtype=float)
        base, base_slope = self._part(one, other)
        whole = (slope - level / base * base_slope) / base
        return Figure(level / base - 1.0, math.sqrt(max(0.0, float(whole @ self.covariance @ whole))))

    def lifts(self, shares: ArrayLike) -> dict[str, Figure]:
        """Every metric's lift over the baseline."""
        return {name: self.lift(name, shares) for name in self.application.measures}

    def alone(self, candidate: int) -> Array:
        """One candidate as a blend."""
        shares = np.zeros(self.means.shape[1])
        shares[candidate] = 1.0
        return shares

    def best(self) -> Blend:
        """The best blend there is, with the best single candidate beside it."""
        asked = self.application.objective
        rows = dict(zip(self.application.columns, self.means.tolist(), strict=True))
        return solve(rows, asked, names=self.application.candidates.names, baseline=self.application.baseline)

    def _part(self, measure: Measure, shares: Array) -> tuple[float, Array]:
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
def known(application: Application, users: int = USERS, seed: int = 0) -> Known:
    """Simulate that many users under every candidate; an application that was simulated before is remembered."""
    rng = np.random.default_rng([seed, users])
    total: Array | None = None
    square: Array | None = None
    for start in range(0, users, AT_ONCE):
        seen = application.expected(min(AT_ONCE, users - start), rng)
        rows = seen.transpose(0, 2, 1).reshape(len(seen), -1)
        total = rows.sum(axis=0) + (0.0 if total is None else total)
        square = rows.T @ rows + (0.0 if square is None else square)
    assert total is not None and square is not None  # noqa: S101, PT018 -- there is at least one user
    means = total / users
    covariance = (square / users - np.outer(means, means)) / (users - 1)
    return Known(application, means.reshape(len(application.columns), -1), covariance)
