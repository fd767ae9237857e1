"""Posterior over the mean vectors of candidates in segments, and the covariance of one weighted metric over all cells.

A cell is a candidate in a segment. Its uncertainty has a part of its own, a part that the same candidate has in all
segments, and parts that all cells have in common: the levels of segments and the errors of learned covariances.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.estimate.posterior import IndependentPosterior


@dataclass(frozen=True, slots=True, eq=False)
class SegmentSpreads:
    """Learned covariances of the segment model."""

    common: FloatArray
    """T, (metrics, metrics): of the effects that a candidate has in all segments."""
    own: FloatArray
    """D, (metrics, metrics): of the effects that it has in one segment alone."""

    def to_saved(self) -> list[Any]:
        """Return a plain JSON value."""
        return [self.common.tolist(), self.own.tolist()]

    @classmethod
    def from_saved(cls, saved: list[Any]) -> Self:
        """Return what `to_saved` wrote."""
        return cls(*(np.array(part, dtype=float) for part in saved))


@dataclass(frozen=True, slots=True, eq=False)
class CellCovariance:
    """Covariance of one number per cell: own · 1 + common commonᵀ for cells of one candidate + shared sharedᵀ.

    >>> covariance = CellCovariance(np.array([[1.0], [1.0]]), np.array([[[2.0]], [[2.0]]]), np.zeros((2, 1, 0)))
    >>> covariance.block(np.array([0, 1])).tolist(), covariance.times(np.array([[1.0], [0.0]])).tolist()
    ([[5.0, 4.0], [4.0, 5.0]], [[5.0], [4.0]])
    """

    own: FloatArray
    """(segments, candidates): variances."""
    common: FloatArray
    """(segments, candidates, rank)."""
    shared: FloatArray
    """(segments, candidates, rank)."""

    def with_shared(self, columns: FloatArray) -> CellCovariance:
        """Return the covariance with more columns that all cells share, (segments, candidates, rank)."""
        return replace(self, shared=np.concatenate([self.shared, columns], axis=2))

    def times(self, weights: FloatArray) -> FloatArray:
        """Return covariance · weights, (segments, candidates)."""
        by_candidate = np.einsum("skr,sk->kr", self.common, weights)
        everywhere = np.einsum("skr,sk->r", self.shared, weights)
        common = np.einsum("skr,kr->sk", self.common, by_candidate)
        return np.asarray(self.own * weights + common + self.shared @ everywhere)

    def spread(self, weights: FloatArray) -> float:
        """Return the standard deviation of the weighted sum."""
        return float(np.sqrt(max(float((weights * self.times(weights)).sum()), 0.0)))

    def variances(self) -> FloatArray:
        """Return the variance of each cell, (segments, candidates)."""
        return np.asarray(self.own + np.square(self.common).sum(axis=2) + np.square(self.shared).sum(axis=2))

    def block(self, cells: NDArray[np.intp]) -> FloatArray:
        """Return the covariance of some cells, counted segment by segment, (cells, cells)."""
        width = self.own.shape[1]
        common, shared = (part.reshape(self.own.size, part.shape[2])[cells] for part in (self.common, self.shared))
        alike = cells[:, None] % width == cells % width
        return np.asarray(
            np.diag(self.own.ravel()[cells]) + np.where(alike, common @ common.T, 0.0) + shared @ shared.T
        )

    def by_candidate(self) -> FloatArray:
        """Return the covariance of each candidate's cells, (candidates, segments, segments)."""
        common, shared = self.common.transpose(1, 0, 2), self.shared.transpose(1, 0, 2)
        blocks = common @ common.transpose(0, 2, 1) + shared @ shared.transpose(0, 2, 1)
        place = np.arange(blocks.shape[1])
        blocks[:, place, place] += self.own.T
        return np.asarray(blocks)


@dataclass(frozen=True, slots=True, eq=False)
class SegmentPosterior:
    """Gaussian posterior of the mean vectors of all cells."""

    means: FloatArray
    """Expected mean vectors, (segments, candidates, metrics)."""
    own: FloatArray
    """(segments, candidates, metrics, metrics): each cell's own covariance."""
    common: FloatArray
    """(segments, candidates, metrics, rank): cells i and j of one candidate have the covariance common_i common_jᵀ."""
    shared: FloatArray
    """(segments, candidates, metrics, rank): all cells i and j have the covariance shared_i shared_jᵀ."""
    levels: FloatArray
    """α, (segments, metrics): the expected level of each segment."""
    spreads: SegmentSpreads

    def take(self, places: NDArray[np.intp]) -> SegmentPosterior:
        """Return the posterior of some of the candidates."""
        return replace(
            self,
            means=self.means[:, places],
            own=self.own[:, places],
            common=self.common[:, places],
            shared=self.shared[:, places],
        )

    def draw(self, count: int, rng: np.random.Generator, order: NDArray[np.intp] | None = None) -> FloatArray:
        """Draw mean vectors, (draws, segments, candidates, metrics); random numbers follow the order of candidates."""
        segments, candidates, metrics = self.means.shape
        places = np.arange(candidates) if order is None else order
        own, common = (
            np.empty((count, segments, candidates, metrics)),
            np.empty((count, candidates, self.common.shape[3])),
        )
        own[:, :, places] = rng.standard_normal(own.shape)
        common[:, places] = rng.standard_normal(common.shape)
        everywhere = rng.standard_normal((count, self.shared.shape[3]))
        values, vectors = np.linalg.eigh(self.own)
        roots = (vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]) @ np.swapaxes(vectors, -1, -2)
        moved = np.einsum("skij,nskj->nski", roots, own) + np.einsum("skir,nkr->nski", self.common, common)
        moved += (everywhere @ self.shared.reshape(-1, self.shared.shape[3]).T).reshape(moved.shape)
        return np.asarray(self.means + moved)

    def project(self, rows: FloatArray) -> CellCovariance:
        """Return the covariance of row · mean over all cells, for one row or one for each segment, (…, metrics)."""
        rows = np.broadcast_to(rows, (len(self.means), self.means.shape[2]))
        return CellCovariance(
            np.einsum("si,skij,sj->sk", rows, self.own, rows),
            np.einsum("si,skir->skr", rows, self.common),
            np.einsum("si,skir->skr", rows, self.shared),
        )

    def mix(self, shares: FloatArray, errors: FloatArray) -> IndependentPosterior:
        """Return the posterior over the means of candidates that are the same in all segments.

        `errors` (segments, rank) is a root of the covariance of the segments' shares.
        """
        own = np.einsum("s,skij->kij", np.square(shares), self.own)
        common = np.einsum("s,skir->kir", shares, self.common)
        shared = np.einsum("s,skir->kir", shares, self.shared)
        moved = np.einsum("skm,sr->kmr", self.means, errors)
        return IndependentPosterior(
            np.einsum("s,skm->mk", shares, self.means),
            own + common @ common.transpose(0, 2, 1),
            np.concatenate([shared, moved], axis=2),
        )
