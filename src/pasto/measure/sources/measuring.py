"""Measuring a team's own tables, on the engine where they are."""

from __future__ import annotations

from typing import Any

from pasto.assign import Published
from pasto.errors import BadOption
from pasto.measure.definitions import Column
from pasto.measure.engines import duckdb, postgres, spark
from pasto.measure.moments import Moments
from pasto.measure.sources.tables import Tables, team_events
from pasto.measure.sql import DIALECTS, Draft
from pasto.measure.sql.reading import Kind

_NUMBERS = ("int", "double", "float", "real", "decimal", "numeric", "bigint", "smallint", "hugeint", "long", "short")
_TEXTS = ("char", "text", "string", "enum", "uuid")
_ENGINES = {
    "duckdb": duckdb.measure_relation,
    "postgres": postgres.measure_relation,
    "spark": spark.measure_relation,
}


def measure_tables(
    connection: Any,
    dialect: str,
    tables: Tables,
    policy: Published,
    columns: tuple[Column, ...],
    since: int | None = None,
) -> tuple[Moments, ...]:
    """The moments of every cell of a policy, from a team's exposures and events.

    `connection` is a DuckDB or PostgreSQL connection, or a Spark session, and `dialect` says which. Covariates end
    before a unit's first exposure since the version `since`, the first that dealt units as this policy does.
    """
    if dialect not in DIALECTS:
        raise BadOption(f"no engine reads tables of {dialect!r}; there are {', '.join(DIALECTS)}")
    if not columns:
        raise BadOption("there is no column to measure; give at least one")
    draft = Draft(DIALECTS[dialect])
    names = [tables.exposures.table, *(table.table for table in tables.events)]
    kinds = {name: _columns(connection, draft, name) for name in names}
    relation = team_events(draft, tables, policy, columns, kinds, since)
    return _ENGINES[dialect](connection, draft, relation, columns)


def _columns(connection: Any, draft: Draft, table: str) -> dict[str, Kind]:
    """A table's columns and what they hold; columns of other kinds, such as times, are not fields."""
    if draft.dialect.name == "spark":
        found = connection.table(table).dtypes
    elif draft.dialect.name == "duckdb":
        found = [row[:2] for row in connection.execute(f"DESCRIBE {draft.table(table)}").fetchall()]
    else:
        query = (
            "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
        )
        found = connection.execute(query, [draft.table(table)]).fetchall()
    kinds: dict[str, Kind] = {}
    for name, told in found:
        kind = str(told).lower()
        if kind.startswith("bool"):
            kinds[name] = "bool"
        elif any(word in kind for word in _TEXTS):
            kinds[name] = "text"
        elif kind not in ("interval",) and any(word in kind for word in _NUMBERS):
            kinds[name] = "number"
    return kinds
