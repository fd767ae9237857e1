"""The one problem behind every linear goal: a concave quadratic over the simplex of candidates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pasto.errors import Unsupported
from pasto.objective import Array, Form, LinearGoal


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Maximise goal · p − Σ λ_g min(0, slack_g · p)² over soft g, with slack_g · p ≥ 0 for hard g and p on the simplex.

    Every constant is folded into the columns, since p sums to one. Leading axes, where there are any, run over many
    problems of one shape.

    >>> import numpy as np, pasto
    >>> form = pasto.maximize("x").keep("y", at_least=1).form()
    >>> Program.of(form, np.array([[2.0, 0.0], [-2.0, 2.0]])).slack
    array([[-3.,  1.]])
    """

    goal: Array
    """(..., candidates)."""
    slack: Array
    """(..., guardrails, candidates)."""
    penalties: Array
    """(guardrails,): λ, infinite for a hard guardrail."""

    @classmethod
    def of(cls, form: Form, means: Array) -> Program:
        """The program of a form with a linear goal over means (..., metrics, candidates)."""
        if not isinstance(form.goal, LinearGoal):
            raise Unsupported(
                f"a program needs a goal that is a weighted sum of metrics, got a {type(form.goal).__name__}; "
                "`optimum` takes every kind of goal"
            )
        goal = form.goal.row @ means + form.goal.offset
        return cls(goal, form.rows @ means - form.at[:, None], form.penalties)

    def value(self, probabilities: Array) -> Array:
        """The goal less the soft penalties, (...), with no regard to hard guardrails."""
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

    probabilities: Array
    """(candidates,)."""
    duals: Array
    """(guardrails,): π ≥ 0, by how much the value rises as a unit is added to a guardrail's slack."""
    feasible: bool
    """Whether some p meets every hard guardrail; where none does, p is the nearest miss."""


@dataclass(frozen=True, slots=True, eq=False)
class Solutions:
    """The best p of each of many programs of one shape.

    >>> import numpy as np
    >>> Solutions(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([[0.0], [0.5]]), np.array([True, True])).duals.shape
    (2, 1)
    """

    probabilities: Array
    """(problems, candidates)."""
    duals: Array
    """(problems, guardrails)."""
    feasible: NDArray[np.bool_]
    """(problems,)."""
