"""Event log as a source: one table of exposures and metric events, in the store or in its archive."""

from __future__ import annotations

from pasto.metrics.definitions import MEMBERS
from pasto.metrics.measure_request import CLUSTER_FIELD, CURRENT_ARM, MeasureRequest
from pasto.metrics.sql import JsonFields, QueryBuilder, Relation, Span


def event_log_relations(draft: QueryBuilder, request: MeasureRequest, table: str = "events") -> Relation:
    """Return the relation of a request's round, with the events that covariates read before it.

    The table has the columns of the store's events.

    Times are those at which events were received.
    """
    names = ", ".join(map(draft.bind, request.events))
    study, version = draft.bind(request.study), draft.bind(request.version)
    after, until = draft.bind(request.after), draft.bind(request.until)
    source = draft.table(table)
    fields = JsonFields("fields")
    cluster = ""
    if MEMBERS in request.columns:
        cluster = f"""
            CASE WHEN kind = 0 THEN {fields.read(draft, CLUSTER_FIELD).text} END AS cluster,"""
    selected = f"""unit,{cluster} CASE WHEN kind = 0 THEN {CURRENT_ARM} END AS arm,
            CASE WHEN kind = 0 THEN candidate END AS candidate,
            CASE WHEN kind = 1 THEN name END AS name, fields"""
    span = (
        f"study = {study} AND version = {version} AND sequence > {after} AND sequence <= {until} "
        "AND excluded = 0 AND unit <> ''"
    )
    if not request.timed:
        text = f"SELECT {selected} FROM {source} WHERE {span} AND (kind = 0 OR name IN ({names}))"  # noqa: S608 -- all bound
        return Relation(text, fields)
    spans = {column.span: f"s{place}" for place, column in enumerate(request.columns)}
    flags = "".join(f", {_within(draft, request, span)} AS {flag}" for span, flag in spans.items())
    past = request.past
    text = f"""SELECT {selected}{flags}
        FROM {source} LEFT JOIN (
            SELECT unit AS met, min(received_at) AS seen FROM {source} WHERE {span} AND kind = 0 GROUP BY unit
        ) AS exposed ON unit = met
        WHERE ({span} AND (kind = 0 OR name IN ({names})))
            OR (study = {study} AND sequence > {draft.bind(past.after)} AND sequence <= {draft.bind(past.until)}
                AND unit <> '' AND kind = 1 AND name IN ({names}))"""  # noqa: S608 -- all bound
    return Relation(text, fields, spans)


def _within(draft: QueryBuilder, request: MeasureRequest, span: Span) -> str:
    """Return SQL for whether columns with this window and look-back read an event."""
    window, lookback = span
    after = draft.bind(request.after)
    if lookback is not None:
        return f"sequence <= {after} AND received_at >= {draft.double(draft.bind(request.past.at - lookback))}"
    if window is not None:
        return f"sequence > {after} AND received_at <= seen + {draft.double(draft.bind(window))}"
    return f"sequence > {after}"
