"""What a group of batches will write: which events are new, and to which exposure a unit's metrics belong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from pasto.store.event_ids import Identity, identify
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
Place = tuple[int, str]
"""A study's number, and a unit in it."""
Credit = tuple[int, str | None, int | None]
"""Version, arm and candidate of an exposure."""


@dataclass(slots=True)
class EventBatch:
    """One caller's events on their way, and the future that tells it when they are durable."""

    study: int
    events: Sequence[EventRow]
    tallies: Sequence[SenderCounts] = ()
    rejections: Rejections = NO_REJECTIONS
    key: str | None = None
    """Prefix of the API key that sent it."""
    future: Future[AppendResult] = field(default_factory=Future)
    _identities: Sequence[Identity] | None = None

    @property
    def size(self) -> int:
        """How much of the queue it takes."""
        return len(self.events) + len(self.tallies) + len(self.rejections.reasons) + len(self.rejections.positions)

    @property
    def identities(self) -> Sequence[Identity]:
        """By event; computed once."""
        if self._identities is None:
            self._identities = identify(self.study, self.events)
        return self._identities


@dataclass(slots=True)
class IngestPlan:
    """The rows to write, in order."""

    events: list[Row]
    """sequence, study, the event's own fields, received_at, key_prefix, row_checksum."""
    ids: list[Identity]
    """Digest and content of each event that is new, in the order of the digests."""
    latest: list[Row]
    """study, unit, version, arm, candidate, sequence."""
    tallies: list[Row]
    """study, version, source, position, assigned, dropped."""
    rejected_reasons: list[Row]
    """study, kind, reason, events, first_at."""
    rejected_numbers: list[Row]
    """study, source, events, first_position, last_position."""
    rejected_keys: list[Row]
    """study, key_prefix, events."""
    answers: list[AppendResult]
    """By batch."""


def uncredited(batches: Sequence[EventBatch]) -> list[Place]:
    """The units whose latest exposure must be known: those with a metric event that names no policy."""
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
    kept: Mapping[bytes, int | None],
    credits: Mapping[Place, Credit],
) -> IngestPlan:
    """Lay a group of batches out in the store's order.

    `last` is the store's last sequence so far, `sequences` has rising numbers behind it, enough for every event;
    `kept` are the ids that the store has already, with their content if it is known, and `credits` the latest
    exposures before the group. An event counts where its id is met first; what comes after it, in its own batch too,
    sees it. What comes again with other content is a conflict, and counted as a rejected event.

    >>> shown = EventRow("e1", EXPOSURE, "ann", 3, "learner", 1)
    >>> liked = EventRow("m1", METRIC, "ann", None, None, None, "like")
    >>> batch = EventBatch(1, [shown, liked, shown])
    >>> planned = plan_ingest([batch], last=0, sequences=range(1, 4), received_at=0.0, kept={}, credits={})
    >>> [row[5:8] for row in planned.events], planned.answers
    ([(3, 'learner', 1), (3, 'learner', 1)], [AppendResult(new=(True, True, False), last=2, conflicts=())])
    """
    numbers = iter(sequences)
    seen: dict[bytes, int] = {}
    moved: dict[Place, Row] = {}
    rows: list[Row] = []
    tallies: list[Row] = []
    answers: list[AppendResult] = []
    reasons: list[Row] = []
    for batch in batches:
        study = batch.study
        key = batch.key
        base = event_base(study, received_at, key)
        new: list[bool] = []
        conflicts: list[int] = []
        for event, (digest, content) in zip(batch.events, batch.identities, strict=True):
            if digest in seen or digest in kept:
                before = seen.get(digest, kept.get(digest))
                if before is not None and before != content:
                    conflicts.append(len(new))
                new.append(False)
                continue
            seen[digest] = content
            new.append(True)
            last = next(numbers)
            if event[1] == EXPOSURE:
                rows.append((last, study, *event, received_at, key, event_checksum(base, last, event)))
                if not event[8]:
                    moved[study, event[2]] = (study, event[2], event[3], event[4], event[5], last)
            elif event[3] is None:
                unit = (study, event[2])
                latest = moved.get(unit)
                credit = latest[2:5] if latest is not None else credits.get(unit, (None, None, None))
                credited = (*event[:3], *credit, *event[6:])
                rows.append((last, study, *credited, received_at, key, event_checksum(base, last, credited)))
            else:
                rows.append((last, study, *event, received_at, key, event_checksum(base, last, event)))
        tallies.extend((study, t.version, t.source, t.position, t.assigned, t.dropped) for t in batch.tallies)
        answers.append(AppendResult(tuple(new), last, tuple(conflicts)))
        reasons.extend((study, *row[:3], received_at) for row in batch.rejections.reasons)
        if conflicts:
            reasons.append((study, CONFLICT, CONFLICT_REASON, len(conflicts), received_at))
    numbers_rejected = sorted((batch.study, *row) for batch in batches for row in batch.rejections.positions)
    keys_rejected = sorted(
        (batch.study, batch.key, sum(row.events for row in batch.rejections.reasons))
        for batch in batches
        if batch.key is not None and batch.rejections.reasons
    )
    return IngestPlan(
        rows,
        sorted(seen.items()),
        sorted(moved.values()),
        tallies,
        sorted(reasons),
        numbers_rejected,
        keys_rejected,
        answers,
    )
