"""DuckDB engine, in this process: for Parquet and CSV files, and rounds too large to add up row by row.

Its threads add in any order, so results agree with the other engines to nine digits or more, not to the last bit. The
engine of the archive adds up rounds that a replay must compute bit for bit.
"""

from __future__ import annotations

from typing import Any

from pasto.metrics.definitions import MEMBERS, Column
from pasto.metrics.measure_request import Engine, MeasureRequest, TableEngine
from pasto.metrics.moments import Moments
from pasto.metrics.sources.event_log import event_log_relations
from pasto.metrics.sql import DIALECTS, QueryBuilder, Relation, join_members, moments_from, rows_query, sums_query


def measure(connection: Any, request: MeasureRequest) -> tuple[Moments, ...]:
    """Return the moments of every cell of the store's own events, sorted by arm and candidate."""
    draft = QueryBuilder(DIALECTS["duckdb"])
    return measure_relation(connection, draft, event_log_relations(draft, request), request.columns)


def measure_relation(
    connection: Any, draft: QueryBuilder, relation: Relation, columns: tuple[Column, ...]
) -> tuple[Moments, ...]:
    """Return the moments of every cell of any exposures and events, sorted by arm and candidate."""
    query = _query(draft, relation, columns)
    cells = moments_from(connection.execute(query, draft.parameters).fetchall(), len(columns))
    if MEMBERS not in columns:
        return cells
    members = connection.execute(_query(draft, relation, columns, of_members=True), draft.parameters).fetchall()
    return join_members(cells, moments_from(members, len(columns)))


def plan_relation(connection: Any, draft: QueryBuilder, relation: Relation, columns: tuple[Column, ...]) -> None:
    """Plan the query of `measure_relation`, without reading rows."""
    connection.execute(f"EXPLAIN {_query(draft, relation, columns)}", draft.parameters)


def _query(draft: QueryBuilder, relation: Relation, columns: tuple[Column, ...], *, of_members: bool = False) -> str:
    """Return the query over clusters or their members; over units if they have no clusters."""
    rows, prelude = rows_query(draft, relation, columns, of_members=of_members)
    return sums_query(rows, len(columns), prelude)


ENGINE = Engine("duckdb", measure, TableEngine(measure_relation, plan_relation))
