"""S-SCGD, the stochastic compositional gradient baseline of the paper."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from pasto.arrays import FloatArray
from pasto.objective import NormalForm
from pasto.optimize.learners.base import LearningProblem, RoundResult
from pasto.optimize.learners.mirror_ascent import MirrorAscent, MirrorAscentState, Schedule


@dataclass(slots=True, eq=False)
class ScgdState(MirrorAscentState):
    """A mirror state and y, the running estimate of the metrics being served."""

    inner: FloatArray = field(default_factory=lambda: np.zeros(0))
    """(..., metrics): y."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scgd(MirrorAscent[ScgdState]):
    """y ← (1 − b_t) y + b_t Û p_t;  g_t = Ûᵀ ∇f(y);  then the same mirror step as Algorithm 1.

    >>> Scgd().tracking.at(3)
    0.5
    """

    name: ClassVar[str] = "scgd"
    state: ClassVar[type[ScgdState]] = ScgdState
    tracking: Schedule = field(default=Schedule(1.0, offset=1))
    """b_t."""

    def start(self, problem: LearningProblem, runs: tuple[int, ...] = ()) -> ScgdState:
        """Equal weights, and y = 0."""
        state = MirrorAscent.start(self, problem, runs)
        state.inner = np.zeros((*runs, problem.shape[0]))
        return state

    def gradient(self, state: ScgdState, round: RoundResult, form: NormalForm) -> FloatArray:
        """Return g_t = Ûᵀ ∇f(y), after y has moved toward Û p_t."""
        sample = round.sample
        columns = sample.columns
        drawn = np.take_along_axis(round.served, sample.candidates, axis=-1)
        pace = self.tracking.at(state.rounds)
        state.inner += pace * (np.einsum("...qm,...q->...m", columns, drawn) - state.inner)
        steps = np.einsum("...qm,...m->...q", columns, form.gradient(state.inner))
        gradient = np.zeros_like(state.log_weights)
        flat, chosen = gradient.reshape(-1, gradient.shape[-1]), sample.candidates.reshape(-1, steps.shape[-1])
        runs = np.arange(len(flat))
        for draw, step in enumerate(steps.reshape(-1, steps.shape[-1]).T):
            flat[runs, chosen[:, draw]] += step
        return gradient
