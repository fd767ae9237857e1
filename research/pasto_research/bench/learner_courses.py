"""Learner courses: what a race records of each learner, and the judge of its blends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pasto.arrays import FloatArray
from pasto.objective import NormalForm
from pasto.optimize import Program, solve_linear


@dataclass(frozen=True, slots=True, eq=False)
class LearnerCourse:
    """Course of one learner in one family of worlds."""

    player: str
    marks: tuple[int, ...]
    """The checkpoints."""
    gains: FloatArray
    """(instances, checkpoints): f of the answer less that of the reference.

    The reference is the best single candidate, in live traffic the baseline."""
    gaps: FloatArray
    """(instances,): f of the best blend less that of the reference."""
    loss: float
    """Mean over rounds and instances of what the served policy lost to guardrails, in units of f."""
    seconds: float
    """Of one ask and tell."""
    holds: FloatArray | None = None
    """(instances, checkpoints): 1 if every hard guardrail truly holds under the answer; None if not recorded."""
    guardrail_counts: FloatArray | None = None
    """(instances, 2): binding guardrails and those that truly hold, over all checkpoints; None if not recorded."""

    @classmethod
    def join(cls, runs: Sequence[LearnerCourse]) -> LearnerCourse:
        """Return the course of one learner over the instances of several."""
        holds = [run.holds for run in runs if run.holds is not None]
        counts = [run.guardrail_counts for run in runs if run.guardrail_counts is not None]
        return cls(
            runs[0].player,
            runs[0].marks,
            np.concatenate([run.gains for run in runs]),
            np.concatenate([run.gaps for run in runs]),
            float(np.mean([run.loss for run in runs])),
            float(np.median([run.seconds for run in runs])),
            np.concatenate(holds) if holds else None,
            np.concatenate(counts) if counts else None,
        )

    @property
    def relative(self) -> FloatArray:
        """r at each checkpoint: the ratio of means; NaN where mixing buys nothing in any instance."""
        gap = float(self.gaps.sum())
        return np.asarray(self.gains.sum(axis=0) / (gap if gap > 0 else np.nan))

    def standard_error(self, mark: int) -> float:
        """Return the standard error of r at a checkpoint, from the instances' own distances from it."""
        place = self.marks.index(mark)
        distances = self.gains[:, place] - self.relative[place] * self.gaps
        return (
            float(np.sqrt(len(distances)) * distances.std(ddof=1) / self.gaps.sum()) if len(distances) > 1 else np.nan
        )

    def at(self, mark: int) -> float | None:
        """Return r at one checkpoint; None if the run ended before it."""
        return round(float(self.relative[self.marks.index(mark)]), 2) if mark in self.marks else None

    def rounds_to(self, level: float) -> int | None:
        """Return the first checkpoint from which r stays at or above a level."""
        below = np.flatnonzero(self.relative < level)
        place = 0 if not len(below) else int(below[-1]) + 1
        return self.marks[place] if place < len(self.marks) else None


class Judge:
    """Value of a distribution in a world with known means."""

    def __init__(self, form: NormalForm, truth: FloatArray) -> None:
        self.form = form
        self.truth = truth
        program = Program.of(self.form, self.truth)
        solution = solve_linear(program)
        self.prices = 2.0 * solution.duals * self.form.hard
        self.best = self.value(solution.probabilities)
        self.single = max(self.value(shares) for shares in np.eye(self.truth.shape[1]))

    def value(self, shares: FloatArray) -> float:
        """Return f, with a missed hard guardrail charged at twice its true price."""
        blended = self.truth @ shares
        missed = np.maximum(0.0, -self.form.slack(blended))
        return float(self.form.smooth(blended)) - float(self.prices @ missed)

    def loss(self, shares: FloatArray) -> float:
        """Return the loss to guardrails."""
        return float(self.form.goal.value(self.truth @ shares)) - self.value(shares)

    def holds(self, shares: FloatArray) -> bool:
        """Return whether every hard guardrail holds."""
        return bool(self.form.met(self.truth @ shares, self.form.tolerances(self.truth)))
