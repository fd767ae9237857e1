"""Replay measurement: measure a round again from the store or the archive, and list the rounds that cannot be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pasto.metrics import CovariateWindow, Moments
from pasto.metrics.moments import moments_match
from pasto.report.replay_report import ExceptionKind, ReplayException
from pasto.service.close_record import OWN_TABLES
from pasto.service.covariate_window import covariate_window, lacks_events
from pasto.service.rounds.close_inputs import moments_of
from pasto.service.study_file import StudySpec
from pasto.service.study_state import MaturingRound, identity_of
from pasto.store import Store, StudyRow

if TYPE_CHECKING:
    from pasto.service.archive import Archive

_FORGOTTEN = (
    "SELECT count(*) FROM events WHERE study = ? AND version = ? AND sequence > ? AND sequence <= ? AND unit = ''"
)


class RoundRemeasurer:
    """Measurement of a study's rounds for a replay, with a list of the rounds that are taken from their record.

    Each close stores its measurements. If a unit or the events of a round were deleted since, the replay uses the
    record, provided that the remaining events agree with it. So the rest of the study can still be replayed.
    """

    def __init__(self, store: Store, spec: StudySpec, row: StudyRow, archive: Archive | None = None) -> None:
        self._store = store
        self._spec = spec
        self._row = row
        self._archive = archive
        self._archived = set(archive.rounds(identity_of(row))) if archive is not None else set()
        self._units, self._events, self.deleted = _forgotten(store, row)
        self.touched: list[int] = []
        """Rounds with a unit that was deleted since."""
        self.gone: list[int] = []
        """Rounds whose events are deleted, or whose archive is not available."""
        self.elsewhere: list[int] = []
        """Rounds that were measured in a team's own tables, which may change."""
        self.remembered: list[int] = []
        """Rounds whose covariates are taken from the record, because earlier events are missing."""

    def measure(
        self,
        entry: MaturingRound,
        until: int,
        recorded: Sequence[Moments],
        engine: str,
        spec: StudySpec | None = None,
        *,
        has_same_bits: bool = True,
    ) -> tuple[Moments, ...] | None:
        """Return the measurement of a round; None if it differs from the record of the engine.

        `spec` replaces the study's own file. Without `has_same_bits` the record was made by other arithmetic, and is
        returned if the measurement agrees with it except for the last digits.
        """
        spec = spec or self._spec
        record = tuple(recorded)
        if engine == OWN_TABLES:
            self.elsewhere.append(entry.round)
            return record
        past = covariate_window(self._store, spec, self._row.number, entry.round)
        moved = past is not None and (entry.round in self._archived or lacks_events(self._store, self._row, past))
        with_past = self._with_past(entry, until, spec, past) if past is not None and moved else None
        remembering = moved and with_past is None
        if with_past is not None:
            measured, exact = with_past, engine == "sqlite"
        elif entry.round in self._archived and self._archive is not None:
            measured = self._archive.measure(self._row, entry.round, entry.after, until, spec.columns)
            exact = engine == "sqlite"
        elif self._missing(entry, until) > self._events[entry.round]:
            self.gone.append(entry.round)
            return record
        else:
            measured = moments_of(self._store, spec, self._row.number, entry, until, covariates=not remembering)
            exact = engine == self._store.dialect
        known = record
        if remembering:  # without some columns, units are summed in another order, and the last digits differ
            self.remembered.append(entry.round)
            exact, known = False, _narrowed(record, len(spec.columns))
        if self._units[entry.round] and measured != known:
            self.touched.append(entry.round)
            return record if _lacks(known, measured, self._units[entry.round]) else None
        if exact and has_same_bits:
            return measured
        return record if moments_match(known, measured) else None

    def exceptions(self, judged_otherwise: Sequence[int] = ()) -> dict[ExceptionKind, ReplayException]:
        """Return the rounds that are identical only by their record, by reason; {} if all were measured again."""
        rounds: dict[ExceptionKind, Sequence[int]] = {
            "deleted_units": self.touched,
            "deleted_events": self.gone,
            "own_tables": self.elsewhere,
            "covariates": self.remembered,
            "guardrail_monitor": judged_otherwise,
        }
        # A corrected round is measured for each of its records; it is listed once.
        return {
            kind: ReplayException(tuple(dict.fromkeys(numbers)), self.deleted if kind == "deleted_units" else None)
            for kind, numbers in rounds.items()
            if numbers
        }

    def _missing(self, entry: MaturingRound, until: int) -> int:
        """Return how many events of a round are no longer in the store: archived, or of a unit that was forgotten."""
        deleted = self._store.list_archived_spans(self._row.number, entry.after, until)
        archived = sum(row.events for row in deleted if row.version == entry.round)
        return archived + self._count(_FORGOTTEN, (self._row.number, entry.round, entry.after, until))

    def _with_past(
        self, entry: MaturingRound, until: int, spec: StudySpec, past: CovariateWindow
    ) -> tuple[Moments, ...] | None:
        """Measure a round and its covariates from store and archive; None if events are in neither."""
        if self._archive is None or (entry.round not in self._archived and self._missing(entry, until)):
            return None
        return self._archive.measure_with_past(
            self._store, self._row, entry.round, entry.after, until, spec.measured_columns, past
        )

    def _count(self, query: str, bound: tuple[int, ...]) -> int:
        with self._store.read_transaction() as connection:
            found = connection.execute(
                query.replace("?", "%s") if self._store.dialect == "postgres" else query, bound
            ).fetchone()
        return int(found[0])


def _narrowed(measured: Sequence[Moments], width: int) -> tuple[Moments, ...]:
    """Return the cells with the first columns only."""
    return tuple(
        replace(
            cell,
            mean=cell.mean[:width],
            cross=tuple(line[:width] for line in cell.cross[:width]),
            clipped=cell.clipped[:width],
            member_cross=None
            if cell.member_cross is None
            else tuple(line[:width] for line in cell.member_cross[:width]),
        )
        for cell in measured
    )


def _lacks(recorded: Sequence[Moments], measured: Sequence[Moments], units: int) -> bool:
    """Return whether the measurement is the record without at most so many units."""
    left = {(cell.arm, cell.candidate): cell.units for cell in measured}
    missing = [cell.units - left.pop((cell.arm, cell.candidate), 0) for cell in recorded]
    return not left and all(lost >= 0 for lost in missing) and sum(missing) <= units


def _forgotten(store: Store, row: StudyRow) -> tuple[Counter[int], Counter[int], int]:
    """Read the deleted units and events by round, and the number of deleted units, from the audit log."""
    units: Counter[int] = Counter()
    events: Counter[int] = Counter()
    deleted, after = 0, 0
    while lines := store.read_audit_log(row.number, after=after):
        after = lines[-1].sequence
        for line in lines:
            if line.action == "forget":
                deleted += 1
                for version, count in line.detail["rounds"].items():
                    units[int(version)] += 1
                    events[int(version)] += count
    return units, events, deleted
