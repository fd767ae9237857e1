"""The one problem behind every cautious answer: a goal, penalties as expected, and guardrails held with confidence.

Each guardrail's slack is S_g ~ N(level_g, spread_g²), level_g = slack_g · x and spread_g = ‖factor_gᵀ x − anchor_g‖.
A soft guardrail costs λ E min(0, S)²; a hard one asks for level − tight ≥ spread, its factor being multiplied already
by the number of standard deviations that its confidence takes.
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
    """E min(0, S)² for S ~ N(level, spread²).

    >>> import numpy as np
    >>> expected_penalty(np.array([-3.0, 0.0, 3.0]), np.array([0.0, 2.0, 0.0]))
    array([9., 2., 0.])
    """
    spread = np.maximum(spread, TINY)
    ratio = level / spread
    miss = ndtr(-ratio)
    return np.asarray(np.maximum((level**2 + spread**2) * miss - level * spread * hazard(ratio) * miss, 0.0))


def hazard(ratio: FloatArray) -> FloatArray:
    """φ(t) / Φ(−t): how near a standard normal that exceeds t is expected to be to it.

    >>> import numpy as np
    >>> hazard(np.array([-40.0, 0.0, 40.0])).round(4)
    array([ 0.    ,  0.7979, 40.025 ])
    """
    return np.asarray(np.sqrt(2.0 / np.pi) / erfcx(ratio / np.sqrt(2.0)))


def ratio_at(shortfall: FloatArray) -> FloatArray:
    """The t at which a standard normal is expected to fall short by this much: φ(t) − t Φ(−t) = shortfall > 0.

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


HAIR = 1e-10
"""By how much of its own scale a hard guardrail is tightened, so that rounding never breaks it."""

FLAT = 1e-9
"""A spread of less than this has no slope of its own."""


class SlackCurve(Protocol):
    """A concave function of the shares that is added to the goal."""

    def value(self, shares: FloatArray) -> float:
        """The function."""
        ...

    def gradient(self, shares: FloatArray) -> FloatArray:
        """Its gradient, (columns,)."""
        ...

    def bend(self, shares: FloatArray) -> FloatArray:
        """The negative of its second derivatives, (columns, columns)."""
        ...

    def take(self, columns: NDArray[np.intp]) -> SlackCurve:
        """The same function of a few columns, the others' shares being zero."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """A problem's value, gradient and guardrails at one point."""

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
    """Shares near by, with spreads blurred: where a spread is zero, its slope is taken from there."""

    shares: FloatArray
    """(columns,)."""
    blur: float


@dataclass(frozen=True, slots=True, eq=False)
class CertifiedPoint:
    """Shares with what is proved of them."""

    shares: FloatArray
    """(columns,)."""
    prices: FloatArray
    """(guardrails,): of the hard guardrails, zero for soft ones."""
    priced: FloatArray
    """(columns,): what a bit more of each column is worth, guardrails' prices counted in."""
    gap: float
    """By how much the optimum can exceed the value at the shares, beside the larger of one and the prices."""
    short: float
    """By how much the worst hard guardrail is missed, or the shares' sum."""
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
    """(guardrails, columns) where every guardrail's is diagonal, else (guardrails, columns, rank)."""
    anchor: FloatArray
    """(guardrails, columns) or (guardrails, rank)."""
    penalties: FloatArray
    """(guardrails,): λ, infinite for a hard guardrail."""
    tight: FloatArray
    """(guardrails,): a hair that hard guardrails are tightened by."""
    base: int | None = None
    """The column on whose own truth the anchors rest, where there are any."""
    caps: FloatArray | None = None
    """(columns,): the largest share of each."""
    most: float = 0.0
    """Above what a column without mass can reach."""
    curve: SlackCurve | None = None

    @property
    def hard(self) -> NDArray[np.bool_]:
        """Which guardrails are hard."""
        return np.isinf(self.penalties)

    @property
    def diagonal(self) -> bool:
        """Whether candidates tell nothing of each other, so that every sum over pairs is a sum over candidates."""
        return self.factor.ndim == 2

    def deviations(self, shares: FloatArray) -> FloatArray:
        """factorᵀ x − anchor, (guardrails, rank): its length is the spread."""
        if self.diagonal:
            return np.asarray(self.factor * shares - self.anchor)
        return np.asarray(shares @ self.factor - self.anchor)

    def lifted(self, weights: FloatArray) -> FloatArray:
        """factor · weights, (guardrails, columns), for weights (guardrails, rank)."""
        if self.diagonal:
            return np.asarray(self.factor * weights)
        return np.asarray((self.factor @ weights[:, :, None])[:, :, 0])

    def dense(self) -> ChanceProgram:
        """The same problem with its factors written out as matrices."""
        return replace(self, factor=self.factor[:, :, None] * np.eye(len(self.goal))) if self.diagonal else self

    def bend(self, across: FloatArray, along: FloatArray, unit: FloatArray) -> FloatArray:
        """How a price on the spreads bends, (columns, columns), written out so that nothing large cancels.

        Σ across · factor (1 − u uᵀ) factorᵀ + along · factor u uᵀ factorᵀ, with weights across and along (guardrails,)
        and u = unit (guardrails, rank) no longer than one.
        """
        square = np.minimum(np.einsum("gr,gr->g", unit, unit), 1.0)
        less = (1.0 - np.sqrt(1.0 - square)) / np.maximum(square, TINY)
        onto = (self.factor @ unit[:, :, None])[:, :, 0]
        beside = self.factor - (less[:, None] * onto)[:, :, None] * unit[:, None, :]
        flat = np.concatenate([np.zeros((len(self.goal), 0)), *(np.sqrt(across)[:, None, None] * beside)], axis=1)
        return np.asarray(flat @ flat.T + onto.T @ (along[:, None] * onto))

    def take(self, columns: NDArray[np.intp]) -> ChanceProgram:
        """The same problem with a few columns only, the base among them; the others have no share."""
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
        """Everything there is to know at one point."""
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
        """How good shares are, by prices (guardrails,) ≥ 0 of the hard guardrails.

        A price with a pull = −price · deviation / spread is a point of the dual cone: price · (level − tight) + pull ·
        deviation is not negative where the guardrail holds. And a concave function lies below its tangent.
        """
        place = self.at(shares)
        unit = place.away / np.maximum(place.spread, TINY)[:, None]
        if (place.spread <= FLAT).any():
            unit = np.where((place.spread > FLAT)[:, None], unit, self._unit(near))
        worth, rest = self._dual(prices, unit)
        priced = place.slope + worth
        gap = (self._most(priced) + rest - float(place.slope @ shares)) / (1.0 + float(prices.max(initial=0.0)))
        short = np.where(self.hard, place.spread - place.level + self.tight, -np.inf)
        off = abs(float(self.mass @ shares) - 1.0)
        return CertifiedPoint(shares, prices, priced, gap, max(float(short.max(initial=0.0)), off), near)

    def hopeless(self, shares: FloatArray, prices: FloatArray) -> bool:
        """Whether these prices, with the slope of the spreads at these shares, prove that no shares hold every one."""
        prices = np.where(self.hard, prices, 0.0)
        worth, rest = self._dual(prices, self._unit(SmoothedPoint(shares, 0.0)))
        return self._most(worth) + rest < -1e-9 * float(prices.max(initial=0.0))

    def _unit(self, near: SmoothedPoint) -> FloatArray:
        """Each guardrail's deviations over its blurred spread, (guardrails, rank), no longer than one."""
        away = self.deviations(near.shares)
        return np.asarray(away / np.sqrt(np.einsum("gr,gr->g", away, away) + near.blur**2 + TINY)[:, None])

    def _dual(self, prices: FloatArray, unit: FloatArray) -> tuple[FloatArray, float]:
        """What each column adds to priced guardrails, (columns,), and what is added whatever the shares."""
        pulls = -prices[:, None] * unit
        worth = prices @ self.slack + self.lifted(pulls).sum(axis=0)
        return worth, -float(prices @ self.tight) - float((pulls * self.anchor).sum())

    def _most(self, priced: FloatArray) -> float:
        """The largest priced · x over all shares."""
        light = self.mass == 0.0
        extra = self.most * float(np.maximum(priced[light], 0.0).sum())
        if self.caps is None:
            return extra + float(priced[~light].max())
        order = np.argsort(-priced[~light])
        room = self.caps[~light][order]
        before = np.cumsum(room) - room
        return extra + float(priced[~light][order] @ np.clip(1.0 - before, 0.0, room))
