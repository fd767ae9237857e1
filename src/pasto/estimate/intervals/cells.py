"""What every round measured in every cell, as arrays: the ground all comparisons stand on.

A cell is one candidate in one arm. Arms are compared within a round and never added up across rounds: the shares change
from round to round, and so does the level of everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pasto.errors import BadMeasurement

Array = NDArray[np.float64]
POOL = 100.0
"""Units that a variance pooled over rounds counts for beside a cell's own."""


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Moments by round and cell; any axes before those are separate studies.

    >>> import numpy as np
    >>> cells = Cells(np.array([[2.0, 2.0]]), np.array([[[1.0], [3.0]]]), np.array([[[[0.5]], [[0.5]]]]))
    >>> both = cells.joined([0, 1])
    >>> both.units[0, 2].item(), both.mean[0, 2, 0].item(), both.cross[0, 2, 0, 0].item()
    (4.0, 2.0, 5.0)
    """

    units: Array
    """(…, rounds, cells)."""
    mean: Array
    """(…, rounds, cells, columns); anything finite where there are no units."""
    cross: Array
    """(…, rounds, cells, columns, columns): Σ(x − mean)(x − mean)ᵀ over the units."""

    def __post_init__(self) -> None:
        columns = self.mean.shape[-1]
        if self.mean.shape != (*self.units.shape, columns) or self.cross.shape != (*self.mean.shape, columns):
            raise BadMeasurement(
                "moments need units (rounds, cells), means (rounds, cells, columns) and cross-products (rounds, cells, "
                f"columns, columns), got {self.units.shape}, {self.mean.shape} and {self.cross.shape}"
            )

    def joined(self, places: Sequence[int]) -> Cells:
        """With one more cell at the end: the units of several, put together within each round."""
        chosen = list(places)
        units, mean, cross = self.units[..., chosen], self.mean[..., chosen, :], self.cross[..., chosen, :, :]
        total = units.sum(axis=-1)
        middle = np.einsum("...k,...km->...m", units, mean) / np.maximum(total, 1.0)[..., None]
        apart = mean - middle[..., None, :]
        whole = cross.sum(axis=-3) + np.einsum("...k,...ki,...kj->...ij", units, apart, apart)
        return Cells(
            np.concatenate([self.units, total[..., None]], axis=-1),
            np.concatenate([self.mean, middle[..., None, :]], axis=-2),
            np.concatenate([self.cross, whole[..., None, :, :]], axis=-3),
        )


def unit_covariances(cells: Cells, *, running: bool = False) -> Array:
    """The covariance of one unit in every round and cell, drawn toward what the cell showed over all rounds.

    A cell of few units cannot tell its own variance; where it tries, a low mean of a skewed metric comes with a small
    variance, and intervals lie. So a cell is given its own covariance over rounds, scaled by how wide the round was
    for all cells together, and its own counts beside that for as many units as it has. With `running`, a round knows
    nothing of later ones.

    >>> import numpy as np
    >>> units, mean = np.array([[4.0], [400.0]]), np.zeros((2, 1, 1))
    >>> cells = Cells(units, mean, np.array([[[[0.3]]], [[[399.0]]]]))
    >>> unit_covariances(cells)[:, 0, 0, 0].round(2).tolist()
    [0.94, 1.0]
    """
    freedom = np.maximum(cells.units - 1.0, 0.0)
    spread = np.einsum("...kii->...ki", cells.cross).sum(axis=-2)
    count = freedom.sum(axis=-1)
    overall = np.cumsum(spread, axis=-2) if running else spread.sum(axis=-2, keepdims=True)
    overall_count = np.cumsum(count, axis=-1) if running else count.sum(axis=-1, keepdims=True)
    typical = overall / np.maximum(overall_count, 1.0)[..., None]
    # A round of few units in all has no width of its own either.
    share = (count / (count + POOL))[..., None]
    level = share * spread / np.maximum(count, 1.0)[..., None] + (1.0 - share) * typical
    width = np.sqrt(np.where(level > 0, level, 1.0))
    outer = width[..., None, :, None] * width[..., None, None, :]
    scaled = cells.cross / outer
    pooled, pooled_freedom = (
        (np.cumsum(scaled, axis=-4), np.cumsum(freedom, axis=-2))
        if running
        else (scaled.sum(axis=-4, keepdims=True), freedom.sum(axis=-2, keepdims=True))
    )
    common = pooled.sum(axis=-3, keepdims=True)
    common_freedom = np.maximum(pooled_freedom.sum(axis=-1, keepdims=True), 1.0)
    common = common / common_freedom[..., None, None]
    # A cell that never had two units borrows from its neighbours.
    lent = np.where(pooled_freedom > 0, 0.0, 1.0)[..., None, None]
    target = outer * (pooled + lent * common) / (pooled_freedom[..., None, None] + lent)
    weight = freedom[..., None, None]
    return np.asarray((cells.cross + POOL * target) / (weight + POOL))


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One side of a comparison, round by round: an arm, a candidate, or a blend of candidates at fixed shares."""

    units: Array
    """(…, rounds): as many as would tell its mean as well; 0 where a part of it was not served."""
    mean: Array
    """(…, rounds, columns)."""
    covariance: Array
    """(…, rounds, columns, columns): of the mean."""
    freedom: Array
    """(…, rounds): degrees of freedom behind the covariance."""

    def round(self, number: int) -> Side:
        """That round alone."""
        only = slice(number, number + 1)
        return Side(
            self.units[..., only], self.mean[..., only, :], self.covariance[..., only, :, :], self.freedom[..., only]
        )


def side(cells: Cells, covariances: Array, shares: Mapping[int, float] | int) -> Side:
    """A side of fixed shares over cells, by their place; one place is that cell alone.

    >>> import numpy as np
    >>> cells = Cells(np.array([[50.0, 50.0]]), np.array([[[1.0], [3.0]]]), np.full((1, 2, 1, 1), 49.0))
    >>> half = side(cells, unit_covariances(cells), {0: 0.5, 1: 0.5})
    >>> half.units.tolist(), half.mean.ravel().tolist(), half.covariance.ravel().tolist()
    ([100.0], [2.0], [0.01])
    """
    wanted = {shares: 1.0} if isinstance(shares, int) else {place: share for place, share in shares.items() if share}
    if not wanted:
        raise BadMeasurement("a side of a comparison needs at least one cell with a share")
    places, parts = list(wanted), np.array(list(wanted.values()))
    units = cells.units[..., places]
    usable = (units > 0).all(axis=-1)
    filled = np.where(units > 0, units, 1.0)
    inverse = (parts**2 / filled).sum(axis=-1)
    covariance = np.einsum("...k,...kij->...ij", parts**2 / filled, covariances[..., places, :, :])
    return Side(
        units=np.where(usable, 1.0 / inverse, 0.0),
        mean=np.einsum("k,...km->...m", parts, cells.mean[..., places, :]),
        covariance=covariance,
        freedom=np.where(usable, np.maximum(units - 1.0, 0.0).sum(axis=-1), 0.0),
    )
