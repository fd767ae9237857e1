"""What every round measured in every cell, as arrays: the ground all comparisons stand on.

A cell is one candidate in one arm. Arms are compared within a round and never added up across rounds: the shares change
from round to round, and so does the level of everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import MeasurementError

POOL = 100.0
"""Units that a variance pooled over rounds counts for beside a cell's own."""
BORROWED = 200.0
"""Units that all cells' variance counts for beside a cell's own, where one looks before a rare event has come."""


@dataclass(frozen=True, slots=True, eq=False)
class CellStatistics:
    """Moments by round and cell; any axes before those are separate studies.

    >>> import numpy as np
    >>> cells = CellStatistics(np.array([[2.0, 2.0]]), np.array([[[1.0], [3.0]]]), np.array([[[[0.5]], [[0.5]]]]))
    >>> both = cells.joined([0, 1])
    >>> both.units[0, 2].item(), both.mean[0, 2, 0].item(), both.cross[0, 2, 0, 0].item()
    (4.0, 2.0, 5.0)
    """

    units: FloatArray
    """(…, rounds, cells)."""
    mean: FloatArray
    """(…, rounds, cells, columns); anything finite where there are no units."""
    cross: FloatArray
    """(…, rounds, cells, columns, columns): Σ(x − mean)(x − mean)ᵀ over the units."""

    def __post_init__(self) -> None:
        columns = self.mean.shape[-1]
        if self.mean.shape != (*self.units.shape, columns) or self.cross.shape != (*self.mean.shape, columns):
            raise MeasurementError(
                "moments need units (rounds, cells), means (rounds, cells, columns) and cross-products (rounds, cells, "
                f"columns, columns), got {self.units.shape}, {self.mean.shape} and {self.cross.shape}"
            )

    def joined(self, places: Sequence[int]) -> CellStatistics:
        """With one more cell at the end: the units of several, put together within each round."""
        chosen = list(places)
        units, mean, cross = self.units[..., chosen], self.mean[..., chosen, :], self.cross[..., chosen, :, :]
        total = units.sum(axis=-1)
        middle = np.einsum("...k,...km->...m", units, mean) / np.maximum(total, 1.0)[..., None]
        apart = mean - middle[..., None, :]
        whole = cross.sum(axis=-3) + np.einsum("...k,...ki,...kj->...ij", units, apart, apart)
        return CellStatistics(
            np.concatenate([self.units, total[..., None]], axis=-1),
            np.concatenate([self.mean, middle[..., None, :]], axis=-2),
            np.concatenate([self.cross, whole[..., None, :, :]], axis=-3),
        )


def unit_covariances(cells: CellStatistics, *, running: bool = False) -> FloatArray:
    """The covariance of one unit in every round and cell, drawn toward what the cell showed over all rounds.

    A cell of few units cannot tell its own variance; where it tries, a low mean of a skewed metric comes with a small
    variance, and intervals lie. So a cell is given its own covariance over rounds, scaled by how wide the round was
    for all cells together, and its own counts beside that for as many units as it has.

    With `running`, as sequences need it, a round knows nothing of later ones, and a cell's variance over rounds is
    never taken to be much below that of all cells: ten units without a single like do not mean that there is no noise.

    >>> import numpy as np
    >>> units, mean = np.array([[4.0], [400.0]]), np.zeros((2, 1, 1))
    >>> cells = CellStatistics(units, mean, np.array([[[[0.3]]], [[[399.0]]]]))
    >>> unit_covariances(cells)[:, 0, 0, 0].round(2).tolist()
    [0.94, 1.0]
    """
    return _covariances(cells, running, None)[0]


@dataclass(frozen=True, slots=True, eq=False)
class PooledStatistics:
    """What rounds leave to the running covariances of those behind them."""

    spread: FloatArray
    """(…, columns): all cells' squares together."""
    count: FloatArray
    """(…, 1): their degrees of freedom."""
    cross: FloatArray
    """(…, cells, columns, columns): each cell's, in units of how wide the rounds were."""
    freedom: FloatArray
    """(…, cells)."""


def running_covariances(
    cells: CellStatistics, before: PooledStatistics | None = None
) -> tuple[FloatArray, PooledStatistics]:
    """The running covariance of one unit in every round and cell, and what to go on from.

    >>> import numpy as np
    >>> cells = CellStatistics(np.full((2, 1), 50.0), np.zeros((2, 1, 1)), np.array([[[[40.0]]], [[[90.0]]]]))
    >>> first, second = (CellStatistics(*(part[at] for part in (cells.units, cells.mean, cells.cross)))
    ...                  for at in (slice(0, 1), slice(1, 2)))
    >>> alone = running_covariances(second, running_covariances(first)[1])[0]
    >>> bool(np.allclose(alone, running_covariances(cells)[0][1:]))
    True
    """
    return _covariances(cells, True, before)


def _covariances(
    cells: CellStatistics, running: bool, before: PooledStatistics | None
) -> tuple[FloatArray, PooledStatistics]:
    left = (None,) * 4 if before is None else (before.spread, before.count, before.cross, before.freedom)
    freedom = np.maximum(cells.units - 1.0, 0.0)
    spread = np.einsum("...kii->...ki", cells.cross).sum(axis=-2)
    whole = freedom.sum(axis=-1)[..., None]
    gathered = [_gather(values, -2, running, first) for values, first in ((spread, left[0]), (whole, left[1]))]
    width = _widths(spread, whole, gathered[0] / np.maximum(gathered[1], 1.0))
    outer = width[..., None, :, None] * width[..., None, None, :]
    pooled = _gather(cells.cross / outer, -4, running, left[2])
    count = _gather(freedom, -2, running, left[3])
    common = pooled.sum(axis=-3, keepdims=True)
    common = common / np.maximum(count.sum(axis=-1, keepdims=True), 1.0)[..., None, None]
    # A cell that never had two units borrows from its neighbours.
    lent = np.where(count > 0, BORROWED if running else 0.0, 1.0)[..., None, None]
    mixed = (pooled + lent * common) / (count[..., None, None] + lent)
    if running:
        own, less = (
            np.einsum("...ii->...i", each) for each in (pooled / np.maximum(count, 1.0)[..., None, None], mixed)
        )
        rise = np.sqrt(np.maximum(own / np.where(less > 0, less, 1.0), 1.0))
        mixed = mixed * rise[..., :, None] * rise[..., None, :]
    found = np.asarray((cells.cross + POOL * outer * mixed) / (freedom[..., None, None] + POOL))
    after = PooledStatistics(
        gathered[0][..., -1, :], gathered[1][..., -1, :], pooled[..., -1, :, :, :], count[..., -1, :]
    )
    return found, after


def _widths(spread: FloatArray, count: FloatArray, typical: FloatArray) -> FloatArray:
    """How wide every column was in every round, all cells together: (…, rounds, columns)."""
    # A round of few units in all has no width of its own either.
    share = count / (count + POOL)
    level = share * spread / np.maximum(count, 1.0) + (1.0 - share) * typical
    return np.asarray(np.sqrt(np.where(level > 0, level, 1.0)))


def _gather(values: FloatArray, axis: int, running: bool, before: FloatArray | None = None) -> FloatArray:
    """Over all rounds, or up to every round."""
    if not running:
        return np.asarray(values.sum(axis=axis, keepdims=True))
    if before is None:
        return np.asarray(np.cumsum(values, axis=axis))
    first = np.expand_dims(before, axis)
    rest = np.cumsum(np.concatenate([first, values], axis=axis), axis=axis)
    return np.asarray(np.moveaxis(np.moveaxis(rest, axis, 0)[1:], 0, axis))


@dataclass(frozen=True, slots=True, eq=False)
class ComparisonSide:
    """One side of a comparison, round by round: an arm, a candidate, or a blend of candidates at fixed shares."""

    units: FloatArray
    """(…, rounds): as many as would tell its mean as well; 0 where a part of it was not served."""
    mean: FloatArray
    """(…, rounds, columns)."""
    covariance: FloatArray
    """(…, rounds, columns, columns): of the mean."""
    freedom: FloatArray
    """(…, rounds): degrees of freedom behind the covariance."""

    def alone(self) -> ComparisonSide:
        """Every round as a study of its own: (…, rounds, 1)."""
        return ComparisonSide(
            self.units[..., None], self.mean[..., None, :], self.covariance[..., None, :, :], self.freedom[..., None]
        )


def side(cells: CellStatistics, covariances: FloatArray, shares: Mapping[int, float] | int) -> ComparisonSide:
    """A side of fixed shares over cells, by their place; one place is that cell alone.

    >>> import numpy as np
    >>> cells = CellStatistics(np.array([[50.0, 50.0]]), np.array([[[1.0], [3.0]]]), np.full((1, 2, 1, 1), 49.0))
    >>> half = side(cells, unit_covariances(cells), {0: 0.5, 1: 0.5})
    >>> half.units.tolist(), half.mean.ravel().tolist(), half.covariance.ravel().tolist()
    ([100.0], [2.0], [0.01])
    """
    wanted = {shares: 1.0} if isinstance(shares, int) else {place: share for place, share in shares.items() if share}
    if not wanted:
        raise MeasurementError("a side of a comparison needs at least one cell with a share")
    places, parts = list(wanted), np.array(list(wanted.values()))
    units = cells.units[..., places]
    usable = (units > 0).all(axis=-1)
    filled = np.where(units > 0, units, 1.0)
    inverse = (parts**2 / filled).sum(axis=-1)
    covariance = np.einsum("...k,...kij->...ij", parts**2 / filled, covariances[..., places, :, :])
    return ComparisonSide(
        units=np.where(usable, 1.0 / inverse, 0.0),
        mean=np.einsum("k,...km->...m", parts, cells.mean[..., places, :]),
        covariance=covariance,
        freedom=np.where(usable, np.maximum(units - 1.0, 0.0).sum(axis=-1), 0.0),
    )
