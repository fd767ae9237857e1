"""The best blend of a chance program, proved by its duality gap."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pasto.objective import Array
from pasto.optimize.caution.central import Point, central_path
from pasto.optimize.caution.chance import HAIR, Chance, Near, Proof
from pasto.optimize.caution.second import cone_points
from pasto.optimize.caution.settle import ENOUGH, settle

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


def best_chance(program: Chance, start: Array | None = None) -> Proof | None:
    """The best shares, or None where none are found that hold every hard guardrail; start, where given, are some.

    >>> import numpy as np
    >>> slack, sure = np.array([[-2.0, 2.0]]), np.zeros((1, 2))
    >>> program = Chance(np.array([1.0, 0.0]), np.ones(2), slack, sure, sure, np.array([np.inf]), np.zeros(1))
    >>> best_chance(program).shares
    array([0.5, 0.5])
    """
    wide = len(program.goal) > WIDEST and not (program.diagonal and program.curve is None)
    found = _by_columns(program, start) if wide else _at_once(program)
    return found if found is not None and found.gap <= WORST else None


def best_by_cones(program: Chance, *, rounding: float, enough: float = ENOUGH) -> Proof | None:
    """The same by the second method, hard guardrails being held to within rounding."""
    best: Proof | None = None
    for point in cone_points(program):
        raw = program.prove(point.shares, point.prices, point.near)
        for proof in (settle(program, point), replace(raw, gap=min(raw.gap, point.left))):
            if proof is not None and proof.short <= rounding and (best is None or proof.gap < best.gap):
                best = proof
        if best is not None and best.gap <= enough:
            break
    return best


def _at_once(program: Chance) -> Proof | None:
    """The best shares, all columns being carried."""
    if program.caps is None and program.curve is None:
        alone = np.zeros_like(program.goal)
        alone[np.argmax(np.where(program.mass > 0.0, program.goal, -np.inf))] = 1.0
        single = program.prove(alone, np.zeros(len(program.hard)), Near(alone, 0.0))
        if single.gap <= ENOUGH and single.short <= 0.0:
            return single
    best: Proof | None = None
    for calm in (False, True):
        near = max(NEAR, EACH * len(program.goal))
        for point in central_path(program, calm=calm):
            if point.prices.max(initial=0.0) > HIGH and program.hopeless(point.shares, point.prices):
                return None
            if point.left > near:
                continue
            near = 0.3 * point.left
            for attempt in (_corner, settle, _swept):
                proof = attempt(program, point)
                if proof is not None and proof.short <= HAIR and (best is None or proof.gap < best.gap):
                    best = proof
                    if best.gap <= ENOUGH:
                        return best
    return best


def _corner(program: Chance, point: Point) -> Proof | None:
    """The one candidate that has nearly everything: where its spread is zero, Newton's method has no slope to go by."""
    first = int(np.argmax(program.mass * point.shares))
    if point.shares[first] < 0.99 or (program.caps is not None and program.caps[first] < 1.0):
        return None
    alone = np.where(program.mass > 0.0, 0.0, point.shares)
    alone[first] = 1.0
    return program.prove(alone, np.where(program.hard, point.prices, 0.0), point.near)


def _swept(program: Chance, point: Point) -> Proof | None:
    """A point of the path as it is, without its dust: where many candidates are alike, there are no last digits."""
    if point.left > 1e-8:
        return None
    shares = np.where(point.shares > point.gaps[: len(point.shares)], point.shares, 0.0)
    candidates = program.mass > 0.0
    shares[candidates] /= max(float(shares[candidates].sum()), 0.5)
    return program.prove(shares, np.where(program.hard, point.prices, 0.0), point.near)


def _by_columns(program: Chance, start: Array | None) -> Proof | None:
    """The best shares, a few columns being carried and the others priced: those worth most enter, the idle leave."""
    always = program.mass == 0.0
    if program.base is not None:
        always[program.base] = True
    columns = _first(program, always if start is None else always | (start > 0.0))
    best: Proof | None = None
    for turn in range(len(program.goal)):
        small = _at_once(program.take(columns))
        if small is None:
            return best
        shares, near = np.zeros_like(program.goal), np.zeros_like(program.goal)
        shares[columns], near[columns] = small.shares, small.near.shares
        proof = program.prove(shares, small.prices, Near(near, small.near.blur))
        best = proof if best is None or proof.gap < best.gap else best
        priced = proof.priced.copy()
        priced[columns] = -np.inf
        outside = np.argsort(-priced, kind="stable")[: BATCH << min(turn, 20)]
        outside = outside[priced[outside] > float(small.priced[program.mass[columns] > 0.0].max())]
        if proof.gap <= ENOUGH or not len(outside):
            return best
        columns = np.union1d(np.flatnonzero((shares > 0.0) | always), outside)
    return best


def _first(program: Chance, always: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Columns to begin with: the best for the goal, the safest for each guardrail and for the hard ones together."""
    even = program.mass / program.mass.sum()
    own = program.factor if program.diagonal else np.sqrt(np.einsum("gkr,gkr->gk", program.factor, program.factor))
    safe = program.slack - own
    scores: list[Array] = [
        program.goal if program.curve is None else program.curve.gradient(even),
        *safe,
        safe[program.hard].min(axis=0, initial=np.inf),
    ]
    first = [np.argsort(-score, kind="stable")[:BATCH] for score in scores]
    return np.unique(np.concatenate([np.flatnonzero(always), *first]))
