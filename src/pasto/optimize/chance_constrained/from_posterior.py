"""Chance program of a normal form and a posterior, scaled so that its numbers are about one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import OptionError
from pasto.estimate import Posterior
from pasto.objective import NormalForm, UtilityGoal
from pasto.optimize.chance_constrained.program import HARD_MARGIN, ChanceProgram, SlackCurve


@dataclass(frozen=True, slots=True, eq=False)
class UncertainSlack:
    """Slack of each guardrail under a posterior: slack · p in the mean, with deviation ‖factorᵀ p − anchor‖."""

    slack: FloatArray
    """(guardrails, candidates)."""
    factor: FloatArray
    """(guardrails, candidates) if every guardrail's is diagonal, else (guardrails, candidates, rank)."""
    anchor: FloatArray
    """(guardrails, candidates) or (guardrails, rank): a relative guardrail's share of the baseline's own spread."""
    base: int | None
    """The baseline, if a guardrail is relative to it."""

    @classmethod
    def of(
        cls, form: NormalForm, posterior: Posterior, offsets: FloatArray | None, baseline: int | None
    ) -> UncertainSlack:
        """Return the slack of the guardrails of a form that is built at the posterior's mean."""
        count, width = len(form.at), posterior.mean.shape[1]
        shares = np.zeros(count) if offsets is None else np.asarray(offsets, dtype=float)
        if shares.shape != (count,):
            raise OptionError(f"offsets= needs one number for each of the {count} guardrails, got shape {shares.shape}")
        if shares.any() and baseline is None:
            raise OptionError(
                "offsets= count against the baseline, and none was named; pass baseline=, a candidate's index"
            )
        if baseline is not None and not 0 <= baseline < width:
            raise OptionError(f"baseline={baseline!r} is not a candidate; give an index from 0 to {width - 1}")
        factors = [posterior.factor(row) for row in form.rows]
        if all(factor.ndim == 1 for factor in factors):
            factor = np.array(factors).reshape(count, width)
            anchor = np.zeros((count, width))
            if baseline is not None:
                anchor[:, baseline] = shares * factor[:, baseline]
        else:
            full = [np.diag(factor) if factor.ndim == 1 else factor for factor in factors]
            rank = max(part.shape[-1] for part in full)
            factor = np.zeros((count, width, rank))
            for place, part in enumerate(full):
                factor[place, :, : part.shape[-1]] = part
            anchor = np.zeros((count, rank)) if baseline is None else shares[:, None] * factor[:, baseline]
        slack = form.rows @ posterior.mean - form.at[:, None]
        return cls(slack, factor, anchor, baseline if shares.any() else None)

    @property
    def diagonal(self) -> bool:
        """Return whether the candidates are independent."""
        return self.factor.ndim == 2

    def spread(self, probabilities: FloatArray) -> FloatArray:
        """Return the standard deviation of each guardrail's slack under a blend, (guardrails,)."""
        moved = self.factor * probabilities if self.diagonal else probabilities @ self.factor
        return np.asarray(np.sqrt(((moved - self.anchor) ** 2).sum(axis=1)))

    def alone(self) -> FloatArray:
        """Return the standard deviation of the slack for each candidate alone, (guardrails, candidates)."""
        if self.diagonal:
            rest = (self.anchor**2).sum(axis=1)[:, None] - self.anchor**2
            return np.asarray(np.sqrt(rest + (self.factor - self.anchor) ** 2))
        return np.asarray(np.sqrt(((self.factor - self.anchor[:, None, :]) ** 2).sum(axis=2)))

    def program(
        self,
        goal: FloatArray,
        penalties: FloatArray,
        deviations: float,
        *,
        caps: FloatArray | None = None,
        curve: Callable[[float], SlackCurve] | None = None,
    ) -> tuple[ChanceProgram, float, FloatArray]:
        """Return the program for a goal (candidates,) that holds hard guardrails with this many deviations to spare.

        The units of the goal and of each guardrail are returned too: powers of two, so that nothing is rounded. A curve
        is a function of its unit; it replaces the goal, which then only gives its size.
        """
        hard = np.isinf(penalties)
        times = np.where(hard, deviations, 1.0)
        units = _powers(np.maximum(np.abs(self.slack).max(axis=1), (times[:, None] * self.alone()).max(axis=1)))
        spread = float(np.ptp(goal))
        if not spread:  # a goal that is the same everywhere has no scale: the heaviest penalty sets it
            spread = float((np.where(hard, 0.0, penalties) * units**2).max(initial=0.0))
        unit = float(_powers(np.array(spread)))
        scale = (times / units)[:, None]
        program = ChanceProgram(
            goal=(goal - goal.max()) / unit if curve is None else np.zeros_like(goal),
            mass=np.ones_like(goal),
            slack=self.slack / units[:, None],
            factor=self.factor * (scale if self.diagonal else scale[:, :, None]),
            anchor=self.anchor * scale,
            penalties=penalties * units**2 / unit,
            tight=np.where(hard, HARD_MARGIN, 0.0),
            base=self.base,
            caps=caps,
            curve=None if curve is None else curve(unit),
        )
        return program, unit, units


def _powers(sizes: FloatArray) -> FloatArray:
    """Return the power of two above each size; 1 for a size of 0."""
    return np.where(sizes > 0.0, np.ldexp(1.0, np.frexp(sizes)[1]), 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class SampledSlack:
    """Average utility of a blend over posterior draws, in its own units.

    >>> import numpy as np, pasto
    >>> goal = pasto.utility(lambda y: -(y**2).sum(-1), lambda y: -2 * y, over={"x": (-9, 9)}).form().goal
    >>> average = SampledSlack(goal, np.array([[[1.0, 3.0]], [[3.0, 1.0]]]))
    >>> average.value(np.array([1.0, 0.0])), average.gradient(np.array([0.5, 0.5])).tolist()
    (-5.0, [-8.0, -8.0])
    """

    goal: UtilityGoal
    samples: FloatArray
    """(draws, metrics of the utility, columns)."""
    unit: float = 1.0

    @classmethod
    def of(cls, goal: UtilityGoal, samples: FloatArray) -> SampledSlack:
        """Return the average over samples (draws, metrics, candidates), clipped to the ranges of the utility."""
        low, high = (np.array([goal.over[name][side] for name in goal.over]) for side in (0, 1))
        return cls(goal, np.clip(samples[:, list(goal.columns)], low[:, None], high[:, None]))

    def singles(self) -> FloatArray:
        """Return the average utility of each column alone, (columns,)."""
        return np.asarray(self.goal.function(self.samples.transpose(0, 2, 1)).mean(axis=0) / self.unit)

    def counted_in(self, unit: float) -> SampledSlack:
        """Return the same average in other units."""
        return replace(self, unit=unit)

    def value(self, shares: FloatArray) -> float:
        """Return the average at the shares."""
        return float(np.mean(self.goal.function(self.samples @ shares))) / self.unit

    def gradient(self, shares: FloatArray) -> FloatArray:
        """Return its gradient, (columns,)."""
        slopes = self.goal.derivative(self.samples @ shares)
        return np.asarray(np.einsum("nm,nmk->k", slopes, self.samples) / (len(self.samples) * self.unit))

    def bend(self, shares: FloatArray) -> FloatArray:
        """Return its negative second derivatives, from differences of the utility's gradient inside its ranges."""
        low, high = (np.array([self.goal.over[name][side] for name in self.goal.over]) for side in (0, 1))
        vectors = self.samples @ shares
        count, metrics = vectors.shape
        hessians = np.empty((count, metrics, metrics))
        for place in range(metrics):
            above, below = vectors.copy(), vectors.copy()
            above[:, place] = np.minimum(above[:, place] + 1e-5 * (high - low)[place], high[place])
            below[:, place] = np.maximum(below[:, place] - 1e-5 * (high - low)[place], low[place])
            rise = self.goal.derivative(above) - self.goal.derivative(below)
            hessians[:, place] = rise / (above - below)[:, place, None]
        ranges = high - low  # metrics in units of their own range: the bends of a small one keep their digits
        bends, axes = np.linalg.eigh(-(hessians + hessians.transpose(0, 2, 1)) / 2.0 * np.outer(ranges, ranges))
        scaled = self.samples / ranges[:, None]
        roots = np.sqrt(np.maximum(bends, 0.0))[:, :, None] * (axes.transpose(0, 2, 1) @ scaled)
        flat = roots.reshape(-1, self.samples.shape[2])
        return np.asarray(flat.T @ flat / (count * self.unit))

    def take(self, columns: NDArray[np.intp]) -> SampledSlack:
        """Return the same average over a few columns."""
        return replace(self, samples=self.samples[:, :, columns])
