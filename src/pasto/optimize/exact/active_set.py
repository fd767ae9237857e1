"""Active-set method: exact for linear goals, quadratic penalties and hard limits, few candidates at a time.

The state is a support (the candidates with a share) and a set of held guardrails: hard ones at their limit
and soft ones that are missed. Within that state the optimum is one small linear system,

    goal_k + Σ π_g slack_gk = v   for k in the support
    Σ p_k = 1
    slack_g · p + give_g π_g = 0  for g held, with give = 1/2λ, and 0 if hard,

and p walks towards it until a share runs out, a guardrail that was met is reached, or a missed one is met again. At
the optimum of its state, either a hard guardrail is released (π < 0), or the best-priced candidate outside
enters, or nothing does and the method ends. The support never holds more than two candidates above the held
guardrails.

With segments there is one v and one equation Σ p_k = 1 for each: `owner` names the segment of each candidate.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dgesv

from pasto.arrays import FloatArray

MAX_STEPS = 500
TINY = 1e-13
"""Smaller numbers count as zero, because all numbers are about one."""


@dataclass(slots=True, eq=False)
class ActiveSet:
    """State of the method: support, shares and held guardrails."""

    support: list[int]
    shares: FloatArray
    """(support,)."""
    held: list[int] = field(default_factory=list)
    """Guardrails at their limit (hard) or missed (soft)."""
    duals: FloatArray = field(default_factory=lambda: np.zeros(0))
    """(guardrails,)."""
    done: bool = False
    """True if the optimum was reached; False if the steps ran out."""


@dataclass(frozen=True, slots=True, eq=False)
class _Move:
    """Next move: to the optimum of the state, or along a direction that moves no held guardrail."""

    direction: FloatArray
    target: FloatArray | None = None
    levels: FloatArray = field(default_factory=lambda: np.zeros(1))
    """v (segments,), the worth of each candidate of the support at the target."""
    multipliers: FloatArray = field(default_factory=lambda: np.zeros(0))
    """π of the held guardrails at the target."""


def solve_active_set(
    goal: FloatArray,
    slack: FloatArray,
    give: FloatArray,
    start: ActiveSet,
    *,
    springs: NDArray[np.bool_],
    owner: NDArray[np.intp] | None = None,
) -> ActiveSet:
    """Walk from a state that meets every hard guardrail to the optimum.

    goal (candidates,) and slack (guardrails, candidates) should be scaled to about one; give (guardrails,) is 0 for a
    hard guardrail. Springs (guardrails,) are soft, penalised on both sides, and held from the start. owner
    (candidates,) is the segment of each candidate, from 0; without it there is one segment. The state has a candidate
    of every segment.
    """
    segments = 1 if owner is None else int(owner.max()) + 1
    state = ActiveSet(list(start.support), start.shares, list(start.held), np.zeros(len(give)))
    hard = (give == 0.0).tolist()
    lasting = (springs | (give == 0.0)).tolist()
    released: int | None = None
    for _ in range(MAX_STEPS * segments):
        columns = slack[:, state.support]
        members = np.ones((1, len(state.support)))
        if owner is not None:
            members = np.asarray(owner[state.support] == np.arange(segments)[:, None], dtype=float)
        move = _choose_move(goal[state.support], columns, members, give, state, hard, released)
        reach, event = _first_event(columns, move, state, lasting)
        released = None
        if event is not None:
            kind, place = event
            state.shares = np.maximum(state.shares + reach * move.direction, 0.0)
            if kind == "leave":
                del state.support[place]
                state.shares = np.concatenate((state.shares[:place], state.shares[place + 1 :]))
            elif kind == "hold":
                state.held.append(place)
            else:
                state.held.remove(place)
                released = place
            continue
        if move.target is None:  # an endless direction is impossible, because the shares sum to one
            break
        state.shares = np.maximum(move.target, 0.0)
        state.duals[:] = 0.0
        state.duals[state.held] = move.multipliers
        multipliers = dict(zip(state.held, move.multipliers.tolist(), strict=True))
        scale = 1.0 + max(map(abs, multipliers.values()), default=0.0)
        pulling = [rail for rail, price in multipliers.items() if hard[rail] and price < -TINY * scale]
        if pulling:
            released = min(pulling, key=multipliers.__getitem__)
            state.held.remove(released)
            continue
        priced = goal + state.duals @ slack
        best = int((priced if owner is None else priced - move.levels[owner]).argmax())
        level = move.levels[0 if owner is None else owner[best]]
        if priced[best] - level <= 1e-12 * scale or best in state.support:
            state.done = True
            break
        state.support.append(best)
        state.shares = np.concatenate((state.shares, (0.0,)))
    return state


def _choose_move(
    goal: FloatArray,
    columns: FloatArray,
    members: FloatArray,
    give: FloatArray,
    state: ActiveSet,
    hard: list[bool],
    released: int | None,
) -> _Move:
    """Return the next move after a candidate has entered or a guardrail was released.

    members (segments, support) is 1 in the row of each candidate's segment.
    """
    held = state.held
    segments, width = members.shape
    rows = segments + len(held)
    matrix = np.empty((rows, width))
    matrix[:segments] = members
    matrix[segments:] = columns[held]
    if width <= rows:
        move = _to_optimum(goal, matrix, give[held], state.shares, segments)
        if move is not None:
            if width == segments + sum(map(hard.__getitem__, held)):
                # A corner cannot move: any other result of the solve is rounding.
                target = move.target if move.target is not None and move.target.min() >= 0.0 else state.shares
                return _Move(np.zeros(width), target, move.levels, move.multipliers)
            return move
    flat = _find_flat_direction(matrix)
    lean = flat[-1] if released is None else columns[released] @ flat
    return _Move(flat if lean >= 0.0 else -flat)


def _to_optimum(
    goal: FloatArray, matrix: FloatArray, give: FloatArray, shares: FloatArray, segments: int
) -> _Move | None:
    """Move straight to the optimum of the state; None if the goal rises along a direction that holds the rows."""
    rows, width = matrix.shape
    size = rows + width
    system, right = np.zeros((size, size)), np.zeros(size)
    system[:width, width:] = matrix.T
    system[width:, :width] = matrix
    right[width : width + segments] = 1.0
    unit = 1.0
    for _ in range(2):
        system.flat[(width + segments) * (size + 1) :: size + 1] = give * unit
        right[:width] = goal / -unit
        factors, _, solution, failed = dgesv(system, right)
        if failed or np.abs(factors.diagonal()).min() < 1e-10:
            singular = np.linalg.svd(matrix, compute_uv=False)[-1] < 1e-12
            if failed or singular:
                return None
        largest = unit * float(np.abs(solution[width:]).max())
        if largest < 1e3:
            break
        unit = largest  # shares and multipliers of one size are solved for alike
    target = solution[:width]
    levels, multipliers = -unit * solution[width : width + segments], unit * solution[width + segments :]
    return _Move(target - shares, target, levels, multipliers)


def _find_flat_direction(matrix: FloatArray) -> FloatArray:
    """Return a direction that changes neither the shares' sums nor a held guardrail."""
    rows, width = matrix.shape
    if width == rows + 1:
        factors, _, solution, failed = dgesv(matrix[:, :-1], -matrix[:, -1])
        if not failed and np.abs(factors.diagonal()).min() > 1e-6:
            return np.concatenate((solution, (1.0,)))
    return np.asarray(np.linalg.svd(matrix)[2][-1])


def _first_event(
    columns: FloatArray, move: _Move, state: ActiveSet, lasting: list[bool]
) -> tuple[float, tuple[str, int] | None]:
    """Return the reach of the move, and the event that ends it: a candidate leaves, or a guardrail changes."""
    reach = np.inf if move.target is None else 1.0
    event: tuple[str, int] | None = None
    direction, shares = move.direction.tolist(), state.shares.tolist()
    still = TINY * max(1.0, *map(abs, direction))
    for place, change in enumerate(direction):
        if change < -still and shares[place] < -change * reach:
            reach, event = shares[place] / -change, ("leave", place)
    levels, drift = (columns @ state.shares).tolist(), (columns @ move.direction).tolist()
    for rail, change in enumerate(drift):
        if rail not in state.held:
            room = max(levels[rail], 0.0)
            if change < -still and room < -change * reach:
                reach, event = room / -change, ("hold", rail)
        elif change > still and not lasting[rail]:
            room = max(-levels[rail], 0.0)
            if room < change * reach - TINY:
                reach, event = room / change, ("release", rail)
    return reach, event
