"""A utility's expectation over a belief, as its average over truths drawn from it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pasto.objective import Array, UtilityGoal


@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """The average utility of a blend over drawn truths, in units of its own.

    >>> import numpy as np, pasto
    >>> goal = pasto.utility(lambda y: -(y**2).sum(-1), lambda y: -2 * y, over={"x": (-9, 9)}).form().goal
    >>> average = Sampled(goal, np.array([[[1.0, 3.0]], [[3.0, 1.0]]]))
    >>> average.value(np.array([1.0, 0.0])), average.gradient(np.array([0.5, 0.5])).tolist()
    (-5.0, [-8.0, -8.0])
    """

    goal: UtilityGoal
    truths: Array
    """(draws, metrics of the utility, columns)."""
    unit: float = 1.0

    @classmethod
    def of(cls, goal: UtilityGoal, truths: Array) -> Sampled:
        """From truths (draws, metrics, candidates), held within the ranges on which the utility was checked."""
        low, high = (np.array([goal.over[name][side] for name in goal.over]) for side in (0, 1))
        return cls(goal, np.clip(truths[:, list(goal.columns)], low[:, None], high[:, None]))

    def singles(self) -> Array:
        """The average utility of each column alone, (columns,)."""
        return np.asarray(self.goal.function(self.truths.transpose(0, 2, 1)).mean(axis=0) / self.unit)

    def counted_in(self, unit: float) -> Sampled:
        """The same in other units."""
        return replace(self, unit=unit)

    def value(self, shares: Array) -> float:
        """The average."""
        return float(np.mean(self.goal.function(self.truths @ shares))) / self.unit

    def gradient(self, shares: Array) -> Array:
        """Its gradient, (columns,)."""
        slopes = self.goal.derivative(self.truths @ shares)
        return np.asarray(np.einsum("nm,nmk->k", slopes, self.truths) / (len(self.truths) * self.unit))

    def bend(self, shares: Array) -> Array:
        """The negative of its second derivatives, by differences of the utility's gradient inside its ranges."""
        low, high = (np.array([self.goal.over[name][side] for name in self.goal.over]) for side in (0, 1))
        vectors = self.truths @ shares
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
        scaled = self.truths / ranges[:, None]
        roots = np.sqrt(np.maximum(bends, 0.0))[:, :, None] * (axes.transpose(0, 2, 1) @ scaled)
        flat = roots.reshape(-1, self.truths.shape[2])
        return np.asarray(flat.T @ flat / (count * self.unit))

    def take(self, columns: NDArray[np.intp]) -> Sampled:
        """The same average over a few columns."""
        return replace(self, truths=self.truths[:, :, columns])
