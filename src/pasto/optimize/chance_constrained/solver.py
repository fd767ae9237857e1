"""Solver of chance programs: the best blend, proved by its duality gap.

Two methods are in use, because one alone does not do. The own interior point method with its Newton polish solves the
usual programs. Clarabel solves those without an interior or with kinks.

Clarabel alone was measured on one core, as a ratio to the own method in the same run. It takes a soft guardrail's
expected penalty as cuts, a dozen to 300 conic solves for one program. Hard guardrails hold in all cases.

| case | Clarabel alone | Clarabel with the Newton polish |
|---|---|---|
| random program, hard guardrails only, 10 to 1,000 independent candidates | 1.4 to 4.3 | 1.6 to 5.5 |
| random program, soft guardrails, 3 to 1,000 independent candidates | 21 to 240 | 2 to 12 |
| random program, soft guardrails, 3 to 300 correlated candidates | 20 to 820 | 4 to 92 |
| objective lost against the best of the three | up to 1e-8 | below 1e-11 |
| learning a round, soft guardrails, loss budget, 100 independent candidates | 9.6 | 2.0 |
| learning a round, soft guardrails, loss budget, 100 candidates on a line | - | 2.8 |
| the answer with its outlook, soft guardrails, 10 to 100 independent candidates | 4.2 to 10 | 1.7 to 1.9 |
| the answer with its outlook, soft guardrails, 100 candidates on a line | 29 | 2.3 |
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import SolverError
from pasto.optimize.chance_constrained.conic import solve_conic
from pasto.optimize.chance_constrained.interior_point import InteriorPoint, follow_central_path
from pasto.optimize.chance_constrained.newton_polish import TARGET_GAP, polish_solution
from pasto.optimize.chance_constrained.program import HARD_MARGIN, TINY, CertifiedPoint, ChanceProgram, SmoothedPoint

NEAR_GAP, NEAR_GAP_PER_COLUMN = 1e-4, 1e-6
"""The remaining gain, in all or for each column, below which the Newton polish is tried."""

MAX_GAP = 1e-6
"""The gap above which there is no answer."""

HIGH_PRICE = 3.0
"""A price above which a hard guardrail is tested for being infeasible."""

MAX_DIRECT_COLUMNS = 100
"""Correlated candidates up to which all are solved for at once; of more, a few columns at a time."""

FIRST_COLUMNS = 12
"""Columns that enter at first; twice as many enter each time."""


def solve_chance_program(program: ChanceProgram, start: FloatArray | None = None) -> CertifiedPoint | None:
    """Return the best shares, or None if none hold every hard guardrail; start is a feasible point, if known.

    >>> import numpy as np
    >>> slack, sure = np.array([[-2.0, 2.0]]), np.zeros((1, 2))
    >>> program = ChanceProgram(np.array([1.0, 0.0]), np.ones(2), slack, sure, sure, np.array([np.inf]), np.zeros(1))
    >>> solve_chance_program(program).shares
    array([0.5, 0.5])
    """
    is_wide = len(program.goal) > MAX_DIRECT_COLUMNS and not (program.diagonal and program.curve is None)
    solution = _solve_by_columns(program, start) if is_wide else _solve_directly(program)
    return solution if solution is not None and solution.gap <= MAX_GAP else None


def solve_by_cones(program: ChanceProgram, *, rounding: float, enough: float = TARGET_GAP) -> CertifiedPoint | None:
    """Return the best shares by Clarabel's cones; hard guardrails hold to within rounding."""
    best: CertifiedPoint | None = None
    for point in solve_conic(program):
        raw = program.prove(point.shares, point.prices, point.near)
        for proof in (polish_solution(program, point), replace(raw, gap=min(raw.gap, point.left))):
            if proof is not None and proof.short <= rounding and (best is None or proof.gap < best.gap):
                best = proof
        if best is not None and best.gap <= enough:
            break
    return best


def _solve_directly(program: ChanceProgram) -> CertifiedPoint | None:
    """Return the best shares over all columns."""
    if program.caps is None and program.curve is None:
        alone = np.zeros_like(program.goal)
        alone[np.argmax(np.where(program.mass > 0.0, program.goal, -np.inf))] = 1.0
        single = program.prove(alone, np.zeros(len(program.hard)), SmoothedPoint(alone, 0.0))
        if single.gap <= TARGET_GAP and single.short <= 0.0:
            return single
    best: CertifiedPoint | None = None
    for calm in (False, True):
        near = max(NEAR_GAP, NEAR_GAP_PER_COLUMN * len(program.goal))
        for point in follow_central_path(program, calm=calm):
            if point.prices.max(initial=0.0) > HIGH_PRICE and program.proves_infeasible(point.shares, point.prices):
                return None
            if point.left > near:
                continue
            near = 0.3 * point.left
            for attempt in (_try_corner, polish_solution, _try_path_point):
                proof = attempt(program, point)
                if proof is not None and proof.short <= HARD_MARGIN and (best is None or proof.gap < best.gap):
                    best = proof
                    if best.gap <= TARGET_GAP:
                        return best
    return best


def _try_corner(program: ChanceProgram, point: InteriorPoint) -> CertifiedPoint | None:
    """Try the candidate that has nearly everything: at a spread of zero Newton's method has no slope."""
    first = int(np.argmax(program.mass * point.shares))
    if point.shares[first] < 0.99 or (program.caps is not None and program.caps[first] < 1.0):
        return None
    alone = np.where(program.mass > 0.0, 0.0, point.shares)
    alone[first] = 1.0
    return program.prove(alone, np.where(program.hard, point.prices, 0.0), point.near)


def _try_path_point(program: ChanceProgram, point: InteriorPoint) -> CertifiedPoint | None:
    """Try a point of the path without its tiny shares: of many similar candidates there are no last digits."""
    if point.left > 1e-8:
        return None
    shares = np.where(point.shares > point.gaps[: len(point.shares)], point.shares, 0.0)
    candidates = program.mass > 0.0
    shares[candidates] /= max(float(shares[candidates].sum()), 0.5)
    return program.prove(shares, np.where(program.hard, point.prices, 0.0), point.near)


def _solve_by_columns(program: ChanceProgram, start: FloatArray | None) -> CertifiedPoint | None:
    """Return the best shares by column generation: the columns worth most enter, the idle ones leave."""
    always = program.mass == 0.0
    if program.base is not None:
        always[program.base] = True
    columns = _choose_first_columns(program, always if start is None else always | (start > 0.0))
    best: CertifiedPoint | None = None
    for turn in range(len(program.goal)):
        small = _solve_directly(program.take(columns))
        if small is None:
            return best
        shares, near = np.zeros_like(program.goal), np.zeros_like(program.goal)
        shares[columns], near[columns] = small.shares, small.near.shares
        proof = program.prove(shares, small.prices, SmoothedPoint(near, small.near.blur))
        best = proof if best is None or proof.gap < best.gap else best
        priced = proof.priced.copy()
        priced[columns] = -np.inf
        outside = np.argsort(-priced, kind="stable")[: FIRST_COLUMNS << min(turn, 20)]
        outside = outside[priced[outside] > float(small.priced[program.mass[columns] > 0.0].max())]
        if proof.gap <= TARGET_GAP or not len(outside):
            return best
        columns = np.union1d(np.flatnonzero((shares > 0.0) | always), outside)
    return best


def _choose_first_columns(program: ChanceProgram, always: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the first columns: the best for the goal, the safest for each guardrail and for the hard ones together."""
    even = program.mass / program.mass.sum()
    own = program.factor if program.diagonal else np.sqrt(np.einsum("gkr,gkr->gk", program.factor, program.factor))
    safe = program.slack - own
    scores: list[FloatArray] = [
        program.goal if program.curve is None else program.curve.gradient(even),
        *safe,
        safe[program.hard].min(axis=0, initial=np.inf),
    ]
    first = [np.argsort(-score, kind="stable")[:FIRST_COLUMNS] for score in scores]
    return np.unique(np.concatenate([np.flatnonzero(always), *first]))


ROUNDING = 1e-9
"""A smaller level or spread counts as zero."""

MAX_KINK_GAP = 1e-4
"""The gap that is accepted for a curve with kinks, which is an average over draws and not more exact."""

MAX_CONIC_COLUMNS = 2000
"""Candidates above which the conic method is too slow."""


def solve_or_safest(program: ChanceProgram) -> tuple[FloatArray, FloatArray, bool] | None:
    """Return the best shares, the hard guardrails' prices, and True; or the safest shares if none are safe, and False.

    None if no shares hold every hard guardrail even in the mean.
    """
    hard = program.hard
    if program.caps is not None and program.caps.sum() <= 1.0 + ROUNDING:
        shares = program.caps / program.caps.sum()
        return shares, np.zeros(len(hard)), _holds(program, shares)
    solution = solve_chance_program(program)
    if solution is not None:
        return solution.shares, solution.prices, True
    if program.curve is not None or not hard.any():
        solution = (
            solve_by_cones(program, rounding=ROUNDING, enough=MAX_GAP)
            if len(program.goal) <= MAX_CONIC_COLUMNS
            else None
        )
        if solution is not None and solution.gap <= (MAX_GAP if program.curve is None else MAX_KINK_GAP):
            return solution.shares, solution.prices, True
        if not hard.any():
            raise SolverError(
                f"the robust blend of {len(program.goal)} candidates was not found; are the metrics, their errors or "
                "the penalties many orders of magnitude apart?"
            )
    margin_shares = find_widest_margin(program)
    if margin_shares is not None and _holds(program, margin_shares):
        solution = solve_chance_program(program, margin_shares)
        return (
            _solve_nearly_infeasible(program, margin_shares)
            if solution is None
            else (solution.shares, solution.prices, True)
        )
    program = replace(program, tight=np.zeros(len(hard)))
    least = find_safest(program)
    if least is None:
        return None
    shares, fraction = least
    if _holds(program, shares):
        return _solve_nearly_infeasible(program, shares)
    solution = solve_chance_program(ease_constraints(program, min(fraction, 1.0) * (1.0 - 1e-6)))
    return (shares, np.zeros(len(hard)), False) if solution is None else (solution.shares, solution.prices, False)


def _holds(program: ChanceProgram, shares: FloatArray) -> bool:
    """Return whether the hard guardrails hold to within rounding, in proportion to a very small spread."""
    evaluation = program.at(shares)
    rounding = np.minimum(ROUNDING, 1e-7 * evaluation.spread + 1e-12)
    return bool((evaluation.level - evaluation.spread >= -rounding)[program.hard].all())


def _solve_nearly_infeasible(program: ChanceProgram, feasible: FloatArray) -> tuple[FloatArray, FloatArray, bool]:
    """Return the best shares if hardly any are feasible; `feasible` are some that are."""
    program = replace(program, tight=np.zeros(len(program.hard)))
    solution = solve_by_cones(program, rounding=ROUNDING) if len(program.goal) <= MAX_CONIC_COLUMNS else None
    if (
        solution is None
        or not _holds(program, solution.shares)
        or program.at(solution.shares).value < program.at(feasible).value
    ):
        return feasible, np.zeros(len(program.hard)), True
    return solution.shares, solution.prices, True


def find_widest_margin(program: ChanceProgram, units: FloatArray | None = None) -> FloatArray | None:
    """Return the shares with the largest margin of the tightest hard guardrail, in units (guardrails,).

    It is a chance program with one more column, which takes no traffic and the same margin from each guardrail.
    """
    hard = program.hard
    units = np.ones(int(hard.sum())) if units is None else units[hard] / units[hard].max()
    slack, factor, anchor = program.slack[hard], program.factor[hard], program.anchor[hard]
    if program.diagonal:
        own = np.sqrt(np.maximum((anchor**2).sum(axis=1)[:, None] + (factor - anchor) ** 2 - anchor**2, 0.0))
        empty = np.zeros((len(slack), 1))
        anchor = np.hstack([anchor, empty])
    else:
        own = np.sqrt(((factor - anchor[:, None, :]) ** 2).sum(axis=2))
        empty = np.zeros((len(slack), 1, factor.shape[2]))
    least = float(((slack - own) / units[:, None]).min())  # every blend leaves as much, because the margin is concave
    most = 1.0 + float((slack / units[:, None]).max()) - least
    margin_program = ChanceProgram(
        goal=np.append(np.zeros_like(program.goal), 1.0),
        mass=np.append(program.mass, 0.0),
        slack=np.hstack([slack - least * units[:, None], -units[:, None]]),
        factor=np.concatenate([factor, empty], axis=1),
        anchor=anchor,
        penalties=program.penalties[hard],
        tight=np.zeros(len(slack)),
        base=program.base,
        caps=None if program.caps is None else np.append(program.caps, most),
        most=most,
    )
    solution = solve_chance_program(margin_program)
    if solution is None and len(program.goal) <= MAX_CONIC_COLUMNS:
        solution = solve_by_cones(margin_program, rounding=ROUNDING)
    return None if solution is None else solution.shares[:-1]


def ease_constraints(program: ChanceProgram, fraction: float) -> ChanceProgram:
    """Return the same program at a fraction of the deviations that hard guardrails ask for."""
    part = np.where(program.hard, fraction, 1.0)
    factor = program.factor * (part[:, None] if program.diagonal else part[:, None, None])
    return replace(program, factor=factor, anchor=program.anchor * part[:, None])


def find_safest(program: ChanceProgram) -> tuple[FloatArray, float] | None:
    """Return the shares that hold all hard guardrails at the largest fraction of their deviations, and the fraction.

    None if no shares hold even the levels.
    """
    best: tuple[FloatArray, float] | None = None
    shares = find_widest_margin(ease_constraints(program, 0.0))
    for _ in range(30):
        if shares is None:
            return best
        evaluation = program.at(shares)
        fraction = held_fraction(evaluation.level[program.hard], evaluation.spread[program.hard])
        if fraction <= (-1e-9 if best is None else best[1] + 1e-7):
            return best
        best = shares, fraction
        if fraction >= 1.0:
            return best
        shares = find_widest_margin(
            ease_constraints(program, fraction),
            np.maximum(evaluation.spread, 0.05 * evaluation.spread[program.hard].max()),
        )
    return best


def held_fraction(level: FloatArray, spread: FloatArray) -> float:
    """Return the number of spreads that the levels are above zero, at least; negative if one is below.

    >>> import numpy as np
    >>> held_fraction(np.array([3.0, 5.0]), np.array([2.0, 0.0]))
    1.5
    """
    if (level < -ROUNDING).any():
        return -1.0
    return float(np.where(spread <= ROUNDING, np.inf, np.maximum(level, 0.0) / np.maximum(spread, TINY)).min())
