"""A round measured once more, from the store or from the archive, and what cannot come out the same any more."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pasto.metrics import CovariateWindow, Moments
from pasto.metrics.moments import moments_match
from pasto.service.close_record import OWN_TABLES
from pasto.service.covariate_window import covariate_window, lacks_events
from pasto.service.rounds.inputs import moments_of
from pasto.service.study_file import StudySpec
from pasto.service.study_state import MaturingRound, identity_of
from pasto.store import Store, StudyRow

if TYPE_CHECKING:
    from pasto.service.archive import Archive

_FORGOTTEN = (
    "SELECT count(*) FROM events WHERE study = ? AND version = ? AND sequence > ? AND sequence <= ? AND unit = ''"
)


class RoundRemeasurer:
    """Measures the rounds of one study again, and keeps note of where a record must do instead.

    What was measured is kept for good in each close. Where a unit was deleted since, or a round's events were, the
    record is taken, if what is left agrees with it; so the rest of the study can still be computed again.
    """

    def __init__(self, store: Store, spec: StudySpec, row: StudyRow, archive: Archive | None = None) -> None:
        self._store = store
        self._spec = spec
        self._row = row
        self._archive = archive
        self._archived = set(archive.rounds(identity_of(row))) if archive is not None else set()
        self._units, self._events, self.deleted = _forgotten(store, row)
        self.touched: list[int] = []
        """Rounds that knew a unit which was deleted since."""
        self.gone: list[int] = []
        """Rounds whose events are no longer kept, or whose archive is not at hand."""
        self.elsewhere: list[int] = []
        """Rounds that were measured in a team's own tables, which go on changing."""
        self.remembered: list[int] = []
        """Rounds whose covariates are taken from the record, because the events before them are no longer all here."""

    def measure(
        self, one: MaturingRound, until: int, recorded: Sequence[Moments], engine: str, spec: StudySpec | None = None
    ) -> tuple[Moments, ...] | None:
        """What a round measured; None where it disagrees with what the engine recorded.

        `spec` is another study file to measure by than the study's own.
        """
        spec = spec or self._spec
        record = tuple(recorded)
        if engine == OWN_TABLES:
            self.elsewhere.append(one.round)
            return record
        past = covariate_window(self._store, spec, self._row.number, one.round)
        moved = past is not None and (one.round in self._archived or lacks_events(self._store, self._row, past))
        whole = self._with_past(one, until, spec, past) if past is not None and moved else None
        remembering = moved and whole is None
        if whole is not None:
            measured, exact = whole, engine == "sqlite"
        elif one.round in self._archived and self._archive is not None:
            measured = self._archive.measure(self._row, one.round, one.after, until, spec.columns)
            exact = engine == "sqlite"
        elif self._missing(one, until) > self._events[one.round]:
            self.gone.append(one.round)
            return record
        else:
            measured = moments_of(self._store, spec, self._row.number, one, until, covariates=not remembering)
            exact = engine == self._store.dialect
        known = record
        if remembering:  # units are added up in the order of all their numbers, so without some the last digits differ
            self.remembered.append(one.round)
            exact, known = False, _narrowed(record, len(spec.columns))
        if self._units[one.round] and measured != known:
            self.touched.append(one.round)
            return record if _lacks(known, measured, self._units[one.round]) else None
        if exact:
            return measured
        return record if moments_match(known, measured) else None

    def exceptions(self, judged_otherwise: Sequence[int] = ()) -> dict[str, Any]:
        """What is identical only by its record, in words for a machine; nothing where all was computed again."""
        told: dict[str, Any] = {}
        if self.touched:
            told["deleted_units"] = {"units": self.deleted, "rounds": _once(self.touched)}
        if self.gone:
            told["deleted_events"] = {"rounds": _once(self.gone)}
        if self.elsewhere:
            told["own_tables"] = {"rounds": _once(self.elsewhere)}
        if self.remembered:
            told["covariates"] = {"rounds": _once(self.remembered)}
        if judged_otherwise:
            told["breaker"] = {"rounds": list(judged_otherwise)}
        return {"except": told} if told else {}

    def _missing(self, one: MaturingRound, until: int) -> int:
        """Return how many events of a round are no longer in the store: archived, or of a unit that was forgotten."""
        deleted = self._store.list_archived_spans(self._row.number, one.after, until)
        archived = sum(row.events for row in deleted if row.version == one.round)
        return archived + self._count(_FORGOTTEN, (self._row.number, one.round, one.after, until))

    def _with_past(
        self, one: MaturingRound, until: int, spec: StudySpec, past: CovariateWindow
    ) -> tuple[Moments, ...] | None:
        """A round and its covariates from store and archive together; None where some of that is in neither."""
        if self._archive is None or (one.round not in self._archived and self._missing(one, until)):
            return None
        return self._archive.measure_with_past(
            self._store, self._row, one.round, one.after, until, spec.measured_columns, past
        )

    def _count(self, query: str, bound: tuple[int, ...]) -> int:
        with self._store.read_transaction() as connection:
            found = connection.execute(
                query.replace("?", "%s") if self._store.dialect == "postgres" else query, bound
            ).fetchone()
        return int(found[0])


def _once(rounds: Sequence[int]) -> list[int]:
    """Each round once: one that was corrected is measured again for each of its records."""
    return list(dict.fromkeys(rounds))


def _narrowed(measured: Sequence[Moments], width: int) -> tuple[Moments, ...]:
    """The first columns alone."""
    return tuple(
        replace(
            cell,
            mean=cell.mean[:width],
            cross=tuple(line[:width] for line in cell.cross[:width]),
            clipped=cell.clipped[:width],
        )
        for cell in measured
    )


def _lacks(recorded: Sequence[Moments], measured: Sequence[Moments], units: int) -> bool:
    """Whether what is left is what was recorded but for at most so many units."""
    left = {(cell.arm, cell.candidate): cell.units for cell in measured}
    missing = [cell.units - left.pop((cell.arm, cell.candidate), 0) for cell in recorded]
    return not left and all(lost >= 0 for lost in missing) and sum(missing) <= units


def _forgotten(store: Store, row: StudyRow) -> tuple[Counter[int], Counter[int], int]:
    """Units and events that were deleted, by round, and how many units in all, from the audit log."""
    units: Counter[int] = Counter()
    events: Counter[int] = Counter()
    deleted, after = 0, 0
    while lines := store.read_audit_log(row.number, after=after):
        after = lines[-1].sequence
        for line in lines:
            if line.action == "forget":
                deleted += 1
                for version, count in json.loads(line.detail)["rounds"].items():
                    units[int(version)] += 1
                    events[int(version)] += count
    return units, events, deleted
