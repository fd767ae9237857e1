"""A program with its numbers brought to about one, by powers of two so that nothing is rounded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pasto.objective import Array
from pasto.optimize.exact.program import Program


@dataclass(frozen=True, slots=True, eq=False)
class Scaled:
    """Maximise goal · p − Σ min(0, slack_g · p)² / (2 give_g), where give is 0 for a hard guardrail.

    Leading axes run over many problems, as in the program.
    """

    goal: Array
    """(..., candidates): the best is 0, the worst between −1/2 and −1."""
    slack: Array
    """(..., guardrails, candidates): the largest, either way, between 1/2 and 1."""
    give: Array
    """(..., guardrails): 1/2λ, how far a guardrail gives way for a unit of multiplier."""
    hard: NDArray[np.bool_]
    """(guardrails,)."""
    exchange: Array
    """(..., guardrails): what a multiplier of the scaled problem is worth in the program's own units."""

    @classmethod
    def of(cls, program: Program) -> Scaled:
        """Scale a program."""
        hard = np.isinf(program.penalties)
        penalties = np.where(hard, 1.0, program.penalties)
        units = _powers(np.abs(program.slack).max(axis=-1))
        goal = program.goal - program.goal.max(axis=-1, keepdims=True)
        spread = -goal.min(axis=-1)
        if not spread.all():
            # A goal that is the same everywhere has no scale: the heaviest penalty of one candidate sets it.
            cost = penalties[~hard, None] * np.minimum(program.slack[..., ~hard, :], 0.0) ** 2
            spread = np.where(spread > 0.0, spread, cost.max(axis=(-2, -1), initial=0.0))
        unit = _powers(spread)[..., None]
        return cls(
            goal=goal / unit,
            slack=program.slack / units[..., None],
            give=np.where(hard, 0.0, unit / (2.0 * penalties) / units**2),
            hard=hard,
            exchange=unit / units,
        )


def _powers(sizes: Array) -> Array:
    """The power of two above each size; 1 for a size of 0, or so small that its square would be 0."""
    return np.where(sizes > 1e-100, np.ldexp(1.0, np.frexp(sizes)[1]), 1.0)
