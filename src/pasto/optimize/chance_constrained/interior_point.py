"""Interior point method for chance programs, primal–dual: linear in the candidates if they are independent.

Every guardrail is one inequality with a price π ≥ 0 and a margin w ≥ 0,

    level − tight − spread · t = w,   π w → 0,

in which t is 1 for a hard guardrail. For a soft one it is the t at which the price is what the penalty charges for a
unit of level, π = 2λ spread [φ(t) − t Φ(−t)]: a soft guardrail is a hard one whose confidence depends on its price. So
followed in its price and not in its level, a steep penalty is not harder than a hard limit. Each round is one Newton
step towards x z = π w = μ with μ shrinking (Mehrotra's predictor and corrector); its matrix is a diagonal (or, if
candidates are correlated, a dense block) and 1 + 2 · guardrails rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dgetrf, dgetrs
from scipy.special import ndtr

from pasto.arrays import FloatArray
from pasto.optimize.chance_constrained.program import TINY, ChanceProgram, SmoothedPoint, hazard, ratio_at

MAX_STEPS = 80
MAX_STALLED_STEPS = 7
"""Steps without halving the remaining gain, after which the path ends, unless calm."""
BLUR_SHARE = 0.001
"""The part of the remaining gain by which spreads are blurred."""


@dataclass(frozen=True, slots=True, eq=False)
class InteriorPoint:
    """Point on the central path."""

    shares: FloatArray
    """x, (columns,)."""
    gaps: FloatArray
    """z, (columns,), by how much each column is priced too low; with caps (2 · columns,), and by how much too high."""
    prices: FloatArray
    """π, (guardrails,)."""
    margin: FloatArray
    """w, (guardrails,)."""
    level: float
    """The multiplier of mass · x = 1."""
    left: float
    """x · z + π · w: about the gain that remains."""

    @property
    def near(self) -> SmoothedPoint:
        """The shares with the blur of the spreads there: a spread of zero has no derivative."""
        return SmoothedPoint(self.shares, BLUR_SHARE * min(self.left, 1.0))


def follow_central_path(program: ChanceProgram, *, calm: bool = False) -> Iterator[InteriorPoint]:
    """Yield points on the way to the optimum, as long as the numbers are finite.

    The calm way has no corrector, which can go in circles if a penalty is very steep; it takes more steps.
    """
    path = CentralPath(program, calm)
    point: InteriorPoint | None = None
    least, since = np.inf, 0
    for _ in range(MAX_STEPS):
        with np.errstate(all="ignore"):  # a path that breaks down is left
            point = path.start() if point is None else path.step(point)
        since += 1
        if point is None or (since > MAX_STALLED_STEPS and not calm):
            return
        if point.left < 0.5 * least:
            least, since = point.left, 0
        yield point


class CentralPath:
    """Newton steps of one program."""

    def __init__(self, program: ChanceProgram, calm: bool) -> None:
        self.program, self.calm = program, calm
        self.hard = program.hard
        self.penalties = np.where(self.hard, 1.0, program.penalties)
        self.slim = program.diagonal and program.curve is None
        self.squares = program.factor**2 if self.slim else None
        if not self.slim:
            self.program = program.dense()

    def start(self) -> InteriorPoint:
        """Return the even blend, within the caps, with every column priced too low."""
        program = self.program
        candidates = program.mass > 0.0
        even = np.ones_like(program.goal) if program.caps is None else program.caps
        shares = np.where(candidates, even / even[candidates].sum(), 0.5)
        prices = np.full(len(self.hard), 0.2)
        away, spread = self._spread(shares, TINY)
        ratio, _, weight = self._weight(prices, spread)
        margin = np.maximum(program.slack @ shares - program.tight - spread * ratio, 0.1)
        slope = self._slope(shares, prices, weight @ program.lifted(away / spread[:, None]))
        level = 0.1 - float(slope[candidates].min())
        gaps = np.maximum(slope + level * program.mass, 0.1)
        if program.caps is not None:
            gaps = np.concatenate([gaps, np.full_like(gaps, 0.1)])
        return InteriorPoint(shares, gaps, prices, margin, level, self._left(shares, gaps, prices, margin))

    def step(self, point: InteriorPoint) -> InteriorPoint | None:
        """Return the next point, or None if the numbers are not finite."""
        program, rails = self.program, len(self.hard)
        x, z, prices, margin = point.shares, point.gaps, point.prices, point.margin
        bounds = self._bounds(x)
        away, spread = self._spread(x, point.near.blur**2)
        ratio, miss, weight = self._weight(prices, spread)
        lean = np.where(self.hard, 1.0, hazard(ratio))
        give = np.where(self.hard, 0.0, 0.5 / (self.penalties * np.maximum(miss, 1e-250)))
        curl = np.where(self.hard, 0.0, 2.0 * self.penalties * miss * np.maximum(1.0 + lean * (ratio - lean), 0.0))
        unit = program.lifted(away / spread[:, None])
        slope = self._slope(x, prices, weight @ unit) + point.level * program.mass
        # A blurred spread is too large by the blur at most: taken off, no hard guardrail is tightened by it.
        rest = program.slack @ x - program.tight - spread * ratio + self.hard * point.near.blur - margin
        excess = float(program.mass @ x) - 1.0
        rows = np.concatenate([program.mass[None], program.slack - lean[:, None] * unit])
        stiff = np.append(0.0, 1.0 / (give + margin / prices))
        diagonal = self._fold(z / bounds, 1.0)
        if self.squares is None:
            block = program.bend(weight / spread, curl, away / spread[:, None])
            block[np.diag_indices_from(block)] += diagonal
            if program.curve is not None:
                block += program.curve.bend(x)
            system = BorderedSystem(rows, stiff, np.arange(len(x)), block, diagonal)
        else:
            rows, stiff = np.concatenate([rows, unit]), np.append(stiff, curl - weight / spread)
            diagonal = diagonal + (weight / spread) @ self.squares
            few = min(len(x), rails + 2)
            apart = np.argpartition(diagonal, few - 1)[:few]
            system = BorderedSystem(rows, stiff, apart, np.diag(diagonal[apart]), diagonal)
        if not system.sound:
            return None

        def towards(
            aim: FloatArray | float, across: FloatArray | float
        ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, float]:
            """Return the changes that bring x z to aim and π w to across."""
            wanted = across / prices - margin - rest
            pull = self._fold(aim / bounds, -1.0) - slope + (stiff[1 : 1 + rails] * wanted) @ rows[1 : 1 + rails]
            dx, force = system.solve(pull, excess)
            dp = wanted * stiff[1 : 1 + rails] - force[1 : 1 + rails]
            dw = (across - margin * dp) / prices - margin
            dz = (aim - z * self._both(dx)) / bounds - z
            return dx, dz, dp, dw, float(force[0])

        def reach(dx: FloatArray, dz: FloatArray, dp: FloatArray, dw: FloatArray) -> float:
            """Return the part of these changes for which everything stays positive."""
            worst = max(float((-self._both(dx) / bounds).max()), float((-dz / z).max()))
            if rails:
                worst = max(worst, float((-dp / prices).max()), float((-dw / margin).max()))
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
        x, z, prices, margin = x + size * dx, z + size * dz, prices + size * dp, margin + size * dw
        return InteriorPoint(x, z, prices, margin, point.level + size * dl, self._left(x, z, prices, margin))

    def _left(self, shares: FloatArray, gaps: FloatArray, prices: FloatArray, margin: FloatArray) -> float:
        return float(self._bounds(shares) @ gaps) + float(prices @ margin)

    def _spread(self, shares: FloatArray, blur: float) -> tuple[FloatArray, FloatArray]:
        away = self.program.deviations(shares)
        return away, np.sqrt(np.einsum("gr,gr->g", away, away) + blur + TINY)

    def _weight(self, prices: FloatArray, spread: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return t, Φ(−t), and the price of a unit of spread, for each guardrail."""
        ratio = np.ones(len(prices))
        soft = ~self.hard
        if soft.any():
            ratio[soft] = ratio_at((prices / (2.0 * self.penalties * spread))[soft])
        miss = ndtr(-ratio)
        return ratio, miss, np.where(self.hard, prices, 2.0 * self.penalties * spread * miss)

    def _slope(self, shares: FloatArray, prices: FloatArray, spreading: FloatArray) -> FloatArray:
        slope = spreading - self.program.goal - prices @ self.program.slack
        return slope if self.program.curve is None else np.asarray(slope - self.program.curve.gradient(shares))

    def _bounds(self, shares: FloatArray) -> FloatArray:
        """Return the values that must stay positive: the shares and, with caps, the distance to them."""
        caps = self.program.caps
        return shares if caps is None else np.concatenate([shares, caps - shares])

    def _both(self, change: FloatArray) -> FloatArray:
        return change if self.program.caps is None else np.concatenate([change, -change])

    def _fold(self, both: FloatArray, sign: float) -> FloatArray:
        """Return the sum of the parts of each share and of the distance to its cap."""
        width = len(self.program.goal)
        return both if self.program.caps is None else np.asarray(both[:width] + sign * both[width:])


class BorderedSystem:
    """Linear system D Δx + rowsᵀ force = pull, with force = stiff · rows Δx, and rows₀ Δx = −excess for the first row.

    D is diagonal except for a block of columns, which are solved for together with the forces. Among them are the
    columns of the smallest curvature, because a division by it would lose every digit.
    """

    def __init__(
        self, rows: FloatArray, stiff: FloatArray, apart: NDArray[np.intp], block: FloatArray, diagonal: FloatArray
    ) -> None:
        count = len(rows)
        self.rows, self.apart, self.count = rows, apart, count
        self.divided = rows / diagonal
        self.divided[:, apart] = 0.0
        self.diagonal = diagonal
        weight = np.append(1.0, stiff[1:] / (1.0 + np.abs(stiff[1:])))
        self.weight = weight
        matrix = np.empty((count + len(apart), count + len(apart)))
        matrix[:count, :count] = weight[:, None] * (self.divided @ rows.T)
        matrix[range(1, count), range(1, count)] += 1.0 / (1.0 + np.abs(stiff[1:]))
        matrix[:count, count:] = -weight[:, None] * rows[:, apart]
        matrix[count:, :count] = rows[:, apart].T
        matrix[count:, count:] = block
        self.factor, self.pivots, singular = dgetrf(matrix)
        self.sound = not singular and bool(np.isfinite(self.factor).all())

    def solve(self, pull: FloatArray, excess: float) -> tuple[FloatArray, FloatArray]:
        """Return Δx and the forces."""
        right = np.concatenate([self.weight * (self.divided @ pull), pull[self.apart]])
        right[0] += excess
        solution, _ = dgetrs(self.factor, self.pivots, right)
        force = solution[: self.count]
        change = (pull - force @ self.rows) / self.diagonal
        change[self.apart] = solution[self.count :]
        return change, force
