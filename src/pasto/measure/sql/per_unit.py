"""One row for each exposed unit: its cell, and its number in every column within the stated bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pasto.measure.definitions import Column, Condition
from pasto.measure.sql.draft import Draft
from pasto.measure.sql.reading import Fields

Span = tuple[float | None, float | None]
"""A column's window and look-back, in seconds."""


@dataclass(frozen=True, slots=True)
class Relation:
    """Exposures and events in one table, as a query."""

    text: str
    """Gives unit; arm and candidate where the row is an exposure; name where it is an event; and the fields."""
    fields: Fields
    spans: Mapping[Span, str] = field(default_factory=dict)
    """Columns of the query that say whether an event lies in a span; none where all of them lie in the round."""


def units_query(draft: Draft, relation: Relation, columns: Sequence[Column]) -> str:
    """The query for arm, candidate, x0… (the numbers) and o0… (whether each lay outside its bounds) of every unit.

    >>> from pasto.measure.sql.draft import DIALECTS
    >>> from pasto.measure.sql.reading import JsonFields
    >>> likes = Column("likes", "like", None, "count")
    >>> query = units_query(Draft(DIALECTS["duckdb"]), Relation("SELECT * FROM rows", JsonFields("fields")), [likes])
    >>> "coalesce(count(v0), 0)" in query
    True
    """
    picked, made, bounded = [], [], []
    for place, column in enumerate(columns):
        picked += _picked(draft, relation, place, column)
        made.append(f"{draft.double(f'coalesce({_made(draft, place, column)}, 0)')} AS r{place}")
        bounded.append(_bounded(draft, place, column))
    return f"""SELECT arm, candidate, {", ".join(bounded)} FROM (
    SELECT unit, min(arm) AS arm, min(candidate) AS candidate, {", ".join(made)} FROM (
        SELECT unit, arm, candidate, {", ".join(picked)} FROM ({relation.text}) AS seen
    ) AS picked GROUP BY unit
) AS made WHERE arm IS NOT NULL"""  # noqa: S608 -- names, paths and values are all bound or quoted


def _picked(draft: Draft, relation: Relation, place: int, column: Column) -> list[str]:
    """SQL for a column's number of one event (NULL where it does not count), and for its key where it has one."""
    fields = relation.fields
    tests = [f"name = {draft.bind(column.event)}"]
    if relation.spans:
        tests.append(relation.spans[column.span])
    tests += [_condition(draft, fields, condition) for condition in column.where]
    found = []
    for letter, read in [("v", column.value)] if column.by is None else [("v", column.value), ("k", column.by)]:
        number = "1" if read is None else fields.read(draft, read).amount
        found.append(f"CASE WHEN {' AND '.join(tests)} THEN {number} END AS {letter}{place}")
    return found


def _made(draft: Draft, place: int, column: Column) -> str:
    """SQL for what is made of one unit's events."""
    value = f"v{place}"
    return {
        "sum": f"sum({value})",
        "count": f"count({value})",
        "mean": f"sum({value}) / nullif(count({value}), 0)",
        "any": f"least(count({value}), 1)",
        "max": f"max({value})",
        "last": draft.dialect.last.format(v=value, k=f"k{place}"),
    }[column.per_unit]


def _bounded(draft: Draft, place: int, column: Column) -> str:
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


def _condition(draft: Draft, fields: Fields, condition: Condition) -> str:
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
