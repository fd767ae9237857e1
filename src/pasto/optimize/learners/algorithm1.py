"""Algorithm 1 of the paper, as printed."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar, Self

import numpy as np

from pasto.arrays import FloatArray
from pasto.objective import NormalForm
from pasto.optimize.learners.base import RoundResult
from pasto.optimize.learners.mirror_ascent import MirrorAscent, MirrorAscentState, Schedule, constant


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm1(MirrorAscent[MirrorAscentState]):
    """Stochastic mirror ascent on the running mean of unbiased samples.

    p_t = (1 − ε_t) w/|w| + ε_t/K;  V̂_t = t/(t+1) V̂_{t−1} + Û_t/(t+1);  g_t = V̂_tᵀ ∇f(V̂_t p_t);
    w ← w · exp(γ g_t);  the answer is p̄_T, the mean of p_t. The smoothed p_t is served and averaged, the unsmoothed w
    is kept between rounds.

    >>> Algorithm1().floor.at(90)
    0.01
    """

    name: ClassVar[str] = "algorithm1"
    state: ClassVar[type[MirrorAscentState]] = MirrorAscentState

    @classmethod
    def theorem(cls, gradient_bound: float, horizon: int) -> Self:
        """Return the learner with the schedules of Theorems 1 and 2: ε_t = G/√t, clipped at 3/4, and γ = 1/√T.

        >>> Algorithm1.theorem(gradient_bound=2.0, horizon=10_000).step.at(1)
        0.01
        """
        return cls(floor=Schedule(gradient_bound, limit=0.75), step=constant(1 / sqrt(horizon)))

    def gradient(self, state: MirrorAscentState, round: RoundResult, form: NormalForm) -> FloatArray:
        """Return g_t = V̂ᵀ ∇f(V̂ p_t)."""
        scale = 1.0 / (state.rounds + 1)
        slope = form.gradient(scale * np.einsum("...mk,...k->...m", state.total, round.served))
        return np.asarray(np.einsum("...mk,...m->...k", state.total, scale * slope))
