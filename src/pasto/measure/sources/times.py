"""When things happened in a team's own tables: timestamps, or numbers of seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pasto.errors import BadOption
from pasto.measure.sql import Draft
from pasto.measure.sql.reading import Kind

if TYPE_CHECKING:
    from pasto.measure.sources.tables import EventTable, ExposureTable, Tables

_LATER = {
    "duckdb": "({time} + to_microseconds(CAST({microseconds} AS BIGINT)))",
    "postgres": "({time} + {microseconds} * interval '1 microsecond')",
    "spark": "({time} + make_dt_interval(0, 0, 0, CAST({microseconds} AS DECIMAL(18, 0)) / 1000000))",
}


@dataclass(frozen=True, slots=True)
class Times:
    """SQL over the times of exposures and events."""

    draft: Draft
    tables: Tables
    kinds: Mapping[str, Mapping[str, Kind]]
    """By table and column; a column that is not among them may be a timestamp."""

    def firsts(self, versions: str) -> str:
        """When each unit was first exposed under some versions: unit, began."""
        table, draft = self.tables.exposures, self.draft
        unit = draft.identifier(table.unit)
        return (
            f"SELECT {unit} AS unit, min({draft.identifier(self._column(table))}) AS began "  # noqa: S608 -- all quoted
            f"FROM {draft.table(table.table)} WHERE {draft.identifier(table.version)} {versions} GROUP BY {unit}"
        )

    def of(self, table: EventTable) -> str:
        """When an event of a table happened."""
        return f"e.{self.draft.identifier(self._column(table))}"

    def later(self, time: str, seconds: float) -> str:
        """So many seconds after a time of the exposures; before it where they are negative."""
        draft = self.draft
        exposures = self.tables.exposures
        if self.kinds.get(exposures.table, {}).get(self._column(exposures)) == "number":
            return f"({time} + {draft.double(draft.bind(seconds))})"
        return _LATER[draft.dialect.name].format(time=time, microseconds=draft.bind(round(seconds * 1e6)))

    def _column(self, table: EventTable | ExposureTable) -> str:
        if table.time is None:
            raise BadOption(
                f"the table {table.table!r} does not say when things happened, which windows and look-backs count "
                "from; name its column under time"
            )
        return table.time
