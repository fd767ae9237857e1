"""Spark engine: the same SQL, if one machine is too small; only one row per cell is returned.

The caller gives the session, of any master or remote address. Events are a table or view of the session.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from pasto.metrics.definitions import MEMBERS, Column
from pasto.metrics.measure_request import Engine, MeasureRequest, TableEngine
from pasto.metrics.moments import Moments
from pasto.metrics.sources.event_log import event_log_relations
from pasto.metrics.sql import (
    DIALECTS,
    QueryBuilder,
    Relation,
    clusters_query,
    join_members,
    moments_from,
    sums_query,
    units_query,
)

_numbers = count(1)


def measure(session: Any, request: MeasureRequest) -> tuple[Moments, ...]:
    """Return the moments of every cell of the store's own events, sorted by arm and candidate."""
    draft = QueryBuilder(DIALECTS["spark"])
    return measure_relation(session, draft, event_log_relations(draft, request), request.columns)


def measure_relation(
    session: Any, draft: QueryBuilder, relation: Relation, columns: tuple[Column, ...]
) -> tuple[Moments, ...]:
    """Return the moments of every cell of any exposures and events, sorted by arm and candidate."""
    units = session.sql(units_query(draft, relation, columns), args=draft.parameters).persist()
    view = f"pasto_units_{next(_numbers)}"
    units.createOrReplaceTempView(view)
    width = len(columns)
    try:
        cells = moments_from(map(tuple, session.sql(sums_query(view, width)).collect()), width)
        if MEMBERS not in columns:
            return cells
        prelude = f"clusters AS (\n{clusters_query(view, width)}\n), "
        clusters = session.sql(sums_query("clusters", width, prelude)).collect()
        return join_members(moments_from(map(tuple, clusters), width), cells)
    finally:
        session.catalog.dropTempView(view)
        units.unpersist()


def plan_relation(session: Any, draft: QueryBuilder, relation: Relation, columns: tuple[Column, ...]) -> None:
    """Analyse the query of `measure_relation`, without reading rows."""
    _ = session.sql(units_query(draft, relation, columns), args=draft.parameters).schema


ENGINE = Engine("spark", measure, TableEngine(measure_relation, plan_relation))
