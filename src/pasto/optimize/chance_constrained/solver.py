"""The best blend of a chance program, proved by its duality gap."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import SolverError
from pasto.optimize.chance_constrained.conic import solve_conic
from pasto.optimize.chance_constrained.interior_point import InteriorPoint, follow_central_path
from pasto.optimize.chance_constrained.newton_polish import ENOUGH, polish_solution
from pasto.optimize.chance_constrained.program import HAIR, TINY, CertifiedPoint, ChanceProgram, SmoothedPoint

NEAR, EACH = 1e-4, 1e-6
"""How little must be left to gain, in all or for each column, before the last digits are tried for."""

WORST = 1e-6
"""The gap above which there is no answer."""

HIGH = 3.0
"""A price at which a hard guardrail may be one that cannot be held."""

WIDEST = 100
"""More correlated candidates than these are priced, and a few of them carried."""

BATCH = 12
"""So many enter at first, and twice as many each time."""


def solve_chance_program(program: ChanceProgram, start: FloatArray | None = None) -> CertifiedPoint | None:
    """The best shares, or None where none are found that hold every hard guardrail; start, where given, are some.

    >>> import numpy as np
    >>> slack, sure = np.array([[-2.0, 2.0]]), np.zeros((1, 2))
    >>> program = ChanceProgram(np.array([1.0, 0.0]), np.ones(2), slack, sure, sure, np.array([np.inf]), np.zeros(1))
    >>> solve_chance_program(program).shares
    array([0.5, 0.5])
    """
    wide = len(program.goal) > WIDEST and not (program.diagonal and program.curve is None)
    found = _by_columns(program, start) if wide else _at_once(program)
    return found if found is not None and found.gap <= WORST else None


def solve_by_cones(program: ChanceProgram, *, rounding: float, enough: float = ENOUGH) -> CertifiedPoint | None:
    """The same by the second method, hard guardrails being held to within rounding."""
    best: CertifiedPoint | None = None
    for point in solve_conic(program):
        raw = program.prove(point.shares, point.prices, point.near)
        for proof in (polish_solution(program, point), replace(raw, gap=min(raw.gap, point.left))):
            if proof is not None and proof.short <= rounding and (best is None or proof.gap < best.gap):
                best = proof
        if best is not None and best.gap <= enough:
            break
    return best


def _at_once(program: ChanceProgram) -> CertifiedPoint | None:
    """The best shares, all columns being carried."""
    if program.caps is None and program.curve is None:
        alone = np.zeros_like(program.goal)
        alone[np.argmax(np.where(program.mass > 0.0, program.goal, -np.inf))] = 1.0
        single = program.prove(alone, np.zeros(len(program.hard)), SmoothedPoint(alone, 0.0))
        if single.gap <= ENOUGH and single.short <= 0.0:
            return single
    best: CertifiedPoint | None = None
    for calm in (False, True):
        near = max(NEAR, EACH * len(program.goal))
        for point in follow_central_path(program, calm=calm):
            if point.prices.max(initial=0.0) > HIGH and program.hopeless(point.shares, point.prices):
                return None
            if point.left > near:
                continue
            near = 0.3 * point.left
            for attempt in (_corner, polish_solution, _swept):
                proof = attempt(program, point)
                if proof is not None and proof.short <= HAIR and (best is None or proof.gap < best.gap):
                    best = proof
                    if best.gap <= ENOUGH:
                        return best
    return best


def _corner(program: ChanceProgram, point: InteriorPoint) -> CertifiedPoint | None:
    """The one candidate that has nearly everything: where its spread is zero, Newton's method has no slope to go by."""
    first = int(np.argmax(program.mass * point.shares))
    if point.shares[first] < 0.99 or (program.caps is not None and program.caps[first] < 1.0):
        return None
    alone = np.where(program.mass > 0.0, 0.0, point.shares)
    alone[first] = 1.0
    return program.prove(alone, np.where(program.hard, point.prices, 0.0), point.near)


def _swept(program: ChanceProgram, point: InteriorPoint) -> CertifiedPoint | None:
    """A point of the path as it is, without its dust: where many candidates are alike, there are no last digits."""
    if point.left > 1e-8:
        return None
    shares = np.where(point.shares > point.gaps[: len(point.shares)], point.shares, 0.0)
    candidates = program.mass > 0.0
    shares[candidates] /= max(float(shares[candidates].sum()), 0.5)
    return program.prove(shares, np.where(program.hard, point.prices, 0.0), point.near)


def _by_columns(program: ChanceProgram, start: FloatArray | None) -> CertifiedPoint | None:
    """The best shares, a few columns being carried and the others priced: those worth most enter, the idle leave."""
    always = program.mass == 0.0
    if program.base is not None:
        always[program.base] = True
    columns = _first(program, always if start is None else always | (start > 0.0))
    best: CertifiedPoint | None = None
    for turn in range(len(program.goal)):
        small = _at_once(program.take(columns))
        if small is None:
            return best
        shares, near = np.zeros_like(program.goal), np.zeros_like(program.goal)
        shares[columns], near[columns] = small.shares, small.near.shares
        proof = program.prove(shares, small.prices, SmoothedPoint(near, small.near.blur))
        best = proof if best is None or proof.gap < best.gap else best
        priced = proof.priced.copy()
        priced[columns] = -np.inf
        outside = np.argsort(-priced, kind="stable")[: BATCH << min(turn, 20)]
        outside = outside[priced[outside] > float(small.priced[program.mass[columns] > 0.0].max())]
        if proof.gap <= ENOUGH or not len(outside):
            return best
        columns = np.union1d(np.flatnonzero((shares > 0.0) | always), outside)
    return best


def _first(program: ChanceProgram, always: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Columns to begin with: the best for the goal, the safest for each guardrail and for the hard ones together."""
    even = program.mass / program.mass.sum()
    own = program.factor if program.diagonal else np.sqrt(np.einsum("gkr,gkr->gk", program.factor, program.factor))
    safe = program.slack - own
    scores: list[FloatArray] = [
        program.goal if program.curve is None else program.curve.gradient(even),
        *safe,
        safe[program.hard].min(axis=0, initial=np.inf),
    ]
    first = [np.argsort(-score, kind="stable")[:BATCH] for score in scores]
    return np.unique(np.concatenate([np.flatnonzero(always), *first]))


ROUNDING = 1e-9
"""A level or a spread of less than this is nothing."""

ROUGH = 1e-4
"""The gap that is accepted for a curve with kinks, which is an average over draws, and no more exact than that."""

FEW = 2000
"""With more candidates than these, the second method is too slow."""


def solve_or_safest(program: ChanceProgram) -> tuple[FloatArray, FloatArray, bool] | None:
    """The best shares, the hard guardrails' prices, and True; or the safest shares where none are safe, and False.

    None where no shares hold every hard guardrail even in the mean.
    """
    hard = program.hard
    if program.caps is not None and program.caps.sum() <= 1.0 + ROUNDING:
        shares = program.caps / program.caps.sum()
        return shares, np.zeros(len(hard)), _holds(program, shares)
    found = solve_chance_program(program)
    if found is not None:
        return found.shares, found.prices, True
    if program.curve is not None or not hard.any():
        found = solve_by_cones(program, rounding=ROUNDING, enough=WORST) if len(program.goal) <= FEW else None
        if found is not None and found.gap <= (WORST if program.curve is None else ROUGH):
            return found.shares, found.prices, True
        if not hard.any():
            raise SolverError(
                f"the cautious blend of {len(program.goal)} candidates was not found; are the metrics, their errors or "
                "the penalties many orders of magnitude apart?"
            )
    room = find_roomiest(program)
    if room is not None and _holds(program, room):
        found = solve_chance_program(program, room)
        return _thin(program, room) if found is None else (found.shares, found.prices, True)
    program = replace(program, tight=np.zeros(len(hard)))
    least = find_safest(program)
    if least is None:
        return None
    shares, fraction = least
    if _holds(program, shares):
        return _thin(program, shares)
    found = solve_chance_program(ease_constraints(program, min(fraction, 1.0) * (1.0 - 1e-6)))
    return (shares, np.zeros(len(hard)), False) if found is None else (found.shares, found.prices, False)


def _holds(program: ChanceProgram, shares: FloatArray) -> bool:
    """Whether the hard guardrails hold to within rounding, and those of hardly any spread in proportion to it."""
    place = program.at(shares)
    rounding = np.minimum(ROUNDING, 1e-7 * place.spread + 1e-12)
    return bool((place.level - place.spread >= -rounding)[program.hard].all())


def _thin(program: ChanceProgram, room: FloatArray) -> tuple[FloatArray, FloatArray, bool]:
    """The best shares where hardly any hold the hard guardrails, room being some that do."""
    program = replace(program, tight=np.zeros(len(program.hard)))
    found = solve_by_cones(program, rounding=ROUNDING) if len(program.goal) <= FEW else None
    if found is None or not _holds(program, found.shares) or program.at(found.shares).value < program.at(room).value:
        return room, np.zeros(len(program.hard)), True
    return found.shares, found.prices, True


def find_roomiest(program: ChanceProgram, units: FloatArray | None = None) -> FloatArray | None:
    """The shares that leave most room to the hard guardrail with the least, counted in units (guardrails,).

    It is a chance program with one column more, which takes no share of the traffic and the same room from each.
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
    least = float(((slack - own) / units[:, None]).min())  # every blend leaves as much: room is concave
    most = 1.0 + float((slack / units[:, None]).max()) - least
    room = ChanceProgram(
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
    found = solve_chance_program(room)
    if found is None and len(program.goal) <= FEW:
        found = solve_by_cones(room, rounding=ROUNDING)
    return None if found is None else found.shares[:-1]


def ease_constraints(program: ChanceProgram, fraction: float) -> ChanceProgram:
    """The same program at a fraction of the deviations that hard guardrails ask for."""
    part = np.where(program.hard, fraction, 1.0)
    factor = program.factor * (part[:, None] if program.diagonal else part[:, None, None])
    return replace(program, factor=factor, anchor=program.anchor * part[:, None])


def find_safest(program: ChanceProgram) -> tuple[FloatArray, float] | None:
    """The shares that hold all hard guardrails at the largest fraction of their deviations, and that fraction.

    None where no shares hold even the levels.
    """
    best: tuple[FloatArray, float] | None = None
    shares = find_roomiest(ease_constraints(program, 0.0))
    for _ in range(30):
        if shares is None:
            return best
        place = program.at(shares)
        fraction = held_fraction(place.level[program.hard], place.spread[program.hard])
        if fraction <= (-1e-9 if best is None else best[1] + 1e-7):
            return best
        best = shares, fraction
        if fraction >= 1.0:
            return best
        shares = find_roomiest(
            ease_constraints(program, fraction), np.maximum(place.spread, 0.05 * place.spread[program.hard].max())
        )
    return best


def held_fraction(level: FloatArray, spread: FloatArray) -> float:
    """How many spreads the levels are above zero at least; negative where one is below.

    >>> import numpy as np
    >>> held_fraction(np.array([3.0, 5.0]), np.array([2.0, 0.0]))
    1.5
    """
    if (level < -ROUNDING).any():
        return -1.0
    return float(np.where(spread <= ROUNDING, np.inf, np.maximum(level, 0.0) / np.maximum(spread, TINY)).min())
