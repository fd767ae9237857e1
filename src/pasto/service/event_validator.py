"""Event validator: turns received events into rows of the store, and checks everything in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hmac import compare_digest

import msgspec

from pasto.errors import InputError, LifecycleError
from pasto.metrics.external_assignment import arm_draw
from pasto.metrics.measure_request import CLUSTER_FIELD
from pasto.service.event_decoder import Event, ExposureCounts, ExposureEvent, MetricEvent, RejectedEvent
from pasto.service.lifecycle import SERVING
from pasto.service.policy_cache import PolicyCache, StudySnapshot
from pasto.service.study_file import StudySpec
from pasto.space import Candidates
from pasto.store import EXPOSURE, METRIC, EventRow, SenderCounts
from pasto_sdk.exposure_signature import sign_exposure
from pasto_sdk.policy import PublishedPolicy
from pasto_sdk.policy_document import Bucket

MAX_NUMBER = 1e15
"""Largest number that is accepted: beyond it the precision of a double is too coarse."""
_NUMBERS = (int, float)
_text = msgspec.json.Encoder(order="deterministic").encode
"""Sorts fields: a retry with its fields in another order is the same event."""
OWN_IDS = "served/"
"""Prefix of the ids of exposures that the service itself logs; senders must not use it."""


@dataclass(slots=True)
class ValidatedBatch:
    """Batch split into rows to store and rejected events."""

    rows: list[EventRow] = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)
    """Index of each row in the batch."""
    sender_counts: list[SenderCounts] = field(default_factory=list)
    rejected: list[RejectedEvent] = field(default_factory=list)
    hidden: list[RejectedEvent] = field(default_factory=list)
    """Events that do not count but are answered as if they did, with the reason for the report."""
    hidden_counts: int = 0
    """Exposure counts among them; they are not stored."""


@dataclass(frozen=True, slots=True)
class _WrongCandidate:
    """Event whose candidate is not the one that its policy draws for it: the reason, and its excluded row.

    The policy may draw none, because the unit does not take part in the study.

    Exposure counts of a candidate that the policy does not serve have no row.
    """

    reason: str
    row: EventRow | None

    def __str__(self) -> str:
        return self.reason


def required_fields(spec: StudySpec) -> Mapping[str, tuple[tuple[str, bool], ...]]:
    """Return by event name the fields from which metrics read numbers, and whether every such event must have them.

    A field that is only read under a condition may be missing.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> required_fields(read_spec(EXAMPLE, "yaml"))
    {'watch': (('seconds', True),), 'like': (), 'view': ()}
    """
    fields_by_event: dict[str, dict[str, bool]] = {}
    for column in spec.columns:
        if column.aggregate == "members":
            continue
        fields = fields_by_event.setdefault(column.event, {})
        for name in (column.value, column.by) if column.aggregate != "distinct" else ():
            if name is not None:
                fields[name] = fields.get(name, False) or not column.where
    return {event: tuple(fields.items()) for event, fields in fields_by_event.items()}


def required_keys(spec: StudySpec) -> Mapping[str, tuple[str, ...]]:
    """Return by event name the fields whose different values a metric counts, and that every such event must have.

    A field that is only read under a condition may be missing.
    """
    keys_by_event: dict[str, dict[str, None]] = {}
    for column in spec.columns:
        if column.aggregate == "distinct" and column.value is not None and not column.where:
            keys_by_event.setdefault(column.event, {})[column.value] = None
    return {event: tuple(names) for event, names in keys_by_event.items()}


def encode_cluster(cluster: str) -> str:
    """Return the fields of an exposure whose unit was drawn with its cluster.

    >>> encode_cluster("north")
    '{"cluster":"north"}'
    """
    return _text({CLUSTER_FIELD: cluster}).decode()


class EventValidator:
    """Validator of the events of one study.

    An exposure's candidate must be the one that its policy draws for its unit. It is drawn again here, so neither arm
    nor propensity is ever taken from a sender; a forged exposure is rejected like a mistaken one. So is an exposure of
    a unit outside the policy's slices. Attributes are not sent with events, so the audience is not checked again. If
    another platform assigns the units, the candidate that is sent counts, and only its arm is drawn.
    """

    def __init__(self, policy_cache: PolicyCache, snapshot: StudySnapshot, signing_key: str | None = None) -> None:
        self._policy_cache = policy_cache
        self._snapshot = snapshot
        self._signing_key = signing_key
        """None if the study takes unsigned exposures."""
        self._required_fields = required_fields(snapshot.spec)
        self._required_keys = required_keys(snapshot.spec)
        self._is_external = snapshot.spec.is_external
        rows = snapshot.spec.candidates
        self._names = frozenset(rows.names) if isinstance(rows, Candidates) else frozenset()

    def validate(self, events: Sequence[Event | RejectedEvent], *, hides_draw: bool = False) -> ValidatedBatch:
        """Split a batch; every rejection has the index of its event and a reason.

        With `hides_draw`, an event with a wrong candidate is stored as excluded instead: its answer, and that of a
        repeat, are those of a correct one.
        """
        batch = ValidatedBatch()
        rows, indexes, rejected = batch.rows, batch.indexes, batch.rejected
        policies: dict[int, PublishedPolicy | None] = {}
        for index, event in enumerate(events):
            kind = type(event)
            result: EventRow | SenderCounts | str | _WrongCandidate
            if kind is ExposureEvent:
                result = self._exposure(event, policies)  # type: ignore[arg-type]
            elif kind is MetricEvent:
                result = self._measurement(event, policies)  # type: ignore[arg-type]
            elif kind is ExposureCounts:
                result = self._counts(event, policies)  # type: ignore[arg-type]
            else:
                rejected.append(event)  # type: ignore[arg-type]
                continue
            if type(result) is EventRow and not result[0].startswith(OWN_IDS):
                rows.append(result)
                indexes.append(index)
            elif type(result) is SenderCounts:
                batch.sender_counts.append(result)
            elif (
                type(result) is _WrongCandidate
                and hides_draw
                and (result.row is None or not result.row.id.startswith(OWN_IDS))
            ):
                if result.row is None:
                    batch.hidden_counts += 1
                else:
                    rows.append(result.row)
                    indexes.append(index)
                batch.hidden.append(
                    RejectedEvent(index, event.id, result.reason)
                )  # without its position, which the row has
            else:
                if type(result) is EventRow or (type(result) is _WrongCandidate and hides_draw):
                    result = f"id begins with {OWN_IDS!r}, as only those of the service itself do; choose another id"
                sequence = None if kind is ExposureCounts else event.sequence
                rejected.append(RejectedEvent(index, event.id, str(result), event.source, sequence))
        return batch

    def _exposure(
        self, event: ExposureEvent, policies: dict[int, PublishedPolicy | None]
    ) -> EventRow | str | _WrongCandidate:
        version = event.version
        policy = policies[version] if version in policies else self._policy(version, policies)
        if event.fallback or event.override:
            return self._excluded(event, policy)
        if self._signing_key is not None and (problem := self._check_signature(event, self._signing_key)):
            return problem
        if policy is None:
            return self._unknown(version)
        if (policy.cluster is None) != (event.cluster is None):
            return _describe_cluster(policy.cluster)
        try:
            cell = self._cell(policy, event.cluster or event.unit, event.candidate)
        except InputError as error:
            return str(error)
        if cell is None:
            return _describe_unserved(event.candidate, version)
        if cell.name != event.candidate or cell is policy.not_enrolled:
            row = EventRow(
                event.id, EXPOSURE, event.unit, version, None, None, None, None, 1, event.source, event.sequence
            )
            return _WrongCandidate(_mismatch(event.candidate, version, policy, cell), row)
        return EventRow(
            event.id,
            EXPOSURE,
            event.unit,
            version,
            cell.arm,
            cell.candidate,
            None,
            None if event.cluster is None else encode_cluster(event.cluster),
            0,
            event.source,
            event.sequence,
        )

    def _measurement(
        self, event: MetricEvent, policies: dict[int, PublishedPolicy | None]
    ) -> EventRow | str | _WrongCandidate:
        required = self._required_fields.get(event.name)
        if required is None:
            known = ", ".join(map(repr, sorted(self._required_fields)))
            return f"name is {event.name!r}, which no metric of this study reads; its metrics read {known}"
        fields = event.fields
        for value in fields.values():
            if type(value) in _NUMBERS and not -MAX_NUMBER <= value <= MAX_NUMBER:  # type: ignore[operator]
                return _describe_large_number(fields)
        for name, always in required:
            found = fields.get(name)
            if type(found) not in _NUMBERS and (always or found is not None):
                return _describe_missing_number(event, name, found)
        for name in self._required_keys.get(event.name, ()):
            if type(fields.get(name)) not in (str, *_NUMBERS):
                return _describe_missing_key(event, name)
        version, arm, candidate, excluded = event.version, None, None, 0
        if version is not None:
            policy = policies[version] if version in policies else self._policy(version, policies)
            if version == 0:
                excluded = 1
            elif policy is None:
                return self._unknown(version)
            elif policy.cluster is not None:  # its exposure has the candidate of the cluster
                if event.candidate is not None and event.candidate not in policy.named:
                    return _describe_unserved(event.candidate, version)
            else:
                try:
                    cell = self._cell(policy, event.unit, event.candidate)
                except InputError as error:
                    return str(error)
                if cell is None and event.candidate is not None:
                    return _describe_unserved(event.candidate, version)
                if cell is not None and event.candidate is not None and cell.name != event.candidate:
                    row = EventRow(
                        event.id,
                        METRIC,
                        event.unit,
                        version,
                        None,
                        None,
                        event.name,
                        _text(fields).decode() if fields else None,
                        1,
                        event.source,
                        event.sequence,
                    )
                    return _WrongCandidate(_mismatch(event.candidate, version, policy, cell), row)
                if cell is policy.not_enrolled:
                    excluded = 1
                elif cell is not None:
                    arm, candidate = cell.arm, cell.candidate
        elif event.candidate is not None:
            return "candidate is named without a version; send both as the assignment had them, or neither"
        return EventRow(
            event.id,
            METRIC,
            event.unit,
            version,
            arm,
            candidate,
            event.name,
            _text(fields).decode() if fields else None,
            excluded,
            event.source,
            event.sequence,
        )

    def _cell(self, policy: PublishedPolicy, unit: str, candidate: str | None) -> Bucket | None:
        """Return the bucket that a unit counts in; None if another platform assigned it, and none is known."""
        if not self._is_external:
            return policy.redraw(unit)
        return None if candidate is None else arm_draw(policy).bucket(unit, candidate)

    def _counts(
        self, event: ExposureCounts, policies: dict[int, PublishedPolicy | None]
    ) -> SenderCounts | str | _WrongCandidate:
        version = event.version
        policy = policies[version] if version in policies else self._policy(version, policies)
        if version and policy is None:
            return self._unknown(version)
        for name in (*event.assigned, *event.dropped):
            if policy is not None and name not in policy.named:
                reason = f"exposure_counts has candidate {name[:40]!r}, which version {version} does not serve"
                return _WrongCandidate(reason, None)
        assigned, dropped = _text(event.assigned).decode(), _text(event.dropped).decode()
        return SenderCounts(event.source, version, event.sequence, assigned, dropped)

    def _excluded(self, event: ExposureEvent, policy: PublishedPolicy | None) -> EventRow | str:
        """Return the row of a fallback or an override: stored and counted, not analysed."""
        if policy is None and (event.version or not event.fallback):
            return self._unknown(event.version)
        cell = None if policy is None else policy.named.get(event.candidate)
        if cell is None and not event.fallback and event.candidate not in self._names:
            return f"candidate is {event.candidate[:40]!r}, which is not a candidate of this study"
        candidate = None if cell is None else cell.candidate
        return EventRow(
            event.id, EXPOSURE, event.unit, event.version, None, candidate, None, None, 1, event.source, event.sequence
        )

    def _check_signature(self, event: ExposureEvent, key: str) -> str | None:
        """Return the problem of an exposure's signature; None if it is valid."""
        if event.signature is None:
            return (
                "signature is missing, and this study takes signed exposures only; send them with an SDK whose key has "
                "the scope evaluate, or decide over HTTP with assign"
            )
        name = self._snapshot.row.name
        expected = sign_exposure(key, study=name, version=event.version, unit=event.unit, candidate=event.candidate)
        if not compare_digest(expected.encode(), event.signature.encode()):
            return (
                "signature is not that of this study, version, unit and candidate; sign with the key that the last "
                "answer to GET policy had"
            )
        return None

    def _policy(self, version: int, policies: dict[int, PublishedPolicy | None]) -> PublishedPolicy | None:
        found = self._policy_cache.published(self._snapshot, version) if version else None
        policies[version] = found
        return found

    def _unknown(self, version: int) -> str:
        name = self._snapshot.row.name
        return f"version is {version}, which study {name!r} never published; send the version of the policy served"


def _describe_cluster(attribute: str | None) -> str:
    if attribute is None:
        return "cluster is given, and this version assigns units and not clusters; leave it out"
    return f"cluster is missing, and this version assigns clusters; send the unit's value of {attribute!r}"


def check_open(snapshot: StudySnapshot) -> None:
    """Raise LifecycleError if a study takes no events: it has not started, or has ended."""
    row = snapshot.row
    if row.state not in SERVING:
        cure = "start it first" if row.state == "draft" else "it is over, and its log is closed"
        raise LifecycleError(f"study {row.name!r} is {row.state} and takes no events; {cure}")


def _mismatch(candidate: str, version: int, policy: PublishedPolicy, cell: Bucket) -> str:
    if candidate not in policy.named:
        return _describe_unserved(candidate, version)
    if cell is policy.not_enrolled:
        return (
            f"unit is not enrolled in version {version}, which gives it the baseline; send no exposure for units that "
            "do not take part"
        )
    return (
        f"candidate is {candidate[:40]!r}, which is not what version {version} draws for this unit; send what was "
        "drawn, or mark it as override"
    )


def _describe_missing_key(event: MetricEvent, name: str) -> str:
    given = "missing" if name not in event.fields else repr(event.fields[name])[:40]
    return (
        f"fields.{name} is {given}; a metric counts its different values in {event.name!r}, so send a text or a number"
    )


def _describe_unserved(candidate: str, version: int) -> str:
    return f"candidate is {candidate[:40]!r}, which version {version} does not serve"


def _describe_large_number(fields: Mapping[str, object]) -> str:
    name = next(
        name
        for name, value in fields.items()
        if isinstance(value, _NUMBERS) and not isinstance(value, bool) and not -MAX_NUMBER <= value <= MAX_NUMBER
    )
    value = str(fields[name])[:40]
    return f"fields.{name} is {value}; a number must be finite and at most {MAX_NUMBER:g}; send none instead"


def _describe_missing_number(event: MetricEvent, name: str, found: object) -> str:
    if found is None:
        return f"fields.{name} is missing, which a metric reads from every {event.name!r}; send it as a number"
    return f"fields.{name} is {repr(found)[:40]}; a metric reads it as a number, so send one, without quotes"
