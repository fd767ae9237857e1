"""The normal form of an objective: a goal and rows of linear guardrails over the metric vector.

Absolute and relative thresholds, at_least and at_most, plain metrics and ratios all become rows · y ≥ at here, so
nothing above this file needs to tell them apart. Sums over metrics go through einsum, not BLAS: a metric vector's value
is then the same bit for bit however many are evaluated beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pasto.errors import Unsupported
from pasto.objective.goals import Array, Goal

TOLERANCE = 1e-9
"""How far below its limit, relative to the limit's own size, a hard guardrail still counts as met."""


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """f(y) = goal(y) − Σ λ_g min(0, rows_g · y − at_g)² over soft g, and −∞ where a hard g is missed."""

    goal: Goal
    names: tuple[str, ...]
    """The guardrails' names, one a row."""
    rows: Array
    """(guardrails, metrics)."""
    at: Array
    """(guardrails,): rows · y ≥ at."""
    penalties: Array
    """(guardrails,): λ, infinite for a hard guardrail."""
    relief: Array
    """(guardrails, metrics): relief · y (or 1 where the row is zero) is what one unit of relaxing adds to the slack."""

    @property
    def hard(self) -> NDArray[np.bool_]:
        """Which guardrails are hard, one a row."""
        return np.isinf(self.penalties)

    def slack(self, metrics: Array) -> Array:
        """rows · y − at, (..., guardrails): negative where a guardrail is missed."""
        return np.asarray(np.einsum("...m,gm->...g", metrics, self.rows) - self.at)

    def smooth(self, metrics: Array) -> Array:
        """The goal less the soft penalties, (...), with no regard to hard guardrails."""
        value = self.goal.value(metrics)
        soft = ~self.hard
        if soft.any():
            breach = np.minimum(0.0, self.slack(metrics)[..., soft])
            value = value - np.einsum("...g,g->...", breach**2, self.penalties[soft])
        return np.asarray(value)

    def met(self, metrics: Array) -> NDArray[np.bool_]:
        """Whether every hard guardrail is met, (...), to within rounding."""
        hard = self.hard
        slack = metrics @ self.rows[hard].T - self.at[hard]
        sizes = np.abs(metrics) @ np.abs(self.rows[hard]).T + np.abs(self.at[hard])
        return np.asarray((slack >= -TOLERANCE * (1.0 + sizes)).all(axis=-1))

    def value(self, metrics: Array) -> Array:
        """f(y), (...)."""
        return np.where(self.met(metrics), self.smooth(metrics), -np.inf)

    def gradient(self, metrics: Array) -> Array:
        """∇f(y), (..., metrics), for an objective without hard guardrails."""
        if self.hard.any():
            names = [name for name, hard in zip(self.names, self.hard, strict=True) if hard]
            raise Unsupported(
                f"the hard guardrail on {names[0]!r} has no gradient; give it a penalty=, which makes it soft"
            )
        slope = self.goal.gradient(metrics)
        if len(self.at):
            breach = np.minimum(0.0, self.slack(metrics))
            slope = slope - np.einsum("...g,gm->...m", 2.0 * breach * self.penalties, self.rows)
        return np.asarray(slope)

    def prices(self, metrics: Array, duals: Array) -> dict[str, float]:
        """What relaxing each guardrail by one unit buys: duals for hard ones, 2λ(c − y)₊ for soft ones."""
        breach = np.minimum(0.0, self.slack(metrics))
        soft = np.where(self.hard, 0.0, self.penalties)
        marginal = np.where(self.hard, duals, -2.0 * soft * breach)
        exchange = np.where(self.relief.any(axis=1), self.relief @ metrics, 1.0)
        return {name: float(price) for name, price in zip(self.names, marginal * exchange + 0.0, strict=True)}

    def shortfalls(self, metrics: Array) -> dict[str, float]:
        """By how much each missed guardrail is missed, in its own units."""
        slack = self.slack(metrics)
        exchange = np.where(self.relief.any(axis=1), self.relief @ metrics, 1.0)
        sizes = np.abs(self.rows) @ np.abs(metrics) + np.abs(self.at)
        return {
            name: float(-short / unit)
            for name, short, unit, size in zip(self.names, slack, exchange, sizes, strict=True)
            if short < -TOLERANCE * (1.0 + size)
        }
