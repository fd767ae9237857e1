"""A primal–dual interior point for chance programs: linear in the candidates where they are independent.

Every guardrail is kept as one inequality with a price π ≥ 0 and a room w ≥ 0,

    level − tight − spread · t = w,   π w → 0,

in which t is 1 for a hard guardrail. For a soft one it is the t at which the price is what the penalty charges for a
unit of level, π = 2λ spread [φ(t) − t Φ(−t)]: a soft guardrail is a hard one whose confidence depends on its price. So
followed in its price and not in its level, a steep penalty is no harder than a hard limit. Each round is one Newton
step towards x z = π w = μ with μ shrinking (Mehrotra's predictor and corrector); its matrix is a diagonal (or, where
candidates are correlated, a dense block) and 1 + 2 · guardrails rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import ndtr

from pasto.objective import Array
from pasto.optimize.chance import Chance, Near
from pasto.optimize.expected import TINY, hazard, ratio_at

BOLD, CALM = 40, 80
"""The most steps of each way."""
BLUR = 0.01
"""The part of what is left to gain by which spreads are blurred."""


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """Where the path has come to."""

    shares: Array
    """x, (columns,)."""
    gaps: Array
    """z, (columns,), by how much each column is priced too low; with caps (2 · columns,), and by how much too high."""
    prices: Array
    """π, (guardrails,)."""
    room: Array
    """w, (guardrails,)."""
    level: float
    """The multiplier of mass · x = 1."""
    left: float
    """x · z + π · w: about what is still to be gained."""

    @property
    def near(self) -> Near:
        """The shares with the blur that spreads have there: one of zero has no derivative."""
        return Near(self.shares, BLUR * min(self.left, 1.0))


def central_path(program: Chance, *, calm: bool = False) -> Iterator[Point]:
    """Points on the way to the optimum, for as long as the numbers are sound.

    The calm way has no corrector, which can go in circles where a penalty is very steep; it takes more steps.
    """
    path = Path(program, calm)
    point: Point | None = None
    for _ in range(CALM if calm else BOLD):
        with np.errstate(all="ignore"):  # a path that breaks down is left
            point = path.start() if point is None else path.step(point)
        if point is None:
            return
        yield point


class Path:
    """The Newton steps of one program."""

    def __init__(self, program: Chance, calm: bool) -> None:
        self.program, self.calm = program, calm
        self.hard = program.hard
        self.penalties = np.where(self.hard, 1.0, program.penalties)
        self.squares = program.squares()
        self.identity = np.eye(1 + 2 * len(self.hard))

    def start(self) -> Point:
        """The even blend, or what the caps make of it, with every column priced too low."""
        program = self.program
        candidates = program.mass > 0.0
        even = np.ones_like(program.goal) if program.caps is None else program.caps
        shares = np.where(candidates, even / even[candidates].sum(), 0.5)
        prices = np.full(len(self.hard), 0.2)
        away, spread = self._spread(shares, TINY)
        ratio, _, weight = self._weight(prices, spread)
        room = np.maximum(program.slack @ shares - program.tight - spread * ratio, 0.1)
        slope = self._slope(shares, prices, weight @ program.lifted(away / spread[:, None]))
        level = 0.1 - float(slope[candidates].min())
        gaps = np.maximum(slope + level * program.mass, 0.1)
        if program.caps is not None:
            gaps = np.concatenate([gaps, np.full_like(gaps, 0.1)])
        return Point(shares, gaps, prices, room, level, self._left(shares, gaps, prices, room))

    def step(self, point: Point) -> Point | None:
        """One round on, or None where the numbers have broken down."""
        program, rails = self.program, len(self.hard)
        x, z, prices, room = point.shares, point.gaps, point.prices, point.room
        bounds = self._bounds(x)
        away, spread = self._spread(x, point.near.blur**2)
        ratio, miss, weight = self._weight(prices, spread)
        lean = np.where(self.hard, 1.0, hazard(ratio))
        give = np.where(self.hard, 0.0, 0.5 / (self.penalties * np.maximum(miss, 1e-250)))
        turn = np.where(self.hard, -prices / spread, 2.0 * self.penalties * miss * lean * (ratio - lean))
        unit = program.lifted(away / spread[:, None])
        slope = self._slope(x, prices, weight @ unit) + point.level * program.mass
        rest = program.slack @ x - program.tight - spread * ratio - room
        excess = float(program.mass @ x) - 1.0
        rows = np.concatenate([program.mass[None], program.slack - lean[:, None] * unit, unit])
        stiff = np.concatenate([[0.0], 1.0 / (give + room / prices), turn])
        divide = self._divider(x, self._fold(z / bounds, 1.0), weight / spread)
        if divide is None:
            return None
        divided = divide(rows.T).T
        crossed = divided @ rows.T
        system = self.identity + crossed * stiff
        system[:, 0] = crossed[:, 0]
        try:
            inverse = np.linalg.inv(system)
        except np.linalg.LinAlgError:
            return None

        def towards(aim: Array | float, across: Array | float) -> tuple[Array, Array, Array, Array, float]:
            """The changes that bring x z to aim and π w to across."""
            wanted = across / prices - room - rest
            pull = self._fold(aim / bounds, -1.0) - slope + (stiff[1 : 1 + rails] * wanted) @ rows[1 : 1 + rails]
            drift = divide(pull)
            right = rows @ drift
            right[0] += excess
            moved = inverse @ right
            force = stiff * moved
            force[0] = moved[0]
            dx = drift - force @ divided
            dp = (wanted - moved[1 : 1 + rails]) * stiff[1 : 1 + rails]
            dw = (across - room * dp) / prices - room
            dz = (aim - z * self._both(dx)) / bounds - z
            return dx, dz, dp, dw, float(moved[0])

        def reach(dx: Array, dz: Array, dp: Array, dw: Array) -> float:
            """How far along these changes everything stays positive."""
            worst = max(float((-self._both(dx) / bounds).max()), float((-dz / z).max()))
            if rails:
                worst = max(worst, float((-dp / prices).max()), float((-dw / room).max()))
            return 1.0 / max(worst, 1e-16)

        centre = point.left / (len(bounds) + rails)
        if self.calm:
            dx, dz, dp, dw, dl = towards(0.3 * centre, 0.3 * centre)
        else:
            dx, dz, dp, dw, _ = towards(0.0, 0.0)
            centre *= (1.0 - min(1.0, reach(dx, dz, dp, dw))) ** 3
            dx, dz, dp, dw, dl = towards(centre - self._both(dx) * dz, centre - dp * dw)
        size = min(1.0, (0.9 if self.calm else 0.99) * reach(dx, dz, dp, dw))
        if not np.isfinite(size + dl + float(dx.sum())):
            return None
        x, z, prices, room = x + size * dx, z + size * dz, prices + size * dp, room + size * dw
        return Point(x, z, prices, room, point.level + size * dl, self._left(x, z, prices, room))

    def _left(self, shares: Array, gaps: Array, prices: Array, room: Array) -> float:
        return float(self._bounds(shares) @ gaps) + float(prices @ room)

    def _spread(self, shares: Array, blur: float) -> tuple[Array, Array]:
        away = self.program.deviations(shares)
        return away, np.sqrt(np.einsum("gr,gr->g", away, away) + blur + TINY)

    def _weight(self, prices: Array, spread: Array) -> tuple[Array, Array, Array]:
        """t, Φ(−t), and the price of a unit of spread, for each guardrail."""
        ratio = np.ones(len(prices))
        soft = ~self.hard
        if soft.any():
            ratio[soft] = ratio_at((prices / (2.0 * self.penalties * spread))[soft])
        miss = ndtr(-ratio)
        return ratio, miss, np.where(self.hard, prices, 2.0 * self.penalties * spread * miss)

    def _slope(self, shares: Array, prices: Array, spreading: Array) -> Array:
        slope = spreading - self.program.goal - prices @ self.program.slack
        return slope if self.program.curve is None else np.asarray(slope - self.program.curve.gradient(shares))

    def _divider(self, shares: Array, diagonal: Array, weight: Array) -> Callable[[Array], Array] | None:
        """Division by the matrix that all columns share, barrier and spreads and curve."""
        program = self.program
        if program.diagonal:
            diagonal = diagonal + weight @ self.squares
            if program.curve is None:
                return lambda right: right / (diagonal if right.ndim == 1 else diagonal[:, None])
            matrix = np.diag(diagonal)
        else:
            matrix = np.diag(diagonal) + np.einsum("g,gij->ij", weight, self.squares)
        if program.curve is not None:
            matrix += program.curve.bend(shares)
        try:
            factor = cho_factor(matrix, check_finite=False)
        except np.linalg.LinAlgError:
            return None
        return lambda right: np.asarray(cho_solve(factor, right, check_finite=False))

    def _bounds(self, shares: Array) -> Array:
        """What must stay positive: the shares and, with caps, what is left up to them."""
        caps = self.program.caps
        return shares if caps is None else np.concatenate([shares, caps - shares])

    def _both(self, change: Array) -> Array:
        return change if self.program.caps is None else np.concatenate([change, -change])

    def _fold(self, both: Array, sign: float) -> Array:
        """What each share adds, and what is left up to its cap, taken together."""
        width = len(self.program.goal)
        return both if self.program.caps is None else np.asarray(both[:width] + sign * both[width:])
