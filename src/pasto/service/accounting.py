"""The books: what senders say they decided beside what was logged, and what came too late to be learned."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from pasto.service.packing import clipped_of
from pasto.store import Store

SHOWN = 20
"""Policies whose books are shown, the latest ones."""
KEPT = 64
"""Policies whose books are kept open, the latest ones; the totals are of all."""
MOST_SENDERS = 10_000
"""Numbered senders that are followed; the longest silent ones are let go first."""
AT_ONCE = 20
"""Closes that are read at a time."""
SPAN = 1_000_000
"""Events of the store that are read at a time, so that no question takes a database long."""

# The plus keeps databases from walking a whole study by its ids, where the span of sequences is what is short.
_COUNTS = """
SELECT kind, version, candidate, arm, excluded, CASE WHEN source IS NULL THEN 0 ELSE 1 END, COUNT(*)
FROM events WHERE +study = ? AND sequence > ? AND sequence <= ?
GROUP BY 1, 2, 3, 4, 5, 6
"""
_SENDERS = """
SELECT source, COUNT(*), MIN(position), MAX(position)
FROM events WHERE +study = ? AND sequence > ? AND sequence <= ? AND source IS NOT NULL AND position IS NOT NULL
GROUP BY source ORDER BY source
"""
_LATE = """
SELECT kind, arm, COUNT(*)
FROM events WHERE +study = ? AND sequence > ? AND sequence <= ? AND version = ?
GROUP BY kind, arm
"""


@dataclass(slots=True)
class Book:
    """One policy's events so far, by candidate."""

    logged: Counter[int | None] = field(default_factory=Counter)
    """Exposures, excluded ones too."""
    excluded: Counter[int | None] = field(default_factory=Counter)
    """Exposures by fallback or override."""
    numbered: Counter[int | None] = field(default_factory=Counter)
    """Exposures of senders that number their events, and so keep tallies."""
    arms: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Sender:
    """One numbered stream.

    >>> Sender(events=9, first=1, last=12).missing
    3
    """

    events: int
    first: int
    last: int

    @property
    def missing(self) -> int:
        """Numbers up to its last that never came: lost, or dropped by the sender; streams begin at 0 or 1."""
        return max(0, self.last - min(self.first, 1) + 1 - self.events)


class Ledger:
    """The books of one study, brought up to date by reading each event once.

    Everything is counted from the store's own log, so books of two nodes agree, and a restart loses nothing.
    """

    def __init__(self, store: Store, study: int) -> None:
        self._store = store
        self._study = study
        self._until: int | None = None
        """The last event counted; None before the first look, which begins with the study and not with the store."""
        self._closed = 0
        self._observed: dict[int, int] = {}
        """By policy version: the last event that was seen when its round was learned."""
        self._unsettled: dict[int, int] = {}
        """Those of them whose late events are not in the books yet."""
        self.events: Counter[str] = Counter()
        self.candidates = Book()
        self.books: dict[int, Book] = {}
        self.senders: dict[str, Sender] = {}
        self.late: dict[int, Counter[tuple[str, str]]] = {}
        """By round: events behind the mark up to which it was learned, by kind and arm."""
        self.clipped: Counter[int] = Counter()
        """By column: units whose number was cut to the stated range, in all rounds learned."""
        self._correctable: dict[int, Counter[int]] = {}
        """The same by round, of rounds that are open to correction: nothing comes too late for those yet."""
        self._lock = Lock()

    def shown(self, names: Sequence[str], columns: Sequence[str]) -> dict[str, Any]:
        """Bring the books up to date and show them."""
        with self._lock:
            self._refresh()
            versions = sorted(self.books)[-SHOWN:]
            return {
                "events": {kind: self.events[kind] for kind in ("exposures", "metrics", "excluded", "uncredited")},
                "candidates": _lines(names, self.candidates),
                "versions": [self._version(version, names) for version in versions],
                "senders": self._senders(),
                "late": {
                    "events": sum(sum(late.values()) for late in self.late.values()),
                    "rounds": [_late(one, self.late[one]) for one in sorted(self.late)[-SHOWN:]],
                },
                "clipped": {name: self.clipped[place] for place, name in enumerate(columns)},
            }

    def _refresh(self) -> None:
        """Read on to the last event, some at a time: each part is in the books whole, or not at all."""
        since = self._begun()
        last = max(since, self._store.high_water(self._study))
        self._look_at_closes()
        while True:
            until = min(last, since + SPAN)
            self._read(since, until)
            self._until = since = until
            if until >= last:
                break
        for version in sorted(self.books)[:-KEPT]:
            del self.books[version]

    def _begun(self) -> int:
        """The last event that is in the books already, or that was before the study."""
        if self._until is not None:
            return self._until
        first = self._store.policy(self._study, 1)
        return 0 if first is None else first.after

    def _look_at_closes(self) -> None:
        """Note the rounds that were learned from since the last look.

        A close holds all that its rounds measured, which is much with many candidates: few are read at a time, and
        none is kept.
        """
        while closes := self._store.closes(self._study, after=self._closed, limit=AT_ONCE):
            for close in closes:
                told = json.loads(close.observed)
                for one in (*told["rounds"], *told.get("corrected", ())):
                    cut = Counter(dict(enumerate(clipped_of(one["moments"]))))
                    self.clipped.subtract(self._correctable.get(one["round"], {}))
                    self.clipped.update(cut)
                    if one.get("open") or one["round"] in self._correctable:
                        self._correctable[one["round"]] = cut
                    else:
                        self._observed[one["round"]] = self._unsettled[one["round"]] = close.high_water
                for one in told.get("settled", ()):
                    self._correctable.pop(one["round"], None)
                    self._observed[one["round"]] = self._unsettled[one["round"]] = one["until"]
            self._closed = closes[-1].round

    def _read(self, since: int, until: int) -> None:
        """Bring what came in a span into the books; everything is read before anything is counted."""
        late: dict[int, Sequence[tuple[Any, ...]]] = {}
        with self._store.reading() as connection:
            # A close may have been on its way with an older mark while these books were read up to a later one.
            overtaken = {version: mark for version, mark in self._unsettled.items() if mark < since}
            counts = self._rows(connection, _COUNTS, since, until)
            senders = self._rows(connection, _SENDERS, since, until)
            for version in sorted({*overtaken, *(row[1] for row in counts if row[1])}):
                mark = overtaken.get(version, max(since, self._observed.get(version, until)))
                if mark < until:
                    late[version] = self._rows(connection, _LATE, mark, until, version)
        self._unsettled.clear()
        self._count(counts)
        self._follow(senders)
        for version, rows in late.items():
            counter = self.late.setdefault(version, Counter())
            for kind, arm, count in rows:
                counter[("metrics" if kind else "exposures"), arm or "none"] += count

    def _count(self, rows: Iterable[tuple[Any, ...]]) -> None:
        for kind, version, candidate, arm, excluded, numbered, count in rows:
            self.events["excluded"] += count if excluded else 0
            if kind:
                self.events["metrics"] += count
                self.events["uncredited"] += count if version is None else 0
                continue
            self.events["exposures"] += count
            for book in (self.books.setdefault(version, Book()), self.candidates):
                book.logged[candidate] += count
                book.excluded[candidate] += count if excluded else 0
                book.numbered[candidate] += count if numbered else 0
                book.arms[arm or "none"] += count

    def _follow(self, rows: Iterable[tuple[Any, ...]]) -> None:
        for source, count, first, last in rows:
            known = self.senders.pop(source, Sender(0, first, last))
            sender = Sender(known.events + count, min(known.first, first), max(known.last, last))
            self.senders[source] = sender
        while len(self.senders) > MOST_SENDERS:
            del self.senders[next(iter(self.senders))]

    def _rows(self, connection: Any, statement: str, *values: int) -> Sequence[tuple[Any, ...]]:
        cursor = connection.cursor()
        try:
            cursor.execute(_spoken(statement, self._store.dialect), (self._study, *values))
            rows: list[tuple[Any, ...]] = cursor.fetchall()
            return rows
        finally:
            cursor.close()

    def _version(self, version: int, names: Sequence[str]) -> dict[str, Any]:
        """One policy's books: what senders decided, less what they dropped and what arrived, is the gap."""
        book = self.books[version]
        assigned: Counter[str | None] = Counter()
        dropped: Counter[str | None] = Counter()
        for tally in self._store.tallies(self._study, version):
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

    def _senders(self) -> dict[str, Any]:
        gaps = sorted(((s.missing, name) for name, s in self.senders.items() if s.missing), reverse=True)
        return {
            "numbered": len(self.senders),
            "missing": sum(missing for missing, _ in gaps),
            "gaps": [{"source": name, "missing": missing} for missing, name in gaps[:SHOWN]],
        }


def latest(store: Store) -> int:
    """The last event that can be seen in the store, of any study."""
    with store.reading() as connection:
        cursor = connection.cursor()
        try:
            cursor.execute("SELECT MAX(sequence) FROM events")
            return int(cursor.fetchone()[0] or 0)
        finally:
            cursor.close()


def exposures(store: Store, study: int, version: int, after: int, most: int) -> int:
    """How many exposures a policy has that count, up to `most`: enough to know whether its round is full."""
    statement = """
    SELECT COUNT(*) FROM (
        SELECT 1 FROM events WHERE +study = ? AND sequence > ? AND version = ? AND kind = 0 AND excluded = 0 LIMIT ?
    ) AS counted
    """
    with store.reading() as connection:
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


def _lines(names: Sequence[str], book: Book) -> list[dict[str, Any]]:
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
