"""A round's measurement as plain SQL: one text, with what databases call differently kept in one table."""

from pasto.metrics.sql.field_access import ColumnFields, FieldType, JsonFields
from pasto.metrics.sql.query_builder import DIALECTS, Dialect, QueryBuilder
from pasto.metrics.sql.unit_query import (
    Relation,
    Span,
    clusters_query,
    join_members,
    moments_from,
    rows_query,
    sums_query,
    units_query,
)

__all__ = [
    "DIALECTS",
    "ColumnFields",
    "Dialect",
    "FieldType",
    "JsonFields",
    "QueryBuilder",
    "Relation",
    "Span",
    "clusters_query",
    "join_members",
    "moments_from",
    "rows_query",
    "sums_query",
    "units_query",
]
