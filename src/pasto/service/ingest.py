"""Ingestion of events: validated, handed to the store, and answered when they are durable."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from hashlib import blake2b
from threading import Lock
from typing import NamedTuple

from msgspec import UNSET, Struct, UnsetType

from pasto.errors import LifecycleError, PastoError, StoreError
from pasto.service.api_keys import SigningKeys
from pasto.service.event_decoder import Event, RejectedEvent
from pasto.service.event_validator import OWN_IDS, EventValidator, ValidatedBatch, check_open, encode_cluster
from pasto.service.policy_cache import PolicyCache, StudySnapshot
from pasto.service.rejections import RejectionCounter
from pasto.store import CONFLICT_REASON, EXPOSURE, AppendResult, EventRow, Store
from pasto_sdk.policy import PublishedPolicy
from pasto_sdk.policy_document import Bucket

MAX_CACHED_EXPOSURES = 200_000
"""Latest exposures logged by the service itself that are cached, so that they are not written again."""


class DrawnUnit(NamedTuple):
    """Unit for which the service decided, with its bucket."""

    unit: str
    bucket: Bucket
    cluster: str | None = None
    """Cluster that was drawn instead of the unit."""


class EventRejection(Struct, frozen=True):
    """Rejected event. Only the first 100 of a response have an id and a reason."""

    index: int
    reason: str
    id: str | UnsetType | None = UNSET


class BatchResult(Struct, frozen=True):
    """Numbers of accepted and duplicate events of a batch, and its rejected events; they add up to its size."""

    accepted: int
    duplicates: int
    rejected: tuple[EventRejection, ...]


class IngestPipeline:
    """Path of every event into the store: validate, count rejections, append."""

    def __init__(self, store: Store, policy_cache: PolicyCache) -> None:
        self._store = store
        self._policy_cache = policy_cache
        self._rejections = RejectionCounter()
        self._signing_keys = SigningKeys(store)
        self._validators: dict[str, tuple[StudySnapshot, EventValidator]] = {}
        self._exposed: OrderedDict[tuple[int, int, str], None] = OrderedDict()
        self._lock = Lock()
        self.failures: Counter[str] = Counter()
        """Exposures logged by the service itself that could not be stored, by study."""

    def ingest(
        self, name: str, events: Sequence[Event | RejectedEvent], key: str | None = None, *, hides_draw: bool = False
    ) -> Future[BatchResult]:
        """Ingest a batch that came with an API key; the future is done when the accepted events are durable."""
        snapshot = self._policy_cache.snapshot(name)
        try:
            check_open(snapshot)
        except LifecycleError:  # another node may have started it just now
            snapshot = self._policy_cache.reload(name)
            check_open(snapshot)
        batch = self._validator(name, snapshot).validate(events, hides_draw=hides_draw)
        number = snapshot.row.number
        rejected = self._rejections.take_new(number, [*batch.rejected, *batch.hidden])
        rejections = self._rejections.count(number, rejected)
        answer: Future[BatchResult] = Future()
        answer.set_running_or_notify_cancel()  # not cancellable: the store owns the batch now
        has_rows = bool(batch.rows or batch.sender_counts or batch.hidden_counts)

        def finish(done: Future[AppendResult]) -> None:
            error = done.exception()
            if error is not None:
                self._rejections.forget(number, rejected)
            if error is not None and has_rows:
                answer.set_exception(error)
            else:  # an answer with only rejections does not need their counts to be stored
                answer.set_result(_build_result(batch, None if error is not None else done.result()))

        if not events:
            answer.set_result(_build_result(batch, None))
            return answer
        try:
            self._store.append_events(number, batch.rows, batch.sender_counts, rejections, key).add_done_callback(
                finish
            )
        except StoreError:
            self._rejections.forget(number, rejected)
            if has_rows:
                raise
            answer.set_result(_build_result(batch, None))
        return answer

    def signing_key(self, snapshot: StudySnapshot) -> str:
        """Return the key that a study's exposures are signed with."""
        return self._signing_keys.derive(snapshot.row)

    def expose(self, name: str, policy: PublishedPolicy, drawn: Iterable[DrawnUnit], key: str | None = None) -> None:
        """Log exposures that the service decided for a caller, each policy and unit once.

        A unit that does not take part in the study has no exposure.
        """
        version = policy.version
        rows: list[EventRow] = []
        exposed = self._exposed
        try:
            number = self._policy_cache.snapshot(name).row.number  # another study may have the name later
        except PastoError:
            self.failures[name] += sum(1 for _ in drawn)
            return
        with self._lock:
            for unit, cell, cluster in drawn:
                if cell is policy.not_enrolled:
                    continue
                place = (number, version, unit)
                if place in exposed:
                    exposed.move_to_end(place)
                elif "\0" in unit or (cluster is not None and "\0" in cluster):  # which no store can hold
                    self.failures[name] += 1
                else:
                    exposed[place] = None
                    fields = None if cluster is None else encode_cluster(cluster)
                    id_ = _identity(version, unit)
                    rows.append(EventRow(id_, EXPOSURE, unit, version, cell.arm, cell.candidate, None, fields))
            while len(exposed) > MAX_CACHED_EXPOSURES:
                exposed.popitem(last=False)
        if not rows:
            return
        try:
            appending = self._store.append_events(number, rows, key=key)
            appending.add_done_callback(lambda done: self._settle(name, number, rows, done))
        except PastoError:
            self._forget(name, number, rows)

    def _settle(self, name: str, number: int, rows: Sequence[EventRow], done: Future[AppendResult]) -> None:
        if done.exception() is not None:
            self._forget(name, number, rows)

    def _forget(self, name: str, number: int, rows: Sequence[EventRow]) -> None:
        with self._lock:
            self.failures[name] += len(rows)
            for row in rows:
                self._exposed.pop((number, row.version or 0, row.unit), None)

    def _validator(self, name: str, snapshot: StudySnapshot) -> EventValidator:
        cached = self._validators.get(name)
        if cached is None or cached[0] is not snapshot:
            signing_key = self.signing_key(snapshot) if snapshot.spec.signed else None
            cached = self._validators[name] = (snapshot, EventValidator(self._policy_cache, snapshot, signing_key))
        return cached[1]


def _build_result(batch: ValidatedBatch, appended: AppendResult | None) -> BatchResult:
    new = 0 if appended is None else sum(appended.new)
    conflicts = () if appended is None else appended.conflicts
    rejected = [EventRejection(event.index, event.reason, event.id) for event in batch.rejected]
    rejected += [EventRejection(batch.indexes[place], CONFLICT_REASON, batch.rows[place].id) for place in conflicts]
    return BatchResult(
        accepted=new + len(batch.sender_counts) + batch.hidden_counts,
        duplicates=len(batch.rows) - new - len(conflicts),
        rejected=tuple(sorted(rejected, key=lambda rejection: rejection.index)),
    )


def _identity(version: int, unit: str) -> str:
    """Return the id of an exposure that the service itself logs: the same on every node."""
    plain = f"{OWN_IDS}{version}/{unit}"
    if len(plain) <= 128:
        return plain
    return f"{OWN_IDS}{version}/{blake2b(unit.encode(), digest_size=16).hexdigest()}"
