"""Event accounting: logged events compared with the counts of their senders, and the events that arrived too late."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any

from pasto.errors import StoreError
from pasto.metrics import OTHER_SOURCES
from pasto.report.data_quality_records import (
    AccountingReport,
    CandidateCounts,
    CandidateGap,
    EventTotals,
    LateRound,
    LateRounds,
    NumberedSenders,
    PolicyExposures,
    SenderLine,
    SequenceGap,
)
from pasto.service.close_record import CloseRecord, SenderRecord, SenderTotals
from pasto.service.event_counts import EventCounts, PolicyCounts, SenderStream
from pasto.service.rejections import read_rejected_events
from pasto.store import RejectedPositions, Store
from pasto.store.statements import LAST_SEQUENCE
from pasto_sdk.policy_document import current_arm

MAX_SENDER_LINES = 20
"""Senders that have a line of their own; the rest are summed."""
MAX_LISTED = 20
"""Latest policies, rounds and gaps that a report lists."""
MAX_COUNTED_POLICIES = 64
"""Latest policies that are counted one by one; the totals contain all."""
MAX_SENDERS = 10_000
"""Senders that are counted one by one; those without events for the longest time are removed first."""
PAGE_CLOSES = 20
"""Closes that are read at a time."""
SAVE_CLOSES = 64
"""Closes after which the counts are saved, so that a restart does not count from the beginning."""
SAVE_EVENTS = 100_000
"""Events after which the counts are saved."""
QUERY_POLICIES = 1_000
"""Policies whose late events one query counts."""
QUERY_EVENTS = 1_000_000
"""Events that one query reads, so that no query takes a database long."""
UNCREDITED, OLDER = -1, -2
"""Versions in the counts of archived events: of metric events of no policy, and of exposures of old policies."""

_COUNTS = """
SELECT kind, version, candidate, arm, excluded, CASE WHEN source IS NULL THEN 0 ELSE 1 END, COUNT(*)
FROM events WHERE study = ? AND sequence > ? AND sequence <= ?
GROUP BY 1, 2, 3, 4, 5, 6
"""
_SENDERS = """
SELECT source, COUNT(*), MIN(position), MAX(position)
FROM events WHERE study = ? AND sequence > ? AND sequence <= ? AND source IS NOT NULL AND position IS NOT NULL
GROUP BY source ORDER BY source
"""
# Counts of events that were deleted because the archive holds them, and their last sequence number.
_ARCHIVED_LAST = "SELECT COALESCE(MAX(last_sequence), 0) FROM archived_spans WHERE study = ?"
_ARCHIVED_COUNTS = """
SELECT kind, version, candidate, arm, excluded, numbered, events FROM archived_event_counts WHERE study = ?
"""
_ARCHIVED_SOURCES = """
SELECT source, events, first_position, last_position FROM archived_source_counts WHERE study = ? ORDER BY source
"""
_ARCHIVED_SENDERS = """
SELECT key_prefix, source, kind, events FROM archived_sender_counts WHERE study = ? ORDER BY source, key_prefix, kind
"""
_BY_SENDER = """
SELECT key_prefix, source, kind, COUNT(*)
FROM events WHERE study = ? AND sequence > ? AND sequence <= ?
GROUP BY key_prefix, source, kind ORDER BY source, key_prefix, kind
"""
# Events are read once, for any number of rounds: SQLite keeps the order of a cross join.
_LATE = """
WITH marks(version, mark) AS (VALUES {marks})
SELECT events.version, kind, arm, COUNT(*)
FROM events CROSS JOIN marks
WHERE study = ? AND sequence > ? AND sequence <= ? AND marks.version = events.version AND sequence > mark
GROUP BY events.version, kind, arm
"""


class EventAccounting:
    """Event counts of one study, refreshed by reading each event once.

    Everything is counted from the store's own log, and from the counts of deleted events. So the counts of two nodes
    agree, and a restart loses nothing.
    """

    def __init__(self, store: Store, study: int) -> None:
        self._store = store
        self._study = study
        self.counts: EventCounts | None = None
        """None before the first refresh."""
        self._saved = 0, 0
        """Last close and event of the saved counts."""
        self._lock = Lock()

    def summarize(
        self, names: Sequence[str], columns: Sequence[str], record: SenderRecord | None = None
    ) -> AccountingReport:
        """Refresh the counts and return them; `record` has the senders of learned rounds."""
        with self._lock:
            counts = self._refresh()
            rejected = self._store.list_rejections_by_source(self._study)
            keys, sources = self._list_senders(counts, record, columns, {row.source: row.events for row in rejected})
            events = counts.events
            return AccountingReport(
                events=EventTotals(events["exposures"], events["metrics"], events["excluded"], events["uncredited"]),
                candidates=tuple(_list_candidates(names, counts.candidates)),
                versions=tuple(
                    self._count_exposures(version, counts.versions[version], names)
                    for version in sorted(counts.versions)[-MAX_LISTED:]
                ),
                senders=_find_missing_numbers(counts, rejected),
                rejected=read_rejected_events(self._store, self._study),
                keys=keys,
                sources=sources,
                late=LateRounds(
                    sum(late.total() for late in counts.late.values()),
                    tuple(_count_late(number, counts.late[number]) for number in sorted(counts.late)[-MAX_LISTED:]),
                ),
                clipped={name: counts.clipped[place] for place, name in enumerate(columns)},
            )

    def keep_up(self) -> None:
        """Refresh the counts, so that a later report does not wait."""
        with self._lock:
            self._refresh()

    def _refresh(self) -> EventCounts:
        """Read on to the last event in parts, each of which is counted completely or not at all.

        All parts belong to one transaction, so that no event is archived between two of them.
        """
        last = self._store.read_high_water(self._study)
        if self.counts is None:
            self.counts = self._load(last)
        with self._store.read_transaction() as connection:
            ((archived,),) = self._rows(connection, _ARCHIVED_LAST)
            if archived > (self.counts.until or 0):  # deleted before it was counted here
                self.counts = self._from_archived(connection)
            counts = self.counts
            since = counts.until or 0
            last = max(since, last)
            self._read_closes(counts)
            while True:
                until = min(last, since + QUERY_EVENTS)
                self._read(connection, counts, since, until)
                counts.until = since = until
                if until >= last:
                    break
        for version in sorted(counts.versions)[:-MAX_COUNTED_POLICIES]:
            del counts.versions[version]
        self._save(counts)
        return counts

    def _from_archived(self, connection: Any) -> EventCounts:
        """Return counts of the archived events only, which start at the study's first event."""
        first = self._store.read_policy(self._study, 1)
        counts = EventCounts(until=0 if first is None else first.after_sequence)
        older = EventCounts()
        for kind, version, candidate, arm, excluded, numbered, count in self._rows(connection, _ARCHIVED_COUNTS):
            uncredited = bool(kind) and version == UNCREDITED
            place = None if candidate < 0 else candidate
            row = (kind, None if uncredited else version, place, arm or None, excluded, numbered, count)
            _count(older if version == OLDER else counts, [row])
        counts.events.update(older.events)
        counts.candidates.add(older.candidates)
        _follow(counts, self._rows(connection, _ARCHIVED_SOURCES))
        _count_senders(counts, self._rows(connection, _ARCHIVED_SENDERS))
        return counts

    def _load(self, last: int) -> EventCounts:
        """Return the saved counts, or empty ones that start at the study's first event."""
        if (text := self._store.read_cache(f"event_counts/{self._study}")) is not None:
            counts = EventCounts.from_text(text)
            if counts is not None and counts.until is not None and counts.until <= last:
                self._saved = counts.closed, counts.until
                return counts
        first = self._store.read_policy(self._study, 1)
        return EventCounts(until=0 if first is None else first.after_sequence)

    def _save(self, counts: EventCounts) -> None:
        """Save the counts once there are many new closes or events."""
        until = counts.until or 0
        if counts.closed - self._saved[0] < SAVE_CLOSES and until - self._saved[1] < SAVE_EVENTS:
            return
        self._saved = counts.closed, until
        with suppress(StoreError):  # a read-only store saves nothing
            self._store.write_cache(f"event_counts/{self._study}", counts.text())

    def _read_closes(self, counts: EventCounts) -> None:
        """Read the rounds that were learned since the last refresh.

        A close holds all measurements of its rounds, which are large with many candidates: few are read at a time.
        """
        while closes := self._store.list_closes(self._study, after=counts.closed, limit=PAGE_CLOSES):
            for close in closes:
                record = CloseRecord.from_text(close.record)
                for entry in record.measured:
                    clipped = Counter(dict(enumerate(entry.cells.count_clipped())))
                    counts.clipped.subtract(counts.correctable.get(entry.round, {}))
                    counts.clipped.update(clipped)
                    if entry.is_correctable or entry.round in counts.correctable:
                        counts.correctable[entry.round] = clipped
                    else:
                        counts.observed[entry.round] = counts.unsettled[entry.round] = close.high_water
                for final in record.final:
                    counts.correctable.pop(final.round, None)
                    counts.observed[final.round] = counts.unsettled[final.round] = final.until
            counts.closed = closes[-1].round

    def _read(self, connection: Any, counts: EventCounts, since: int, until: int) -> None:
        """Count the events of a span; all queries run before anything is counted."""
        late: list[tuple[Any, ...]] = []
        # A close with an older mark may have been committed after events beyond it were counted.
        overtaken = {version: mark for version, mark in counts.unsettled.items() if mark < since}
        by_policy = self._rows(connection, _COUNTS, since, until)
        senders = self._rows(connection, _SENDERS, since, until)
        by_sender = self._rows(connection, _BY_SENDER, since, until)
        came = {row[1] for row in by_policy if row[1]} - set(overtaken)
        others = {version: counts.observed[version] for version in came if version in counts.observed}
        late += self._late(connection, overtaken, min(overtaken.values(), default=since), until)
        late += self._late(connection, others, since, until)
        counts.unsettled.clear()
        _count(counts, by_policy)
        _follow(counts, senders)
        _count_senders(counts, by_sender)
        for version, kind, arm, count in late:
            counter = counts.late.setdefault(version, Counter())
            counter[("metrics" if kind else "exposures"), current_arm(arm or "none")] += count

    def _late(self, connection: Any, marks: Mapping[int, int], since: int, until: int) -> list[tuple[Any, ...]]:
        """Count the events of a span that came after the measurement of their round."""
        known = sorted((version, mark) for version, mark in marks.items() if mark < until)
        found: list[tuple[Any, ...]] = []
        for first in range(0, len(known), QUERY_POLICIES):
            written = ", ".join(f"({version}, {mark})" for version, mark in known[first : first + QUERY_POLICIES])
            found += self._rows(connection, _LATE.replace("{marks}", written), since, until)
        return found

    def _rows(self, connection: Any, statement: str, *values: int) -> Sequence[tuple[Any, ...]]:
        cursor = connection.cursor()
        try:
            cursor.execute(_in_dialect(statement, self._store.dialect), (self._study, *values))
            rows: list[tuple[Any, ...]] = cursor.fetchall()
            return rows
        finally:
            cursor.close()

    def _list_senders(
        self,
        counts: EventCounts,
        record: SenderRecord | None,
        columns: Sequence[str],
        rejected_by_source: Mapping[str, int],
    ) -> tuple[tuple[SenderLine, ...], tuple[SenderLine, ...]]:
        """Return the largest senders by key and by source, the rest of each as one."""
        labels = {key.prefix: key.name for key in self._store.list_keys()}
        groups: Mapping[str, Mapping[str, SenderTotals]] = {} if record is None else record.groups
        rejected_by_key = self._store.count_rejections_by_key(self._study)
        return (
            sender_lines(counts.by_key, groups.get("keys", {}), rejected_by_key, columns, labels),
            sender_lines(counts.by_source, groups.get("sources", {}), rejected_by_source, columns),
        )

    def _count_exposures(self, version: int, policy_counts: PolicyCounts, names: Sequence[str]) -> PolicyExposures:
        """Return the counts of one policy; the gap is assigned minus dropped minus logged."""
        assigned: Counter[str | None] = Counter()
        dropped: Counter[str | None] = Counter()
        for tally in self._store.list_sender_counts(self._study, version):
            assigned.update(json.loads(tally.assigned))
            dropped.update(json.loads(tally.dropped))
        if not version:  # served without any policy, under unknown names
            assigned, dropped = Counter({None: assigned.total()}), Counter({None: dropped.total()})
        lines = _list_candidates(names, policy_counts)
        listed = {line.name for line in lines}
        lines += [CandidateCounts(name, 0, 0, 0) for name in assigned if name not in listed]
        candidates = tuple(
            CandidateGap(
                line.name,
                line.logged,
                line.excluded,
                line.numbered,
                assigned=assigned[line.name],
                dropped=dropped[line.name],
                # Without a sender that reports its assignments, no gap can be seen.
                gap=assigned[line.name] - dropped[line.name] - line.numbered if assigned else 0,
            )
            for line in lines
        )
        return PolicyExposures(
            version=version,
            logged=sum(line.logged for line in candidates),
            excluded=sum(line.excluded for line in candidates),
            assigned=sum(line.assigned for line in candidates),
            dropped=sum(line.dropped for line in candidates),
            gap=sum(line.gap for line in candidates),
            arms=dict(policy_counts.arms),
            candidates=candidates,
        )


def _count(counts: EventCounts, rows: Iterable[tuple[Any, ...]]) -> None:
    for kind, version, candidate, arm, excluded, numbered, count in rows:
        counts.events["excluded"] += count if excluded else 0
        if kind:
            counts.events["metrics"] += count
            counts.events["uncredited"] += count if version is None else 0
            continue
        counts.events["exposures"] += count
        for policy_counts in (counts.versions.setdefault(version, PolicyCounts()), counts.candidates):
            policy_counts.logged[candidate] += count
            policy_counts.excluded[candidate] += count if excluded else 0
            policy_counts.numbered[candidate] += count if numbered else 0
            policy_counts.arms[current_arm(arm or "none")] += count


def _follow(counts: EventCounts, rows: Iterable[tuple[Any, ...]]) -> None:
    for source, count, first, last in rows:
        known = counts.senders.pop(source, SenderStream(0, first, last))
        sender = SenderStream(known.events + count, min(known.first, first), max(known.last, last))
        counts.senders[source] = sender
    while len(counts.senders) > MAX_SENDERS:
        del counts.senders[next(iter(counts.senders))]


def _count_senders(counts: EventCounts, rows: Iterable[tuple[Any, ...]]) -> None:
    for key, source, kind, count in rows:
        for senders, name in ((counts.by_key, key or ""), (counts.by_source, source or "")):
            exposures, metrics = senders.pop(name, (0, 0))
            senders[name] = (exposures, metrics + count) if kind else (exposures + count, metrics)
    while len(counts.by_source) > MAX_SENDERS:
        del counts.by_source[next(iter(counts.by_source))]


def _find_missing_numbers(counts: EventCounts, rejected: Iterable[RejectedPositions]) -> NumberedSenders:
    """Return the missing numbers by sender; numbers of rejected events are not missing."""
    senders = dict(counts.senders)
    for source, events, first, last in rejected:
        known = senders.get(source, SenderStream(0, first, last))
        senders[source] = SenderStream(known.events + events, min(known.first, first), max(known.last, last))
    gaps = sorted(((s.missing, name) for name, s in senders.items() if s.missing), reverse=True)
    return NumberedSenders(
        numbered=len(senders),
        missing=sum(missing for missing, _ in gaps),
        gaps=tuple(SequenceGap(name, missing) for missing, name in gaps[:MAX_LISTED]),
    )


def sender_lines(
    events: Mapping[str, tuple[int, int]],
    totals: Mapping[str, SenderTotals],
    rejected: Mapping[str, int],
    columns: Sequence[str],
    labels: Mapping[str, str] | None = None,
) -> tuple[SenderLine, ...]:
    """Return a line for each of the largest senders, those that depart first, and one for all others.

    `events` has exposures and metric events by sender, `labels` the names of keys.

    >>> sender_lines({"web": (2, 5), "": (0, 1)}, {}, {"app": 3}, ["likes"])[0].metrics
    5
    """
    names = {*events, *totals, *rejected} - {OTHER_SOURCES}

    def size(name: str) -> tuple[bool, int, int, str]:
        sender = totals.get(name)
        is_departed = sender is not None and sender.departed is not None
        return not is_departed, -(sender.units if sender else 0), -sum(events.get(name, ())), name

    def line(sender: str | None, name: str | None, joined: Sequence[str]) -> SenderLine:
        measured = [totals[one] for one in joined if one in totals]
        units = sum(sender.units for sender in measured)
        sums = [sum(numbers) for numbers in zip(*(sender.sums for sender in measured), strict=True)]
        return SenderLine(
            sender=sender,
            name=name,
            units=units,
            exposures=sum(events.get(one, (0, 0))[0] for one in joined),
            metrics=sum(events.get(one, (0, 0))[1] for one in joined),
            rejected=sum(rejected.get(one, 0) for one in joined),
            means={column: number / units for column, number in zip(columns, sums, strict=False)} if units else {},
            departs=any(sender.departed is not None for sender in measured),
        )

    order = sorted(names, key=size)
    lines = [line(name or None, (labels or {}).get(name), [name]) for name in order[:MAX_SENDER_LINES]]
    rest = [*order[MAX_SENDER_LINES:], *([OTHER_SOURCES] if OTHER_SOURCES in totals else [])]
    if rest:
        lines.append(line("(others)", None, rest))
    return tuple(lines)


def latest(store: Store) -> int:
    """Return the last event that can be seen in the store, of any study."""
    with store.read_transaction() as connection:
        cursor = connection.cursor()
        try:
            cursor.execute(LAST_SEQUENCE)
            return int(cursor.fetchone()[0])
        finally:
            cursor.close()


def exposures(store: Store, study: int, version: int, after: int, most: int) -> int:
    """Count the exposures of a policy up to `most`, which is enough to know that its round is full."""
    statement = """
    SELECT COUNT(*) FROM (
        SELECT 1 FROM events WHERE study = ? AND sequence > ? AND version = ? AND kind = 0 AND excluded = 0 LIMIT ?
    ) AS counted
    """
    with store.read_transaction() as connection:
        cursor = connection.cursor()
        try:
            cursor.execute(_in_dialect(statement, store.dialect), (study, after, version, most))
            return int(cursor.fetchone()[0])
        finally:
            cursor.close()


def _in_dialect(statement: str, dialect: str) -> str:
    return statement if dialect == "sqlite" else statement.replace("?", "%s")


def _count_late(number: int, events: Mapping[tuple[str, str], int]) -> LateRound:
    by_kind: Counter[str] = Counter()
    by_arm: Counter[str] = Counter()
    for (kind, arm), count in sorted(events.items()):
        by_kind[kind] += count
        by_arm[arm] += count
    return LateRound(number, by_kind["exposures"], by_kind["metrics"], dict(by_arm))


def _list_candidates(names: Sequence[str], policy_counts: PolicyCounts) -> list[CandidateCounts]:
    places = sorted(policy_counts.logged, key=lambda candidate: (candidate is None, candidate or 0))
    return [
        CandidateCounts(
            name=names[candidate] if candidate is not None and candidate < len(names) else None,
            logged=policy_counts.logged[candidate],
            excluded=policy_counts.excluded[candidate],
            numbered=policy_counts.numbered[candidate],
        )
        for candidate in places
    ]
