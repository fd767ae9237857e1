"""A second method for chance programs: Clarabel, with curves and expected penalties as cuts.

An expected penalty is convex in level and spread together, so it lies above its tangent planes, as a concave curve lies
below them. With those for it, and spread ≥ ‖factorᵀ x − anchor‖, the program is a linear goal over second-order cones.
It needs neither an interior nor smoothness, so it also solves a program that only one blend can hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from pasto.arrays import FloatArray
from pasto.optimize.chance_constrained.interior_point import InteriorPoint
from pasto.optimize.chance_constrained.program import TINY, ChanceProgram, expected_penalty, hazard

ROUNDS = 300
"""The most cuts for each curve and soft guardrail."""


def solve_conic(program: ChanceProgram) -> Iterator[InteriorPoint]:
    """Yield points ever nearer to the optimum, each with one more cut for the curve and every soft guardrail.

    The remaining gain is counted from the cuts' own optimum, which no value can exceed.
    """
    model = ConicModel(program)
    for _ in range(ROUNDS):
        point = model.solve()
        if point is None:
            return
        yield point
        if not len(model.soft) and program.curve is None:
            return
        model.cut(point.shares)


class ConicModel:
    """Conic model of a program: cuts and cones.

    The unknowns are the shares, then each soft guardrail's spread, then its expected penalty, then the curve.
    """

    def __init__(self, program: ChanceProgram) -> None:
        self.program, self.soft = program, np.flatnonzero(~program.hard)
        width, rails = len(program.goal), len(self.soft)
        self.spreads, self.costs = width + np.arange(rails), width + rails + np.arange(rails)
        self.count = width + 2 * rails + (program.curve is not None)
        self.goal = np.zeros(self.count)
        self.goal[:width], self.goal[self.costs] = -program.goal, program.penalties[self.soft]
        self.share: Any = np.append(program.mass, np.zeros(self.count - width))
        self.flat: list[Any] = [-sparse.eye(width, self.count)]
        self.limits = [np.zeros(width)]
        if program.caps is not None:
            self.flat.append(sparse.eye(width, self.count))
            self.limits.append(program.caps)
        self.flat.append(-sparse.eye(2 * rails, self.count, k=width))
        self.limits.append(np.zeros(2 * rails))
        self.cones = [self._cone(rail) for rail in range(len(program.hard))]
        if program.curve is not None:
            self.goal[-1] = -1.0
            self.cut(program.mass / program.mass.sum())

    def solve(self) -> InteriorPoint | None:
        """Return the optimum of the cuts so far, or None if there is none."""
        import clarabel  # seldom needed

        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.max_threads = 1
        settings.tol_feas = settings.tol_gap_abs = settings.tol_gap_rel = 1e-11
        program = self.program
        width, bounds = len(program.goal), sparse.vstack(self.flat)
        sizes = [len(height) for _, height in self.cones]
        solution = clarabel.DefaultSolver(
            sparse.csc_matrix((self.count, self.count)),
            self.goal,
            sparse.vstack([self.share, bounds, *(matrix for matrix, _ in self.cones)]).tocsc(),
            np.concatenate([[1.0], *self.limits, *(height for _, height in self.cones)]),
            [
                clarabel.ZeroConeT(1),
                clarabel.NonnegativeConeT(bounds.shape[0]),
                *(clarabel.SecondOrderConeT(size) for size in sizes),
            ],
            settings,
        ).solve()
        answer, duals = np.array(solution.x), np.array(solution.z)
        if "nfeasible" in str(solution.status) or not np.isfinite(answer).all():
            return None
        shares = np.maximum(answer[:width], 0.0)
        shares[program.mass > 0.0] /= float(program.mass @ shares)
        tops = 1 + bounds.shape[0] + np.cumsum([0, *sizes])[:-1]
        gaps = duals[1 : 1 + (width if program.caps is None else 2 * width)]
        prices = np.where(program.hard, duals[tops], 0.0)
        left = -float(solution.obj_val) - program.at(shares).value
        return InteriorPoint(shares, np.maximum(gaps, 0.0), prices, np.zeros(len(prices)), float(duals[0]), left)

    def cut(self, shares: FloatArray) -> None:
        """Add the tangent planes at the shares."""
        program, width, soft = self.program, len(self.program.goal), self.soft
        evaluation = program.at(shares)
        level, spread, ratio = evaluation.level[soft], evaluation.spread[soft], evaluation.ratio[soft]
        by_level = -2.0 * np.maximum(spread, TINY) * evaluation.miss[soft] * (hazard(ratio) - ratio)
        by_spread = 2.0 * spread * evaluation.miss[soft]
        rows = np.zeros((len(soft), self.count))
        rows[:, :width] = by_level[:, None] * program.slack[soft]
        rows[range(len(soft)), self.spreads] = by_spread
        rows[range(len(soft)), self.costs] = -1.0
        self.flat.append(sparse.csr_matrix(rows))
        self.limits.append(by_level * level + by_spread * spread - expected_penalty(level, spread))
        if program.curve is not None:
            slope = program.curve.gradient(shares)
            self.flat.append(sparse.csr_matrix(np.concatenate([-slope, np.zeros(2 * len(soft)), [1.0]])[None]))
            self.limits.append(np.array([program.curve.value(shares) - float(slope @ shares)]))

    def _cone(self, rail: int) -> tuple[Any, FloatArray]:
        """Return the cone of a guardrail: its spread is below its level if it is hard, else below its own unknown."""
        program, width = self.program, len(self.program.goal)
        across: Any = (
            sparse.diags(program.factor[rail]) if program.diagonal else sparse.csr_matrix(program.factor[rail].T)
        )
        top: Any = np.zeros((1, self.count))
        if program.hard[rail]:
            top[0, :width] = -program.slack[rail]
        else:
            top[0, self.spreads[np.searchsorted(self.soft, rail)]] = -1.0
        side = sparse.hstack([-across, sparse.csr_matrix((across.shape[0], self.count - width))])
        height = np.append(-program.tight[rail] if program.hard[rail] else 0.0, -program.anchor[rail])
        return sparse.vstack([top, side]).tocsr(), height
