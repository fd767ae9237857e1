"""PASTO's own events: one table of exposures and metric events, in the store or in its archive."""

from __future__ import annotations

from pasto.measure.engines.request import Request
from pasto.measure.sql import Draft, JsonFields, Relation


def own_events(draft: Draft, request: Request, table: str = "events") -> Relation:
    """The round of a request, from a table or view with the columns of the store's events."""
    names = ", ".join(draft.bind(event) for event in sorted({column.event for column in request.columns}))
    study, version = draft.bind(request.study), draft.bind(request.version)
    after, until = draft.bind(request.after), draft.bind(request.until)
    text = f"""SELECT unit, CASE WHEN kind = 0 THEN arm END AS arm, CASE WHEN kind = 0 THEN candidate END AS candidate,
            CASE WHEN kind = 1 THEN name END AS name, fields
        FROM {draft.table(table)}
        WHERE study = {study} AND version = {version} AND sequence > {after} AND sequence <= {until}
            AND excluded = 0 AND unit <> '' AND (kind = 0 OR name IN ({names}))"""  # noqa: S608 -- all bound
    return Relation(text, JsonFields("fields"))
