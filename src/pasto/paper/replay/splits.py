"""Many random splits of a crowd, measured under every candidate beforehand, so that a round is one look-up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pasto.objective import Array
from pasto.paper.replay.crowd import Crowd, Places

COUNT = 2_000
"""Splits that are drawn at most: twenty thousand folds, among which the rounds draw again and again."""
TOGETHER = 20_000_000
"""Memberships, users times folds, that are held at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Splits:
    """The means of every fold of every split, under every candidate.

    Over the folds of a split the means average to the truth, so drawing a split twice biases nothing: the noise of a
    round is one of some thousand possible ones instead of one of all there are.

    >>> crowd = Crowd.of(("x",), np.array([[[1.0, 1.0, 3.0, 3.0], [0.0, 0.0, 0.0, 0.0]]]))
    >>> splits = Splits.of(crowd, folds=2, count=3, rng=np.random.default_rng(1))
    >>> splits.means.shape
    (3, 2, 2, 1)
    >>> float(splits.measure(np.array([[0, 0]]), np.array([2])).sum())
    4.0
    """

    means: NDArray[np.float32]
    """(splits, folds, candidates, metrics)."""

    @classmethod
    def of(cls, crowd: Crowd, *, folds: int, count: int, rng: np.random.Generator, together: int = TOGETHER) -> Splits:
        """Draw so many splits into folds of equal size; users left over, fewer than folds, sit a split out."""
        metrics, candidates, users = crowd.values.shape
        size = users // folds
        values = crowd.values.reshape(metrics * candidates, users).T
        present = crowd.present.astype(np.float32).T
        means = np.empty((count, folds, candidates, metrics), dtype=np.float32)
        block = max(1, together // (folds * users))
        for start in range(0, count, block):
            rows = min(block, count - start) * folds
            members = np.zeros((rows, users), dtype=np.float32)
            for split in range(0, rows, folds):
                order = rng.permutation(users)[: size * folds].reshape(folds, size)
                members[split + np.arange(folds)[:, None], order] = 1.0
            sums = (members @ values).reshape(-1, folds, metrics, candidates)
            counts = np.maximum(members @ present, 1.0).reshape(-1, folds, metrics, 1)
            means[start : start + len(sums)] = np.swapaxes(sums / counts, 2, 3)
        return cls(means)

    def measure(self, chosen: Places, which: Places) -> Array:
        """Of several repeats, the j-th candidate in the j-th fold of a split, (repeats, folds, metrics).

        Candidates are (repeats, folds), splits (repeats,).
        """
        folds = np.arange(chosen.shape[1])
        return self.means[which[:, None], folds, chosen].astype(np.float64)
