"""Events on their way to the service, and the books that account for every exposure."""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pasto_sdk.decision import OVERRIDE, SPLIT, Decision
from pasto_sdk.policy_document import Value

VERSIONS = 64
"""Policies whose books are kept; closed books beyond that are put away, the oldest first."""


class BufferedMetric(NamedTuple):
    """One metric event that waits."""

    sequence: int
    unit: str
    decision: Decision | None
    """What the unit was served, where that is known here."""
    name: str
    fields: Mapping[str, Value]


Event = Decision | BufferedMetric
"""What waits to be sent. An exposure is its decision itself: one object less to make, and to collect, for each."""


@dataclass(slots=True)
class CandidateTally:
    """What became of the exposures of one candidate under one version: assigned == logged + dropped + pending."""

    assigned: int = 0
    logged: int = 0
    dropped: int = 0
    """Lost on the way: pushed out of a full buffer, or refused by the service."""


@dataclass(slots=True)
class PolicyTally:
    """The lines of one version."""

    lines: dict[str, CandidateTally] = field(default_factory=dict)
    changes: int = 0
    told: int = 0
    """How many of the changes the service knows of."""

    def closed(self) -> bool:
        """Whether nothing is pending and the service knows it all."""
        return self.told == self.changes and all(
            one.assigned == one.logged + one.dropped for one in self.lines.values()
        )


class ExposureTally(NamedTuple):
    """A book as it stood when it was told to the service."""

    version: int
    changes: int
    wire: dict[str, Any]


class EventBuffer:
    """A bounded buffer of numbered events that never blocks: when it is full the oldest goes, and is counted.

    The oldest, because a round that is still open can use the new ones, and because a unit whose exposure is lost
    drops out of its round as if it had not come, whereas an exposure whose metrics are lost would count as zero.
    """

    def __init__(self, capacity: int, lost: Callable[[Decision], None] = lambda decision: None) -> None:
        self.capacity = capacity
        self._lost = lost
        self.renew()

    def renew(self) -> None:
        """Begin as a new source with nothing waiting: at the start, and in a child after a fork."""
        # A signal handler or a finaliser may decide or track while this thread is inside: it must not wait for itself.
        self.lock = threading.RLock()
        self.source = uuid.uuid4().hex
        self.waiting: deque[Event] = deque()
        self.flying: list[Event] = []
        """Taken by the sender and not yet answered for."""
        self.books: dict[int, PolicyTally] = {}
        self.sequence = 0
        self.dropped_metrics = 0
        self._tallies = 0

    def expose(self, decision: Decision) -> int:
        """Take a new decision's exposure and count it; returns how many wait. The caller holds the lock."""
        version, name = decision._version, decision._cell.name
        book = self.books.get(version)
        if book is None:
            book = self._open(version)
        line = book.lines.get(name)
        if line is None:
            line = book.lines[name] = CandidateTally()
        line.assigned += 1
        book.changes += 1
        self.sequence = decision._sequence = self.sequence + 1
        waiting = self.waiting
        if len(waiting) >= self.capacity:
            self._push_out(waiting.popleft())
        waiting.append(decision)
        return len(waiting)

    def measure(self, unit: str, decision: Decision | None, name: str, fields: Mapping[str, Value]) -> int:
        """Take a metric event; returns how many wait."""
        with self.lock:
            self.sequence += 1
            if len(self.waiting) >= self.capacity:
                self._push_out(self.waiting.popleft())
            self.waiting.append(BufferedMetric(self.sequence, unit, decision, name, fields))
            return len(self.waiting)

    def take(self, limit: int) -> list[Event]:
        """The next events to send, or those taken before: they stay so until they are settled or put back."""
        with self.lock:
            if not self.flying:
                self.flying = [self.waiting.popleft() for _ in range(min(limit, len(self.waiting)))]
            return self.flying

    def put_back(self, events: list[Event]) -> None:
        """Let the last events that were taken wait again, before all others."""
        with self.lock:
            self.flying = self.flying[: len(self.flying) - len(events)]
            self.waiting.extendleft(reversed(events))

    def settle(self, refused: Collection[int] = ()) -> None:
        """The service has answered for what was taken: kept, but for those at these places."""
        with self.lock:
            for place, event in enumerate(self.flying):
                if place in refused:
                    self._drop(event)
                elif isinstance(event, Decision):
                    self.books[event.version].lines[event.name].logged += 1
            self.flying = []

    def tallies(self) -> list[ExposureTally]:
        """The books that changed since the service was last told, as it is to be told now."""
        with self.lock:
            return [self._tally(version, book) for version, book in self.books.items() if book.told != book.changes]

    def told(self, tallies: Collection[ExposureTally]) -> None:
        """The service has these tallies."""
        with self.lock:
            for tally in tallies:
                if tally.version in self.books:
                    self.books[tally.version].told = tally.changes

    def settled(self, sequence: int) -> bool:
        """Whether everything up to an event has been answered for, and the books are told where nothing waits."""
        with self.lock:
            pending = self.flying or self.waiting
            if pending:
                return _sequence(pending[0]) > sequence
            return all(book.told == book.changes for book in self.books.values())

    def pending(self) -> int:
        """Events not yet answered for."""
        return len(self.waiting) + len(self.flying)

    def accounts(self) -> dict[int, dict[str, dict[str, int]]]:
        """By version and candidate: exposures assigned, logged, dropped and pending, all counted apart."""
        with self.lock:
            events = [*self.flying, *self.waiting]
            accounts = {
                version: {
                    name: {"assigned": line.assigned, "logged": line.logged, "dropped": line.dropped, "pending": 0}
                    for name, line in book.lines.items()
                }
                for version, book in self.books.items()
            }
        for event in events:
            if isinstance(event, Decision):
                accounts[event.version][event.name]["pending"] += 1
        return accounts

    def wire(self, event: Event) -> dict[str, Any]:
        """An event as it is sent; the same event is the same text with the same id, however often."""
        sequence = _sequence(event)
        sent: dict[str, Any] = {
            "id": f"{self.source}-{sequence}",
            "unit": event.unit,
            "source": self.source,
            "sequence": sequence,
        }
        if isinstance(event, Decision):
            sent |= {"type": "exposure", "version": event.version, "candidate": event.name}
            if event.reason == OVERRIDE:
                sent["override"] = True
            elif event.reason != SPLIT:
                sent["fallback"] = True
            return sent
        sent |= {"type": "metric", "name": event.name}
        if event.fields:
            sent["fields"] = event.fields
        if event.decision is not None and event.decision.reason == SPLIT:
            sent |= {"version": event.decision.version, "candidate": event.decision.name}
        elif event.decision is not None:
            sent["version"] = 0  # Kept, and credited to no candidate.
        return sent

    def _open(self, version: int) -> PolicyTally:
        if len(self.books) >= VERSIONS:
            closed = next((version for version, book in self.books.items() if book.closed()), None)
            if closed is not None:
                del self.books[closed]
        book = self.books[version] = PolicyTally()
        return book

    def _push_out(self, event: Event) -> None:
        """Drop an event for want of room; its unit, should it come again, is worth another exposure."""
        self._drop(event)
        if isinstance(event, Decision):
            self._lost(event)

    def _drop(self, event: Event) -> None:
        """Count an event that the service will never have."""
        if isinstance(event, Decision):
            book = self.books[event.version]
            book.lines[event.name].dropped += 1
            book.changes += 1
        else:
            self.dropped_metrics += 1

    def _tally(self, version: int, book: PolicyTally) -> ExposureTally:
        self._tallies += 1
        return ExposureTally(
            version,
            book.changes,
            {
                "type": "exposure_counts",
                "id": f"{self.source}-counts-{self._tallies}",
                "source": self.source,
                "sequence": self._tallies,
                "version": version,
                "assigned": {name: line.assigned for name, line in book.lines.items()},
                "dropped": {name: line.dropped for name, line in book.lines.items() if line.dropped},
            },
        )


def _sequence(event: Event) -> int:
    return event._sequence if isinstance(event, Decision) else event.sequence
