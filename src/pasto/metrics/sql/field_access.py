"""Field access: SQL that reads a field of an event from a JSON object or from a column of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from pasto.errors import OptionError
from pasto.metrics.sql.query_builder import QueryBuilder

Kind = Literal["number", "text", "bool"]


@dataclass(frozen=True, slots=True)
class FieldType:
    """SQL for one field, by kind; NULL if the field is of another kind or missing."""

    number: str
    text: str
    flag: str
    present: str
    """True if the field exists."""

    @property
    def amount(self) -> str:
        """SQL for its number; true is 1 and false 0, and text is NULL."""
        return f"coalesce({self.number}, CASE WHEN {self.flag} THEN 1 WHEN NOT ({self.flag}) THEN 0 END)"

    def key(self, draft: QueryBuilder) -> str:
        """Return SQL for a text that differs for different texts and numbers; NULL for other values."""
        # Adding 0 makes -0 the same key as 0.
        number = f"CAST(({self.number}) + 0 AS {draft.dialect.text})"
        return f"coalesce('t' || {self.text}, 'n' || {number})"


class FieldAccess(Protocol):
    """Access to the fields of an event."""

    def read(self, draft: QueryBuilder, name: str) -> FieldType:
        """Return SQL for one field."""
        ...

    def carried(self, draft: QueryBuilder) -> dict[str, str]:
        """Return the SQL type of each column with fields, by its name in the query."""
        ...


@dataclass(frozen=True, slots=True)
class JsonFields:
    """Fields in one column of JSON objects, as in the store.

    >>> from pasto.metrics.sql.query_builder import DIALECTS
    >>> JsonFields("fields").read(QueryBuilder(DIALECTS["postgres"]), "x").text
    "CASE WHEN jsonb_typeof(fields->%(p0)s) = 'string' THEN fields->>%(p0)s END"
    """

    column: str

    def read(self, draft: QueryBuilder, name: str) -> FieldType:
        """Return SQL for one field, whose name has no quotes in it."""
        return _JSON[draft.dialect.name](draft, self.column, name)

    def carried(self, draft: QueryBuilder) -> dict[str, str]:
        """Return the type of the one column."""
        return {self.column: "jsonb" if draft.dialect.name == "postgres" else draft.dialect.text}


@dataclass(frozen=True, slots=True)
class ColumnFields:
    """Fields in columns of their own, whose kinds are known.

    >>> from pasto.metrics.sql.query_builder import DIALECTS
    >>> ColumnFields({"seconds": "number"}).read(QueryBuilder(DIALECTS["duckdb"]), "seconds").number
    'CAST("seconds" AS DOUBLE)'
    """

    kinds: Mapping[str, Kind]

    def read(self, draft: QueryBuilder, name: str) -> FieldType:
        """SQL for one field; BadOption where there is no such column."""
        if name not in self.kinds:
            raise OptionError(f"the events have no column {name!r}; there are {', '.join(self.kinds) or 'none'}")
        column, kind = draft.identifier(name), self.kinds[name]
        return FieldType(
            number=draft.double(column if kind == "number" else "NULL"),
            text=f"CAST({column if kind == 'text' else 'NULL'} AS {draft.dialect.text})",
            flag=column if kind == "bool" else "CAST(NULL AS BOOLEAN)",
            present=f"{column} IS NOT NULL",
        )

    def carried(self, draft: QueryBuilder) -> dict[str, str]:
        """Each of them."""
        types = {"number": draft.dialect.double, "text": draft.dialect.text, "bool": "BOOLEAN"}
        return {name: types[kind] for name, kind in self.kinds.items()}


def _duckdb(draft: QueryBuilder, column: str, name: str) -> FieldType:
    path = draft.bind(f'$."{name}"')
    kind, value = f"json_type({column}, {path})", f"json_extract_string({column}, {path})"
    return FieldType(
        number=f"CASE WHEN {kind} IN ('DOUBLE', 'UBIGINT', 'BIGINT') THEN TRY_CAST({value} AS DOUBLE) END",
        text=f"CASE WHEN {kind} = 'VARCHAR' THEN {value} END",
        flag=f"CASE WHEN {kind} = 'BOOLEAN' THEN {value} = 'true' END",
        present=f"{kind} IS NOT NULL",
    )


def _postgres(draft: QueryBuilder, column: str, name: str) -> FieldType:
    field = draft.bind(name)
    kind, value = f"jsonb_typeof({column}->{field})", f"{column}->>{field}"
    return FieldType(
        number=f"CASE WHEN {kind} = 'number' THEN ({value})::double precision END",
        text=f"CASE WHEN {kind} = 'string' THEN {value} END",
        flag=f"CASE WHEN {kind} = 'boolean' THEN ({value})::boolean END",
        present=f"{kind} IS NOT NULL",
    )


def _spark(draft: QueryBuilder, column: str, name: str) -> FieldType:
    path = draft.bind(f'$["{name}"]')
    value = f"variant_get(parse_json({column}), {path})"
    kind = f"schema_of_variant({value})"
    text = f"try_variant_get(parse_json({column}), {path}, 'string')"
    return FieldType(
        number=f"CASE WHEN {kind} RLIKE '^(BIGINT|DECIMAL|DOUBLE|FLOAT)' THEN CAST({text} AS DOUBLE) END",
        text=f"CASE WHEN {kind} = 'STRING' THEN {text} END",
        flag=f"CASE WHEN {kind} = 'BOOLEAN' THEN {text} = 'true' END",
        present=f"{value} IS NOT NULL",
    )


_JSON = {"duckdb": _duckdb, "postgres": _postgres, "spark": _spark}
