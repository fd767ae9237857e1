"""A query in the making: its words for one database, and the values bound in it."""

from __future__ import annotations

from dataclasses import dataclass, field

from pasto.records import Value


@dataclass(frozen=True, slots=True)
class Dialect:
    """What one database calls differently from the others."""

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
        """Where the value goes, in the text."""
        name = self._known.setdefault((type(value), value), f"p{len(self._known)}")
        self.parameters[name] = value
        return self.dialect.place.format(name)

    def identifier(self, name: str) -> str:
        """A name of a table or column, quoted; dots part a table from its schema only in `table`."""
        quote = self.dialect.quote
        if self.dialect.place.startswith("%"):  # there a percent sign begins a bound value, within quotes too
            name = name.replace("%", "%%")
        return f"{quote}{name.replace(quote, quote * 2)}{quote}"

    def table(self, name: str) -> str:
        """A table's name, each of its parts quoted."""
        return ".".join(map(self.identifier, name.split(".")))

    def double(self, expression: str) -> str:
        """The expression as a number."""
        return f"CAST({expression} AS {self.dialect.double})"

    @property
    def nothing(self) -> str:
        """No number."""
        return self.double("NULL")
