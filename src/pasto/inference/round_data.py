"""Rounds as the reports read them: what every cell measured, and the shares its units were drawn with."""

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

Key = tuple[str, int]
"""An arm and a candidate's index."""


class MeasuredCell(Protocol):
    """What one cell of a round measured; the records of a measurement fit as they are."""

    @property
    def arm(self) -> str:
        """Which arm of the study."""

    @property
    def candidate(self) -> int:
        """The candidate's index."""

    @property
    def units(self) -> int:
        """How many units."""

    @property
    def mean(self) -> tuple[float, ...]:
        """One number a column."""

    @property
    def cross(self) -> tuple[tuple[float, ...], ...]:
        """Σ(x − mean)(x − mean)ᵀ over the units."""


@dataclass(frozen=True, slots=True)
class CellMoments:
    """One cell's moments, for whoever measures elsewhere.

    >>> CellMoments("control", 0, 3, (2.0,), ((2.0,),)).units
    3
    """

    arm: str
    candidate: int
    units: int
    mean: tuple[float, ...]
    cross: tuple[tuple[float, ...], ...]


WHOLE_ARM = -1
"""Stands for all of an arm's candidates together."""


@dataclass(frozen=True, eq=False)
class CellTable(Sequence[CellMoments]):
    """The cells of a round in arrays, for rounds that have many; whoever asks for one of them gets its moments.

    >>> cells = [CellMoments("control", 0, 3, (2.0,), ((2.0,),)), CellMoments("learner", 4, 1, (5.0,), ((0.0,),))]
    >>> table = CellTable.of(cells)
    >>> len(table), table[1].candidate, table.whole("learner").mean
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
    def of(cls, cells: Sequence[MeasuredCell]) -> CellTable:
        """The cells as one table."""
        width = len(cells[0].mean) if cells else 1
        return cls(
            tuple(cell.arm for cell in cells),
            np.array([cell.candidate for cell in cells], dtype=np.int64),
            np.array([cell.units for cell in cells], dtype=float),
            np.array([cell.mean for cell in cells], dtype=float).reshape(-1, width),
            np.array([cell.cross for cell in cells], dtype=float).reshape(-1, width, width),
        )

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """The cells' arms and candidates."""
        return tuple(zip(self.arms, self.candidates.tolist(), strict=True))

    def __len__(self) -> int:
        return len(self.arms)

    @overload
    def __getitem__(self, place: int) -> CellMoments: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[CellMoments]: ...
    def __getitem__(self, place: int | slice) -> CellMoments | Sequence[CellMoments]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        arm, candidate = self.arms[place], int(self.candidates[place])
        mean, cross = tuple(self.mean[place].tolist()), tuple(map(tuple, self.cross[place].tolist()))
        return CellMoments(arm, candidate, int(self.units[place]), mean, cross)

    def whole(self, arm: str) -> CellMoments | None:
        """All of an arm's units as one cell; None where it had none."""
        places = [place for place, name in enumerate(self.arms) if name == arm and self.units[place] > 0]
        if not places:
            return None
        units, means = self.units[places], self.mean[places]
        mean = units @ means / units.sum()
        apart = means - mean
        cross = self.cross[places].sum(axis=0) + np.einsum("k,ki,kj->ij", units, apart, apart)
        return CellMoments(arm, WHOLE_ARM, int(units.sum()), tuple(mean.tolist()), tuple(map(tuple, cross.tolist())))


def join_cells(arm: str, cells: Sequence[MeasuredCell]) -> CellMoments | None:
    """All of an arm's units as one cell; None where it had none.

    >>> join_cells("learner", [CellMoments("learner", k, 2, (float(k),), ((0.0,),)) for k in (0, 1)]).cross
    ((1.0,),)
    """
    return (cells if isinstance(cells, CellTable) else CellTable.of(cells)).whole(arm)


@dataclass(frozen=True, slots=True)
class MeasuredRound:
    """One round: the policy's version, the share of every cell, and what the cells measured.

    Where units keep their arm for longer than a round, as in a confirmation, the whole phase is one of these: a unit
    must be one row of its cell, whatever it did in how many rounds.
    """

    version: int
    shares: Mapping[Key, float]
    """What a unit was drawn with; they add up to one."""
    cells: Sequence[MeasuredCell]
    """Cells without units may be left out."""
    seconds: float | None = None
    """How long it lasted; None if that is not known."""

    @property
    def units(self) -> int:
        """Of all cells together."""
        if isinstance(self.cells, CellTable):
            return int(self.cells.units.sum())
        return sum(cell.units for cell in self.cells)


@dataclass(frozen=True, eq=False)
class RoundRecord:
    """A study's rounds as arrays, with the place of every cell."""

    keys: tuple[Key, ...]
    versions: tuple[int, ...]
    cells: CellStatistics
    """(rounds, cells)."""
    shares: FloatArray
    """(rounds, cells)."""

    def places(self, arm: str) -> list[int]:
        """Where an arm's cells are."""
        return [place for place, (name, _) in enumerate(self.keys) if name == arm]

    @property
    def control(self) -> int:
        """Where the control is; it has one candidate, the baseline."""
        places = self.places("control")
        if len(places) != 1:
            raise MeasurementError(f"a comparison needs one control cell in the rounds, got {len(places)}")
        return places[0]

    def place(self, arm: str, candidate: int) -> int:
        """Where one cell is."""
        if (arm, candidate) not in self.keys:
            raise MeasurementError(f"no round served candidate {candidate} in the arm {arm!r}")
        return self.keys.index((arm, candidate))

    def joined(self, arm: str) -> tuple[CellStatistics, int]:
        """The cells with a whole arm beside them, and its place."""
        places = self.places(arm)
        if not places:
            raise MeasurementError(
                f"no round has an arm {arm!r}; there are {', '.join(sorted({a for a, _ in self.keys}))}"
            )
        if len(places) == 1:
            return self.cells, places[0]
        return self.cells.joined(places), len(self.keys)

    def view(self, arm: str, *, running: bool) -> tuple[CellStatistics, int, FloatArray]:
        """The same with the covariances of one unit, worked out once for everybody who asks."""
        asked = arm, running
        if asked not in self._views:
            cells, place = self.joined(arm)
            self._views[asked] = cells, place, unit_covariances(cells, running=running)
        return self._views[asked]

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
    columns = {width for one in rounds for width in _widths(one.cells)}
    if len(columns) > 1:
        raise MeasurementError(f"every cell needs the same columns, got {sorted(columns)} of them")
    width = columns.pop() if columns else 1
    tables = [one.cells if isinstance(one.cells, CellTable) else CellTable.of(one.cells) for one in rounds]
    keys = tuple(
        sorted({key for one in rounds for key in one.shares} | {key for table in tables for key in table.keys})
    )
    place = {key: number for number, key in enumerate(keys)}
    shape = (len(rounds), len(keys))
    units, shares = np.zeros(shape), np.zeros(shape)
    mean, cross = np.zeros((*shape, width)), np.zeros((*shape, width, width))
    for number, (one, table) in enumerate(zip(rounds, tables, strict=True)):
        shares[number, [place[key] for key in one.shares]] = list(one.shares.values())
        if len(table):
            at = number, [place[key] for key in table.keys]
            units[at], mean[at], cross[at] = table.units, table.mean, table.cross
    if not (np.isfinite(mean).all() and np.isfinite(cross).all()):
        raise MeasurementError("moments must be finite numbers; something that is not was measured")
    return RoundRecord(keys, tuple(one.version for one in rounds), CellStatistics(units, mean, cross), shares)


def _widths(cells: Sequence[MeasuredCell]) -> set[int]:
    if isinstance(cells, CellTable):
        return {cells.mean.shape[1]} if len(cells) else set()
    return {len(cell.mean) for cell in cells}
