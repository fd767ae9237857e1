"""PostgreSQL engine: one statement measures a round on the server, and returns one row per cell.

Sums are the same to the last bit for every order of arrival, because their terms are sorted: the numbers of a unit by
themselves, the units of a cell by their numbers. Sums of products are centred at the cell's own mean.
"""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from pasto.metrics.definitions import MEMBERS, Column, Condition
from pasto.metrics.measure_request import (
    CLUSTER_FIELD,
    CURRENT_ARM,
    Engine,
    MeasureRequest,
    TableEngine,
    sender_label,
)
from pasto.metrics.moments import Moments
from pasto.metrics.sql import QueryBuilder, Relation, join_members, moments_from, rows_query, sums_query

PAIRS_AT_ONCE = 1000
"""Products in one statement: PostgreSQL gives at most 1,664 columns."""

_SPAN = "study = %s AND version = %s AND sequence > %s AND sequence <= %s AND excluded = 0 AND unit <> ''"
_PAST = "study = %s AND sequence > %s AND sequence <= %s AND unit <> ''"
_SOURCE = {False: "events", True: "events JOIN (SELECT unit, seen FROM population) AS met USING (unit)"}
"""Where a column counts time, events are read with the time of their unit's first exposure."""
_AGGREGATES = {
    "sum": "sum({v} ORDER BY {v})",
    "count": "count({v})",
    "mean": "sum({v} ORDER BY {v}) / nullif(count({v}), 0)",
    "any": "least(count({v}), 1)",
    "max": "max({v})",
    "distinct": "count(DISTINCT {v})",
    "last": "(array_agg({v} ORDER BY {k} DESC, {v} DESC) FILTER (WHERE {v} IS NOT NULL AND {k} IS NOT NULL))[1]",
}
_TINY = "1e-150"
"""Less than this counts as nothing: PostgreSQL refuses to square it, and one such event must not stop a round."""
_PLAN = "SELECT set_config('enable_nestloop', 'off', true), set_config('jit', 'off', true)"
"""For one transaction: a table that the server has not looked at yet it believes empty, and joins unit by unit."""
Parameters = list[object]
Pair = tuple[int, int]


def measure(connection: Any, request: MeasureRequest) -> tuple[Moments, ...]:
    """Return the moments of every cell, sorted by arm and candidate."""
    cells = _measure(connection, request, of_members=False)
    return join_members(cells, _measure(connection, request, of_members=True)) if MEMBERS in request.columns else cells


def _measure(connection: Any, request: MeasureRequest, *, of_members: bool) -> tuple[Moments, ...]:
    """Return the moments of every cell, of clusters or of their members."""
    width = len(request.columns)
    pairs = list(combinations_with_replacement(range(width), 2))
    batches = [pairs[start : start + PAIRS_AT_ONCE] for start in range(0, len(pairs), PAIRS_AT_ONCE)]
    answers = []
    connection.execute(_PLAN)
    for batch in batches:
        query, parameters = _statement(request, batch, of_members=of_members)
        answers.append(sorted(connection.execute(query, parameters).fetchall(), key=lambda row: (row[0], row[1])))
    found = []
    for rows in zip(*answers, strict=True):
        arm, candidate, units = rows[0][:3]
        numbers = np.array(rows[0][3 : 3 + 3 * width], dtype=float)
        centre, rest, clipped = numbers[:width], numbers[width : 2 * width], numbers[2 * width :]
        cross = np.empty((width, width))
        products = [product for row in rows for product in row[3 + 3 * width :]]
        for (i, j), product in zip(pairs, products, strict=True):
            cross[i, j] = cross[j, i] = product - rest[i] * rest[j] / units
        found.append(
            Moments(
                arm,
                candidate,
                units,
                tuple((centre + rest / units).tolist()),
                tuple(map(tuple, cross.tolist())),
                tuple(map(int, clipped)),
            )
        )
    return tuple(found)


def measure_relation(
    connection: Any, draft: QueryBuilder, relation: Relation, columns: tuple[Column, ...]
) -> tuple[Moments, ...]:
    """Return the moments of every cell of any exposures and events, sorted by arm and candidate.

    The products come as one array, for a hundred columns have more of them than a row may have columns.
    """
    width = len(columns)
    query = _relation_query(draft, relation, columns)
    if width * (width + 1) // 2 > PAIRS_AT_ONCE:
        # What parallel workers hand on is a row again, with a column for each product.
        connection.execute("SET max_parallel_workers_per_gather = 0")
    rows = connection.execute(query, draft.parameters).fetchall()
    cells = moments_from([(*row[:-1], *row[-1]) for row in rows], width)
    if MEMBERS not in columns:
        return cells
    rows = connection.execute(_relation_query(draft, relation, columns, of_members=True), draft.parameters).fetchall()
    return join_members(cells, moments_from([(*row[:-1], *row[-1]) for row in rows], width))


def plan_relation(connection: Any, draft: QueryBuilder, relation: Relation, columns: tuple[Column, ...]) -> None:
    """Have PostgreSQL plan the query of `measure_relation`: it checks types and permissions, and reads no rows."""
    connection.execute(f"EXPLAIN {_relation_query(draft, relation, columns)}", draft.parameters)


def _relation_query(
    draft: QueryBuilder, relation: Relation, columns: tuple[Column, ...], *, of_members: bool = False
) -> str:
    rows, prelude = rows_query(draft, relation, columns, of_members=of_members)
    return sums_query(rows, len(columns), prelude, "ARRAY[{}]")


def _statement(request: MeasureRequest, pairs: list[Pair], *, of_members: bool) -> tuple[str, Parameters]:
    """Return the query for some of the products, and its bound values; its text holds nothing that a user wrote."""
    span: Parameters = [request.study, request.version, request.after, request.until]
    places = range(len(request.columns))
    arm = CURRENT_ARM
    parameters: Parameters = [*span]
    if request.sources is not None:
        arm = sender_label("chr(31)", "chr(30)", "source = ANY(%s::text[])", arm=CURRENT_ARM)
        parameters = [list(request.sources), *span]
    picked = []
    for place, column in enumerate(request.columns):
        picked += [] if column.aggregate == "members" else _picked(place, column, request, parameters)
    parameters += span
    where, past = _SPAN, request.past
    if past.until:
        where = f"(({_SPAN}) OR ({_PAST}))"
        parameters += [request.study, past.after, past.until]
    parameters.append(request.events)
    made, bounded = [], []
    for place, column in enumerate(request.columns):
        if column.aggregate == "members":
            bounded.append(f"1::float8 AS x{place}, 0 AS o{place}")
            continue
        aggregate = _AGGREGATES[column.aggregate].format(v=f"v{place}", k=f"k{place}")
        made.append(f"({aggregate})::float8 AS r{place}")
        bounded.append(_bounded(place, column, parameters))
    by_value = ", ".join(f"x{i}" for i in places)
    centres = ", ".join(f"avg(x{i}) AS c{i}, sum(o{i}) AS e{i}" for i in places)
    known = ", ".join(["arm", "candidate", "n", *(f"c{i}" for i in places), *(f"e{i}" for i in places)])
    deviations = ", ".join(f"CASE WHEN abs(x{i} - c{i}) < {_TINY} THEN 0 ELSE x{i} - c{i} END AS d{i}" for i in places)
    selected = [
        "arm, candidate, n",
        *(f"c{i}" for i in places),
        *(f"sum(d{i})" for i in places),
        *(f"e{i}" for i in places),
        *(f"sum(d{i} * d{j})" for i, j in pairs),
    ]
    cluster, name, test = "", "", ""
    if MEMBERS in request.columns:
        field = f"fields->>'{CLUSTER_FIELD}'"
        cluster, name = f", min({field}) AS cluster", "cluster, "
        test = f" AND min({field}) = max({field})"
    rows = f"SELECT arm, candidate, {name}{', '.join(bounded)} FROM population LEFT JOIN made USING (unit)"  # noqa: S608
    if MEMBERS in request.columns and not of_members:
        sums = ", ".join(f"sum(x{i} ORDER BY x{i}) AS x{i}, sum(o{i}) AS o{i}" for i in places)
        rows = f"SELECT arm, candidate, {sums} FROM ({rows}) AS members GROUP BY arm, candidate, cluster"  # noqa: S608
    query = f"""
WITH population AS (
    SELECT unit, min({arm}) AS arm, min(candidate) AS candidate, min(received_at) AS seen{cluster}
    FROM events WHERE {_SPAN} AND kind = 0 GROUP BY unit HAVING min(candidate) = max(candidate){test}
), picked AS (
    SELECT unit, {", ".join(picked)} FROM {_SOURCE[request.timed]}
    WHERE {where} AND kind = 1 AND name = ANY(%s)
), made AS (
    SELECT unit, {", ".join(made)} FROM picked GROUP BY unit
), bounded AS MATERIALIZED (
    {rows}
), centres AS MATERIALIZED (
    SELECT arm, candidate, count(*) AS n, {centres}
    FROM (SELECT * FROM bounded ORDER BY arm, candidate, {by_value}) AS sorted GROUP BY arm, candidate
)
SELECT {", ".join(selected)} FROM (
    SELECT {known}, {deviations}
    FROM bounded JOIN centres USING (arm, candidate) ORDER BY arm, candidate, {by_value}
) AS sorted GROUP BY {known}
"""  # noqa: S608 -- names, paths and values are all bound
    return query, parameters


def _bounded(place: int, column: Column, parameters: Parameters) -> str:
    """SQL for a unit's number within its bounds, and for whether it lay outside them."""
    number = f"coalesce(r{place}, 0)"
    bound, outside = number, []
    for limit, function, sign in ((column.low, "greatest", "<"), (column.high, "least", ">")):
        if limit is not None:
            bound = f"{function}({bound}, %s::float8)"
            parameters.append(limit)
            outside.append((f"{number} {sign} %s::float8", limit))
    parameters += [limit for _, limit in outside]
    test = " OR ".join(text for text, _ in outside) or "false"
    return f"{bound} AS x{place}, ({test})::int AS o{place}"


def _within(column: Column, request: MeasureRequest, parameters: Parameters) -> list[str]:
    """SQL for whether an event lies in the column's span; nothing where all events are the round's."""
    if not request.timed:
        return []
    parameters.append(request.after)
    if column.lookback is not None:
        parameters.append(request.past.at - column.lookback)
        return ["sequence <= %s", "received_at >= %s::float8"]
    if column.window is not None:
        parameters.append(column.window)
        return ["sequence > %s", "received_at <= seen + %s::float8"]
    return ["sequence > %s"]


def _picked(place: int, column: Column, request: MeasureRequest, parameters: Parameters) -> list[str]:
    """SQL for a column's number of one event (NULL where it does not count), and for its key where it has one."""
    found = []
    for letter, field in [("v", column.value)] if column.by is None else [("v", column.value), ("k", column.by)]:
        parameters.append(column.event)
        tests = ["name = %s", *_within(column, request, parameters)]
        tests += [_condition(condition, parameters) for condition in column.where]
        read = _key if column.aggregate == "distinct" else _number
        number = "1" if field is None else read(field, parameters)
        found.append(f"CASE WHEN {' AND '.join(tests)} THEN {number} END AS {letter}{place}")
    return found


def _number(field: str, parameters: Parameters) -> str:
    """Return SQL for the number of a field; true is 1 and false 0, and text is NULL."""
    parameters += [field] * 4
    return (
        "CASE jsonb_typeof(fields->%s::text) WHEN 'number' "
        f"THEN CASE WHEN abs((fields->>%s::text)::float8) < {_TINY} THEN 0 ELSE (fields->>%s::text)::float8 END "
        "WHEN 'boolean' THEN (fields->>%s::text)::boolean::int::float8 END"
    )


def _key(field: str, parameters: Parameters) -> str:
    """Return SQL for a text that differs for different texts and numbers; NULL for other values."""
    parameters += [field] * 3
    return (
        "CASE jsonb_typeof(fields->%s::text) WHEN 'string' THEN 't' || (fields->>%s::text) "
        "WHEN 'number' THEN 'n' || ((fields->>%s::text)::float8 + 0)::text END"
    )


def _condition(condition: Condition, parameters: Parameters) -> str:
    """SQL for one condition; values of different kinds never equal one another."""
    sign = "=" if condition.comparison in ("in", "!=") else condition.comparison
    tests = []
    for value in condition.values:
        parameters += [condition.field, condition.field, value]
        if isinstance(value, bool):
            kind, read = "boolean", "(fields->>%s::text)::boolean"
        elif isinstance(value, str):
            kind, read = "string", "fields->>%s::text"
        else:
            kind, read = "number", "(fields->>%s::text)::float8"
        # CASE, because AND may look at its right side first, and text makes no number.
        name = {"boolean": "boolean", "string": "text", "number": "float8"}[kind]
        tests.append(f"(CASE WHEN jsonb_typeof(fields->%s::text) = '{kind}' THEN {read} END {sign} %s::{name}) IS TRUE")
    if condition.comparison != "!=":
        return f"({' OR '.join(tests)})"
    parameters.append(condition.field)
    return f"(NOT ({tests[0]}) AND fields->%s::text IS NOT NULL)"


ENGINE = Engine("postgres", measure, TableEngine(measure_relation, plan_relation))
