"""Chance program, the problem of every robust blend: a goal, expected penalties, and guardrails with confidence.

Each guardrail's slack is S_g ~ N(level_g, spread_g²), level_g = slack_g · x and spread_g = ‖factor_gᵀ x − anchor_g‖.
A soft guardrail costs λ E min(0, S)²; a hard one asks for level − tight ≥ spread. Its factor already includes the
number of standard deviations that its confidence needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr, ndtr

from pasto.arrays import FloatArray

TINY = 1e-150
"""Below every spread that matters, and still a divisor."""


def expected_penalty(level: FloatArray, spread: FloatArray) -> FloatArray:
    """Return E min(0, S)² for S ~ N(level, spread²).

    >>> import numpy as np
    >>> expected_penalty(np.array([-3.0, 0.0, 3.0]), np.array([0.0, 2.0, 0.0]))
    array([9., 2., 0.])
    """
    spread = np.maximum(spread, TINY)
    ratio = level / spread
    miss = ndtr(-ratio)
    return np.asarray(np.maximum((level**2 + spread**2) * miss - level * spread * hazard(ratio) * miss, 0.0))


def hazard(ratio: FloatArray) -> FloatArray:
    """Return φ(t) / Φ(−t), the hazard rate of a standard normal.

    >>> import numpy as np
    >>> hazard(np.array([-40.0, 0.0, 40.0])).round(4)
    array([ 0.    ,  0.7979, 40.025 ])
    """
    return np.asarray(np.sqrt(2.0 / np.pi) / erfcx(ratio / np.sqrt(2.0)))


def ratio_at(shortfall: FloatArray) -> FloatArray:
    """Return the t at which a standard normal falls short by this much on average: φ(t) − t Φ(−t) = shortfall > 0.

    >>> import numpy as np
    >>> ratio_at(np.array([1e-20, 1.0 / np.sqrt(2.0 * np.pi), 50.0])).round(4)
    array([  9.022,  -0.   , -50.   ])
    """
    wanted = np.log(shortfall)
    ratio = np.where(shortfall > 0.4, -shortfall, np.sqrt(np.maximum(-2.0 * wanted - 1.8, 0.0)) - 0.5)
    for _ in range(12):
        away = hazard(ratio) - ratio
        # The logarithm of the shortfall is concave in t, so Newton's steps overshoot once at most.
        step = (log_ndtr(-ratio) + np.log(away) - wanted) * away
        ratio = ratio + step
        if (np.abs(step) <= 1e-8 * (1.0 + np.abs(ratio))).all():
            break
    return np.asarray(ratio)


HARD_MARGIN = 1e-10
"""Amount by which a hard guardrail is tightened, in its own scale, so that rounding never breaks it."""

MIN_SPREAD = 1e-9
"""A smaller spread has no slope of its own."""


class SlackCurve(Protocol):
    """A concave function of the shares that is added to the goal."""

    def value(self, shares: FloatArray) -> float:
        """Return the value."""
        ...

    def gradient(self, shares: FloatArray) -> FloatArray:
        """Return its gradient, (columns,)."""
        ...

    def bend(self, shares: FloatArray) -> FloatArray:
        """Return the negative of its second derivatives, (columns, columns)."""
        ...

    def take(self, columns: NDArray[np.intp]) -> SlackCurve:
        """Return the same function of a few columns; the others' shares are zero."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Value, gradient and guardrails of a program at one point."""

    value: float
    slope: FloatArray
    """(columns,)."""
    level: FloatArray
    """(guardrails,)."""
    away: FloatArray
    """(guardrails, rank): the spread is its length."""
    spread: FloatArray
    """(guardrails,)."""
    ratio: FloatArray
    """(guardrails,): level / spread."""
    miss: FloatArray
    """(guardrails,): the chance that the slack is negative."""


@dataclass(frozen=True, slots=True, eq=False)
class SmoothedPoint:
    """Shares nearby, with blurred spreads: if a spread is zero, its slope is taken from there."""

    shares: FloatArray
    """(columns,)."""
    blur: float


@dataclass(frozen=True, slots=True, eq=False)
class CertifiedPoint:
    """Shares with their proof of optimality."""

    shares: FloatArray
    """(columns,)."""
    prices: FloatArray
    """(guardrails,): of the hard guardrails, zero for soft ones."""
    priced: FloatArray
    """(columns,): the gradient of each column, guardrails' prices included."""
    gap: float
    """An upper bound of the optimum's excess over the value at the shares, divided by 1 + the largest price."""
    short: float
    """The largest shortfall of a hard guardrail, or of the shares' sum."""
    near: SmoothedPoint


@dataclass(frozen=True, slots=True, eq=False)
class ChanceProgram:
    """Maximise goal · x + curve(x) − Σ λ_g E min(0, S_g)² over shares x ≥ 0 with mass · x = 1, hard guardrails held."""

    goal: FloatArray
    """(columns,)."""
    mass: FloatArray
    """(columns,): one for a candidate, zero for a column that takes no share of the traffic."""
    slack: FloatArray
    """(guardrails, columns)."""
    factor: FloatArray
    """(guardrails, columns) if every guardrail's is diagonal, else (guardrails, columns, rank)."""
    anchor: FloatArray
    """(guardrails, columns) or (guardrails, rank)."""
    penalties: FloatArray
    """(guardrails,): λ, infinite for a hard guardrail."""
    tight: FloatArray
    """(guardrails,): a small amount by which hard guardrails are tightened."""
    base: int | None = None
    """The baseline's column, which the anchors refer to, if there are any."""
    caps: FloatArray | None = None
    """(columns,): the largest share of each."""
    most: float = 0.0
    """An upper bound of a column without mass."""
    curve: SlackCurve | None = None

    @property
    def hard(self) -> NDArray[np.bool_]:
        """The hard guardrails, (guardrails,)."""
        return np.isinf(self.penalties)

    @property
    def diagonal(self) -> bool:
        """True if candidates are independent, so that every sum over pairs is a sum over candidates."""
        return self.factor.ndim == 2

    def deviations(self, shares: FloatArray) -> FloatArray:
        """Return factorᵀ x − anchor, (guardrails, rank): its length is the spread."""
        if self.diagonal:
            return np.asarray(self.factor * shares - self.anchor)
        return np.asarray(shares @ self.factor - self.anchor)

    def lifted(self, weights: FloatArray) -> FloatArray:
        """Return factor · weights, (guardrails, columns), for weights (guardrails, rank)."""
        if self.diagonal:
            return np.asarray(self.factor * weights)
        return np.asarray((self.factor @ weights[:, :, None])[:, :, 0])

    def dense(self) -> ChanceProgram:
        """Return the same program with its factors written out as matrices."""
        return replace(self, factor=self.factor[:, :, None] * np.eye(len(self.goal))) if self.diagonal else self

    def bend(self, across: FloatArray, along: FloatArray, unit: FloatArray) -> FloatArray:
        """Return the curvature of a price on the spreads, (columns, columns), without large terms that cancel.

        Σ across · factor (1 − u uᵀ) factorᵀ + along · factor u uᵀ factorᵀ, with weights across and along (guardrails,)
        and u = unit (guardrails, rank) of length at most one.
        """
        square = np.minimum(np.einsum("gr,gr->g", unit, unit), 1.0)
        less = (1.0 - np.sqrt(1.0 - square)) / np.maximum(square, TINY)
        onto = (self.factor @ unit[:, :, None])[:, :, 0]
        beside = self.factor - (less[:, None] * onto)[:, :, None] * unit[:, None, :]
        flat = np.concatenate([np.zeros((len(self.goal), 0)), *(np.sqrt(across)[:, None, None] * beside)], axis=1)
        return np.asarray(flat @ flat.T + onto.T @ (along[:, None] * onto))

    def take(self, columns: NDArray[np.intp]) -> ChanceProgram:
        """Return the same program with a few columns, the base among them; the others have no share."""
        factor, anchor = self.factor[:, columns], self.anchor
        if self.diagonal:
            anchor = anchor[:, columns]
        elif factor.shape[2] > len(columns):
            turn, thin = np.linalg.qr(factor.transpose(0, 2, 1))
            factor, anchor = thin.transpose(0, 2, 1), (anchor[:, None, :] @ turn)[:, 0]
        return replace(
            self,
            goal=self.goal[columns],
            mass=self.mass[columns],
            slack=self.slack[:, columns],
            factor=factor,
            anchor=anchor,
            base=None if self.base is None else int(np.flatnonzero(columns == self.base)[0]),
            caps=None if self.caps is None else self.caps[columns],
            curve=None if self.curve is None else self.curve.take(columns),
        )

    def at(self, shares: FloatArray) -> Evaluation:
        """Evaluate the program at one point."""
        level, away = self.slack @ shares, self.deviations(shares)
        spread = np.sqrt(np.einsum("gr,gr->g", away, away))
        some = np.maximum(spread, TINY)
        ratio = level / some
        miss, soft = ndtr(-ratio), np.where(self.hard, 0.0, self.penalties)
        value = float(self.goal @ shares) - float(soft @ expected_penalty(level, spread))
        weight = 2.0 * soft * miss
        pull = weight * some * (hazard(ratio) - ratio)
        slope = self.goal + pull @ self.slack - self.lifted(weight[:, None] * away).sum(axis=0)
        if self.curve is not None:
            value += self.curve.value(shares)
            slope = slope + self.curve.gradient(shares)
        return Evaluation(value, slope, level, away, spread, ratio, miss)

    def prove(self, shares: FloatArray, prices: FloatArray, near: SmoothedPoint) -> CertifiedPoint:
        """Bound the gap of shares to the optimum, by prices (guardrails,) ≥ 0 of the hard guardrails.

        A price with a pull = −price · deviation / spread is a point of the dual cone: price · (level − tight) + pull ·
        deviation is not negative if the guardrail holds. And a concave function lies below its tangent.
        """
        evaluation = self.at(shares)
        unit = evaluation.away / np.maximum(evaluation.spread, TINY)[:, None]
        if (evaluation.spread <= MIN_SPREAD).any():
            unit = np.where((evaluation.spread > MIN_SPREAD)[:, None], unit, self._unit(near))
        worth, rest = self._dual(prices, unit)
        priced = evaluation.slope + worth
        gap = (self._most(priced) + rest - float(evaluation.slope @ shares)) / (1.0 + float(prices.max(initial=0.0)))
        short = np.where(self.hard, evaluation.spread - evaluation.level + self.tight, -np.inf)
        off = abs(float(self.mass @ shares) - 1.0)
        return CertifiedPoint(shares, prices, priced, gap, max(float(short.max(initial=0.0)), off), near)

    def proves_infeasible(self, shares: FloatArray, prices: FloatArray) -> bool:
        """Return whether these prices, with the slope of the spreads at these shares, prove the program infeasible."""
        prices = np.where(self.hard, prices, 0.0)
        worth, rest = self._dual(prices, self._unit(SmoothedPoint(shares, 0.0)))
        return self._most(worth) + rest < -1e-9 * float(prices.max(initial=0.0))

    def _unit(self, near: SmoothedPoint) -> FloatArray:
        """Return each guardrail's deviations over its blurred spread, (guardrails, rank), of length at most one."""
        away = self.deviations(near.shares)
        return np.asarray(away / np.sqrt(np.einsum("gr,gr->g", away, away) + near.blur**2 + TINY)[:, None])

    def _dual(self, prices: FloatArray, unit: FloatArray) -> tuple[FloatArray, float]:
        """Return the part of each column in priced guardrails, (columns,), and the constant part."""
        pulls = -prices[:, None] * unit
        worth = prices @ self.slack + self.lifted(pulls).sum(axis=0)
        return worth, -float(prices @ self.tight) - float((pulls * self.anchor).sum())

    def _most(self, priced: FloatArray) -> float:
        """Return the largest priced · x over all shares."""
        light = self.mass == 0.0
        extra = self.most * float(np.maximum(priced[light], 0.0).sum())
        if self.caps is None:
            return extra + float(priced[~light].max())
        order = np.argsort(-priced[~light])
        room = self.caps[~light][order]
        before = np.cumsum(room) - room
        return extra + float(priced[~light][order] @ np.clip(1.0 - before, 0.0, room))
