"""Users and what each of them would measure under every candidate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import InputError

Places = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class UserSample:
    """Each user's metrics under every candidate; means over the users who have a metric are the truth.

    >>> import numpy as np
    >>> values = np.array([[[1.0, 0.0, 1.0, 0.0]], [[np.nan, 2.0, 4.0, np.nan]]])       # one candidate, four users
    >>> user_sample = UserSample.of(("recall", "price"), values)
    >>> user_sample.truth
    array([[0.5],
           [3. ]])
    """

    metrics: tuple[str, ...]
    values: NDArray[np.float32]
    """(metrics, candidates, users); 0 where a user has no such metric."""
    present: NDArray[np.bool_]
    """(metrics, users): who has it."""

    @classmethod
    def of(cls, metrics: Sequence[str], values: FloatArray | NDArray[np.float32]) -> Self:
        """Return the sample from values that are NaN under every candidate if a user lacks the metric."""
        missing = np.isnan(values)
        if not (missing == missing[:, :1]).all():
            raise InputError("a user has a metric under every candidate or under none")
        present = ~missing[:, 0]
        if not present.any(axis=1).all():
            raise InputError(f"no user has the metric {metrics[int(np.argmin(present.any(axis=1)))]!r}")
        return cls(tuple(metrics), np.where(missing, 0.0, values).astype(np.float32), present)

    @property
    def candidates(self) -> int:
        """Number of candidates."""
        return len(self.values[0])

    @property
    def users(self) -> int:
        """Number of users."""
        return len(self.present[0])

    @property
    def truth(self) -> FloatArray:
        """(metrics, candidates)."""
        sums = self.values.sum(axis=2, dtype=np.float64)
        return np.asarray(sums / self.present.sum(axis=1)[:, None])

    @property
    def errors(self) -> FloatArray:
        """(metrics, candidates): standard errors of the truth, if these users are a sample of others like them."""
        counts = self.present.sum(axis=1)[:, None]
        squares = np.square(self.values).sum(axis=2, dtype=np.float64) / counts
        return np.asarray(np.sqrt(np.maximum(squares - self.truth**2, 0.0) / np.maximum(counts - 1, 1)))

    def chosen(self, candidates: Sequence[int] | Places) -> UserSample:
        """Return the same users, with some of the candidates."""
        return UserSample(self.metrics, self.values[:, np.asarray(candidates, dtype=np.intp)], self.present)

    def part(self, users: Places) -> UserSample:
        """Return some of the users."""
        return UserSample(self.metrics, self.values[:, :, users], self.present[:, users])

    def measure(self, candidates: Sequence[int] | Places, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Split the users at random into as many folds as candidates, and measure each candidate on one fold.

        Means and their standard errors, (candidates, metrics) each. Folds are of equal size; users left over, fewer
        than there are folds, sit this round out.

        >>> import numpy as np
        >>> user_sample = UserSample.of(("x",), np.array([[[1.0, 1.0, 3.0, 3.0]]]))
        >>> means, errors = user_sample.measure([0, 0], np.random.default_rng(1))
        >>> float(means.sum())
        4.0
        """
        chosen = np.asarray(candidates, dtype=np.intp)
        size = self.users // len(chosen)
        folds = rng.permutation(self.users)[: size * len(chosen)].reshape(len(chosen), size)
        fold_values = self.values[:, chosen[:, None], folds]
        counts = np.maximum(self.present[:, folds].sum(axis=2), 1)
        means = fold_values.sum(axis=2, dtype=np.float64) / counts
        squares = np.einsum("mfu,mfu->mf", fold_values, fold_values) / counts
        errors = np.sqrt(np.maximum(squares - means**2, 0.0) / np.maximum(counts - 1, 1))
        return means.T, errors.T


COUNT = 2_000
"""Splits that are drawn at most: twenty thousand folds, among which the rounds draw again and again."""

TOGETHER = 20_000_000
"""Memberships, users times folds, that are held at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Splits:
    """The means of every fold of every split, under every candidate.

    Over the folds of a split the means average to the truth, so drawing a split twice biases nothing: the noise of a
    round is one of some thousand possible ones instead of one of all there are.

    >>> user_sample = UserSample.of(("x",), np.array([[[1.0, 1.0, 3.0, 3.0], [0.0, 0.0, 0.0, 0.0]]]))
    >>> splits = Splits.of(user_sample, folds=2, count=3, rng=np.random.default_rng(1))
    >>> splits.means.shape
    (3, 2, 2, 1)
    >>> float(splits.measure(np.array([[0, 0]]), np.array([2])).sum())
    4.0
    """

    means: NDArray[np.float32]
    """(splits, folds, candidates, metrics)."""

    @classmethod
    def of(
        cls, user_sample: UserSample, *, folds: int, count: int, rng: np.random.Generator, together: int = TOGETHER
    ) -> Splits:
        """Draw so many splits into folds of equal size; users left over, fewer than folds, sit a split out."""
        metrics, candidates, users = user_sample.values.shape
        size = users // folds
        values = user_sample.values.reshape(metrics * candidates, users).T
        present = user_sample.present.astype(np.float32).T
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

    def measure(self, chosen: Places, which: Places) -> FloatArray:
        """Measure the j-th candidate in the j-th fold of a split, for several repeats, (repeats, folds, metrics).

        Candidates are (repeats, folds), splits (repeats,).
        """
        folds = np.arange(chosen.shape[1])
        return self.means[which[:, None], folds, chosen].astype(np.float64)
