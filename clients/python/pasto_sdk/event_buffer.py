"""Buffer of events that wait to be sent, with exact counts of every exposure."""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pasto_sdk.decision import OVERRIDE, SPLIT, Decision
from pasto_sdk.policy_document import Value

MAX_POLICY_TALLIES = 64
"""Policies whose exposures are counted; beyond that, the oldest complete tally is removed."""


class BufferedMetric(NamedTuple):
    """Metric event that waits to be sent."""

    sequence: int
    unit: str
    decision: Decision | None
    """The unit's decision, if this client made it."""
    name: str
    fields: Mapping[str, Value]


Event = Decision | BufferedMetric
"""An event that waits. An exposure is its decision itself, which saves one object for each."""


@dataclass(slots=True)
class CandidateTally:
    """Exposures of one candidate under one policy version: assigned == logged + dropped + pending."""

    assigned: int = 0
    logged: int = 0
    dropped: int = 0
    """Evicted from a full buffer, or rejected by the service."""


@dataclass(slots=True)
class PolicyTally:
    """Exposures of one policy version, by candidate."""

    candidates: dict[str, CandidateTally] = field(default_factory=dict)
    changes: int = 0
    reported_changes: int = 0
    """Changes that the service has acknowledged."""

    def is_complete(self) -> bool:
        """Return whether nothing is pending and the service has acknowledged all counts."""
        return self.reported_changes == self.changes and all(
            tally.assigned == tally.logged + tally.dropped for tally in self.candidates.values()
        )


class ExposureTally(NamedTuple):
    """Counts of one policy version as they are sent to the service."""

    version: int
    changes: int
    event: dict[str, Any]


class EventBuffer:
    """Bounded buffer of numbered events that never blocks: if it is full, the oldest event is dropped and counted.

    The oldest is dropped because an open round can use the new ones. A unit whose exposure is lost leaves its round;
    an exposure whose metric events are lost would count as zero.
    """

    def __init__(self, capacity: int, on_drop: Callable[[Decision], None] = lambda decision: None) -> None:
        self.capacity = capacity
        self._on_drop = on_drop
        self.renew()

    def renew(self) -> None:
        """Start as a new source without events: at the start, and in a child process after a fork."""
        # Reentrant, because a signal handler or a finalizer may call the client while this thread holds the lock.
        self.lock = threading.RLock()
        self.source = uuid.uuid4().hex
        self.waiting: deque[Event] = deque()
        self.in_flight: list[Event] = []
        """Events in the request that the service has not acknowledged."""
        self.tallies: dict[int, PolicyTally] = {}
        self.sequence = 0
        self.dropped_metrics = 0
        self._tally_sequence = 0

    def add_exposure(self, decision: Decision) -> int:
        """Add and count the exposure of a new decision; return how many events wait. The caller holds the lock."""
        version, name = decision._version, decision._cell.name
        tally = self.tallies.get(version)
        if tally is None:
            tally = self._open(version)
        candidate = tally.candidates.get(name)
        if candidate is None:
            candidate = tally.candidates[name] = CandidateTally()
        candidate.assigned += 1
        tally.changes += 1
        self.sequence = decision._sequence = self.sequence + 1
        waiting = self.waiting
        if len(waiting) >= self.capacity:
            self._evict(waiting.popleft())
        waiting.append(decision)
        return len(waiting)

    def add_metric(self, unit: str, decision: Decision | None, name: str, fields: Mapping[str, Value]) -> int:
        """Add a metric event; return how many events wait."""
        with self.lock:
            self.sequence += 1
            if len(self.waiting) >= self.capacity:
                self._evict(self.waiting.popleft())
            self.waiting.append(BufferedMetric(self.sequence, unit, decision, name, fields))
            return len(self.waiting)

    def take(self, limit: int) -> list[Event]:
        """Return the next events to send, or those taken before, until they are settled or returned."""
        with self.lock:
            if not self.in_flight:
                self.in_flight = [self.waiting.popleft() for _ in range(min(limit, len(self.waiting)))]
            return self.in_flight

    def return_events(self, events: list[Event]) -> None:
        """Put the last events that were taken back to the front of the buffer."""
        with self.lock:
            self.in_flight = self.in_flight[: len(self.in_flight) - len(events)]
            self.waiting.extendleft(reversed(events))

    def settle(self, rejected: Collection[int] = ()) -> None:
        """Record that the service acknowledged the taken events, except those that it rejected."""
        with self.lock:
            for place, event in enumerate(self.in_flight):
                if place in rejected:
                    self._drop(event)
                elif isinstance(event, Decision):
                    self.tallies[event.version].candidates[event.name].logged += 1
            self.in_flight = []

    def changed_tallies(self) -> list[ExposureTally]:
        """Return the tallies that changed since the service last acknowledged them."""
        with self.lock:
            return [
                self._tally(version, tally)
                for version, tally in self.tallies.items()
                if tally.reported_changes != tally.changes
            ]

    def mark_reported(self, tallies: Collection[ExposureTally]) -> None:
        """Record that the service has these tallies."""
        with self.lock:
            for tally in tallies:
                if tally.version in self.tallies:
                    self.tallies[tally.version].reported_changes = tally.changes

    def is_settled(self, sequence: int) -> bool:
        """Return whether all events up to a sequence number are settled, and all tallies if nothing waits."""
        with self.lock:
            pending = self.in_flight or self.waiting
            if pending:
                return _sequence(pending[0]) > sequence
            return all(tally.reported_changes == tally.changes for tally in self.tallies.values())

    def pending(self) -> int:
        """Return how many events are not settled."""
        return len(self.waiting) + len(self.in_flight)

    def count_by_candidate(self) -> dict[int, dict[str, dict[str, int]]]:
        """Return exposures assigned, logged, dropped and pending, by version and candidate."""
        with self.lock:
            events = [*self.in_flight, *self.waiting]
            accounts = {
                version: {
                    name: {
                        "assigned": candidate.assigned,
                        "logged": candidate.logged,
                        "dropped": candidate.dropped,
                        "pending": 0,
                    }
                    for name, candidate in tally.candidates.items()
                }
                for version, tally in self.tallies.items()
            }
        for event in events:
            if isinstance(event, Decision):
                accounts[event.version][event.name]["pending"] += 1
        return accounts

    def serialize(self, event: Event) -> dict[str, Any]:
        """Return an event as it is sent; a repeat of it has the same text and the same id."""
        sequence = _sequence(event)
        sent: dict[str, Any] = {
            "id": f"{self.source}-{sequence}",
            "unit": event.unit,
            "source": self.source,
            "sequence": sequence,
        }
        if isinstance(event, Decision):
            sent |= {"type": "exposure", "version": event.version, "candidate": event.name}
            if event.cluster is not None:
                sent["cluster"] = event.cluster
            if event.reason == OVERRIDE:
                sent["override"] = True
            elif event.reason != SPLIT:
                sent["fallback"] = True
            elif event.segment is not None:
                sent["segment"] = event.segment
            return sent
        sent |= {"type": "metric", "name": event.name}
        if event.fields:
            sent["fields"] = event.fields
        if event.decision is not None and event.decision.reason == SPLIT:
            sent |= {"version": event.decision.version, "candidate": event.decision.name}
            if event.decision.segment is not None:
                sent["segment"] = event.decision.segment
        elif event.decision is not None:
            sent["version"] = 0  # Stored, and counted for no candidate.
        return sent

    def _open(self, version: int) -> PolicyTally:
        if len(self.tallies) >= MAX_POLICY_TALLIES:
            closed = next((version for version, tally in self.tallies.items() if tally.is_complete()), None)
            if closed is not None:
                del self.tallies[closed]
        tally = self.tallies[version] = PolicyTally()
        return tally

    def _evict(self, event: Event) -> None:
        """Drop an event because the buffer is full; the next decision of its unit is logged again."""
        self._drop(event)
        if isinstance(event, Decision):
            self._on_drop(event)

    def _drop(self, event: Event) -> None:
        """Count an event that is lost."""
        if isinstance(event, Decision):
            tally = self.tallies[event.version]
            tally.candidates[event.name].dropped += 1
            tally.changes += 1
        else:
            self.dropped_metrics += 1

    def _tally(self, version: int, tally: PolicyTally) -> ExposureTally:
        self._tally_sequence += 1
        return ExposureTally(
            version,
            tally.changes,
            {
                "type": "exposure_counts",
                "id": f"{self.source}-counts-{self._tally_sequence}",
                "source": self.source,
                "sequence": self._tally_sequence,
                "version": version,
                "assigned": {name: candidate.assigned for name, candidate in tally.candidates.items()},
                "dropped": {
                    name: candidate.dropped for name, candidate in tally.candidates.items() if candidate.dropped
                },
            },
        )


def _sequence(event: Event) -> int:
    return event._sequence if isinstance(event, Decision) else event.sequence
