"""Team tables of a study file: the place of exposures and events, and the names of their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pasto.document_validation import ProblemList, nearest_name, show_value
from pasto.metrics.sources.team_tables import EventTable, ExposureTable, TeamTables
from pasto.service.study_file.schema import FIELDS, MAX_TABLES
from pasto.service.study_file.spec import TeamSource
from pasto_sdk.enrolment import AudienceCondition, SegmentRule


def read_source(problems: ProblemList, given: object) -> TeamSource | None:
    """Return the section `source`, or None and its problems.

    >>> problems = ProblemList()
    >>> read_source(problems, {"from": "lake", "exposures": {"table": "seen"}, "events": []}) is None
    True
    >>> problems.found["source.events"]
    'must be a list of 1 to 64 tables, such as [{table: plays, event: play, version: policy}], got []'
    """
    fields = FIELDS.read(problems, "source", given)
    if "from" not in fields:
        problems.add("source.from", "is missing; name a place that the service's operator has set, as in from: lake")
    exposures = _read_table(problems, "source.exposures", fields.get("exposures"), "source.exposures")
    tables = fields.get("events")
    if not isinstance(tables, (list, tuple)) or not 0 < len(tables) <= MAX_TABLES:
        problems.add(
            "source.events",
            f"must be a list of 1 to {MAX_TABLES} tables, such as [{{table: plays, event: play, version: policy}}], "
            f"got {show_value(tables)}",
        )
        tables = []
    events = [
        _read_event_table(problems, f"source.events[{place}]", table, exposures) for place, table in enumerate(tables)
    ]
    complete = tuple(table for table in events if table is not None)
    if exposures is None or not events or len(complete) < len(events) or "from" not in fields:
        return None
    return TeamSource(fields["from"], TeamTables(ExposureTable(**exposures), complete))


def check_attributes(
    problems: ProblemList,
    audience: Sequence[AudienceCondition],
    segments: SegmentRule | None,
    cluster: str | None,
    source: TeamSource,
) -> None:
    """Note columns of attributes that nothing reads, and a missing column of clusters."""
    read = [condition.attribute for condition in audience]
    read += [] if segments is None else [part.attribute for part in segments.attributes]
    read += [] if cluster is None else [cluster]
    known = dict.fromkeys(read)
    if cluster is not None and cluster not in source.tables.exposures.attributes:
        problems.add(
            "source.exposures.attributes",
            f"must name the column of {cluster!r}, by which units are assigned: attributes: {{{cluster}: COLUMN}}",
        )
    for attribute in source.tables.exposures.attributes:
        if attribute not in known:
            problems.add(
                "source.exposures.attributes",
                f"names {attribute!r}, which neither audience, segments nor the unit's cluster read; "
                f"{nearest_name(attribute, known)}",
            )


def _read_event_table(
    problems: ProblemList, path: str, given: object, exposures: Mapping[str, Any] | None
) -> EventTable | None:
    columns = _read_table(problems, path, given, "source.events")
    if columns is None:
        return None
    if "event" in columns and "name" in columns:
        problems.add(f"{path}.event", "cannot be given with name; events are named by a column or alike, so keep one")
    if "event" in columns:
        columns["name"] = None
    if "version" not in columns and ("time" not in columns or "time" not in (exposures or {})):
        problems.add(
            f"{path}.version",
            "is missing; name the column with the policy's version, or the time's column here and in source.exposures",
        )
    return EventTable(**columns)


def _read_table(problems: ProblemList, path: str, given: object, section: str) -> dict[str, Any] | None:
    """Return the table and its columns by their roles, or None and a problem."""
    before = len(problems.found)
    columns = FIELDS.read(problems, section, given, path)
    if "table" not in columns and isinstance(given, Mapping):
        problems.add(f"{path}.table", "is missing; name the table")
    return columns if len(problems.found) == before else None
