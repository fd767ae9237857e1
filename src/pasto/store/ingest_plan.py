"""Ingest plan: the rows that a group of batches writes, with repeats removed and metric events credited."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from pasto.store.event_deduplication import Identity, identify
from pasto.store.integrity_check import event_base, event_checksum
from pasto.store.rows import (
    CONFLICT,
    CONFLICT_REASON,
    EXPOSURE,
    METRIC,
    NO_REJECTIONS,
    AppendResult,
    EventRow,
    Rejections,
    SenderCounts,
)

Row = tuple[Any, ...]
StudyUnit = tuple[int, str]
"""Number of a study, and a unit in it."""
Credit = tuple[int, str | None, int | None]
"""Version, arm and candidate of an exposure."""


@dataclass(slots=True)
class EventBatch:
    """One caller's events in the write queue, and the future that is done when they are durable."""

    study: int
    events: Sequence[EventRow]
    counts: Sequence[SenderCounts] = ()
    rejections: Rejections = NO_REJECTIONS
    key: str | None = None
    """Prefix of the API key that sent it."""
    future: Future[AppendResult] = field(default_factory=Future)
    _identities: Sequence[Identity] | None = None

    @property
    def size(self) -> int:
        """Space that it takes in the queue, in events."""
        return len(self.events) + len(self.counts) + len(self.rejections.reasons) + len(self.rejections.positions)

    @property
    def identities(self) -> Sequence[Identity]:
        """Identity of each event; computed once."""
        if self._identities is None:
            self._identities = identify(self.study, self.events)
        return self._identities


@dataclass(slots=True)
class IngestPlan:
    """Rows to write, in order."""

    events: list[Row]
    """sequence, study, the event's own fields, received_at, key_prefix, row_checksum."""
    ids: list[Identity]
    """Digest and content checksum of each new event, in the order of the digests."""
    latest_exposures: list[Row]
    """study, unit, version, arm, candidate, sequence."""
    sender_counts: list[Row]
    """study, version, source, position, assigned, dropped."""
    rejections_by_reason: list[Row]
    """study, kind, reason, events, first_at."""
    rejections_by_source: list[Row]
    """study, source, events, first_position, last_position."""
    rejections_by_key: list[Row]
    """study, key_prefix, events."""
    results: list[AppendResult]
    """Outcome of each batch."""


def find_uncredited_units(batches: Sequence[EventBatch]) -> list[StudyUnit]:
    """Return the units with a metric event that names no policy: their latest exposure must be read."""
    return list(
        {
            (batch.study, event.unit): None
            for batch in batches
            for event in batch.events
            if event.version is None and event.kind == METRIC
        }
    )


def plan_ingest(
    batches: Sequence[EventBatch],
    *,
    last: int,
    sequences: Iterable[int],
    received_at: float,
    stored: Mapping[bytes, int | None],
    credits: Mapping[StudyUnit, Credit],
) -> IngestPlan:
    """Assign sequences to the new events of a group of batches, and credit its metric events.

    `last` is the last sequence of the store. `sequences` are greater ones in rising order, enough for every event.
    `stored` maps the digests that the store has to their content checksums, None if unknown. `credits` are the latest
    exposures before the group. The first event of an id counts; later events of the group see its exposure. An id that
    comes again with other content is a conflict, and counts as a rejected event.

    >>> exposure = EventRow("e1", EXPOSURE, "ann", 3, "learner", 1)
    >>> like = EventRow("m1", METRIC, "ann", None, None, None, "like")
    >>> batch = EventBatch(1, [exposure, like, exposure])
    >>> plan = plan_ingest([batch], last=0, sequences=range(1, 4), received_at=0.0, stored={}, credits={})
    >>> [row[5:8] for row in plan.events], plan.results
    ([(3, 'learner', 1), (3, 'learner', 1)], [AppendResult(new=(True, True, False), last=2, conflicts=())])
    """
    numbers = iter(sequences)
    new_ids: dict[bytes, int] = {}
    latest_exposures: dict[StudyUnit, Row] = {}
    rows: list[Row] = []
    sender_counts: list[Row] = []
    results: list[AppendResult] = []
    reasons: list[Row] = []
    for batch in batches:
        study = batch.study
        key = batch.key
        base = event_base(study, received_at, key)
        new: list[bool] = []
        conflicts: list[int] = []
        for event, (digest, content) in zip(batch.events, batch.identities, strict=True):
            if digest in new_ids or digest in stored:
                first_content = new_ids.get(digest, stored.get(digest))
                if first_content is not None and first_content != content:
                    conflicts.append(len(new))
                new.append(False)
                continue
            new_ids[digest] = content
            new.append(True)
            last = next(numbers)
            if event[1] == EXPOSURE:
                rows.append((last, study, *event, received_at, key, event_checksum(base, last, event)))
                if not event[8]:
                    latest_exposures[study, event[2]] = (study, event[2], event[3], event[4], event[5], last)
            elif event[3] is None:
                unit = (study, event[2])
                latest = latest_exposures.get(unit)
                credit = latest[2:5] if latest is not None else credits.get(unit, (None, None, None))
                credited = (*event[:3], *credit, *event[6:])
                rows.append((last, study, *credited, received_at, key, event_checksum(base, last, credited)))
            else:
                rows.append((last, study, *event, received_at, key, event_checksum(base, last, event)))
        sender_counts.extend((study, row.version, row.source, *row[2:]) for row in batch.counts)
        results.append(AppendResult(tuple(new), last, tuple(conflicts)))
        reasons.extend((study, *row[:3], received_at) for row in batch.rejections.reasons)
        if conflicts:
            reasons.append((study, CONFLICT, CONFLICT_REASON, len(conflicts), received_at))
    by_key = sorted(
        (batch.study, batch.key, sum(row.events for row in batch.rejections.reasons))
        for batch in batches
        if batch.key is not None and batch.rejections.reasons
    )
    return IngestPlan(
        events=rows,
        ids=sorted(new_ids.items()),
        latest_exposures=sorted(latest_exposures.values()),
        sender_counts=sender_counts,
        rejections_by_reason=sorted(reasons),
        rejections_by_source=sorted((batch.study, *row) for batch in batches for row in batch.rejections.positions),
        rejections_by_key=by_key,
        results=results,
    )
