"""A team's own tables in a study file: where exposures and events are, and what their columns are called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pasto.metrics.sources.team_tables import EventTable, ExposureTable, TeamTables
from pasto.service.study_file.schema import inside
from pasto.validation import ProblemList, show_value

MOST_TABLES = 64
_ORIGIN = re.compile(r"[a-z][a-z0-9_]{0,31}")
_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}(\.[A-Za-z_][A-Za-z0-9_-]{0,62}){0,2}")


@dataclass(frozen=True, slots=True)
class TeamSource:
    """Where a study's events are, instead of in PASTO's own store."""

    origin: str
    """One of the places that the service's operator has named; never an address."""
    tables: TeamTables

    def document(self) -> dict[str, Any]:
        """As a study file writes it."""
        events = [_written(asdict(table)) for table in self.tables.events]
        return {"from": self.origin, "exposures": _written(asdict(self.tables.exposures)), "events": events}


def read_source(problems: ProblemList, given: object) -> TeamSource | None:
    """The section `source`; what is wrong with it is noted.

    >>> problems = ProblemList()
    >>> read_source(problems, {"from": "lake", "exposures": {"table": "seen"}, "events": []}) is None
    True
    >>> problems.found["source.events"]
    'must be a list of 1 to 64 tables, such as [{table: plays, event: play, version: policy}], got []'
    """
    fields = problems.fields("source", given, inside("source"))
    origin = fields.get("from")
    if not isinstance(origin, str) or not _ORIGIN.fullmatch(origin):
        problems.add(
            "source.from",
            f"must be the name of a place that the service's operator has set as PASTO_SOURCE_NAME: up to 32 of a-z, "
            f"0-9 and _, got {show_value(origin)}",
        )
    exposures = _read(problems, "source.exposures", fields.get("exposures"), ("table", "unit", "version"))
    listed = fields.get("events")
    if not isinstance(listed, (list, tuple)) or not 0 < len(listed) <= MOST_TABLES:
        problems.add(
            "source.events",
            f"must be a list of 1 to {MOST_TABLES} tables, such as [{{table: plays, event: play, version: policy}}], "
            f"got {show_value(listed)}",
        )
        listed = []
    tables = [_event_table(problems, f"source.events[{place}]", one, exposures) for place, one in enumerate(listed)]
    if exposures is None or not tables or any(table is None for table in tables) or not isinstance(origin, str):
        return None
    return TeamSource(
        origin, TeamTables(ExposureTable(**exposures), tuple(table for table in tables if table is not None))
    )


def _event_table(
    problems: ProblemList, path: str, given: object, exposures: Mapping[str, Any] | None
) -> EventTable | None:
    read = _read(problems, path, given, ("table", "unit"), section="source.events")
    if read is None:
        return None
    if "event" in read and "name" in read:
        problems.add(f"{path}.event", "stands beside name; events are named by a column or all alike, so keep one")
    if "event" in read:
        read["name"] = None
    if "version" not in read and ("time" not in read or "time" not in (exposures or {})):
        problems.add(
            f"{path}.version",
            "is missing; name the column with the policy's version, or the time's column here and in source.exposures",
        )
    return EventTable(**read)


def _read(
    problems: ProblemList, path: str, given: object, needed: tuple[str, ...], section: str | None = None
) -> dict[str, Any] | None:
    """The names in one table's section, None where one is wrong."""
    before = len(problems.found)
    known = inside(section or path)
    fields = problems.fields(path, given, known)
    read: dict[str, Any] = {}
    for name, value in fields.items():
        if name == "fields":
            if not isinstance(value, Mapping) or not all(
                isinstance(text, str) and 0 < len(text) <= 63 and text.isprintable()
                for pair in value.items()
                for text in pair
            ):
                problems.add(
                    f"{path}.fields", f"must be columns by field, such as {{seconds: secs}}, got {show_value(value)}"
                )
            else:
                read["fields"] = dict(value)
        elif name == "table":
            if isinstance(value, str) and _TABLE.fullmatch(value):
                read["table"] = value
            else:
                problems.add(f"{path}.table", f"must be a table's name, such as lake.plays, got {show_value(value)}")
        else:
            text = problems.text(f"{path}.{name}", value, 128 if name == "event" else 63)
            if text is not None:
                read[name] = text
    if "table" not in fields and "table" in needed and isinstance(given, Mapping):
        problems.add(f"{path}.table", "is missing; name the table")
    return read if len(problems.found) == before else None


def _written(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: dict(value) if name == "fields" else value for name, value in table.items() if value not in (None, {})
    }
