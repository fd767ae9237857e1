"""The bounds of the paper's two theorems, as printed.

Both proofs have gaps (docs/theory.md shows each with numbers), so these are what the paper claims, not what is known.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import product
from math import e, isfinite, log, sqrt
from typing import Any, Self

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import MeansError, OptionError, UnsupportedError
from pasto.objective import LinearGoal, NormalForm, Objective


@dataclass(frozen=True, slots=True)
class Constants:
    """The four numbers of Assumption 1: G, G_f, G_U and L_f.

    Known for an objective and its truth by `Constants.of`, or given by hand.

    >>> Constants(gradient=1.0, slope=1.0, size=1.0, smoothness=0.0).factor(candidates=1)
    42.87...
    """

    gradient: float
    """G: ‖g‖ ≤ G for the gradient g = μᵀ∇f(μp) by the probabilities."""
    slope: float
    """G_f: ‖∇f‖ ≤ G_f for the gradient by the metrics."""
    size: float
    """G_U: ‖μ‖_F ≤ G_U for the truth."""
    smoothness: float
    """L_f: ‖∇f(a) − ∇f(b)‖ ≤ L_f ‖a − b‖."""

    def __post_init__(self) -> None:
        for f in fields(self):
            if not (isfinite(value := getattr(self, f.name)) and value >= 0):
                raise OptionError(f"{f.name}= must be a finite number, 0 or more, got {value!r}")
        if not self.gradient > 0:
            raise OptionError("gradient= must be more than 0, since both bounds divide by it; any larger bound will do")

    @classmethod
    def of(cls, objective: Objective, truth: Any, baseline: Any = None) -> Self:
        """Return the constants of a weighted goal under soft guardrails, given the true means (metrics, candidates).

        G and G_f are the largest norms over the metrics that blends can have, {μp : p in the simplex}, the hull of the
        candidates. Exact with one guardrail, or where goal and guardrails all pull the same way; otherwise an upper
        bound. G_U is ‖μ‖_F. L_f is the largest eigenvalue of Σ 2λ r rᵀ over the guardrails' rows r; it holds for all
        metric vectors. No finite G_f does: the slope of a squared penalty grows without end. Nor does this G bound the
        g_t of Algorithm 1, which is taken at V̂_t and not at μ. With leading axes (a truth that moves) the largest of
        each is taken.

        >>> import pasto
        >>> example = pasto.maximize("x").keep("y", at_least=0, penalty=5.0)
        >>> known = Constants.of(example, [[2, 0], [-2, 2]])
        >>> [round(value**2, 6) for value in (known.gradient, known.slope, known.size, known.smoothness)]
        [3044.0, 401.0, 12.0, 100.0]
        """
        form = objective.form(baseline)
        means = _checked(objective, form, truth)
        row = form.goal.gradient(np.zeros(means.shape[-2]))
        pulls = 2.0 * form.penalties[:, None] * form.rows
        gradient = slope = 0.0
        for world_means in means.reshape(-1, *means.shape[-2:]):
            breaches = np.maximum(0.0, form.at[:, None] - form.rows @ world_means)
            slope = max(slope, _largest(row, pulls, breaches))
            gradient = max(gradient, _largest(row @ world_means, pulls @ world_means, breaches))
        return cls(
            gradient=gradient,
            slope=slope,
            size=float(np.sqrt((means**2).sum(axis=(-2, -1)).max())),
            smoothness=float(np.linalg.norm(form.rows.T @ pulls, ord=2)) if len(form.at) else 0.0,
        )

    def factor(self, candidates: int) -> float:
        """Return ln K + 4eG² + 32 (G_f² + G_U² L_f²) G_U² / G, the factor of 1/√T in Theorem 1 and of √T in Theorem 2.

        >>> Constants(gradient=2.0, slope=1.0, size=1.0, smoothness=1.0).factor(candidates=1)
        75.49...
        """
        if candidates < 1:
            raise OptionError(f"candidates= must be 1 or more, got {candidates}")
        curvature = self.slope**2 + (self.size * self.smoothness) ** 2
        return log(candidates) + 4 * e * self.gradient**2 + 32 * curvature * self.size**2 / self.gradient


def convergence_bound(constants: Constants, candidates: int, rounds: int) -> float:
    """Return the bound of Theorem 1: max_p f(μp) − E f(μ p̄_T) ≤ factor / √T, with ε_t = G/√t and γ = 1/√T.

    On example A it is far above 19.01, the most that any blend can lose there.

    >>> import pasto
    >>> example = pasto.maximize("x").keep("y", at_least=0, penalty=5.0)
    >>> known = Constants.of(example, [[2, 0], [-2, 2]])
    >>> round(convergence_bound(known, candidates=2, rounds=10_000), 2)
    442.41
    """
    return constants.factor(candidates) / sqrt(_counted(rounds))


def regret_bound(constants: Constants, candidates: int, rounds: int) -> float:
    """Return the bound of Theorem 2, part 1: max_p Σ f(V_t p) − Σ E f(V_t p_t) ≤ factor · √T.

    >>> regret_bound(Constants(gradient=2.0, slope=1.0, size=1.0, smoothness=1.0), candidates=1, rounds=100)
    754.9...
    """
    return constants.factor(candidates) * sqrt(_counted(rounds))


def empirical_regret_bound(constants: Constants, candidates: int, rounds: int) -> float:
    """Return the bound of Theorem 2, part 2: max_p Σ f(V_t p) − Σ E f(V̂_t p_t) ≤ (factor + 2 G_U²) · √T.

    >>> empirical_regret_bound(Constants(gradient=2.0, slope=1.0, size=1.0, smoothness=1.0), candidates=1, rounds=100)
    774.9...
    """
    return (constants.factor(candidates) + 2 * constants.size**2) * sqrt(_counted(rounds))


def _counted(rounds: int) -> int:
    if rounds < 1:
        raise OptionError(f"rounds= must be 1 or more, got {rounds}")
    return rounds


def _checked(objective: Objective, form: NormalForm, truth: Any) -> FloatArray:
    if form.hard.any():
        raise UnsupportedError(
            f"the bounds need a finite slope, and the hard guardrail on {objective.hard[0]!r} has none; give it a "
            "penalty=, which makes it soft"
        )
    if not isinstance(form.goal, LinearGoal):
        raise UnsupportedError(
            "the constants are worked out for a goal that is a weighted sum of metrics; for any other, bound its slope "
            "yourself and give Constants(gradient=, slope=, size=, smoothness=)"
        )
    means = np.asarray(truth, dtype=float)
    if means.ndim < 2 or means.shape[-2] != len(objective.metrics) or not means.size:
        raise MeansError(
            f"expected means of the shape (..., {len(objective.metrics)}, candidates), one row each for "
            f"{', '.join(objective.metrics)}, got {means.shape}"
        )
    if not np.isfinite(means).all():
        raise MeansError("the truth must be finite, and some of these means are not")
    return means


def _largest(goal: FloatArray, pulls: FloatArray, breaches: FloatArray) -> float:
    """Return the largest ‖goal + breach · pulls‖ over blends, given the candidates' breaches (guardrails, candidates).

    The norm is convex in the breach. Where it also rises with every breach it is convex in p, so a candidate has the
    largest. Elsewhere no blend exceeds the corners of the box of breaches; with one guardrail these are candidates.
    """
    sides = np.vstack([goal, pulls])
    products = sides @ sides.T
    if len(pulls) > 1 and (products >= 0).all():
        corners = breaches.T
    else:
        corners = np.array(list(product(*zip(breaches.min(axis=1), breaches.max(axis=1), strict=True))))
    steps = np.hstack([np.ones((len(corners), 1)), corners])
    return float(np.sqrt(np.einsum("ni,ij,nj->n", steps, products, steps).max()))
