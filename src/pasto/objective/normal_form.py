"""Normal form of an objective: a goal and rows of linear guardrails over the metric vector.

Absolute and relative thresholds, at_least and at_most, plain metrics and ratios all become rows · y ≥ at here, so that
no other module has to distinguish them. Sums over metrics use einsum, not BLAS: the value of a metric vector is then
the same bit for bit, however many vectors are evaluated with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import UnsupportedError
from pasto.objective.goals import Goal

TOLERANCE = 1e-9
"""Largest miss that still counts as met, as a part of a guardrail's largest slack over the candidates."""
ROUNDING = 1e-12
"""Largest miss that counts as rounding, as a part of the terms that are subtracted to form the slack."""


@dataclass(frozen=True, slots=True, eq=False)
class NormalForm:
    """Objective f(y) = goal(y) − Σ λ_g min(0, rows_g · y − at_g)² over soft g, and −∞ if a hard g is missed."""

    goal: Goal
    names: tuple[str, ...]
    """Names of the guardrails, one a row."""
    rows: FloatArray
    """(guardrails, metrics)."""
    at: FloatArray
    """(guardrails,): rows · y ≥ at."""
    penalties: FloatArray
    """(guardrails,): λ, infinite for a hard guardrail."""
    relief: FloatArray
    """(guardrails, metrics): relief · y (or 1 if the row is zero) is the slack that one unit of relaxing adds."""

    @property
    def hard(self) -> NDArray[np.bool_]:
        """Mask of the hard guardrails, one a row."""
        return np.isinf(self.penalties)

    def slack(self, metrics: FloatArray) -> FloatArray:
        """Return rows · y − at, (..., guardrails): negative if a guardrail is missed."""
        return np.asarray(np.einsum("...m,gm->...g", metrics, self.rows) - self.at)

    def smooth(self, metrics: FloatArray) -> FloatArray:
        """Return the goal less the soft penalties, (...), without the hard guardrails."""
        value = self.goal.value(metrics)
        soft = ~self.hard
        if soft.any():
            breach = np.minimum(0.0, self.slack(metrics)[..., soft])
            value = value - np.einsum("...g,g->...", breach**2, self.penalties[soft])
        return np.asarray(value)

    def tolerances(self, means: FloatArray) -> FloatArray:
        """Return by how much each guardrail may be missed and still count as met, (guardrails,).

        The scale is the guardrail's own over the candidates' means (metrics, candidates), so that the verdict is the
        same in every unit.
        """
        slack = np.abs(self.rows @ means - self.at[:, None])
        terms = np.abs(self.rows) @ np.abs(means) + np.abs(self.at)[:, None]
        return np.asarray(TOLERANCE * slack.max(axis=1) + ROUNDING * terms.max(axis=1))

    def met(self, metrics: FloatArray, tolerances: FloatArray | None = None) -> NDArray[np.bool_]:
        """Return if every hard guardrail is met, (...), to within tolerances (guardrails,).

        Without tolerances the scale is that of each metric vector and the limit alone: a metric that is 0 only up to
        rounding misses a limit of 0.
        """
        hard = self.hard
        slack = metrics @ self.rows[hard].T - self.at[hard]
        allowed = self._allowed(metrics)[..., hard] if tolerances is None else tolerances[hard]
        return np.asarray((slack >= -allowed).all(axis=-1))

    def value(self, metrics: FloatArray, tolerances: FloatArray | None = None) -> FloatArray:
        """Return f(y), (...)."""
        return np.where(self.met(metrics, tolerances), self.smooth(metrics), -np.inf)

    def gradient(self, metrics: FloatArray) -> FloatArray:
        """Return ∇f(y), (..., metrics), for an objective without hard guardrails."""
        if self.hard.any():
            names = [name for name, hard in zip(self.names, self.hard, strict=True) if hard]
            raise UnsupportedError(
                f"the hard guardrail on {names[0]!r} has no gradient; give it a penalty=, which makes it soft"
            )
        slope = self.goal.gradient(metrics)
        if len(self.at):
            breach = np.minimum(0.0, self.slack(metrics))
            slope = slope - np.einsum("...g,gm->...m", 2.0 * breach * self.penalties, self.rows)
        return np.asarray(slope)

    def prices(self, metrics: FloatArray, duals: FloatArray) -> dict[str, float]:
        """Return the gain of relaxing each guardrail by one unit: duals for hard ones, 2λ(c − y)₊ for soft ones."""
        breach = np.minimum(0.0, self.slack(metrics))
        soft = np.where(self.hard, 0.0, self.penalties)
        marginal = np.where(self.hard, duals, -2.0 * soft * breach)
        exchange = np.where(self.relief.any(axis=1), self.relief @ metrics, 1.0)
        return {name: float(price) for name, price in zip(self.names, marginal * exchange + 0.0, strict=True)}

    def shortfalls(self, metrics: FloatArray, tolerances: FloatArray | None = None) -> dict[str, float]:
        """Return the shortfall of each missed guardrail, in its own units."""
        slack = self.slack(metrics)
        exchange = np.where(self.relief.any(axis=1), self.relief @ metrics, 1.0)
        allowed = self._allowed(metrics) if tolerances is None else tolerances
        return {
            name: float(-short / unit)
            for name, short, unit, most in zip(self.names, slack, exchange, allowed, strict=True)
            if short < -most
        }

    def _allowed(self, metrics: FloatArray) -> FloatArray:
        """Return the tolerances (..., guardrails) if no candidates give the scale."""
        return np.asarray(TOLERANCE * (np.abs(metrics) @ np.abs(self.rows).T + np.abs(self.at)))
