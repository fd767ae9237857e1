"""A query in the making: its words for one database, and the values bound in it."""

from __future__ import annotations

from dataclasses import dataclass, field

from pasto_sdk.policy_document import Value


@dataclass(frozen=True, slots=True)
class Dialect:
    """Words in which one database differs from the others."""

    name: str
    place: str
    """Where a bound value goes, by its name."""
    quote: str
    """Around an identifier; doubled within one."""
    double: str
    text: str
    last: str
    """The number v with the largest key k, and of several the largest."""
    materialized: str
    """What makes a named subquery be computed once."""


DIALECTS = {
    dialect.name: dialect
    for dialect in (
        Dialect(
            "duckdb",
            place="${}",
            quote='"',
            double="DOUBLE",
            text="VARCHAR",
            last="max(CASE WHEN {v} IS NOT NULL AND {k} IS NOT NULL THEN struct_pack(k := {k}, v := {v}) END).v",
            materialized="AS MATERIALIZED",
        ),
        Dialect(
            "postgres",
            place="%({})s",
            quote='"',
            double="double precision",
            text="text",
            last=("(array_agg({v} ORDER BY {k} DESC, {v} DESC) FILTER (WHERE {v} IS NOT NULL AND {k} IS NOT NULL))[1]"),
            materialized="AS MATERIALIZED",
        ),
        Dialect(
            "spark",
            place=":{}",
            quote="`",
            double="DOUBLE",
            text="STRING",
            last="max(CASE WHEN {v} IS NOT NULL AND {k} IS NOT NULL THEN named_struct('k', {k}, 'v', {v}) END).v",
            materialized="AS",
        ),
    )
}


@dataclass(slots=True)
class QueryBuilder:
    """Collects what is bound, so that nothing a user wrote is ever part of the text.

    >>> draft = QueryBuilder(DIALECTS["duckdb"])
    >>> draft.bind("it's"), draft.bind(3.0), draft.bind("it's")
    ('$p0', '$p1', '$p0')
    >>> draft.table("lake.events")
    '"lake"."events"'
    """

    dialect: Dialect
    parameters: dict[str, Value] = field(default_factory=dict)
    _known: dict[tuple[type, Value], str] = field(default_factory=dict)

    def bind(self, value: Value) -> str:
        """Bind a value, and return its placeholder."""
        name = self._known.setdefault((type(value), value), f"p{len(self._known)}")
        self.parameters[name] = value
        return self.dialect.place.format(name)

    def identifier(self, name: str) -> str:
        """Return the quoted name of a column; a dot does not separate a schema, as it does in `table`."""
        quote = self.dialect.quote
        if self.dialect.place.startswith("%"):  # there a percent sign begins a bound value, within quotes too
            name = name.replace("%", "%%")
        return f"{quote}{name.replace(quote, quote * 2)}{quote}"

    def table(self, name: str) -> str:
        """Return the quoted name of a table, each of its parts quoted."""
        return ".".join(map(self.identifier, name.split(".")))

    def double(self, expression: str) -> str:
        """Return an expression as a double."""
        return f"CAST({expression} AS {self.dialect.double})"

    @property
    def nothing(self) -> str:
        """SQL for a missing number."""
        return self.double("NULL")
