"""A round's measurement as plain SQL: one text, with what databases call differently kept in one table."""

from pasto.measure.sql.centred import moments_from, sums_query
from pasto.measure.sql.draft import DIALECTS, Dialect, Draft
from pasto.measure.sql.per_unit import Relation, Span, units_query
from pasto.measure.sql.reading import JsonFields, Plain, Reading

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
