"""Round data: the moments of every cell, and the shares with which units were drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, overload

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import MeasurementError
from pasto.inference import CellStatistics, unit_covariances

CellKey = tuple[str, int]
"""Arm and candidate index."""


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
        return CellMoments(arm, candidate, int(self.units[index]), mean, cross)

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


def join_cells(arm: str, cells: Sequence[MeasuredCell]) -> CellMoments | None:
    """Return all units of an arm as one cell; None if it has none.

    >>> join_cells("learner", [CellMoments("learner", k, 2, (float(k),), ((0.0,),)) for k in (0, 1)]).cross
    ((1.0,),)
    """
    return (cells if isinstance(cells, CellTable) else CellTable.from_cells(cells)).join_arm(arm)


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
    columns = {width for measured in rounds for width in _widths(measured.cells)}
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


def _widths(cells: Sequence[MeasuredCell]) -> set[int]:
    if isinstance(cells, CellTable):
        return {cells.mean.shape[1]} if len(cells) else set()
    return {len(cell.mean) for cell in cells}
