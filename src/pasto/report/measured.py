"""Rounds as the reports read them: what every cell measured, and the shares its units were drawn with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from pasto.errors import BadMeasurement
from pasto.estimate.intervals import Cells, unit_covariances
from pasto.estimate.intervals.cells import Array

Key = tuple[str, int]
"""An arm and a candidate's index."""


class Moments(Protocol):
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


@dataclass(frozen=True, slots=True)
class MeasuredRound:
    """One round: the policy's version, the share of every cell, and what the cells measured.

    Where units keep their arm for longer than a round, as in a confirmation, the whole phase is one of these: a unit
    must be one row of its cell, whatever it did in how many rounds.
    """

    version: int
    shares: Mapping[Key, float]
    """What a unit was drawn with; they add up to one."""
    cells: Sequence[Moments]
    """Cells without units may be left out."""


@dataclass(frozen=True, eq=False)
class Record:
    """A study's rounds as arrays, with the place of every cell."""

    keys: tuple[Key, ...]
    versions: tuple[int, ...]
    cells: Cells
    """(rounds, cells)."""
    shares: Array
    """(rounds, cells)."""

    def places(self, arm: str) -> list[int]:
        """Where an arm's cells are."""
        return [place for place, (name, _) in enumerate(self.keys) if name == arm]

    @property
    def control(self) -> int:
        """Where the control is; it has one candidate, the baseline."""
        places = self.places("control")
        if len(places) != 1:
            raise BadMeasurement(f"a comparison needs one control cell in the rounds, got {len(places)}")
        return places[0]

    def place(self, arm: str, candidate: int) -> int:
        """Where one cell is."""
        if (arm, candidate) not in self.keys:
            raise BadMeasurement(f"no round served candidate {candidate} in the arm {arm!r}")
        return self.keys.index((arm, candidate))

    def joined(self, arm: str) -> tuple[Cells, int]:
        """The cells with a whole arm beside them, and its place."""
        places = self.places(arm)
        if not places:
            raise BadMeasurement(
                f"no round has an arm {arm!r}; there are {', '.join(sorted({a for a, _ in self.keys}))}"
            )
        if len(places) == 1:
            return self.cells, places[0]
        return self.cells.joined(places), len(self.keys)

    def view(self, arm: str, *, running: bool) -> tuple[Cells, int, Array]:
        """The same with the covariances of one unit, worked out once for everybody who asks."""
        asked = arm, running
        if asked not in self._views:
            cells, place = self.joined(arm)
            self._views[asked] = cells, place, unit_covariances(cells, running=running)
        return self._views[asked]

    @cached_property
    def _views(self) -> dict[tuple[str, bool], tuple[Cells, int, Array]]:
        return {}


def recorded(rounds: Sequence[MeasuredRound]) -> Record:
    """Put rounds into arrays; cells that a round did not have are empty there.

    >>> cell = CellMoments("control", 0, 3, (2.0,), ((2.0,),))
    >>> record = recorded([MeasuredRound(1, {("control", 0): 0.5, ("learner", 1): 0.5}, [cell])])
    >>> record.keys, record.cells.units.tolist()
    ((('control', 0), ('learner', 1)), [[3.0, 0.0]])
    """
    if not rounds:
        raise BadMeasurement("a report needs at least one measured round, got none")
    keys = tuple(sorted({key for one in rounds for key in one.shares} | {_key(c) for one in rounds for c in one.cells}))
    columns = {len(cell.mean) for one in rounds for cell in one.cells}
    if len(columns) > 1:
        raise BadMeasurement(f"every cell needs the same columns, got {sorted(columns)} of them")
    width = columns.pop() if columns else 1
    place = {key: number for number, key in enumerate(keys)}
    shape = (len(rounds), len(keys))
    units, shares = np.zeros(shape), np.zeros(shape)
    mean, cross = np.zeros((*shape, width)), np.zeros((*shape, width, width))
    for number, one in enumerate(rounds):
        for key, share in one.shares.items():
            shares[number, place[key]] = share
        for cell in one.cells:
            at = number, place[_key(cell)]
            units[at], mean[at], cross[at] = cell.units, cell.mean, cell.cross
    if not (np.isfinite(mean).all() and np.isfinite(cross).all()):
        raise BadMeasurement("moments must be finite numbers; something that is not was measured")
    return Record(keys, tuple(one.version for one in rounds), Cells(units, mean, cross), shares)


def _key(cell: Moments) -> Key:
    return cell.arm, cell.candidate
