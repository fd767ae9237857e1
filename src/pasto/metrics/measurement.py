"""Measurement of a round: from events to moments, on the engine that has the events; of all units, or by sender."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pasto.errors import OptionError
from pasto.metrics.definitions import Column
from pasto.metrics.engines import ENGINES, CovariateWindow, MeasureRequest
from pasto.metrics.measure_request import TableEngine, split_label
from pasto.metrics.moments import Moments
from pasto.metrics.sources.table_check import find_problems, kind_of, read_types
from pasto.metrics.sources.team_tables import TeamTables, team_relations
from pasto.metrics.sql import DIALECTS, QueryBuilder, Relation
from pasto.metrics.sql.field_access import Kind
from pasto_sdk.policy import PublishedPolicy

STORES = ("sqlite", "postgres")
"""Engines whose events have senders."""
MAX_SOURCES = 20
"""Most sources that are measured one by one in a round, those with most exposures."""

_SPAN = "study = {0} AND version = {0} AND sequence > {0} AND sequence <= {0} AND excluded = 0 AND unit <> ''"
_SQLITE_SPAN = "+study = ? AND +version = ? AND sequence > ? AND sequence <= ? AND excluded = 0 AND unit <> ''"
"""The plus signs keep SQLite from other indices: the events of a round are neighbours in the sequence."""


def measure(
    connection: Any,
    dialect: str,
    *,
    study: int,
    version: int,
    after: int,
    until: int,
    columns: Sequence[Column],
    before: CovariateWindow | None = None,
) -> tuple[Moments, ...]:
    """Measure one round: the units exposed under a policy in (after, until], by arm and candidate.

    A unit that was served several candidates counts for none, which only another platform's assignment can cause.
    Each unit's events are aggregated first; units without events count 0, and a column's bounds are applied to the
    unit's number. Events that are excluded, of another version or outside the span do not count. The result is the same
    to the last bit for every order of arrival. A window lasts from the reception of the unit's first exposure to that
    of the event. Columns that look back read the units' events in `before`, of any version.
    """
    if dialect not in ENGINES:
        raise OptionError(f"no engine measures {dialect!r}; there are {', '.join(ENGINES)}")
    if not columns:
        raise OptionError("there is no column to measure; give at least one")
    lookback_column = next((column.name for column in columns if column.lookback is not None), None)
    if lookback_column is not None and before is None:
        raise OptionError(
            f"the column {lookback_column!r} looks back, and `before` is missing; give the window that it reads"
        )
    if before is not None and before.until > after:
        raise OptionError(f"before.until must be at most {after}, the start of the round, got {before.until}")
    return ENGINES[dialect].measure(connection, MeasureRequest(study, version, after, until, tuple(columns), before))


class Sender(NamedTuple):
    """Sender of a unit's exposure."""

    key: str
    """Prefix of the API key; empty without one."""
    source: str
    """Name that the sender gives itself; empty without one, OTHER_SOURCES for all that are not measured one by one."""


def measure_by_sender(
    connection: Any,
    dialect: str,
    *,
    study: int,
    version: int,
    after: int,
    until: int,
    columns: Sequence[Column],
    before: CovariateWindow | None = None,
    moments: Sequence[Moments] = (),
) -> dict[Sender, tuple[Moments, ...]]:
    """Measure one round as `measure` does, by sender.

    A unit whose exposure came from several senders is the first one's, in the order of their names. `moments` are the
    round's own: if there is one sender, they are returned as its.
    """
    if dialect not in STORES:
        raise OptionError(f"dialect must be one of {', '.join(STORES)}, got {dialect!r}; only stores have senders.")
    span = _SQLITE_SPAN if dialect == "sqlite" else _SPAN.format("%s")
    query = f"SELECT key_prefix, source, count(*) FROM events WHERE {span} AND kind = 0 GROUP BY key_prefix, source"  # noqa: S608 -- our own names
    counts = connection.execute(query, (study, version, after, until)).fetchall()
    if not counts:
        return {}
    if len(counts) == 1 and moments:
        key, source, _ = counts[0]
        return {Sender(key or "", source or ""): tuple(moments)}
    by_source: dict[str, int] = {}
    for _, source, count in counts:
        if source is not None:
            by_source[source] = by_source.get(source, 0) + count
    largest = sorted(by_source, key=lambda source: (-by_source[source], source))[:MAX_SOURCES]
    request = MeasureRequest(study, version, after, until, tuple(columns), before, tuple(largest))
    cells_by_sender: dict[Sender, list[Moments]] = {}
    for cell in ENGINES[dialect].measure(connection, request):
        key, source, arm = split_label(cell.arm)
        cells_by_sender.setdefault(Sender(key, source), []).append(replace(cell, arm=arm))
    return {sender: tuple(cells) for sender, cells in cells_by_sender.items()}


def measure_tables(
    connection: Any,
    dialect: str,
    tables: TeamTables,
    policy: PublishedPolicy,
    columns: tuple[Column, ...],
    since: int | None = None,
    *,
    is_external: bool = False,
) -> tuple[Moments, ...]:
    """Return the moments of every cell of a policy, from a team's exposures and events.

    `connection` is a DuckDB or PostgreSQL connection, or a Spark session; `dialect` is the name of its engine. With
    `is_external`, the logged candidates count. Covariates end before a unit's first exposure since the version `since`,
    the first that assigned units as this policy does. OptionError names every column that is missing or does not fit.
    """
    engine, query, relation = _build_relation(connection, dialect, tables, policy, columns, since, is_external)
    return engine.measure(connection, query, relation, columns)


def plan_tables(
    connection: Any,
    dialect: str,
    tables: TeamTables,
    policy: PublishedPolicy,
    columns: tuple[Column, ...],
    *,
    is_external: bool = False,
) -> None:
    """Plan the query of `measure_tables` without running it; raises what would fail."""
    since = policy.version
    engine, query, relation = _build_relation(connection, dialect, tables, policy, columns, since, is_external)
    engine.plan(connection, query, relation, columns)


def _build_relation(
    connection: Any,
    dialect: str,
    tables: TeamTables,
    policy: PublishedPolicy,
    columns: tuple[Column, ...],
    since: int | None,
    is_external: bool,
) -> tuple[TableEngine, QueryBuilder, Relation]:
    engines = {name: engine.tables for name, engine in ENGINES.items() if engine.tables is not None}
    if dialect not in engines:
        raise OptionError(f"no engine reads tables of {dialect!r}; there are {', '.join(sorted(engines))}")
    if not columns:
        raise OptionError("there is no column to measure; give at least one")
    query = QueryBuilder(DIALECTS[dialect])
    names = [tables.exposures.table, *(table.table for table in tables.events)]
    types = {name: read_types(connection, query, name) for name in names}
    if problems := find_problems(tables, columns, types):
        raise OptionError("; ".join(f"{path} {problem}" for path, problem in problems.items()))
    kinds = {name: _read_kinds(sql_types) for name, sql_types in types.items()}
    return (
        engines[dialect],
        query,
        team_relations(query, tables, policy, columns, kinds, since, is_external=is_external),
    )


def _read_kinds(types: dict[str, str]) -> dict[str, Kind]:
    """Return the kind of each column; columns of other kinds, such as times, are not fields."""
    kinds: dict[str, Kind] = {}
    for name, sql_type in types.items():
        kind = kind_of(sql_type)
        if kind in ("number", "text", "bool"):
            kinds[name] = kind
    return kinds
