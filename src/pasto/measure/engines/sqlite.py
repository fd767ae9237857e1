"""Measuring in an SQLite file: the events of one round are read once each, and added up in a fixed order here.

Older SQLite cannot order the terms of a sum, and newer ones round it differently; so SQL picks and filters, and the
sums, which must come out the same to the last bit on every machine that replays a round, are made of sorted numbers.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from pasto.measure.definitions import Column, Condition
from pasto.measure.engines.request import Request
from pasto.measure.moments import Array, Moments, moments

AT_ONCE = 500
"""Rows taken from the database at a time: few enough to stay in the processor's own memory."""

_SPAN = "+study = ? AND +version = ? AND sequence > ? AND sequence <= ? AND excluded = 0 AND unit <> ''"
"""The pluses keep SQLite from an index over other columns: a round lies together in the sequence."""
_EXPOSURES = f"SELECT unit, arm, candidate FROM events WHERE {_SPAN} AND kind = 0"  # noqa: S608 -- constants only
Parameters = list[object]
Cell = tuple[str, int]
Picked = tuple[NDArray[np.intp], Array, Array | None]
"""For one column's events: whose, the number, and what says which is the latest."""


def measure(connection: sqlite3.Connection, request: Request) -> tuple[Moments, ...]:
    """The moments of every cell, sorted by arm and candidate."""
    places, cells = _population(connection, request)
    if not places:
        return ()
    values = np.zeros((len(cells), len(request.columns)))
    clipped = np.zeros(values.shape, dtype=np.bool_)
    for place, picked in enumerate(_events(connection, request, places)):
        column = request.columns[place]
        numbers = _per_unit(column, len(cells), *picked)
        low = -np.inf if column.low is None else column.low
        high = np.inf if column.high is None else column.high
        clipped[:, place] = (numbers < low) | (numbers > high)
        values[:, place] = np.clip(numbers, low, high)
    distinct = sorted(set(cells))
    codes = {cell: code for code, cell in enumerate(distinct)}
    owners = np.fromiter(map(codes.__getitem__, cells), dtype=np.intp, count=len(cells))
    # Within a cell by the numbers themselves: an order that neither arrival nor a unit's name can change.
    order = np.lexsort((*values.T, owners))
    values, clipped = values[order], clipped[order]
    ends = np.cumsum(np.bincount(owners)).tolist()
    return tuple(
        moments(*cell, values[start:end], clipped[start:end].sum(axis=0).tolist())
        for cell, start, end in zip(distinct, [0, *ends], ends, strict=False)
    )


def _population(connection: sqlite3.Connection, request: Request) -> tuple[dict[str, int], list[Cell]]:
    """Every exposed unit's place, and the cell at each place."""
    places: dict[str, int] = {}
    cells: list[Cell] = []
    for unit, arm, candidate in connection.execute(_EXPOSURES, _span(request)):
        place = places.setdefault(unit, len(cells))
        if place == len(cells):
            cells.append((arm, candidate))
        else:  # a policy draws a unit the same cell each time; were it not so, arrival must still not matter
            cells[place] = min(cells[place], (arm, candidate))
    return places, cells


def _events(connection: sqlite3.Connection, request: Request, places: dict[str, int]) -> Iterator[Picked]:
    """What each column picks of the events, in the order of the columns, from one pass over them.

    A row holds its event's code, and then as many numbers as the event with most columns needs.
    """
    wanted: dict[str, list[tuple[str, Parameters]]] = {column.event: [] for column in request.columns}
    spots = []
    for column in request.columns:
        spots.append(len(wanted[column.event]))
        wanted[column.event] += _expressions(column)
    names = list(wanted)
    parameters: Parameters = list(names)
    cases = " ".join(f"WHEN ? THEN {code}" for code in range(len(names)))
    selected = ["unit", f"CASE name {cases} END"]
    for slot in range(max(map(len, wanted.values()))):
        filled = [(name, *expressions[slot]) for name, expressions in wanted.items() if slot < len(expressions)]
        for name, _, bound in filled:
            parameters += [name, *bound]
        selected.append(f"CASE name {' '.join(f'WHEN ? THEN {expression}' for _, expression, _ in filled)} END")
    # Nothing in this text was written by a user: names, paths and values are all bound.
    query = (
        f"SELECT {', '.join(selected)} FROM events WHERE {_SPAN} AND kind = 1 "  # noqa: S608
        f"AND name IN ({', '.join('?' * len(names))})"
    )
    cursor = connection.execute(query, [*parameters, *_span(request), *names])
    units, codes, *slots = _table(cursor, len(selected), places)
    for column, spot in zip(request.columns, spots, strict=True):
        numbers, keys = slots[spot], None if column.by is None else slots[spot + 1]
        # An event counts where its number (and key) is there and its unit was exposed.
        counts = (codes == names.index(column.event)) & (units >= 0) & ~np.isnan(numbers)
        if keys is not None:
            counts &= ~np.isnan(keys)
        yield units[counts].astype(np.intp), numbers[counts], None if keys is None else keys[counts]


def _table(cursor: sqlite3.Cursor, width: int, places: dict[str, int]) -> list[Array]:
    """A query's rows as columns of numbers, the unit in front by its place (−1 for one that was never exposed)."""
    chunks: list[list[Array]] = [[] for _ in range(width)]
    while rows := cursor.fetchmany(AT_ONCE):
        units, *others = zip(*rows, strict=True)
        chunks[0].append(np.fromiter(map(places.get, units, repeat(-1)), dtype=np.float64, count=len(units)))
        for chunk, column in zip(chunks[1:], others, strict=True):
            chunk.append(np.array(column, dtype=np.float64))
    return [np.concatenate(chunk) if chunk else np.empty(0) for chunk in chunks]


def _span(request: Request) -> tuple[int, int, int, int]:
    return request.study, request.version, request.after, request.until


def _expressions(column: Column) -> list[tuple[str, Parameters]]:
    """SQL for a column's number (NULL where the event does not count), and for its key where it has one."""
    found = []
    for field in [column.value] if column.by is None else [column.value, column.by]:
        parameters: Parameters = []
        tests = [_condition(condition, parameters) for condition in column.where]
        number = "1" if field is None else _number(field, parameters)
        text = f"CASE WHEN {' AND '.join(tests)} THEN {number} END" if tests else number
        found.append((text, parameters))
    return found


def _number(field: str, parameters: Parameters) -> str:
    """A field's number; true is 1 and false 0, and text is none."""
    path = _path(field)
    parameters += [path, path]
    return "CASE WHEN json_type(fields, ?) IN ('integer', 'real', 'true', 'false') THEN json_extract(fields, ?) END"


def _condition(condition: Condition, parameters: Parameters) -> str:
    """SQL for one condition, of bound values only; values of different kinds never equal one another."""
    path = _path(condition.field)
    kinds = {
        bool: "json_type(fields, ?) IN ('true', 'false')",
        str: "json_type(fields, ?) = 'text'",
        float: "json_type(fields, ?) IN ('integer', 'real')",
    }
    sign = "=" if condition.comparison == "in" else condition.comparison
    tests = []
    for value in condition.values:
        kind = bool if isinstance(value, bool) else str if isinstance(value, str) else float
        if sign == "!=":
            tests.append(f"NOT ({kinds[kind]} AND json_extract(fields, ?) = ?)")
        else:
            tests.append(f"({kinds[kind]} AND json_extract(fields, ?) {sign} ?)")
        parameters += [path, path, value]
    if sign == "!=":
        parameters.append(path)
        return f"{tests[0]} AND json_type(fields, ?) IS NOT NULL"
    return f"({' OR '.join(tests)})"


def _path(field: str) -> str:
    return f'$."{field}"'


def _per_unit(column: Column, count: int, units: NDArray[np.intp], numbers: Array, keys: Array | None) -> Array:
    """One number for each unit, 0 where it has no event; from sorted numbers, so that arrival does not matter."""
    if column.per_unit in ("count", "any"):
        counts = np.bincount(units, minlength=count).astype(np.float64)
        return counts if column.per_unit == "count" else np.minimum(counts, 1.0)
    order = np.lexsort((numbers, units) if keys is None else (numbers, keys, units))
    units, numbers = units[order], numbers[order]
    if column.per_unit in ("max", "last"):
        values = np.zeros(count)
        ends = np.flatnonzero(np.diff(units, append=-1))
        values[units[ends]] = numbers[ends]
        return values
    sums = np.bincount(units, weights=numbers, minlength=count)
    if column.per_unit == "sum":
        return np.asarray(sums, dtype=np.float64)
    return np.asarray(sums / np.maximum(np.bincount(units, minlength=count), 1), dtype=np.float64)
