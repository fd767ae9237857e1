"""Cell statistics: moments of every round and cell as arrays, the input of all comparisons.

A cell is one candidate in one arm. Arms are compared within a round and never added up across rounds, because shares
and levels change from round to round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import MeasurementError

POOLED_VARIANCE_UNITS = 100.0
"""Units that the variance pooled over rounds counts for, relative to a cell's own."""
SHARED_VARIANCE_UNITS = 200.0
"""Units that the variance of all cells counts for in sequences, in which a cell may not have a rare event yet."""


@dataclass(frozen=True, slots=True, eq=False)
class CellStatistics:
    """Moments by round and cell; any axes before those are separate studies.

    >>> import numpy as np
    >>> cells = CellStatistics(np.array([[2.0, 2.0]]), np.array([[[1.0], [3.0]]]), np.array([[[[0.5]], [[0.5]]]]))
    >>> both = cells.join([0, 1])
    >>> both.units[0, 2].item(), both.mean[0, 2, 0].item(), both.cross[0, 2, 0, 0].item()
    (4.0, 2.0, 5.0)
    """

    units: FloatArray
    """(…, rounds, cells)."""
    mean: FloatArray
    """(…, rounds, cells, columns); any finite value if there are no units."""
    cross: FloatArray
    """(…, rounds, cells, columns, columns): Σ(x − mean)(x − mean)ᵀ over the units."""

    def __post_init__(self) -> None:
        columns = self.mean.shape[-1]
        if self.mean.shape != (*self.units.shape, columns) or self.cross.shape != (*self.mean.shape, columns):
            raise MeasurementError(
                "moments need units (rounds, cells), means (rounds, cells, columns) and cross-products (rounds, cells, "
                f"columns, columns), got {self.units.shape}, {self.mean.shape} and {self.cross.shape}"
            )

    def join(self, indices: Sequence[int]) -> CellStatistics:
        """Return the statistics with one more cell at the end: several cells joined within each round."""
        cells = list(indices)
        units, mean, cross = self.units[..., cells], self.mean[..., cells, :], self.cross[..., cells, :, :]
        total = units.sum(axis=-1)
        joint_mean = np.einsum("...k,...km->...m", units, mean) / np.maximum(total, 1.0)[..., None]
        deviations = mean - joint_mean[..., None, :]
        joint_cross = cross.sum(axis=-3) + np.einsum("...k,...ki,...kj->...ij", units, deviations, deviations)
        return CellStatistics(
            np.concatenate([self.units, total[..., None]], axis=-1),
            np.concatenate([self.mean, joint_mean[..., None, :]], axis=-2),
            np.concatenate([self.cross, joint_cross[..., None, :, :]], axis=-3),
        )


def unit_covariances(cells: CellStatistics, *, running: bool = False) -> FloatArray:
    """Return the covariance of one unit in every round and cell, shrunk toward that of the cell over all rounds.

    A cell of few units does not determine its own variance: a low mean of a skewed metric comes with a small variance,
    and intervals would be too narrow. So a cell uses its covariance over rounds, scaled by the width of the round for
    all cells together. Its own covariance counts with the weight of its units.

    With `running`, as sequences need it, a round does not depend on later ones. A cell's variance over rounds is then
    never much below that of all cells: ten units without a single like do not mean that there is no noise.

    >>> import numpy as np
    >>> units, mean = np.array([[4.0], [400.0]]), np.zeros((2, 1, 1))
    >>> cells = CellStatistics(units, mean, np.array([[[[0.3]]], [[[399.0]]]]))
    >>> unit_covariances(cells)[:, 0, 0, 0].round(2).tolist()
    [0.94, 1.0]
    """
    return _covariances(cells, running, None)[0]


@dataclass(frozen=True, slots=True, eq=False)
class PooledStatistics:
    """Sums over earlier rounds from which running covariances continue."""

    spread: FloatArray
    """(…, columns): sum of the squares of all cells."""
    count: FloatArray
    """(…, 1): degrees of freedom of `spread`."""
    cross: FloatArray
    """(…, cells, columns, columns): sums of each cell, relative to the widths of the rounds."""
    degrees: FloatArray
    """(…, cells)."""


def running_covariances(
    cells: CellStatistics, before: PooledStatistics | None = None
) -> tuple[FloatArray, PooledStatistics]:
    """Return the running covariance of one unit in every round and cell, and the sums to continue from.

    >>> import numpy as np
    >>> cells = CellStatistics(np.full((2, 1), 50.0), np.zeros((2, 1, 1)), np.array([[[[40.0]]], [[[90.0]]]]))
    >>> first, second = (CellStatistics(*(part[part_rounds] for part in (cells.units, cells.mean, cells.cross)))
    ...                  for part_rounds in (slice(0, 1), slice(1, 2)))
    >>> continued = running_covariances(second, running_covariances(first)[1])[0]
    >>> bool(np.allclose(continued, running_covariances(cells)[0][1:]))
    True
    """
    return _covariances(cells, True, before)


def _covariances(
    cells: CellStatistics, running: bool, before: PooledStatistics | None
) -> tuple[FloatArray, PooledStatistics]:
    earlier = (None,) * 4 if before is None else (before.spread, before.count, before.cross, before.degrees)
    degrees = np.maximum(cells.units - 1.0, 0.0)
    spread = np.einsum("...kii->...ki", cells.cross).sum(axis=-2)
    total_degrees = degrees.sum(axis=-1)[..., None]
    running_sums = [
        _accumulate(values, -2, running, initial)
        for values, initial in ((spread, earlier[0]), (total_degrees, earlier[1]))
    ]
    width = _widths(spread, total_degrees, running_sums[0] / np.maximum(running_sums[1], 1.0))
    width_products = width[..., None, :, None] * width[..., None, None, :]
    pooled = _accumulate(cells.cross / width_products, -4, running, earlier[2])
    cell_degrees = _accumulate(degrees, -2, running, earlier[3])
    shared = pooled.sum(axis=-3, keepdims=True)
    shared = shared / np.maximum(cell_degrees.sum(axis=-1, keepdims=True), 1.0)[..., None, None]
    # A cell that never had two units uses the covariance of all cells.
    shared_weight = np.where(cell_degrees > 0, SHARED_VARIANCE_UNITS if running else 0.0, 1.0)[..., None, None]
    shrunk = (pooled + shared_weight * shared) / (cell_degrees[..., None, None] + shared_weight)
    if running:
        own_variances, shrunk_variances = (
            np.einsum("...ii->...i", matrix)
            for matrix in (pooled / np.maximum(cell_degrees, 1.0)[..., None, None], shrunk)
        )
        inflation = np.sqrt(np.maximum(own_variances / np.where(shrunk_variances > 0, shrunk_variances, 1.0), 1.0))
        shrunk = shrunk * inflation[..., :, None] * inflation[..., None, :]
    covariances = np.asarray(
        (cells.cross + POOLED_VARIANCE_UNITS * width_products * shrunk)
        / (degrees[..., None, None] + POOLED_VARIANCE_UNITS)
    )
    after = PooledStatistics(
        running_sums[0][..., -1, :], running_sums[1][..., -1, :], pooled[..., -1, :, :, :], cell_degrees[..., -1, :]
    )
    return covariances, after


def _widths(spread: FloatArray, degrees: FloatArray, typical: FloatArray) -> FloatArray:
    """Return the standard deviation of every column in every round, over all cells: (…, rounds, columns)."""
    # A round of few units does not determine its own width either.
    share = degrees / (degrees + POOLED_VARIANCE_UNITS)
    variance = share * spread / np.maximum(degrees, 1.0) + (1.0 - share) * typical
    return np.asarray(np.sqrt(np.where(variance > 0, variance, 1.0)))


def _accumulate(values: FloatArray, axis: int, running: bool, before: FloatArray | None = None) -> FloatArray:
    """Return the sum over all rounds or, if running, up to every round."""
    if not running:
        return np.asarray(values.sum(axis=axis, keepdims=True))
    if before is None:
        return np.asarray(np.cumsum(values, axis=axis))
    initial = np.expand_dims(before, axis)
    sums = np.cumsum(np.concatenate([initial, values], axis=axis), axis=axis)
    return np.asarray(np.moveaxis(np.moveaxis(sums, axis, 0)[1:], 0, axis))


@dataclass(frozen=True, slots=True, eq=False)
class ComparisonSide:
    """One side of a comparison, round by round: an arm, a candidate, or a blend of candidates at fixed shares."""

    units: FloatArray
    """(…, rounds): effective units, 1 / Σ share² / units; 0 if a part of the side was not served."""
    mean: FloatArray
    """(…, rounds, columns)."""
    covariance: FloatArray
    """(…, rounds, columns, columns): of the mean."""
    degrees: FloatArray
    """(…, rounds): degrees of freedom of the covariance."""

    def split_rounds(self) -> ComparisonSide:
        """Return every round as a separate study: (…, rounds, 1)."""
        return ComparisonSide(
            self.units[..., None], self.mean[..., None, :], self.covariance[..., None, :, :], self.degrees[..., None]
        )


def build_side(cells: CellStatistics, covariances: FloatArray, shares: Mapping[int, float] | int) -> ComparisonSide:
    """Return a side with fixed shares of cells, by cell index; a single index is that cell alone.

    >>> import numpy as np
    >>> cells = CellStatistics(np.array([[50.0, 50.0]]), np.array([[[1.0], [3.0]]]), np.full((1, 2, 1, 1), 49.0))
    >>> half = build_side(cells, unit_covariances(cells), {0: 0.5, 1: 0.5})
    >>> half.units.tolist(), half.mean.ravel().tolist(), half.covariance.ravel().tolist()
    ([100.0], [2.0], [0.01])
    """
    used_shares = {shares: 1.0} if isinstance(shares, int) else {cell: share for cell, share in shares.items() if share}
    if not used_shares:
        raise MeasurementError("a side of a comparison needs at least one cell with a share")
    cell_indices, weights = list(used_shares), np.array(list(used_shares.values()))
    units = cells.units[..., cell_indices]
    usable = (units > 0).all(axis=-1)
    filled_units = np.where(units > 0, units, 1.0)
    inverse = (weights**2 / filled_units).sum(axis=-1)
    covariance = np.einsum("...k,...kij->...ij", weights**2 / filled_units, covariances[..., cell_indices, :, :])
    return ComparisonSide(
        units=np.where(usable, 1.0 / inverse, 0.0),
        mean=np.einsum("k,...km->...m", weights, cells.mean[..., cell_indices, :]),
        covariance=covariance,
        degrees=np.where(usable, np.maximum(units - 1.0, 0.0).sum(axis=-1), 0.0),
    )
