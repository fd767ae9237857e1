"""The exact best blend of one program."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pasto.errors import SolverFailed
from pasto.objective import Array
from pasto.objective.form import TOLERANCE
from pasto.optimize.exact.climb import Stand, climb
from pasto.optimize.exact.interior import walk
from pasto.optimize.exact.program import Program, Solution
from pasto.optimize.exact.scale import Scaled

ENOUGH = 1e-9
"""The gap to the optimum, beside a goal whose spread is about one, above which a second method is asked."""
WORST = 1e-6
"""The gap above which no answer is given."""


def best(program: Program) -> Solution:
    """The best p of one program, with at most one candidate more than there are guardrails.

    Where no p meets every hard guardrail, p makes the sum of squared shortfalls least, each in units of its
    guardrail's spread over the candidates, and is the best such p.

    >>> import numpy as np
    >>> solution = best(Program(np.array([2.0, 0.0]), np.array([[-2.0, 2.0]]), np.array([np.inf])))
    >>> solution.probabilities, solution.duals, solution.feasible
    (array([0.5, 0.5]), array([0.5]), True)
    """
    return best_with_springs(program, np.zeros(len(program.penalties), dtype=bool))


def best_with_springs(program: Program, springs: NDArray[np.bool_]) -> Solution:
    """The best p where some soft guardrails, marked in springs (guardrails,), pull back to zero from both sides."""
    scaled = Scaled.of(program)
    start, allowance = _start(scaled)
    start.held = [*start.held, *(rail for rail in np.flatnonzero(springs).tolist() if rail not in start.held)]
    slack = scaled.slack + allowance[:, None] if allowance.any() else scaled.slack
    shares, duals = _maximum(scaled.goal, slack, scaled.give, start, springs)
    duals = np.where(springs, duals, np.maximum(duals, 0.0)) * scaled.exchange
    feasible = bool((allowance <= TOLERANCE * np.abs(scaled.slack).max(axis=1, initial=0.0)).all())
    return Solution(_cleaned(shares), duals, feasible)


def _maximum(
    goal: Array, slack: Array, give: Array, start: Stand, springs: NDArray[np.bool_] | None = None
) -> tuple[Array, Array]:
    """Shares and multipliers whose duality gap proves them best; from the interior where the climb goes astray."""
    both = np.zeros(len(give), dtype=bool) if springs is None else springs
    stand = climb(goal, slack, give, start, springs=both)
    shares, duals = np.zeros(len(goal)), stand.duals
    shares[stand.support] = stand.shares
    gap = _gap(goal, slack, give, both, shares, duals) if stand.done else np.inf
    if gap > ENOUGH:
        doubled, gives = np.vstack([slack, -slack[both]]), np.concatenate([give, give[both]])
        inner, prices, _ = walk(goal[None], doubled[None], gives[None])
        others = prices[0, : len(give)]
        others[both] -= prices[0, len(give) :]
        if (less := _gap(goal, slack, give, both, inner[0], others)) < gap:
            shares, duals, gap = inner[0], others, less
    if gap > WORST:
        raise SolverFailed(
            f"the best blend of {len(goal)} candidates was found only to a gap of {gap:.3g} of the goal's spread; are "
            "the metrics or the penalties many orders of magnitude apart?"
        )
    return shares, duals


def _gap(goal: Array, slack: Array, give: Array, both: NDArray[np.bool_], shares: Array, duals: Array) -> float:
    """By how much the optimum can exceed the value at shares, or a hard guardrail is missed, whichever is more."""
    levels, hard = slack @ shares, give == 0.0
    breach = np.where(both, levels, np.minimum(levels, 0.0))
    cost = float((breach[~hard] ** 2 / (2.0 * give[~hard])).sum())
    bound = float((goal + duals @ slack).max()) + float(duals**2 @ give) / 2.0
    scale = 1.0 + cost + float(np.abs(duals).max(initial=0.0))
    return max((bound - float(goal @ shares) + cost) / scale, -float(levels[hard].min(initial=0.0)))


def _start(scaled: Scaled) -> tuple[Stand, Array]:
    """A stand that meets every hard guardrail, and by how much each had to be lowered so that one exists."""
    slack, hard = scaled.slack, scaled.hard
    rows = slack[hard]
    met = (rows >= 0.0).all(axis=0)
    if met.any():
        first = int(np.argmax(np.where(met, scaled.goal, -np.inf)))
        missed = np.flatnonzero(~hard & (slack[:, first] < 0.0)).tolist()
        return Stand([first], np.ones(1), missed), np.zeros(len(hard))
    rows = rows / spreads(rows)[:, None]
    first = int(np.argmin((np.minimum(rows, 0.0) ** 2).sum(axis=0)))
    alone = Stand([first], np.ones(1), np.flatnonzero(rows[:, first] < 0.0).tolist())
    shares, _ = _maximum(np.zeros(len(scaled.goal)), rows, np.ones(len(rows)), alone)
    support = np.flatnonzero(shares).tolist()
    levels = slack @ shares
    allowance = np.where(hard, np.maximum(-levels, 0.0), 0.0)
    held = _independent(slack[:, support] + allowance[:, None], np.flatnonzero(hard & (levels <= 1e-13)).tolist())
    held += np.flatnonzero(~hard & (levels < 0.0)).tolist()
    return Stand(support, shares[support], held), allowance


def spreads(slack: Array) -> Array:
    """Return the range of each guardrail's slack over the candidates, or its size if they are all the same."""
    spread, size = np.ptp(slack, axis=1), np.abs(slack).max(axis=1, initial=0.0)
    return np.where(spread > TOLERANCE * size, spread, np.where(size > 0.0, size, 1.0))


def _independent(columns: Array, rails: list[int]) -> list[int]:
    """As many of these guardrails as can be held at once by shares of these columns."""
    held: list[int] = []
    matrix = np.ones((1, columns.shape[1]))
    for rail in rails:
        grown = np.vstack([matrix, columns[rail]])
        if len(grown) <= columns.shape[1] and np.linalg.svd(grown, compute_uv=False)[-1] > 1e-10:
            matrix, held = grown, [*held, rail]
    return held


def _cleaned(shares: Array) -> Array:
    """Without the dust, summing to one."""
    clean = np.where(shares < 1e-12, 0.0, shares)
    total = float(clean.sum())
    return clean if total == 1.0 else clean / total
