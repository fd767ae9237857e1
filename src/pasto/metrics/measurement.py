"""From events to moments, on the engine where the events are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pasto.errors import OptionError
from pasto.metrics.definitions import Column
from pasto.metrics.engines import ENGINES, CovariateWindow, MeasureRequest, duckdb, postgres, spark
from pasto.metrics.moments import Moments
from pasto.metrics.sources.table_check import find_problems, kind_of, read_types
from pasto.metrics.sources.team_tables import TeamTables, team_relations
from pasto.metrics.sql import DIALECTS, QueryBuilder, Relation
from pasto.metrics.sql.field_access import Kind
from pasto_sdk.policy import PublishedPolicy


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

    Each unit's events are aggregated first, units without events count 0, and a column's bounds are applied to the
    unit's number. Events that are excluded, of another version or outside the span do not exist. The answer does not
    depend on the order in which events arrived, to the last bit. A window lasts from when the unit's first exposure was
    received to when the event was. Columns that look back read the units' events in `before`, of whatever version.
    """
    if dialect not in ENGINES:
        raise OptionError(f"no engine measures {dialect!r}; there are {', '.join(ENGINES)}")
    if not columns:
        raise OptionError("there is no column to measure; give at least one")
    looking = next((column.name for column in columns if column.lookback is not None), None)
    if looking is not None and before is None:
        raise OptionError(f"the column {looking!r} looks back, and nothing says where the past ends; give `before`")
    if before is not None and before.until > after:
        raise OptionError(f"the past ends at {before.until}, behind the round's beginning at {after}; it must not")
    return ENGINES[dialect](connection, MeasureRequest(study, version, after, until, tuple(columns), before))


_MEASURE = {
    "duckdb": duckdb.measure_relation,
    "postgres": postgres.measure_relation,
    "spark": spark.measure_relation,
}

_PLAN = {"duckdb": duckdb.plan_relation, "postgres": postgres.plan_relation, "spark": spark.plan_relation}


def measure_tables(
    connection: Any,
    dialect: str,
    tables: TeamTables,
    policy: PublishedPolicy,
    columns: tuple[Column, ...],
    since: int | None = None,
) -> tuple[Moments, ...]:
    """The moments of every cell of a policy, from a team's exposures and events.

    `connection` is a DuckDB or PostgreSQL connection, or a Spark session, and `dialect` says which. Covariates end
    before a unit's first exposure since the version `since`, the first that dealt units as this policy does. BadOption
    names every column that is missing or does not fit.
    """
    draft, relation = _relation(connection, dialect, tables, policy, columns, since)
    return _MEASURE[dialect](connection, draft, relation, columns)


def plan_tables(
    connection: Any, dialect: str, tables: TeamTables, policy: PublishedPolicy, columns: tuple[Column, ...]
) -> None:
    """Have the engine plan the query of `measure_tables` without running it; it raises what would fail."""
    draft, relation = _relation(connection, dialect, tables, policy, columns, policy.version)
    _PLAN[dialect](connection, draft, relation, columns)


def _relation(
    connection: Any,
    dialect: str,
    tables: TeamTables,
    policy: PublishedPolicy,
    columns: tuple[Column, ...],
    since: int | None,
) -> tuple[QueryBuilder, Relation]:
    if dialect not in DIALECTS:
        raise OptionError(f"no engine reads tables of {dialect!r}; there are {', '.join(DIALECTS)}")
    if not columns:
        raise OptionError("there is no column to measure; give at least one")
    draft = QueryBuilder(DIALECTS[dialect])
    names = [tables.exposures.table, *(table.table for table in tables.events)]
    types = {name: read_types(connection, draft, name) for name in names}
    if problems := find_problems(tables, columns, types):
        raise OptionError("; ".join(f"{path} {problem}" for path, problem in problems.items()))
    kinds = {name: _kinds(found) for name, found in types.items()}
    return draft, team_relations(draft, tables, policy, columns, kinds, since)


def _kinds(types: dict[str, str]) -> dict[str, Kind]:
    """What the columns hold; columns of other kinds, such as times, are not fields."""
    kinds: dict[str, Kind] = {}
    for name, sql_type in types.items():
        kind = kind_of(sql_type)
        if kind in ("number", "text", "bool"):
            kinds[name] = kind
    return kinds
