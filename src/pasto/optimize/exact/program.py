"""Program of a linear goal: a concave quadratic over the simplex of candidates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import UnsupportedError
from pasto.objective import LinearGoal, NormalForm


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Maximise goal · p − Σ λ_g min(0, slack_g · p)² over soft g, with slack_g · p ≥ 0 for hard g and p on the simplex.

    Every constant is folded into the columns, because p sums to one. Leading axes, if there are any, run over many
    problems of one shape.

    >>> import numpy as np, pasto
    >>> form = pasto.maximize("x").keep("y", at_least=1).form()
    >>> Program.of(form, np.array([[2.0, 0.0], [-2.0, 2.0]])).slack
    array([[-3.,  1.]])
    """

    goal: FloatArray
    """(..., candidates)."""
    slack: FloatArray
    """(..., guardrails, candidates)."""
    penalties: FloatArray
    """(guardrails,): λ, infinite for a hard guardrail."""

    @classmethod
    def of(cls, form: NormalForm, means: FloatArray) -> Program:
        """Return the program of a form with a linear goal over means (..., metrics, candidates)."""
        if not isinstance(form.goal, LinearGoal):
            raise UnsupportedError(
                f"a program needs a goal that is a weighted sum of metrics, got a {type(form.goal).__name__}; "
                "`solve_exact` takes every kind of goal"
            )
        goal = form.goal.row @ means + form.goal.offset
        return cls(goal, form.rows @ means - form.at[:, None], form.penalties)

    def value(self, probabilities: FloatArray) -> FloatArray:
        """Return the goal less the soft penalties, (...); hard guardrails are ignored."""
        soft = np.isfinite(self.penalties)
        value = (self.goal * probabilities).sum(axis=-1)
        breach = np.minimum(0.0, (self.slack[..., soft, :] @ probabilities[..., None])[..., 0])
        return np.asarray(value - (breach**2) @ self.penalties[soft])


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """The best p of a program, with the guardrails' multipliers.

    >>> import numpy as np
    >>> Solution(np.array([0.5, 0.5]), np.array([0.5]), True).duals
    array([0.5])
    """

    probabilities: FloatArray
    """(candidates,)."""
    duals: FloatArray
    """(guardrails,): π ≥ 0, by how much the value rises as a unit is added to a guardrail's slack."""
    feasible: bool
    """True if some p meets every hard guardrail; otherwise p is the nearest miss."""


@dataclass(frozen=True, slots=True, eq=False)
class Solutions:
    """The best p of each of many programs of one shape.

    >>> import numpy as np
    >>> Solutions(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([[0.0], [0.5]]), np.array([True, True])).duals.shape
    (2, 1)
    """

    probabilities: FloatArray
    """(problems, candidates)."""
    duals: FloatArray
    """(problems, guardrails)."""
    feasible: NDArray[np.bool_]
    """(problems,)."""


@dataclass(frozen=True, slots=True, eq=False)
class ScaledProgram:
    """Maximise goal · p − Σ min(0, slack_g · p)² / (2 give_g); give is 0 for a hard guardrail.

    Leading axes run over many problems, as in the program.
    """

    goal: FloatArray
    """(..., candidates): the best is 0, the worst between −1/2 and −1."""
    slack: FloatArray
    """(..., guardrails, candidates): the largest, either way, between 1/2 and 1."""
    give: FloatArray
    """(..., guardrails): 1/2λ, the shortfall of a guardrail for a unit of multiplier."""
    hard: NDArray[np.bool_]
    """(guardrails,)."""
    exchange: FloatArray
    """(..., guardrails): a unit multiplier of the scaled problem in the program's own units."""

    @classmethod
    def of(cls, program: Program) -> ScaledProgram:
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


def _powers(sizes: FloatArray) -> FloatArray:
    """Return the power of two above each size; 1 for a size of 0, or so small that its square would be 0."""
    return np.where(sizes > 1e-100, np.ldexp(1.0, np.frexp(sizes)[1]), 1.0)
