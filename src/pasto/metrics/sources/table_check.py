"""Check of a team's tables: the columns they have, and whether the columns that a study names exist and fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pasto.document_validation import ProblemList, nearest_name
from pasto.metrics.definitions import Column
from pasto.metrics.sources.team_tables import EventTable, ExposureTable, TeamTables
from pasto.metrics.sql import QueryBuilder
from pasto_sdk.policy_document import Value

ColumnKind = Literal["number", "text", "bool", "time", "other"]
Types = Mapping[str, Mapping[str, str] | None]
"""By table: the SQL type of each column; no columns if the table does not exist, None if it has no files yet."""

MAX_COLUMNS_NAMED = 20
_NESTED = ("array", "interval", "list", "map", "point", "row", "struct", "union")
_NUMBERS = ("int", "double", "float", "real", "decimal", "numeric", "long", "short")
_TEXTS = ("char", "text", "string", "enum", "uuid")
_TIMES = ("date", "time")
_EXPECTED: Mapping[str, tuple[tuple[ColumnKind, ...], str]] = {
    "unit": (("number", "text", "other"), "a text or a number"),
    "version": (("number",), "whole numbers"),
    "candidate": (("number", "text", "other"), "a text"),
    "name": (("text", "other"), "a text"),
    "time": (("number", "text", "time", "other"), "timestamps or numbers of seconds"),
}
"""By role of a column: the kinds that it may have, and their name in a message."""


def read_types(connection: Any, draft: QueryBuilder, table: str) -> dict[str, str]:
    """Return the SQL type of each column of a table; nothing if there is no such table."""
    if draft.dialect.name == "spark":
        rows = connection.table(table).dtypes if connection.catalog.tableExists(table) else []
    elif draft.dialect.name == "duckdb":
        rows = [row[:2] for row in connection.execute(f"DESCRIBE {draft.table(table)}").fetchall()]
    else:
        query = (
            "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
        rows = connection.execute(query, [draft.table(table)]).fetchall()
    return {str(name): str(sql_type) for name, sql_type in rows}


def kind_of(sql_type: str) -> ColumnKind:
    """Return what a column of an SQL type holds.

    >>> kind_of("BIGINT"), kind_of("character varying"), kind_of("TIMESTAMP WITH TIME ZONE"), kind_of("INTEGER[]")
    ('number', 'text', 'time', 'other')
    """
    kind = sql_type.lower()
    if kind.endswith("]") or kind.startswith(_NESTED):
        return "other"
    if kind.startswith("bool"):
        return "bool"
    if any(word in kind for word in _TEXTS):
        return "text"
    if kind.startswith(_TIMES):
        return "time"
    return "number" if any(word in kind for word in _NUMBERS) else "other"


def find_problems(tables: TeamTables, columns: Sequence[Column], types: Types) -> dict[str, str]:
    """Return what is wrong with the tables and columns that a study reads, by field of its section `source`.

    >>> tables = TeamTables(ExposureTable("seen", unit="who"), (EventTable("plays", event="play", version="policy"),))
    >>> types = {"seen": {"user": "TEXT", "version": "BIGINT"}, "plays": {"unit": "TEXT", "policy": "BIGINT"}}
    >>> find_problems(tables, [Column("plays", "play", None, "count")], types)
    {'source.exposures.unit': "names the column 'who', which the table 'seen' does not have; it has user, version"}
    """
    problems = ProblemList()
    timed = any(column.span != (None, None) for column in columns)
    for path, table in _placed(tables):
        found = types.get(table.table)
        if found is None:
            continue
        if not found:
            problems.add(
                f"{path}.table", f"names {table.table!r}, and there is no such table, or none that can be seen"
            )
            continue
        for role, name in _roles(table):
            _check_column(problems, f"{path}.{role}", role, table.table, name, found, timed=timed)
    known = types.get(tables.exposures.table)
    for attribute, name in tables.exposures.attributes.items():
        if known and name not in known:
            problem = _missing(tables.exposures.table, name, known)
            problems.add("source.exposures.attributes", f"gives {attribute!r} no column: it {problem}")
    _check_times(problems, tables, types)
    for column in (column for column in columns if column.aggregate != "members"):
        _check_fields(problems, tables.events, column, types)
    return problems.found


def _placed(tables: TeamTables) -> Iterator[tuple[str, ExposureTable | EventTable]]:
    """Yield every table with the path of its section."""
    yield "source.exposures", tables.exposures
    for place, table in enumerate(tables.events):
        yield f"source.events[{place}]", table


def _roles(table: ExposureTable | EventTable) -> Iterator[tuple[str, str]]:
    """Yield the columns that a table's section names, by their role."""
    for role in _EXPECTED:
        name = getattr(table, role, None)
        unused = role == "name" and isinstance(table, EventTable) and table.event is not None
        if name is not None and not unused:
            yield role, name


def _check_column(
    problems: ProblemList, path: str, role: str, table: str, name: str, found: Mapping[str, str], *, timed: bool
) -> None:
    if name not in found:
        problems.add(path, _missing(table, name, found))
        return
    kinds, expected = _EXPECTED[role]
    kind = kind_of(found[name])
    if kind not in kinds or (role == "time" and timed and kind == "text"):
        problems.add(
            path,
            f"names the column {name!r} of {table!r}, which holds {found[name]}; it must hold {expected}: name another "
            "column, or convert this one",
        )


def _check_times(problems: ProblemList, tables: TeamTables, types: Types) -> None:
    """Note times of events that cannot be compared with the times of exposures."""
    exposures = tables.exposures
    held = (types.get(exposures.table) or {}).get(exposures.time or "")
    for place, table in enumerate(tables.events):
        own = (types.get(table.table) or {}).get(table.time or "")
        if held is None or own is None or "other" in (kinds := {kind_of(held), kind_of(own)}) or len(kinds) == 1:
            continue
        problems.add(
            f"source.events[{place}].time",
            f"names the column {table.time!r} of {table.table!r}, which holds {own}, while {exposures.time!r} of "
            f"{exposures.table!r} holds {held}; name columns of one kind",
        )


def _check_fields(problems: ProblemList, tables: Sequence[EventTable], column: Column, types: Types) -> None:
    """Note an event that is in no table, and fields that no table with the event has or that hold something else."""
    holders = [(place, table) for place, table in enumerate(tables) if table.event in (None, column.event)]
    if not holders:
        problems.add(
            "source.events",
            f"has no table of the event {column.event!r}, which the metric {column.name!r} reads; its tables hold "
            f"{', '.join(repr(table.event) for table in tables)}: add the table, or correct its event",
        )
    known = [(place, table, types.get(table.table)) for place, table in holders]
    if not holders or any(not found for _, _, found in known):
        return
    for field, kinds in _fields(column):
        present = False
        for place, table, found in known:
            name = table.fields.get(field, field)
            sql_type = (found or {}).get(name)
            if sql_type is None:
                continue
            present = True
            if kind_of(sql_type) not in kinds:
                problems.add(
                    f"source.events[{place}].fields",
                    f"gives {field!r} the column {name!r} of {table.table!r}, which holds {sql_type}; the metric "
                    f"{column.name!r} reads it as a {' or '.join(kinds)}: map another column",
                )
        if not present:
            place, table, found = known[0]
            name = table.fields.get(field, field)
            problems.add(
                f"source.events[{place}].fields",
                f"must give the field {field!r}, which the metric {column.name!r} reads, a column; the table "
                f"{table.table!r} has no {name!r}; it has {_listed(found)}: map it, as in fields: {{{field}: COLUMN}}",
            )


def _fields(column: Column) -> Iterator[tuple[str, tuple[ColumnKind, ...]]]:
    """Yield the fields that a metric reads, with the kinds of column that it can use."""
    for field in (column.value, column.by):
        if field is not None:
            yield field, ("number", "text") if column.aggregate == "distinct" else ("number", "bool")
    for condition in column.where:
        yield condition.field, tuple(dict.fromkeys(map(_kind_of_value, condition.values)))


def _kind_of_value(value: Value) -> ColumnKind:
    if isinstance(value, bool):
        return "bool"
    return "text" if isinstance(value, str) else "number"


def _missing(table: str, name: str, found: Mapping[str, str]) -> str:
    hint = nearest_name(name, found)
    close = f"; {hint}" if hint.startswith("did you mean") else ""
    return f"names the column {name!r}, which the table {table!r} does not have; it has {_listed(found)}{close}"


def _listed(found: Mapping[str, str] | None) -> str:
    names = list(found or ())
    return ", ".join(names[:MAX_COLUMNS_NAMED]) + (", …" if len(names) > MAX_COLUMNS_NAMED else "")
