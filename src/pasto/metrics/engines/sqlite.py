"""Measuring in an SQLite file: the events of one round are read once each, and added up in a fixed order here.

Older SQLite cannot order the terms of a sum, and newer ones round it differently; so SQL picks and filters, and the
sums, which must come out the same to the last bit on every machine that replays a round, are made of sorted numbers.
Numbers leave the database as the digits that were sent, many to a text: a row apiece costs Python twice the time.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from operator import attrgetter, methodcaller
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.metrics.definitions import MEMBERS, Column, Condition
from pasto.metrics.measure_request import CLUSTER_FIELD, SEPARATOR, Engine, MeasureRequest, sender_label
from pasto.metrics.moments import Moments
from pasto_sdk.policy_document import current_arm

AT_ONCE = 2_000
"""Sequences that are read together: few enough to stay in the processor's own memory."""
TICKS = 2**22
"""Of a second: our days' moments are whole numbers of them, which pass through a text without loss."""

_ROUND = "+study = ? AND +version = ? AND sequence > ? AND sequence <= ? AND excluded = 0 AND unit <> ''"
_PAST = "+study = ? AND sequence > ? AND sequence <= ? AND kind = 1 AND unit <> ''"
"""The pluses keep SQLite from an index over other columns: a round lies together in the sequence."""
_FIRST = "SELECT min(sequence) FROM events WHERE sequence > ?"
_LAST = "SELECT max(sequence) FROM events WHERE sequence <= ?"
_TICK = f"CAST(received_at * {TICKS} AS INTEGER)"
_NUMBERS = frozenset({int, float, bool, type(None)})
Parameters = list[object]
Places = NDArray[np.intp]
Picked = tuple[Places, FloatArray, FloatArray | None]
"""Events of one column: their units, their numbers, and the keys of which the largest marks the latest."""
_read = msgspec.json.Decoder(list).decode


@dataclass(frozen=True, slots=True)
class UnitQuery:
    """A list to make of some rows: SQL for its items and for the rows it is of, what is bound there, how it is read."""

    items: str
    rows: str
    parameters: Parameters
    read: Callable[[str], NDArray[Any]]
    written: bool = False
    """Whether the items are JSON already."""

    @property
    def text(self) -> str:
        """SQL for the list, as JSON."""
        if self.written:
            return f"'[' || coalesce(group_concat({self.items}, ',') FILTER (WHERE {self.rows}), '') || ']'"
        return f"json_group_array({self.items}) FILTER (WHERE {self.rows})"


class EventMatch:
    """Names by the place at which each was met first.

    >>> met = EventMatch()
    >>> met('["ann","bob"]').tolist(), met('["bob","cid"]').tolist(), met.size
    ([0, 1], [1, 3], 4)
    """

    def __init__(self) -> None:
        self._firsts: dict[str, int] = {}
        self._numbers = count()
        self.size = 0
        """Places there are; not all of them are a name's."""

    def __call__(self, text: str) -> Places:
        """Return the place of each name in a list."""
        names = _read(text)
        self.size += len(names)
        return np.fromiter(map(self._firsts.setdefault, names, self._numbers), dtype=np.intp, count=len(names))

    @property
    def names(self) -> dict[int, str]:
        """By their place."""
        return {place: name for name, place in self._firsts.items()}


def measure(connection: sqlite3.Connection, request: MeasureRequest) -> tuple[Moments, ...]:
    """Return the moments of every cell, sorted by arm and candidate."""
    met, arms = EventMatch(), EventMatch()
    exposed, picks = _round(connection, request, met, arms)
    picks |= _past(connection, request, met)
    distinct, owners, places, first_ticks, clusters = _population(
        exposed, met.size, arms.names, MEMBERS in request.columns
    )
    if not distinct:
        return ()
    values = np.zeros((len(owners), len(request.columns)))
    clipped = np.zeros(values.shape, dtype=np.bool_)
    for place, column in enumerate(request.columns):
        if column.aggregate == "members":
            values[:, place] = 1.0
            continue
        numbers = _per_unit(column, len(owners), *_picked(column, picks[place], places, first_ticks))
        low = -np.inf if column.low is None else column.low
        high = np.inf if column.high is None else column.high
        clipped[:, place] = (numbers < low) | (numbers > high)
        values[:, place] = np.clip(numbers, low, high)
    # Within a cell by the numbers themselves: an order that depends neither on arrival nor on names of units.
    order = np.lexsort((*values.T, owners))
    values, clipped = values[order], clipped[order]
    ends = np.cumsum(np.bincount(owners)).tolist()
    cells = []
    for cell, start, end in zip(distinct, [0, *ends], ends, strict=False):
        rows, counts = values[start:end], clipped[start:end].sum(axis=0).tolist()
        moments = build_moments(*cell, rows, counts)
        if MEMBERS in request.columns:
            sums = _add_members(rows, clusters[order[start:end]])
            moments = replace(build_moments(*cell, sums, counts), member_cross=moments.cross)
        cells.append(moments)
    return tuple(cells)


def _add_members(rows: FloatArray, clusters: Places) -> FloatArray:
    """Return the sums of sorted rows by cluster, sorted; neither order nor sums depend on the numbers of clusters."""
    by_cluster = np.argsort(clusters, kind="stable")
    starts = np.flatnonzero(np.diff(clusters[by_cluster], prepend=-1))
    sums = np.add.reduceat(rows[by_cluster], starts, axis=0)
    return np.asarray(sums[np.lexsort(sums.T)])


@dataclass(frozen=True, slots=True)
class ColumnPick:
    """Events that one column reads."""

    units: Places
    """Whose, by where each unit was met."""
    pairs: FloatArray | None
    """Number, and key if there is one, NaN where one is not there; None where each event counts."""
    ticks: Places | None
    """When, where that matters."""


def _round(
    connection: sqlite3.Connection, request: MeasureRequest, met: EventMatch, arms: EventMatch
) -> tuple[list[NDArray[Any]], dict[int, ColumnPick]]:
    """Return unit, arm, candidate and time of every exposure, and the events of each column, in one pass."""
    own = [
        place
        for place, column in enumerate(request.columns)
        if column.lookback is None and column.aggregate != "members"
    ]
    timed = any(request.columns[place].window is not None for place in own)
    cluster = f"coalesce(json_extract(fields, '$.{CLUSTER_FIELD}'), '')"
    asked = [
        UnitQuery("unit", "kind = 0", [], met),
        _arm(request, arms),
        UnitQuery("candidate", "kind = 0", [], _whole),
        *([UnitQuery(cluster, "kind = 0", [], EventMatch())] if MEMBERS in request.columns else []),
        *([UnitQuery(_TICK, "kind = 0", [], _whole)] if timed else []),
    ]
    bound: Parameters = [request.study, request.version]
    lists, picks = _listed(connection, request, own, asked, (_ROUND, bound, request.after, request.until), met, timed)
    return lists, picks


def _arm(request: MeasureRequest, arms: EventMatch) -> UnitQuery:
    if request.sources is None:
        return UnitQuery("arm", "kind = 0", [], arms)
    listed = f"source IN ({', '.join('?' * len(request.sources))})"
    return UnitQuery(sender_label("char(31)", "char(30)", listed), "kind = 0", [*request.sources], arms)


def _past(connection: sqlite3.Connection, request: MeasureRequest, met: EventMatch) -> dict[int, ColumnPick]:
    """Return the events of each column that looks back."""
    looking = [place for place, column in enumerate(request.columns) if column.lookback is not None]
    if not looking:
        return {}
    past = request.past
    where: tuple[str, Parameters, int, int] = (_PAST, [request.study], past.after, past.until)
    return _listed(connection, request, looking, [], where, met, timed=False)[1]


def _listed(
    connection: sqlite3.Connection,
    request: MeasureRequest,
    columns: Sequence[int],
    asked: Sequence[UnitQuery],
    where: tuple[str, Parameters, int, int],
    met: EventMatch,
    timed: bool,
) -> tuple[list[NDArray[Any]], dict[int, ColumnPick]]:
    """Return the requested lists of a span of the log, and the events that some columns read there."""
    names = sorted({request.columns[place].event for place in columns})
    own = "kind = 1 AND name = ?"
    wanted = [*asked, *(UnitQuery("unit", own, [name], met) for name in names)]
    if timed:
        wanted += [UnitQuery(_TICK, own, [name], _whole) for name in names]
    read = [place for place in columns if not _counts_all(request.columns[place])]
    for place in read:
        column = request.columns[place]
        parameters: Parameters = []
        fields = _fields(column, request, parameters)
        wanted.append(UnitQuery(fields, own, [*parameters, column.event], _reader(column), written=True))
    found = _lists(connection, wanted, where, names)
    lists, rest = found[: len(asked)], found[len(asked) :]
    units = dict(zip(names, rest, strict=False))
    ticks = dict(zip(names, rest[len(names) :], strict=False)) if timed else {}
    pairs = dict(zip(read, rest[len(rest) - len(read) :], strict=True))
    events = {place: request.columns[place].event for place in columns}
    return lists, {
        place: ColumnPick(units[event], pairs.get(place), ticks.get(event)) for place, event in events.items()
    }


def _lists(
    connection: sqlite3.Connection,
    asked: Sequence[UnitQuery],
    where: tuple[str, Parameters, int, int],
    names: Sequence[str],
) -> list[NDArray[Any]]:
    """Return every requested list, read from a span of the log in portions."""
    rows, bound, after, until = where
    selected = ", ".join(one.text for one in asked)
    parameters = [*chain.from_iterable(one.parameters for one in asked), *bound]
    # Nothing in this text was written by a user: names, paths and values are all bound.
    query = f"SELECT {selected} FROM events WHERE {rows} AND (kind = 0 OR name IN ({', '.join('?' * len(names))}))"  # noqa: S608
    (first,) = connection.execute(_FIRST, (after,)).fetchone()
    (last,) = connection.execute(_LAST, (until,)).fetchone()
    starts = range(0) if first is None or last is None else range(first - 1, last, AT_ONCE)
    chunks: list[list[NDArray[Any]]] = [[one.read("[]")] for one in asked]
    for start in starts:
        span = (start, min(start + AT_ONCE, last))
        found = connection.execute(query, [*parameters, *span, *names]).fetchone()
        for chunk, one, text in zip(chunks, asked, found, strict=True):
            chunk.append(one.read(text))
    return [np.concatenate(chunk) for chunk in chunks]


def _whole(text: str) -> Places:
    return np.array(_read(text), dtype=np.intp)


def _reader(column: Column) -> Callable[[str], FloatArray]:
    """Read an event's number from its fields, and its key if it has one; text or a missing number is NaN."""
    names = [name for name in (column.value, column.by) if name is not None]
    decode, picks = _picking(names)
    keys: dict[str | float, int] = {}

    def read(text: str) -> FloatArray:
        events = decode(text)
        if column.value is None:
            return np.array([math.nan if event is None else 1.0 for event in events]).reshape(-1, 1)
        if column.aggregate == "distinct":
            (pick,) = picks
            return np.array([_key_place(keys, None if event is None else pick(event)) for event in events]).reshape(
                -1, 1
            )
        found = [[None if event is None else pick(event) for event in events] for pick in picks]
        return np.array([_numbers(values) for values in found], dtype=np.float64).T

    return read


def _key_place(keys: dict[str | float, int], value: Any) -> float:
    """Return the place of a text or a number among the different ones so far; NaN for other values."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return math.nan
    return keys.setdefault(value if isinstance(value, str) else float(value), len(keys))


def _picking(names: Sequence[str]) -> tuple[Callable[[str], list[Any]], list[Callable[[Any], Any]]]:
    """Return a decoder of lists of fields, and a getter for each name; only the named fields are decoded."""
    places = {name: f"field{place}" for place, name in enumerate(dict.fromkeys(names))}
    try:
        record = msgspec.defstruct(
            "Fields", [(place, Any, None) for place in places.values()], rename={v: k for k, v in places.items()}
        )
    except ValueError:  # a name that would have to be escaped; no study file has one
        return msgspec.json.Decoder(list[dict[str, Any] | None]).decode, [methodcaller("get", name) for name in names]
    decode = msgspec.json.Decoder(list.__class_getitem__(record | None)).decode
    return decode, [attrgetter(places[name]) for name in names]


def _numbers(values: list[Any]) -> list[float | None]:
    if _NUMBERS.issuperset(map(type, values)):
        return values
    return [value if type(value) in _NUMBERS else None for value in values]


def _population(
    exposed: Sequence[NDArray[Any]], size: int, arms: dict[int, str], is_clustered: bool
) -> tuple[list[tuple[str, int]], Places, Places, Places | None, Places]:
    """Return the cells, and by unit its cell, its place (−1 if not exposed), its first tick and its cluster.

    A policy draws the same candidate for a unit each time. A unit that another platform gave several counts for none,
    and so does one of several clusters.
    """
    units, codes, candidates, *times = exposed
    names = {code: current_label(name) for code, name in arms.items()}
    labels = sorted(set(names.values()))
    rank_by_label = {label: rank for rank, label in enumerate(labels)}
    ranks = np.zeros(max(arms, default=0) + 1, dtype=np.intp)
    for code, name in names.items():
        ranks[code] = rank_by_label[name]
    width = int(candidates.max(initial=0)) + 1
    never = np.iinfo(np.intp).max
    cells = np.full(size, never, dtype=np.intp)
    np.minimum.at(cells, units, ranks[codes] * width + candidates)
    cells[units[candidates != cells[units] % width]] = never
    clusters = np.zeros(size, dtype=np.intp)
    if is_clustered:
        named, *times = times
        clusters[units] = named
        cells[units[named != clusters[units]]] = never
    known = np.flatnonzero(cells < never)
    places = np.full(size, -1, dtype=np.intp)
    places[known] = np.arange(len(known))
    found, owners = np.unique(cells[known], return_inverse=True)
    first_ticks = None
    if times:
        since = np.full(size, never, dtype=np.intp)
        np.minimum.at(since, units, times[0])
        first_ticks = since[known]
    return (
        [(labels[cell // width], cell % width) for cell in found.tolist()],
        owners,
        places,
        first_ticks,
        clusters[known],
    )


def _picked(column: Column, pick: ColumnPick, places: Places, first_ticks: Places | None) -> Picked:
    """Return the events that count: those with a number (and key) of exposed units, within the window."""
    units = places[pick.units]
    counts = units >= 0
    if pick.pairs is not None:
        counts &= ~np.isnan(pick.pairs).any(axis=1)
    if column.window is not None and pick.ticks is not None and first_ticks is not None and len(first_ticks):
        counts &= pick.ticks - first_ticks[units] <= column.window * TICKS
    numbers = np.ones((len(units), 2)) if pick.pairs is None else pick.pairs
    return units[counts], numbers[counts, 0], None if column.by is None else numbers[counts, 1]


def _counts_all(column: Column) -> bool:
    """Return whether every event counts without reading its fields."""
    return column.value is None and column.lookback is None and not column.where


def _fields(column: Column, request: MeasureRequest, parameters: Parameters) -> str:
    """SQL for the fields of one event, as they were sent; none where the event does not count."""
    tests = [_condition(condition, parameters) for condition in column.where]
    if column.lookback is not None:
        tests.append("received_at >= ?")
        parameters.append(request.past.at - column.lookback)
    fields = "coalesce(fields, '{}')"
    return f"CASE WHEN {' AND '.join(tests)} THEN {fields} ELSE 'null' END" if tests else fields


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


def _per_unit(
    column: Column, size: int, units: NDArray[np.intp], numbers: FloatArray, keys: FloatArray | None
) -> FloatArray:
    """One number for each unit, 0 where it has no event; from sorted numbers, so that arrival does not matter."""
    if column.aggregate in ("count", "any"):
        counts = np.bincount(units, minlength=size).astype(np.float64)
        return counts if column.aggregate == "count" else np.minimum(counts, 1.0)
    if column.aggregate == "distinct":
        pairs = np.unique(np.stack([units, numbers.astype(np.intp)], axis=1), axis=0)
        return np.bincount(pairs[:, 0], minlength=size).astype(np.float64)
    order = np.lexsort((numbers, units) if keys is None else (numbers, keys, units))
    units, numbers = units[order], numbers[order]
    if column.aggregate in ("max", "last"):
        values = np.zeros(size)
        ends = np.flatnonzero(np.diff(units, append=-1))
        values[units[ends]] = numbers[ends]
        return values
    sums = np.bincount(units, weights=numbers, minlength=size)
    if column.aggregate == "sum":
        return np.asarray(sums, dtype=np.float64)
    return np.asarray(sums / np.maximum(np.bincount(units, minlength=size), 1), dtype=np.float64)


def current_label(label: str) -> str:
    r"""Return a label, or an arm alone, with the present name of its arm.

    >>> current_label("ab12\x1fweb\x1fheld"), current_label("single")
    ('ab12\x1fweb\x1fpaused', 'best_single')
    """
    sender, separator, arm = label.rpartition(SEPARATOR)
    return f"{sender}{separator}{current_arm(arm)}"


def build_moments(arm: str, candidate: int, values: FloatArray, clipped: Sequence[int]) -> Moments:
    """Return the moments of one cell's values, of shape (units, columns), added in the order of their rows.

    >>> import numpy as np
    >>> build_moments("learner", 0, np.array([[1.0, 0.0], [3.0, 2.0]]), (0, 0)).cross
    ((2.0, 2.0), (2.0, 2.0))
    """
    units, columns = values.shape
    rows = np.ascontiguousarray(values.T)
    rough = rows.sum(axis=1) / units
    centred = rows - rough[:, None]
    correction = centred.sum(axis=1) / units  # rounding error of the mean
    mean, centred = rough + correction, centred - correction[:, None]
    cross = np.empty((columns, columns))
    for i in range(columns):
        cross[i, i:] = cross[i:, i] = (centred[i] * centred[i:]).sum(axis=1)
    return Moments(
        arm, candidate, units, tuple(mean.tolist()), tuple(map(tuple, cross.tolist())), tuple(map(int, clipped))
    )


ENGINE = Engine("sqlite", measure)
