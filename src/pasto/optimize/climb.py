"""An active-set climb: exact for linear goals, quadratic penalties and hard limits, few candidates at a time.

The state is a support (the candidates with a share) and a set of held guardrails: hard ones that stand at their limit
and soft ones that are missed. Within that state the optimum is one small linear system,

    goal_k + Σ π_g slack_gk = v   for k in the support
    Σ p_k = 1
    slack_g · p + give_g π_g = 0  for g held, with give = 1/2λ, and 0 where hard,

and p walks towards it until a share runs out, a guardrail that was met is reached, or a missed one is met again. At
the optimum of its state, either a hard guardrail wants to be let go (π < 0), or the best-priced candidate outside
enters, or nothing does and the climb is done. The support never holds more than two candidates above the held
guardrails.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pasto.objective import Array

STEPS = 500
TINY = 1e-13
"""What counts as nothing beside numbers of about one."""


@dataclass(slots=True, eq=False)
class Stand:
    """Where a climb stands."""

    support: list[int]
    shares: Array
    """(support,)."""
    held: list[int] = field(default_factory=list)
    """Guardrails at their limit (hard) or missed (soft)."""
    duals: Array = field(default_factory=lambda: np.zeros(0))
    """(guardrails,)."""
    done: bool = False
    """Whether the optimum was reached; False where the steps ran out."""


def climb(goal: Array, slack: Array, give: Array, start: Stand, *, springs: NDArray[np.bool_]) -> Stand:
    """Walk from a stand that meets every hard guardrail to the optimum.

    goal (candidates,) and slack (guardrails, candidates) should be scaled to about one; give (guardrails,) is 0 for a
    hard guardrail. Springs (guardrails,) are soft, penalised on both sides, and held from the start.
    """
    support, shares, held = list(start.support), start.shares.copy(), list(start.held)
    hard = give == 0.0
    duals = np.zeros(len(give))
    entered: int | None = None
    released: int | None = None
    for _ in range(STEPS):
        columns = slack[:, support]
        matrix = np.vstack([np.ones(len(support)), columns[held]])
        target, level, multipliers = _optimum(goal[support], matrix, give[held])
        if target is None:
            direction, reach = _flat(matrix), np.inf
            if entered is not None:
                lean = direction[support.index(entered)]
            elif released is not None:
                lean = columns[released] @ direction
            else:
                lean = goal[support] @ direction
            direction = direction if lean >= 0 else -direction
        elif len(support) == 1 + sum(hard[rail] for rail in held):
            # A corner cannot move: whatever the solve says otherwise is rounding.
            target, direction, reach = target if target.min() >= 0.0 else shares, np.zeros(len(support)), 1.0
        else:
            direction, reach = target - shares, 1.0
        entered = released = None
        levels, drift = columns @ shares, columns @ direction
        event: tuple[str, int] | None = None
        still = TINY * max(1.0, float(np.abs(direction).max()))
        for place, change in enumerate(direction):
            if change < -still and shares[place] < -change * reach:
                reach, event = shares[place] / -change, ("leave", place)
        for rail in range(len(give)):
            change = drift[rail]
            if rail not in held:
                if change < -still and max(levels[rail], 0.0) < -change * reach:
                    reach, event = max(levels[rail], 0.0) / -change, ("hold", rail)
            elif hard[rail] or springs[rail]:
                continue
            elif change > still and max(-levels[rail], 0.0) < change * reach - TINY:
                reach, event = max(-levels[rail], 0.0) / change, ("release", rail)
        if event is None and target is None:
            break
        if event is not None:
            shares = np.maximum(shares + reach * direction, 0.0)
            match event:
                case "leave", place:
                    del support[place]
                    shares = np.delete(shares, place)
                case "hold", rail:
                    held.append(rail)
                case "release", rail:
                    held.remove(rail)
                    released = rail
            continue
        assert target is not None  # noqa: S101 -- a flat direction always ends in an event
        shares = np.maximum(target, 0.0)
        duals[:] = 0.0
        duals[held] = multipliers
        scale = 1.0 + float(np.abs(duals).max(initial=0.0))
        wanting = [rail for rail in held if hard[rail] and duals[rail] < -TINY * scale]
        if wanting:
            released = min(wanting, key=lambda rail: duals[rail])
            held.remove(released)
            continue
        priced = goal + duals @ slack
        best = int(np.argmax(priced))
        if priced[best] - level <= 1e-12 * scale or best in support:
            return Stand(support, shares, held, duals, done=True)
        support.append(best)
        shares = np.append(shares, 0.0)
        entered = best
    return Stand(support, shares, held, duals)


def _optimum(goal: Array, matrix: Array, give: Array) -> tuple[Array | None, float, Array]:
    """The optimum of a state, or None where the goal can rise along a direction that moves no held guardrail."""
    rows, columns = matrix.shape
    nothing = (None, 0.0, np.zeros(0))
    if columns > rows:
        return nothing
    if columns > 1 and np.linalg.svd(matrix, compute_uv=False)[-1] < 1e-12:
        return nothing
    places = np.arange(columns + 1, columns + rows)
    system = np.zeros((columns + rows, columns + rows))
    system[:columns, columns:] = matrix.T
    system[columns:, :columns] = matrix
    right = np.zeros(columns + rows)
    right[columns] = 1.0
    unit = 1.0
    for _ in range(2):
        system[places, places] = give * unit
        right[:columns] = goal / -unit
        found = np.linalg.solve(system, right)
        largest = unit * float(np.abs(found[columns:]).max())
        if largest < 1e3:
            break
        unit = largest  # shares and multipliers of one size are solved for alike
    return found[:columns], -unit * float(found[columns]), unit * found[columns + 1 :]


def _flat(matrix: Array) -> Array:
    """A direction that keeps the shares' sum and every held guardrail where they are."""
    return np.asarray(np.linalg.svd(matrix)[2][-1])
