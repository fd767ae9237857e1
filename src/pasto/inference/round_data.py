"""Round data: the moments of every cell of a round, the shares of its units, and the statistics of many rounds.

A cell is one candidate in one arm. Arms are compared within a round and never added up across rounds, because shares
and levels change from round to round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, overload

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import MeasurementError

CellKey = tuple[str, int]
"""Arm and candidate index."""
POOLED_VARIANCE_UNITS = 100.0
"""Units that the variance pooled over rounds counts for, relative to a cell's own."""
SHARED_VARIANCE_UNITS = 200.0
"""Units that the variance of all cells counts for in sequences, in which a cell may not have a rare event yet."""


class MeasuredCell(Protocol):
    """Protocol of a measured cell; the records of the metrics package implement it."""

    @property
    def arm(self) -> str:
        """Arm of the study."""

    @property
    def candidate(self) -> int:
        """Index of the candidate."""

    @property
    def units(self) -> int:
        """Number of units."""

    @property
    def mean(self) -> tuple[float, ...]:
        """Mean of each column."""

    @property
    def cross(self) -> tuple[tuple[float, ...], ...]:
        """Σ(x − mean)(x − mean)ᵀ over the units."""

    @property
    def member_cross(self) -> tuple[tuple[float, ...], ...] | None:
        """Σ(y − mean)(y − mean)ᵀ over the members of clusters; None if units are not clusters."""


@dataclass(frozen=True, slots=True)
class CellMoments:
    """Moments of one cell.

    >>> CellMoments("control", 0, 3, (2.0,), ((2.0,),)).units
    3
    """

    arm: str
    candidate: int
    units: int
    mean: tuple[float, ...]
    cross: tuple[tuple[float, ...], ...]
    member_cross: tuple[tuple[float, ...], ...] | None = None


WHOLE_ARM = -1
"""Candidate index that stands for all candidates of an arm together."""


@dataclass(frozen=True, eq=False)
class CellTable(Sequence[CellMoments]):
    """Cells of a round in arrays, for rounds with many; an item is the moments of one cell.

    >>> cells = [CellMoments("control", 0, 3, (2.0,), ((2.0,),)), CellMoments("learner", 4, 1, (5.0,), ((0.0,),))]
    >>> table = CellTable.from_cells(cells)
    >>> len(table), table[1].candidate, table.join_arm("learner").mean
    (2, 4, (5.0,))
    """

    arms: tuple[str, ...]
    candidates: NDArray[np.int64]
    units: FloatArray
    mean: FloatArray
    """(cells, columns)."""
    cross: FloatArray
    """(cells, columns, columns)."""
    member_cross: FloatArray | None = None
    """(cells, columns, columns): over the members of clusters; None if units are not clusters."""

    @classmethod
    def from_cells(cls, cells: Sequence[MeasuredCell]) -> CellTable:
        """Return the cells as one table."""
        width = len(cells[0].mean) if cells else 1
        return cls(
            tuple(cell.arm for cell in cells),
            np.array([cell.candidate for cell in cells], dtype=np.int64),
            np.array([cell.units for cell in cells], dtype=float),
            np.array([cell.mean for cell in cells], dtype=float).reshape(-1, width),
            np.array([cell.cross for cell in cells], dtype=float).reshape(-1, width, width),
            _member_products(cells, width),
        )

    @cached_property
    def keys(self) -> tuple[CellKey, ...]:
        """Arms and candidates of the cells."""
        return tuple(zip(self.arms, self.candidates.tolist(), strict=True))

    def __len__(self) -> int:
        return len(self.arms)

    @overload
    def __getitem__(self, index: int) -> CellMoments: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[CellMoments]: ...
    def __getitem__(self, index: int | slice) -> CellMoments | Sequence[CellMoments]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        arm, candidate = self.arms[index], int(self.candidates[index])
        mean, cross = tuple(self.mean[index].tolist()), tuple(map(tuple, self.cross[index].tolist()))
        members = None if self.member_cross is None else tuple(map(tuple, self.member_cross[index].tolist()))
        return CellMoments(arm, candidate, int(self.units[index]), mean, cross, members)

    def join_arm(self, arm: str) -> CellMoments | None:
        """Return all units of an arm as one cell; None if it has none."""
        cells = [cell for cell, name in enumerate(self.arms) if name == arm and self.units[cell] > 0]
        if not cells:
            return None
        units, means = self.units[cells], self.mean[cells]
        mean = units @ means / units.sum()
        deviations = means - mean
        cross = self.cross[cells].sum(axis=0) + np.einsum("k,ki,kj->ij", units, deviations, deviations)
        return CellMoments(arm, WHOLE_ARM, int(units.sum()), tuple(mean.tolist()), tuple(map(tuple, cross.tolist())))


def _member_products(cells: Sequence[MeasuredCell], width: int) -> FloatArray | None:
    """Return the sums of products of members, (cells, columns, columns); None if units are not clusters."""
    products = [cell.member_cross for cell in cells if cell.member_cross is not None]
    if not products or len(products) < len(cells):
        return None
    return np.array(products, dtype=float).reshape(-1, width, width)


def join_cells(arm: str, cells: Sequence[MeasuredCell]) -> CellMoments | None:
    """Return all units of an arm as one cell; None if it has none.

    >>> join_cells("learner", [CellMoments("learner", k, 2, (float(k),), ((0.0,),)) for k in (0, 1)]).cross
    ((1.0,),)
    """
    return (cells if isinstance(cells, CellTable) else CellTable.from_cells(cells)).join_arm(arm)


@dataclass(frozen=True, slots=True, eq=False)
class CellStatistics:
    """Moments by round and cell; any axes before those are separate studies.

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


@dataclass(frozen=True, slots=True)
class MeasuredRound:
    """Measured round: the policy's version, the share of every cell, and the moments of the cells.

    If units stay in their arm for longer than a round, as in a confirmation, the whole phase is one record: a unit must
    be one row of its cell.
    """

    version: int
    shares: Mapping[CellKey, float]
    """Probabilities with which a unit was drawn; they add up to one."""
    cells: Sequence[MeasuredCell]
    """Cells without units may be left out."""
    seconds: float | None = None
    """Length of the round; None if unknown."""

    @property
    def units(self) -> int:
        """Units of all cells together."""
        if isinstance(self.cells, CellTable):
            return int(self.cells.units.sum())
        return sum(cell.units for cell in self.cells)


@dataclass(frozen=True, eq=False)
class RoundRecord:
    """Rounds of a study as arrays, with the index of every cell."""

    keys: tuple[CellKey, ...]
    versions: tuple[int, ...]
    cells: CellStatistics
    """(rounds, cells)."""
    shares: FloatArray
    """(rounds, cells)."""

    def cell_indices(self, arm: str) -> list[int]:
        """Return the indices of an arm's cells."""
        return [index for index, (name, _) in enumerate(self.keys) if name == arm]

    @property
    def control(self) -> int:
        """Index of the control cell; it has one candidate, the baseline."""
        indices = self.cell_indices("control")
        if len(indices) != 1:
            raise MeasurementError(f"a comparison needs one control cell in the rounds, got {len(indices)}")
        return indices[0]

    def cell_index(self, arm: str, candidate: int) -> int:
        """Return the index of one cell."""
        if (arm, candidate) not in self.keys:
            raise MeasurementError(f"no round served candidate {candidate} in the arm {arm!r}")
        return self.keys.index((arm, candidate))

    def join(self, arm: str) -> tuple[CellStatistics, int]:
        """Return the cells with the whole arm as one more cell, and the index of that cell."""
        indices = self.cell_indices(arm)
        if not indices:
            raise MeasurementError(
                f"no round has an arm {arm!r}; there are {', '.join(sorted({a for a, _ in self.keys}))}"
            )
        if len(indices) == 1:
            return self.cells, indices[0]
        return self.cells.join(indices), len(self.keys)

    def arm_view(self, arm: str, *, running: bool) -> tuple[CellStatistics, int, FloatArray]:
        """Return the cells of `join`, the index of the arm and the covariances of one unit; cached."""
        key = arm, running
        if key not in self._views:
            cells, cell = self.join(arm)
            self._views[key] = cells, cell, unit_covariances(cells, running=running)
        return self._views[key]

    @cached_property
    def _views(self) -> dict[tuple[str, bool], tuple[CellStatistics, int, FloatArray]]:
        return {}


def record_rounds(rounds: Sequence[MeasuredRound]) -> RoundRecord:
    """Put rounds into arrays; cells that a round did not have are empty there.

    >>> cell = CellMoments("control", 0, 3, (2.0,), ((2.0,),))
    >>> record = record_rounds([MeasuredRound(1, {("control", 0): 0.5, ("learner", 1): 0.5}, [cell])])
    >>> record.keys, record.cells.units.tolist()
    ((('control', 0), ('learner', 1)), [[3.0, 0.0]])
    """
    if not rounds:
        raise MeasurementError("a report needs at least one measured round, got none")
    columns = {width for measured in rounds for width in _column_counts(measured.cells)}
    if len(columns) > 1:
        raise MeasurementError(f"every cell needs the same number of columns, got {sorted(columns)}")
    width = columns.pop() if columns else 1
    tables = [
        measured.cells if isinstance(measured.cells, CellTable) else CellTable.from_cells(measured.cells)
        for measured in rounds
    ]
    keys = tuple(
        sorted(
            {key for measured in rounds for key in measured.shares} | {key for table in tables for key in table.keys}
        )
    )
    index_of = {key: number for number, key in enumerate(keys)}
    shape = (len(rounds), len(keys))
    units, shares = np.zeros(shape), np.zeros(shape)
    mean, cross = np.zeros((*shape, width)), np.zeros((*shape, width, width))
    for number, (measured, table) in enumerate(zip(rounds, tables, strict=True)):
        shares[number, [index_of[key] for key in measured.shares]] = list(measured.shares.values())
        if len(table):
            position = number, [index_of[key] for key in table.keys]
            units[position], mean[position], cross[position] = table.units, table.mean, table.cross
    if not (np.isfinite(mean).all() and np.isfinite(cross).all()):
        raise MeasurementError(
            "moments must be finite numbers, got infinite or missing values; check the measured columns"
        )
    return RoundRecord(keys, tuple(measured.version for measured in rounds), CellStatistics(units, mean, cross), shares)


def _column_counts(cells: Sequence[MeasuredCell]) -> set[int]:
    if isinstance(cells, CellTable):
        return {cells.mean.shape[1]} if len(cells) else set()
    return {len(cell.mean) for cell in cells}


def measure_design_effect(
    rounds: Sequence[MeasuredRound], numerator: int, denominator: int, members: int
) -> float | None:
    """Return the variance of a ratio by cluster over its variance if members were independent; None if unknown.

    The arguments are columns; `members` is the number of members of a cluster. With the residuals e_i = y_i − R d_i of
    members in a cell, the variances are Σ_c (Σ_{i∈c} e_i)² n/(n − 1) over n clusters, and Σ_i e_i² m/(m − 1) over
    m members.

    >>> pairs = ((4.0, 0.0), (0.0, 0.0))
    >>> cell = CellMoments("control", 0, 2, (2.0, 2.0), ((8.0, 0.0), (0.0, 0.0)), pairs)
    >>> round(measure_design_effect([MeasuredRound(1, {("control", 0): 1.0}, [cell])], 0, 1, 1), 6)
    3.0
    """
    by_cluster = by_member = 0.0
    for measured in rounds:
        cells = measured.cells if isinstance(measured.cells, CellTable) else CellTable.from_cells(measured.cells)
        if cells.member_cross is None:
            continue
        counts = cells.units * cells.mean[:, members]
        known = (cells.units > 1) & (cells.mean[:, denominator] > 0)
        form = np.zeros_like(cells.mean[known])
        form[:, numerator] = 1.0
        form[:, denominator] = -cells.mean[known, numerator] / cells.mean[known, denominator]
        clusters, units = cells.units[known], counts[known]
        products = np.einsum("ki,kij,kj->k", form, cells.cross[known], form)
        own_products = np.einsum("ki,kij,kj->k", form, cells.member_cross[known], form)
        by_cluster += float((products * clusters / (clusters - 1.0)).sum())
        by_member += float((own_products * units / (units - 1.0)).sum())
    return by_cluster / by_member if by_member > 0 else None
