"""Newton polish: the last digits, on the columns and guardrails that are active near the optimum."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.optimize.chance_constrained.interior_point import InteriorPoint
from pasto.optimize.chance_constrained.program import TINY, CertifiedPoint, ChanceProgram, hazard

TARGET_GAP = 1e-10
"""The gap to the optimum that ends the search; the goal's spread is about one."""
MAX_NEWTON_STEPS = 12
MAX_ACTIVE_SETS = 8
MAX_DENSE_COLUMNS = 40
"""Above this many independent columns, their matrix is solved by its structure: a diagonal and a few rows."""


def polish_solution(program: ChanceProgram, point: InteriorPoint) -> CertifiedPoint | None:
    """Return the optimum of the active columns, which change until the gap is small; None if Newton's method fails."""
    width = len(program.goal)
    prices, level = np.where(program.hard, point.prices, 0.0), point.level
    caps = np.full(width, np.inf) if program.caps is None else program.caps
    moving = point.shares > point.gaps[:width]
    shares = np.where(moving, point.shares, 0.0)
    if program.caps is not None:
        full = moving & (caps - shares < point.gaps[width:])
        shares, moving = np.where(full, caps, shares), moving & ~full
    best: CertifiedPoint | None = None
    for _ in range(MAX_ACTIVE_SETS):
        with np.errstate(all="ignore"):  # Newton's method may fail; its result is judged by its proof
            if moving.any():
                settled = _newton(program, shares, prices, level, moving)
                if settled is None:
                    return best
                shares, prices, level = settled
            proof = program.prove(shares, prices, point.near)
        if best is None or max(proof.gap, proof.short) < max(best.gap, best.short):
            best = proof
        worth = proof.priced - level * program.mass
        wanted = (
            ((shares > 0.0) & (shares < caps)) | ((shares <= 0.0) & (worth > 0.0)) | ((shares >= caps) & (worth < 0.0))
        )
        if max(proof.gap, proof.short) <= TARGET_GAP or (wanted == moving).all():
            return best
        moving = wanted
    return best


def _newton(
    program: ChanceProgram, shares: FloatArray, prices: FloatArray, level: float, moving: NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray, float] | None:
    """Return shares, prices and level at the optimum over the moving columns; the other shares do not change."""
    used = moving | (shares > 0.0)
    if program.base is not None:
        used[program.base] = True
    columns = np.flatnonzero(used)
    slim = program.diagonal and program.curve is None and len(columns) > MAX_DENSE_COLUMNS
    small = program.take(columns) if slim else program.take(columns).dense()
    caps = np.inf if small.caps is None else small.caps
    shares, moving, prices = shares[columns], moving[columns], prices.copy()
    evaluation = small.at(shares)
    held = program.hard & (prices > evaluation.level - program.tight - evaluation.spread)
    soft = np.where(program.hard, 0.0, 2.0 * program.penalties)
    prices[~held] = 0.0
    for _ in range(MAX_NEWTON_STEPS + (0 if program.diagonal else len(columns))):
        direction = evaluation.away / np.maximum(evaluation.spread, TINY)[:, None]
        unit, slack = small.lifted(direction)[:, moving], small.slack[:, moving]
        border = np.vstack([small.mass[moving], (slack - unit)[held]])
        wrong = evaluation.slope[moving] - level * border[0] + prices[held] @ border[1:]
        off = np.append(1.0 - float(small.mass @ shares), (evaluation.spread - evaluation.level + small.tight)[held])
        if max(np.abs(wrong).max(initial=0.0), np.abs(off).max()) < 1e-14:
            break
        chance, firm = soft * evaluation.miss, prices / np.maximum(evaluation.spread, TINY)
        tail = hazard(evaluation.ratio) * chance
        try:
            if slim:
                rows = np.vstack([slack, unit])
                core = np.block(
                    [[np.diag(chance), np.diag(-tail)], [np.diag(-tail), np.diag(tail * evaluation.ratio - firm)]]
                )
                diagonal = (chance + firm) @ small.factor[:, moving] ** 2
                change, turn = _solve_structured(diagonal, rows, core, border, wrong, off)
            else:
                bend = small.bend(chance + firm, chance + tail * evaluation.ratio, direction)
                if small.curve is not None:
                    bend += small.curve.bend(shares)
                cross = slack.T @ (tail[:, None] * unit)
                bend = bend[np.ix_(moving, moving)] + slack.T @ (chance[:, None] * slack) - cross - cross.T
                change, turn = _solve_dense(bend, border, wrong, off)
        except np.linalg.LinAlgError:
            return None
        part = 1.0 if program.diagonal else _limit_step(shares, change, moving)
        shares[moving] += part * change
        level -= part * float(turn[0])
        prices[held] += part * turn[1:]
        if not np.isfinite(level + shares.sum()):
            return None
        # A share that reaches a bound does not move any more.
        moving &= (shares > 0.0) & (shares < caps)
        held &= prices > 0.0
        shares, prices = np.clip(shares, 0.0, caps), np.maximum(prices, 0.0)
        if not moving.any():
            break
        evaluation = small.at(shares)
    everywhere = np.zeros_like(program.goal)
    everywhere[columns] = shares
    return everywhere, prices, level


def _limit_step(shares: FloatArray, change: FloatArray, moving: NDArray[np.bool_]) -> float:
    """Return the part of a change that keeps every share positive: of similar neighbours one leaves at a time."""
    falling = change < 0.0
    parts = shares[moving][falling] / -change[falling]
    return 1.0 if not len(parts) or parts.min() >= 1.0 else float(parts.min()) * (1.0 + 1e-12)


def _solve_dense(
    bend: FloatArray, border: FloatArray, wrong: FloatArray, off: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Solve bend · change − borderᵀ turn = wrong and border · change = off."""
    count = len(wrong)
    system = np.zeros((count + len(off), count + len(off)))
    system[:count, :count] = bend
    system[:count, count:] = -border.T
    system[count:, :count] = border
    right = np.concatenate([wrong, off])
    if not np.isfinite(system).all() or not np.isfinite(right).all():
        raise np.linalg.LinAlgError
    try:
        solution = np.linalg.solve(system, right)
        sound = np.abs(system @ solution - right).max() <= 1e-6 * np.abs(right).max()
    except np.linalg.LinAlgError:
        sound = False
    if not sound:  # more guardrails are at their limit than columns hold them there: their prices are not unique
        solution = np.linalg.lstsq(system, right, rcond=1e-12)[0]
    return solution[:count], solution[count:]


def _solve_structured(
    diagonal: FloatArray, rows: FloatArray, core: FloatArray, border: FloatArray, wrong: FloatArray, off: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Solve the same for bend = diagonal + rowsᵀ core rows, through rows · change."""
    diagonal = np.maximum(diagonal, 1e-14 * diagonal.max())
    count, both = len(rows), np.vstack([rows, border])
    divided = both / diagonal
    crossed, right = divided @ both.T, divided @ wrong
    system = np.block(
        [
            [np.eye(count) + crossed[:count, :count] @ core, -crossed[:count, count:]],
            [-crossed[count:, :count] @ core, crossed[count:, count:]],
        ]
    )
    solution = np.linalg.solve(system, np.append(right[:count], off - right[count:]))
    moved, turn = solution[:count], solution[count:]
    return (wrong + turn @ border - (core @ moved) @ rows) / diagonal, turn
