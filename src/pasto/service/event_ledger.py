"""The books: what senders say they decided beside what was logged, and what came too late to be learned."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any

from pasto.errors import StoreError
from pasto.metrics import OTHER_SOURCES
from pasto.service.close_record import CloseRecord, SenderRecord, SenderTotals
from pasto.service.event_counts import EventCounts, PolicyCounts, SenderStream
from pasto.service.rejections import rejected_events
from pasto.store import RejectedPositions, Store
from pasto.store.statements import LAST_SEQUENCE

MAX_SENDER_LINES = 20
"""Senders that have a line of their own; the rest are summed."""
SHOWN = 20
"""Policies whose books are shown, the latest ones."""
KEPT = 64
"""Policies whose books are kept open, the latest ones; the totals are of all."""
MOST_SENDERS = 10_000
"""Numbered senders that are followed; the longest silent ones are let go first."""
AT_ONCE = 20
"""Closes that are read at a time."""
NOTED_ROUNDS = 64
"""Closes after which a note of the books is left in the store, so that a restart does not count from the beginning."""
NOTED_EVENTS = 100_000
"""The same in events of the store."""
MARKS = 1_000
"""Policies whose late events one question asks for."""
SPAN = 1_000_000
"""Events of the store that are read at a time, so that no question takes a database long."""
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
# What was deleted because the archive holds it, counted: in all, and the last sequence of it.
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
# Events are gone through once, however many rounds they belong to: SQLite keeps the order of a cross join.
_LATE = """
WITH marks(version, mark) AS (VALUES {marks})
SELECT events.version, kind, arm, COUNT(*)
FROM events CROSS JOIN marks
WHERE study = ? AND sequence > ? AND sequence <= ? AND marks.version = events.version AND sequence > mark
GROUP BY events.version, kind, arm
"""


class EventLedger:
    """The books of one study, brought up to date by reading each event once.

    Everything is counted from the store's own log, and from the counts of what was deleted of it. So books of two nodes
    agree, and a restart loses nothing.
    """

    def __init__(self, store: Store, study: int) -> None:
        self._store = store
        self._study = study
        self.books: EventCounts | None = None
        """None before the first look."""
        self._noted = 0, 0
        """Up to which close and event a note is in the store."""
        self._lock = Lock()

    def summarize(
        self, names: Sequence[str], columns: Sequence[str], record: SenderRecord | None = None
    ) -> dict[str, Any]:
        """Count new events and return all counts; `record` has the senders of rounds that were learned."""
        with self._lock:
            books = self._refresh()
            return {
                "events": {kind: books.events[kind] for kind in ("exposures", "metrics", "excluded", "uncredited")},
                "candidates": _lines(names, books.candidates),
                "versions": [self._version(version, names) for version in sorted(books.versions)[-SHOWN:]],
                "senders": _senders(books, self._store.list_rejections_by_source(self._study)),
                "rejected": rejected_events(self._store, self._study),
                **self._by_sender(books, record, columns),
                "late": {
                    "events": sum(sum(late.values()) for late in books.late.values()),
                    "rounds": [_late(one, books.late[one]) for one in sorted(books.late)[-SHOWN:]],
                },
                "clipped": {name: books.clipped[place] for place, name in enumerate(columns)},
            }

    def keep_up(self) -> None:
        """Bring the books up to date, so that whoever looks at them later does not wait."""
        with self._lock:
            self._refresh()

    def _refresh(self) -> EventCounts:
        """Read on to the last event, some at a time: each part is in the books whole, or not at all.

        All parts are of one moment, so that nothing is archived between two of them.
        """
        last = self._store.read_high_water(self._study)
        if self.books is None:
            self.books = self._begun(last)
        with self._store.read_transaction() as connection:
            ((archived,),) = self._rows(connection, _ARCHIVED_LAST)
            if archived > (self.books.until or 0):  # deleted before these books had counted it
                self.books = self._from_archived(connection)
            books = self.books
            since = books.until or 0
            last = max(since, last)
            self._look_at_closes(books)
            while True:
                until = min(last, since + SPAN)
                self._read(connection, books, since, until)
                books.until = since = until
                if until >= last:
                    break
        for version in sorted(books.versions)[:-KEPT]:
            del books.versions[version]
        self._note(books)
        return books

    def _from_archived(self, connection: Any) -> EventCounts:
        """Return books with the archived events alone, which begin with the study's first event."""
        first = self._store.read_policy(self._study, 1)
        books = EventCounts(until=0 if first is None else first.after_sequence)
        older = EventCounts()
        for kind, version, candidate, arm, excluded, numbered, count in self._rows(connection, _ARCHIVED_COUNTS):
            uncredited = bool(kind) and version == UNCREDITED
            place = None if candidate < 0 else candidate
            row = (kind, None if uncredited else version, place, arm or None, excluded, numbered, count)
            _count(older if version == OLDER else books, [row])
        books.events.update(older.events)
        books.candidates.add(older.candidates)
        _follow(books, self._rows(connection, _ARCHIVED_SOURCES))
        _count_senders(books, self._rows(connection, _ARCHIVED_SENDERS))
        return books

    def _begun(self, last: int) -> EventCounts:
        """The books as they were last noted, or from the study's first event on."""
        if (text := self._store.read_cache(f"books/{self._study}")) is not None:
            books = EventCounts.from_text(text)
            if books is not None and books.until is not None and books.until <= last:
                self._noted = books.closed, books.until
                return books
        first = self._store.read_policy(self._study, 1)
        return EventCounts(until=0 if first is None else first.after_sequence)

    def _note(self, books: EventCounts) -> None:
        """Leave a note in the store once there is enough that nobody wants to count again."""
        until = books.until or 0
        if books.closed - self._noted[0] < NOTED_ROUNDS and until - self._noted[1] < NOTED_EVENTS:
            return
        self._noted = books.closed, until
        with suppress(StoreError):  # whoever may only read counts for himself
            self._store.write_cache(f"books/{self._study}", books.text())

    def _look_at_closes(self, books: EventCounts) -> None:
        """Note the rounds that were learned from since the last look.

        A close holds all that its rounds measured, which is much with many candidates: few are read at a time, and
        none is kept.
        """
        while closes := self._store.list_closes(self._study, after=books.closed, limit=AT_ONCE):
            for close in closes:
                record = CloseRecord.from_text(close.record)
                for entry in record.measured:
                    clipped = Counter(dict(enumerate(entry.cells.count_clipped())))
                    books.clipped.subtract(books.correctable.get(entry.round, {}))
                    books.clipped.update(clipped)
                    if entry.is_correctable or entry.round in books.correctable:
                        books.correctable[entry.round] = clipped
                    else:
                        books.observed[entry.round] = books.unsettled[entry.round] = close.high_water
                for final in record.final:
                    books.correctable.pop(final.round, None)
                    books.observed[final.round] = books.unsettled[final.round] = final.until
            books.closed = closes[-1].round

    def _read(self, connection: Any, books: EventCounts, since: int, until: int) -> None:
        """Bring what came in a span into the books; everything is read before anything is counted."""
        late: list[tuple[Any, ...]] = []
        # A close may have been on its way with an older mark while these books were read up to a later one.
        overtaken = {version: mark for version, mark in books.unsettled.items() if mark < since}
        counts = self._rows(connection, _COUNTS, since, until)
        senders = self._rows(connection, _SENDERS, since, until)
        by_sender = self._rows(connection, _BY_SENDER, since, until)
        came = {row[1] for row in counts if row[1]} - set(overtaken)
        others = {version: books.observed[version] for version in came if version in books.observed}
        late += self._late(connection, overtaken, min(overtaken.values(), default=since), until)
        late += self._late(connection, others, since, until)
        books.unsettled.clear()
        _count(books, counts)
        _follow(books, senders)
        _count_senders(books, by_sender)
        for version, kind, arm, count in late:
            counter = books.late.setdefault(version, Counter())
            counter[("metrics" if kind else "exposures"), arm or "none"] += count

    def _late(self, connection: Any, marks: Mapping[int, int], since: int, until: int) -> list[tuple[Any, ...]]:
        """Events of a span behind the marks of their policies' rounds."""
        known = sorted((version, mark) for version, mark in marks.items() if mark < until)
        found: list[tuple[Any, ...]] = []
        for first in range(0, len(known), MARKS):
            written = ", ".join(f"({version}, {mark})" for version, mark in known[first : first + MARKS])
            found += self._rows(connection, _LATE.replace("{marks}", written), since, until)
        return found

    def _rows(self, connection: Any, statement: str, *values: int) -> Sequence[tuple[Any, ...]]:
        cursor = connection.cursor()
        try:
            cursor.execute(_spoken(statement, self._store.dialect), (self._study, *values))
            rows: list[tuple[Any, ...]] = cursor.fetchall()
            return rows
        finally:
            cursor.close()

    def _by_sender(self, books: EventCounts, record: SenderRecord | None, columns: Sequence[str]) -> dict[str, Any]:
        """Return the largest senders by key and by source, the rest of each as one."""
        labels = {key.prefix: key.name for key in self._store.list_keys()}
        groups: Mapping[str, Mapping[str, SenderTotals]] = {} if record is None else record.groups
        rejected = {row.source: row.events for row in self._store.list_rejections_by_source(self._study)}
        keys = sender_lines(
            books.by_key, groups.get("keys", {}), self._store.count_rejections_by_key(self._study), columns, labels
        )
        return {"keys": keys, "sources": sender_lines(books.by_source, groups.get("sources", {}), rejected, columns)}

    def _version(self, version: int, names: Sequence[str]) -> dict[str, Any]:
        """One policy's books: what senders decided, less what they dropped and what arrived, is the gap."""
        assert self.books is not None  # noqa: S101 -- they were brought up to date before
        book = self.books.versions[version]
        assigned: Counter[str | None] = Counter()
        dropped: Counter[str | None] = Counter()
        for tally in self._store.list_sender_counts(self._study, version):
            assigned.update(json.loads(tally.assigned))
            dropped.update(json.loads(tally.dropped))
        if not version:  # served without any policy, so under names that nobody here knows
            assigned, dropped = Counter({None: assigned.total()}), Counter({None: dropped.total()})
        lines = _lines(names, book)
        listed = {line["name"] for line in lines}
        lines += [{"name": name, "logged": 0, "excluded": 0, "numbered": 0} for name in assigned if name not in listed]
        for line in lines:
            name = line["name"]
            line |= {"assigned": assigned[name], "dropped": dropped[name]}
            line["gap"] = _gap(line, assigned)
        sums = {key: sum(line[key] for line in lines) for key in ("logged", "excluded", "assigned", "dropped", "gap")}
        return {"version": version, **sums, "arms": dict(book.arms), "candidates": lines}


def _count(books: EventCounts, rows: Iterable[tuple[Any, ...]]) -> None:
    for kind, version, candidate, arm, excluded, numbered, count in rows:
        books.events["excluded"] += count if excluded else 0
        if kind:
            books.events["metrics"] += count
            books.events["uncredited"] += count if version is None else 0
            continue
        books.events["exposures"] += count
        for book in (books.versions.setdefault(version, PolicyCounts()), books.candidates):
            book.logged[candidate] += count
            book.excluded[candidate] += count if excluded else 0
            book.numbered[candidate] += count if numbered else 0
            book.arms[arm or "none"] += count


def _follow(books: EventCounts, rows: Iterable[tuple[Any, ...]]) -> None:
    for source, count, first, last in rows:
        known = books.senders.pop(source, SenderStream(0, first, last))
        sender = SenderStream(known.events + count, min(known.first, first), max(known.last, last))
        books.senders[source] = sender
    while len(books.senders) > MOST_SENDERS:
        del books.senders[next(iter(books.senders))]


def _count_senders(books: EventCounts, rows: Iterable[tuple[Any, ...]]) -> None:
    for key, source, kind, count in rows:
        for senders, name in ((books.by_key, key or ""), (books.by_source, source or "")):
            exposures, metrics = senders.pop(name, (0, 0))
            senders[name] = (exposures, metrics + count) if kind else (exposures + count, metrics)
    while len(books.by_source) > MOST_SENDERS:
        del books.by_source[next(iter(books.by_source))]


def _senders(books: EventCounts, rejected: Iterable[RejectedPositions]) -> dict[str, Any]:
    """Numbers that never came, by sender; those of rejected events did come."""
    senders = dict(books.senders)
    for source, events, first, last in rejected:
        known = senders.get(source, SenderStream(0, first, last))
        senders[source] = SenderStream(known.events + events, min(known.first, first), max(known.last, last))
    gaps = sorted(((s.missing, name) for name, s in senders.items() if s.missing), reverse=True)
    return {
        "numbered": len(senders),
        "missing": sum(missing for missing, _ in gaps),
        "gaps": [{"source": name, "missing": missing} for missing, name in gaps[:SHOWN]],
    }


def sender_lines(
    events: Mapping[str, tuple[int, int]],
    totals: Mapping[str, SenderTotals],
    rejected: Mapping[str, int],
    columns: Sequence[str],
    labels: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Return a line for each of the largest senders, those that depart first, and one for all others.

    `events` has exposures and metric events by sender, `labels` the names of keys.

    >>> sender_lines({"web": (2, 5), "": (0, 1)}, {}, {"app": 3}, ["likes"])[0]["metrics"]
    5
    """
    names = {*events, *totals, *rejected} - {OTHER_SOURCES}

    def size(name: str) -> tuple[bool, int, int, str]:
        sender = totals.get(name)
        is_departed = sender is not None and sender.departed is not None
        return not is_departed, -(sender.units if sender else 0), -sum(events.get(name, ())), name

    order = sorted(names, key=size)
    lines = [_sender_line([name], events, totals, rejected, columns) for name in order[:MAX_SENDER_LINES]]
    for line, name in zip(lines, order, strict=False):
        line["sender"] = name or None
        line["name"] = (labels or {}).get(name)
    rest = [*order[MAX_SENDER_LINES:], *([OTHER_SOURCES] if OTHER_SOURCES in totals else [])]
    if rest:
        lines.append({**_sender_line(rest, events, totals, rejected, columns), "sender": "(others)", "name": None})
    return lines


def _sender_line(
    names: Iterable[str],
    events: Mapping[str, tuple[int, int]],
    totals: Mapping[str, SenderTotals],
    rejected: Mapping[str, int],
    columns: Sequence[str],
) -> dict[str, Any]:
    names = list(names)
    measured = [totals[name] for name in names if name in totals]
    units = sum(sender.units for sender in measured)
    sums = [sum(numbers) for numbers in zip(*(sender.sums for sender in measured), strict=True)]
    return {
        "sender": None,
        "name": None,
        "units": units,
        "exposures": sum(events.get(name, (0, 0))[0] for name in names),
        "metrics": sum(events.get(name, (0, 0))[1] for name in names),
        "rejected": sum(rejected.get(name, 0) for name in names),
        "means": {column: number / units for column, number in zip(columns, sums, strict=False)} if units else {},
        "departs": any(sender.departed is not None for sender in measured),
    }


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
    """How many exposures a policy has that count, up to `most`: enough to know whether its round is full."""
    statement = """
    SELECT COUNT(*) FROM (
        SELECT 1 FROM events WHERE study = ? AND sequence > ? AND version = ? AND kind = 0 AND excluded = 0 LIMIT ?
    ) AS counted
    """
    with store.read_transaction() as connection:
        cursor = connection.cursor()
        try:
            cursor.execute(_spoken(statement, store.dialect), (study, after, version, most))
            return int(cursor.fetchone()[0])
        finally:
            cursor.close()


def _spoken(statement: str, dialect: str) -> str:
    return statement if dialect == "sqlite" else statement.replace("?", "%s")


def _late(number: int, counts: Counter[tuple[str, str]]) -> dict[str, Any]:
    told: dict[str, Any] = {"round": number, "exposures": 0, "metrics": 0, "arms": {}}
    for (kind, arm), count in sorted(counts.items()):
        told[kind] += count
        told["arms"][arm] = told["arms"].get(arm, 0) + count
    return told


def _lines(names: Sequence[str], book: PolicyCounts) -> list[dict[str, Any]]:
    def name(candidate: int | None) -> str | None:
        return names[candidate] if candidate is not None and candidate < len(names) else None

    places = sorted(book.logged, key=lambda candidate: (candidate is None, candidate or 0))
    return [
        {
            "name": name(candidate),
            "logged": book.logged[candidate],
            "excluded": book.excluded[candidate],
            "numbered": book.numbered[candidate],
        }
        for candidate in places
    ]


def _gap(line: Mapping[str, Any], assigned: Mapping[str | None, int]) -> int:
    """What was decided and neither logged nor dropped: lost, or still on its way; 0 where nobody keeps tallies."""
    return line["assigned"] - line["dropped"] - line["numbered"] if assigned else 0
