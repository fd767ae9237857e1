"""A round's measurement as plain SQL: one text, with what databases call differently kept in one table."""

from pasto.metrics.sql.field_access import JsonFields, Plain, Reading
from pasto.metrics.sql.query_builder import DIALECTS, Dialect, Draft
from pasto.metrics.sql.unit_query import Relation, Span, moments_from, sums_query, units_query

__all__ = [
    "DIALECTS",
    "Dialect",
    "Draft",
    "JsonFields",
    "Plain",
    "Reading",
    "Relation",
    "Span",
    "moments_from",
    "sums_query",
    "units_query",
]
