"""Measuring in an SQLite file: the events of one round are read once each, and added up in a fixed order here.

Older SQLite cannot order the terms of a sum, and newer ones round it differently; so SQL picks and filters, and the
sums, which must come out the same to the last bit on every machine that replays a round, are made of sorted numbers.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pasto.measure.definitions import Column, Condition
from pasto.measure.engines.request import Request
from pasto.measure.moments import Array, Moments, moments

AT_ONCE = 50_000
"""Rows taken from the database at a time."""

_SPAN = "+study = ? AND +version = ? AND sequence > ? AND sequence <= ? AND excluded = 0"
"""The pluses keep SQLite from an index over other columns: a round lies together in the sequence."""
_POPULATION = f"""
SELECT min(arm), min(candidate), unit FROM events WHERE {_SPAN} AND kind = 0 GROUP BY unit ORDER BY 1, 2, 3
"""  # noqa: S608 -- nothing but constants
Parameters = list[object]


def measure(connection: sqlite3.Connection, request: Request) -> tuple[Moments, ...]:
    """The moments of every cell, sorted by arm and candidate."""
    span = (request.study, request.version, request.after, request.until)
    population = connection.execute(_POPULATION, span).fetchall()
    if not population:
        return ()
    places = {unit: place for place, (_, _, unit) in enumerate(population)}
    values = np.zeros((len(population), len(request.columns)))
    clipped = np.zeros(values.shape, dtype=np.bool_)
    for event in dict.fromkeys(column.event for column in request.columns):
        wanted = [place for place, column in enumerate(request.columns) if column.event == event]
        columns = [request.columns[place] for place in wanted]
        picked = _read(connection, span, event, columns, places)
        for place, column, (units, numbers, keys) in zip(wanted, columns, picked, strict=True):
            values[:, place] = _per_unit(column, len(population), units, numbers, keys)
    for place, column in enumerate(request.columns):
        low = -np.inf if column.low is None else column.low
        high = np.inf if column.high is None else column.high
        clipped[:, place] = (values[:, place] < low) | (values[:, place] > high)
        values[:, place] = np.clip(values[:, place], low, high)
    cells = [(arm, candidate) for arm, candidate, _ in population]
    starts = [place for place, cell in enumerate(cells) if place == 0 or cell != cells[place - 1]]
    return tuple(
        moments(*cells[start], values[start:end], clipped[start:end].sum(axis=0).tolist())
        for start, end in zip(starts, [*starts[1:], len(cells)], strict=True)
    )


Picked = tuple[NDArray[np.intp], Array, Array | None]
"""For one column's events: whose, the number, and what says which is the latest."""


def _read(
    connection: sqlite3.Connection,
    span: Sequence[int],
    event: str,
    columns: Sequence[Column],
    places: dict[str, int],
) -> Iterator[Picked]:
    """Every column's events of one name, from one query."""
    parameters: Parameters = []
    wanted = ["unit"]
    widths = []
    for column in columns:
        expressions = _expressions(column, parameters)
        widths.append(len(expressions))
        wanted += expressions
    # Nothing below is a user's text: names, paths and values are all bound.
    query = f"SELECT {', '.join(wanted)} FROM events WHERE {_SPAN} AND kind = 1 AND name = ?"  # noqa: S608
    cursor = connection.execute(query, [*parameters, *span, event])
    chunks: list[list[Array]] = []
    while rows := cursor.fetchmany(AT_ONCE):
        units, *numbers = zip(*rows, strict=True)
        owner = np.fromiter((places.get(unit, -1) for unit in units), dtype=np.float64, count=len(units))
        chunks.append([owner, *(np.array(number, dtype=np.float64) for number in numbers)])
    table = [np.concatenate(parts) for parts in zip(*chunks, strict=True)] if chunks else [np.empty(0)] * len(wanted)
    known = table[0] >= 0  # an event whose unit was never exposed here is nobody's
    at = 1
    for width in widths:
        numbers = table[at]
        chosen = known & ~np.isnan(numbers)
        keys = None
        if width == 2:
            chosen &= ~np.isnan(table[at + 1])
            keys = table[at + 1][chosen]
        yield table[0][chosen].astype(np.intp), numbers[chosen], keys
        at += width


def _expressions(column: Column, parameters: Parameters) -> list[str]:
    """SQL for a column's number (NULL where the event does not count), and for its key where it has one."""
    found = []
    for field in [column.value] if column.by is None else [column.value, column.by]:
        tests = [_condition(condition, parameters) for condition in column.where]
        number = "1" if field is None else _number(field, parameters)
        found.append(f"CASE WHEN {' AND '.join(tests)} THEN {number} END" if tests else number)
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
        return sums
    return sums / np.maximum(np.bincount(units, minlength=count), 1)
