"""What the cells of a round measured, as a close writes it down: in words where it is little, packed where it is much.

A thousand candidates with ten columns are a hundred thousand numbers a round, and every one of them is needed to the
last bit when the study is computed again. Packed, symmetric halves are kept once, cells of one unit cost next to
nothing, and the whole is compressed. The totals that everyone asks for stay in words beside it.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pasto.inference.round_data import CellMoments, CellTable, join_cells
from pasto.metrics import Moments

MANY = 500
"""Numbers from which on a round is packed."""
ARMS = ("control", "learner")
"""Whose cells are told in words as well, each arm as one."""
Written = Sequence[Mapping[str, Any]] | Mapping[str, Any]
"""A round's cells in JSON, in words or packed."""


def write_cells(measured: Sequence[Moments]) -> Written:
    """A round's cells in JSON; `read_cells` gives them back, bit for bit.

    >>> cell = Moments("learner", 0, 2, (2.0,), ((2.0,),), (0,))
    >>> write_cells([cell])
    [{'arm': 'learner', 'candidate': 0, 'units': 2, 'mean': (2.0,), 'cross': ((2.0,),), 'clipped': (0,)}]
    >>> many = write_cells([cell] * 2_000)
    >>> read_cells(many) == (cell,) * 2_000, units_of(many)
    (True, 4000)
    """
    width = len(measured[0].mean) if measured else 0
    if len(measured) * width * (width + 1) < MANY:
        return [asdict(cell) for cell in measured]
    mean, cross = np.array([cell.mean for cell in measured]), np.array([cell.cross for cell in measured])
    exact = np.array_equal(cross, cross.transpose(0, 2, 1)) and np.isfinite(mean).all() and np.isfinite(cross).all()
    if not exact:  # what is no number is refused where the close is written
        return [asdict(cell) for cell in measured]
    names = sorted({cell.arm for cell in measured})
    counts = [[names.index(cell.arm), cell.candidate, cell.units, *cell.clipped] for cell in measured]
    whole = np.array(counts, dtype="<i8").T
    above = np.triu_indices(width)
    numbers = np.concatenate([mean, cross[:, above[0], above[1]]], axis=1).T.astype("<f8")
    packed = zlib.compress(_planes(whole) + _planes(numbers), 1)
    table = CellTable(tuple(cell.arm for cell in measured), whole[1], whole[2].astype(float), mean, cross)
    return {
        "cells": len(measured),
        "columns": width,
        "names": names,
        "units": int(whole[2].sum()),
        "clipped": whole[3:].sum(axis=1).tolist(),
        "whole": {arm: _told(found) for arm in ARMS if (found := table.whole(arm)) is not None},
        "packed": b64encode(packed).decode(),
    }


def read_cells(written: Written) -> tuple[Moments, ...]:
    """Cells as they were measured."""
    if not isinstance(written, Mapping):
        return tuple(_cell(one) for one in written)
    found = _unpack(written)
    return tuple(
        Moments(arm, candidate, units, tuple(mean), tuple(map(tuple, cross)), tuple(clipped))
        for arm, candidate, units, mean, cross, clipped in zip(
            found.arms,
            found.counts[1].tolist(),
            found.counts[2].tolist(),
            found.mean.tolist(),
            found.cross.tolist(),
            found.counts[3:].T.tolist(),
            strict=True,
        )
    )


def table_of(written: Written) -> CellTable:
    """The same as arrays, for whoever reads many rounds."""
    if not isinstance(written, Mapping):
        return CellTable.of(tuple(_cell(one) for one in written))
    found = _unpack(written)
    return CellTable(found.arms, found.counts[1], found.counts[2].astype(float), found.mean, found.cross)


def units_of(written: Written) -> int:
    """How many units a round had."""
    return int(written["units"]) if isinstance(written, Mapping) else sum(cell["units"] for cell in written)


def clipped_of(written: Written) -> list[int]:
    """By column: units whose number was cut to the stated range; [] where there were no cells."""
    if isinstance(written, Mapping):
        return list(written["clipped"])
    return [sum(column) for column in zip(*(cell["clipped"] for cell in written), strict=True)]


def whole_of(written: Written, arm: str) -> CellMoments | None:
    """All of an arm's units as one cell, the control's or the learner's; None where it had none."""
    if not isinstance(written, Mapping):
        return join_cells(arm, [_cell(one) for one in written])
    told = written["whole"].get(arm)
    if told is None:
        return None
    candidate, units, mean, cross = told
    return CellMoments(arm, candidate, units, tuple(mean), tuple(map(tuple, cross)))


@dataclass(frozen=True, slots=True, eq=False)
class _UnpackedRecord:
    arms: tuple[str, ...]
    counts: NDArray[np.int64]
    mean: NDArray[np.float64]
    cross: NDArray[np.float64]


def _unpack(written: Mapping[str, Any]) -> _UnpackedRecord:
    cells, width = written["cells"], written["columns"]
    data = zlib.decompress(b64decode(written["packed"]))
    rows = 3 + width
    split = 8 * rows * cells
    counts = _unplaned(data[:split], "<i8").reshape(rows, cells)
    numbers = _unplaned(data[split:], "<f8").reshape(-1, cells).T
    cross = np.empty((cells, width, width))
    above = np.triu_indices(width)
    cross[:, above[0], above[1]] = cross[:, above[1], above[0]] = numbers[:, width:]
    names = written["names"]
    arms = tuple(names[code] for code in counts[0].tolist())
    return _UnpackedRecord(arms, counts.astype(np.int64), np.ascontiguousarray(numbers[:, :width]), cross)


def _planes(values: NDArray[Any]) -> bytes:
    """All first bytes, then all second ones, and so on: neighbours are then alike, which compresses well."""
    return np.ascontiguousarray(values).view(np.uint8).reshape(-1, 8).T.tobytes()


def _unplaned(data: bytes, kind: str) -> NDArray[Any]:
    return np.frombuffer(data, np.uint8).reshape(8, -1).T.copy().view(kind).ravel()


def _cell(one: Mapping[str, Any]) -> Moments:
    cross = tuple(map(tuple, one["cross"]))
    return Moments(one["arm"], one["candidate"], one["units"], tuple(one["mean"]), cross, tuple(one["clipped"]))


def _told(cell: CellMoments) -> list[Any]:
    return [cell.candidate, cell.units, list(cell.mean), [list(line) for line in cell.cross]]
