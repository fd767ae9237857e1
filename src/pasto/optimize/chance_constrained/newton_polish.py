"""The last digits: Newton's method on the columns and guardrails that a point near the optimum shows to count."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.optimize.chance_constrained.interior_point import InteriorPoint
from pasto.optimize.chance_constrained.program import TINY, CertifiedPoint, ChanceProgram, hazard

ENOUGH = 1e-10
"""The gap to the optimum, beside a goal whose spread is about one, that ends the search."""
STEPS = 12
ROUNDS = 8
DENSE = 40
"""Above so many independent columns, their matrix is solved by its structure: a diagonal and a few rows."""


def polish_solution(program: ChanceProgram, point: InteriorPoint) -> CertifiedPoint | None:
    """The optimum of the columns that count, which change until the gap is small enough; None where Newton fails."""
    width = len(program.goal)
    prices, level = np.where(program.hard, point.prices, 0.0), point.level
    caps = np.full(width, np.inf) if program.caps is None else program.caps
    moving = point.shares > point.gaps[:width]
    shares = np.where(moving, point.shares, 0.0)
    if program.caps is not None:
        full = moving & (caps - shares < point.gaps[width:])
        shares, moving = np.where(full, caps, shares), moving & ~full
    best: CertifiedPoint | None = None
    for _ in range(ROUNDS):
        with np.errstate(all="ignore"):  # Newton's method may go astray; what it finds is judged by its proof
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
        if max(proof.gap, proof.short) <= ENOUGH or (wanted == moving).all():
            return best
        moving = wanted
    return best


def _newton(
    program: ChanceProgram, shares: FloatArray, prices: FloatArray, level: float, moving: NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray, float] | None:
    """Shares, prices and level at the optimum over the moving columns, the other shares staying as they are."""
    kept = moving | (shares > 0.0)
    if program.base is not None:
        kept[program.base] = True
    columns = np.flatnonzero(kept)
    slim = program.diagonal and program.curve is None and len(columns) > DENSE
    small = program.take(columns) if slim else program.take(columns).dense()
    caps = np.inf if small.caps is None else small.caps
    shares, moving, prices = shares[columns], moving[columns], prices.copy()
    place = small.at(shares)
    held = program.hard & (prices > place.level - program.tight - place.spread)
    soft = np.where(program.hard, 0.0, 2.0 * program.penalties)
    prices[~held] = 0.0
    for _ in range(STEPS + (0 if program.diagonal else len(columns))):
        direction = place.away / np.maximum(place.spread, TINY)[:, None]
        unit, slack = small.lifted(direction)[:, moving], small.slack[:, moving]
        border = np.vstack([small.mass[moving], (slack - unit)[held]])
        wrong = place.slope[moving] - level * border[0] + prices[held] @ border[1:]
        off = np.append(1.0 - float(small.mass @ shares), (place.spread - place.level + small.tight)[held])
        if max(np.abs(wrong).max(initial=0.0), np.abs(off).max()) < 1e-14:
            break
        chance, firm = soft * place.miss, prices / np.maximum(place.spread, TINY)
        tail = hazard(place.ratio) * chance
        try:
            if slim:
                rows = np.vstack([slack, unit])
                core = np.block(
                    [[np.diag(chance), np.diag(-tail)], [np.diag(-tail), np.diag(tail * place.ratio - firm)]]
                )
                diagonal = (chance + firm) @ small.factor[:, moving] ** 2
                change, turn = _by_structure(diagonal, rows, core, border, wrong, off)
            else:
                bend = small.bend(chance + firm, chance + tail * place.ratio, direction)
                if small.curve is not None:
                    bend += small.curve.bend(shares)
                cross = slack.T @ (tail[:, None] * unit)
                bend = bend[np.ix_(moving, moving)] + slack.T @ (chance[:, None] * slack) - cross - cross.T
                change, turn = _by_matrix(bend, border, wrong, off)
        except np.linalg.LinAlgError:
            return None
        part = 1.0 if program.diagonal else _part(shares, change, moving)
        shares[moving] += part * change
        level -= part * float(turn[0])
        prices[held] += part * turn[1:]
        if not np.isfinite(level + shares.sum()):
            return None
        # What has left its bounds does not move after all.
        moving &= (shares > 0.0) & (shares < caps)
        held &= prices > 0.0
        shares, prices = np.clip(shares, 0.0, caps), np.maximum(prices, 0.0)
        if not moving.any():
            break
        place = small.at(shares)
    everywhere = np.zeros_like(program.goal)
    everywhere[columns] = shares
    return everywhere, prices, level


def _part(shares: FloatArray, change: FloatArray, moving: NDArray[np.bool_]) -> float:
    """How much of a change keeps every share: neighbours are much alike, and one must leave at a time."""
    falling = change < 0.0
    parts = shares[moving][falling] / -change[falling]
    return 1.0 if not len(parts) or parts.min() >= 1.0 else float(parts.min()) * (1.0 + 1e-12)


def _by_matrix(
    bend: FloatArray, border: FloatArray, wrong: FloatArray, off: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The change that makes bend · change − borderᵀ turn = wrong and border · change = off."""
    count = len(wrong)
    system = np.zeros((count + len(off), count + len(off)))
    system[:count, :count] = bend
    system[:count, count:] = -border.T
    system[count:, :count] = border
    right = np.concatenate([wrong, off])
    if not np.isfinite(system).all() or not np.isfinite(right).all():
        raise np.linalg.LinAlgError
    try:
        found = np.linalg.solve(system, right)
        sound = np.abs(system @ found - right).max() <= 1e-6 * np.abs(right).max()
    except np.linalg.LinAlgError:
        sound = False
    if not sound:  # more guardrails are at their limit than columns hold them there: their prices are not unique
        found = np.linalg.lstsq(system, right, rcond=1e-12)[0]
    return found[:count], found[count:]


def _by_structure(
    diagonal: FloatArray, rows: FloatArray, core: FloatArray, border: FloatArray, wrong: FloatArray, off: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The same for bend = diagonal + rowsᵀ core rows, through rows · change."""
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
    found = np.linalg.solve(system, np.append(right[:count], off - right[count:]))
    moved, turn = found[:count], found[count:]
    return (wrong + turn @ border - (core @ moved) @ rows) / diagonal, turn
