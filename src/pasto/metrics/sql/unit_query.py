"""One row for each exposed unit: its cell, and its number in every column within the stated bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from pasto.metrics.definitions import MEMBERS, Column, Condition
from pasto.metrics.moments import Moments
from pasto.metrics.sql.field_access import FieldAccess
from pasto.metrics.sql.query_builder import QueryBuilder

Span = tuple[float | None, float | None]
"""A column's window and look-back, in seconds."""


@dataclass(frozen=True, slots=True)
class Relation:
    """Exposures and events in one table, as a query."""

    text: str
    """Gives unit; arm and candidate where the row is an exposure, with its cluster if units have one; name where it is
    an event; and the fields."""
    fields: FieldAccess
    spans: Mapping[Span, str] = field(default_factory=dict)
    """Columns of the query that say whether an event lies in a span; none where all of them lie in the round."""


def units_query(draft: QueryBuilder, relation: Relation, columns: Sequence[Column]) -> str:
    """Return the query for arm, candidate, x0… (numbers) and o0… (1 if out of bounds) of every unit.

    If a column counts the members of clusters, the query also gives the cluster of the unit.

    >>> from pasto.metrics.sql.query_builder import DIALECTS
    >>> from pasto.metrics.sql.field_access import JsonFields
    >>> likes = Column("likes", "like", None, "count")
    >>> relation = Relation("SELECT * FROM rows", JsonFields("fields"))
    >>> query = units_query(QueryBuilder(DIALECTS["duckdb"]), relation, [likes])
    >>> "coalesce(count(v0), 0)" in query
    True
    """
    picked, made, bounded = [], [], []
    for place, column in enumerate(columns):
        picked += [] if column.aggregate == "members" else _picked(draft, relation, place, column)
        made.append(f"{draft.double(f'coalesce({_made(draft, place, column)}, 0)')} AS r{place}")
        bounded.append(_bounded(draft, place, column))
    cluster, ends, test = "", "", ""
    if MEMBERS in columns:
        cluster = ", cluster"
        ends = "min(cluster) AS cluster, max(cluster) AS other_cluster, "
        test = " AND cluster = other_cluster"
    read = "".join(f", {expression}" for expression in picked)
    return f"""SELECT arm, candidate{cluster}, {", ".join(bounded)} FROM (
    SELECT unit, min(arm) AS arm, min(candidate) AS candidate, max(candidate) AS other, {ends}{", ".join(made)} FROM (
        SELECT unit, arm, candidate{cluster}{read} FROM ({relation.text}) AS seen
    ) AS picked GROUP BY unit
) AS made WHERE arm IS NOT NULL AND candidate = other{test}"""  # noqa: S608 -- names, paths and values are all bound or quoted


def clusters_query(units: str, width: int) -> str:
    """Return the query for arm, candidate, x0… and o0… of every cluster of a units table.

    >>> clusters_query("units", 1)
    'SELECT arm, candidate, sum(x0) AS x0, sum(o0) AS o0 FROM units GROUP BY arm, candidate, cluster'
    """
    sums = ", ".join(f"sum(x{i}) AS x{i}, sum(o{i}) AS o{i}" for i in range(width))
    return f"SELECT arm, candidate, {sums} FROM {units} GROUP BY arm, candidate, cluster"  # noqa: S608 -- numbered names only


def rows_query(
    draft: QueryBuilder, relation: Relation, columns: Sequence[Column], *, of_members: bool
) -> tuple[str, str]:
    """Return the table of rows to add up for `sums_query`, and the subqueries that make it.

    A row is a unit, or a cluster of units. With `of_members`, the units of clusters are rows, too.
    """
    materialized = draft.dialect.materialized
    prelude = f"units {materialized} (\n{units_query(draft, relation, columns)}\n), "
    if of_members or MEMBERS not in columns:
        return "units", prelude
    return "clusters", f"{prelude}clusters {materialized} (\n{clusters_query('units', len(columns))}\n), "


def _picked(draft: QueryBuilder, relation: Relation, place: int, column: Column) -> list[str]:
    """SQL for a column's number of one event (NULL where it does not count), and for its key where it has one."""
    fields = relation.fields
    tests = [f"name = {draft.bind(column.event)}"]
    if relation.spans:
        tests.append(relation.spans[column.span])
    tests += [_condition(draft, fields, condition) for condition in column.where]
    found = []
    for letter, read in [("v", column.value)] if column.by is None else [("v", column.value), ("k", column.by)]:
        number = "1" if read is None else fields.read(draft, read).amount
        if column.aggregate == "distinct" and read is not None:
            number = fields.read(draft, read).key(draft)
        found.append(f"CASE WHEN {' AND '.join(tests)} THEN {number} END AS {letter}{place}")
    return found


def _made(draft: QueryBuilder, place: int, column: Column) -> str:
    """SQL for what is made of one unit's events."""
    value = f"v{place}"
    return {
        "sum": f"sum({value})",
        "count": f"count({value})",
        "mean": f"sum({value}) / nullif(count({value}), 0)",
        "any": f"least(count({value}), 1)",
        "max": f"max({value})",
        "distinct": f"count(DISTINCT {value})",
        "members": "1",
        "last": draft.dialect.last.format(v=value, k=f"k{place}"),
    }[column.aggregate]


def _bounded(draft: QueryBuilder, place: int, column: Column) -> str:
    """SQL for a unit's number within its bounds, and for whether it lay outside them."""
    number = bound = f"r{place}"
    outside = []
    for limit, function, sign in ((column.low, "greatest", "<"), (column.high, "least", ">")):
        if limit is not None:
            spot = draft.double(draft.bind(limit))
            bound = f"{function}({bound}, {spot})"
            outside.append(f"{number} {sign} {spot}")
    test = f"CASE WHEN {' OR '.join(outside)} THEN 1 ELSE 0 END" if outside else "0"
    return f"{bound} AS x{place}, {test} AS o{place}"


def _condition(draft: QueryBuilder, fields: FieldAccess, condition: Condition) -> str:
    """SQL for one condition; values of different kinds never equal one another."""
    sign = "=" if condition.comparison in ("in", "!=") else condition.comparison
    reading = fields.read(draft, condition.field)
    tests = []
    for value in condition.values:
        found = reading.flag if isinstance(value, bool) else reading.text if isinstance(value, str) else reading.number
        tests.append(f"coalesce(({found}) {sign} {draft.bind(value)}, FALSE)")
    if condition.comparison == "!=":
        return f"(NOT {tests[0]} AND {reading.present})"
    return f"({' OR '.join(tests)})"


def sums_query(units: str, width: int, prelude: str = "", products: str = "{}") -> str:
    """Return the query for units, means, rests, clipped counts and sums of products of every cell of a units table.

    Products are of deviations from the mean of the cell, so that no digits are lost if the mean is much larger. Rests
    are the sums of these deviations, which correct the rounding of the mean. `products` formats the product sums.

    >>> sums_query("units", 1).splitlines()[-1]
    ') AS deviations GROUP BY arm, candidate'
    """
    places = range(width)
    centres = ", ".join(f"avg(x{i}) AS c{i}" for i in places)
    deviations = ", ".join(f"u.x{i} - c.c{i} AS d{i}, u.o{i} AS o{i}, c.c{i} AS c{i}" for i in places)
    selected = [
        *(f"min(c{i})" for i in places),
        *(f"sum(d{i})" for i in places),
        *(f"sum(o{i})" for i in places),
        products.format(", ".join(f"sum(d{i} * d{j})" for i, j in combinations_with_replacement(places, 2))),
    ]
    return f"""WITH {prelude}centres AS (
    SELECT arm, candidate, {centres} FROM {units} GROUP BY arm, candidate
)
SELECT arm, candidate, count(*), {", ".join(selected)} FROM (
    SELECT u.arm AS arm, u.candidate AS candidate, {deviations}
    FROM {units} AS u JOIN centres AS c ON u.arm = c.arm AND u.candidate = c.candidate
) AS deviations GROUP BY arm, candidate"""  # noqa: S608 -- numbered names only


def moments_from(rows: Iterable[Sequence[Any]], width: int) -> tuple[Moments, ...]:
    """Return the rows of `sums_query` as moments, sorted by arm and candidate.

    >>> moments_from([("learner", 0, 2, 2.0, 0.0, 0, 2.0)], 1)[0].cross
    ((2.0,),)
    """
    pairs = list(combinations_with_replacement(range(width), 2))
    cells = []
    for arm, candidate, units, *numbers in sorted(rows, key=lambda row: (row[0], row[1])):
        centre, rest = np.array(numbers[:width], dtype=float), np.array(numbers[width : 2 * width], dtype=float)
        cross = np.empty((width, width))
        for (i, j), product in zip(pairs, numbers[3 * width :], strict=True):
            cross[i, j] = cross[j, i] = float(product) - rest[i] * rest[j] / units
        mean = tuple((centre + rest / units).tolist())
        clipped = tuple(map(int, numbers[2 * width : 3 * width]))
        cells.append(Moments(arm, int(candidate), int(units), mean, tuple(map(tuple, cross.tolist())), clipped))
    return tuple(cells)


def join_members(clusters: Sequence[Moments], members: Sequence[Moments]) -> tuple[Moments, ...]:
    """Return the moments of clusters, with the sums of products of their members.

    >>> def measured(units, product):
    ...     return Moments("learner", 0, units, (2.0,), ((product,),), (0,))
    >>> join_members([measured(2, 8.0)], [measured(9, 3.0)])[0].member_cross
    ((3.0,),)
    """
    return tuple(replace(cluster, member_cross=member.cross) for cluster, member in zip(clusters, members, strict=True))
