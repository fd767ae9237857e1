"""From events off the wire to rows of the store: everything is checked here, and nothing is believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hmac import compare_digest

import msgspec

from pasto.errors import InputError, LifecycleError
from pasto.service.event_decoder import Event, ExposureCounts, ExposureEvent, MetricEvent, RejectedEvent
from pasto.service.lifecycle import SERVING
from pasto.service.policy_cache import PolicyCache, StudySnapshot
from pasto.service.study_file import StudySpec
from pasto.space import Candidates
from pasto.store import EXPOSURE, METRIC, EventRow, SenderCounts
from pasto_sdk.exposure_signature import sign_exposure
from pasto_sdk.policy import PublishedPolicy

LARGEST = 1e15
"""As for anything measured: beyond it a double no longer tells neighbouring numbers apart."""
_NUMBERS = (int, float)
_text = msgspec.json.Encoder(order="deterministic").encode
"""Sorted: a retry that lists its fields in another order is still the same event."""
OWN_IDS = "served/"
"""Before the ids of exposures that the service itself logs; nobody else may use them."""


@dataclass(slots=True)
class ValidatedBatch:
    """A batch parted into what is kept and what is not."""

    rows: list[EventRow] = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)
    """Of the rows, in the batch."""
    tallies: list[SenderCounts] = field(default_factory=list)
    refused: list[RejectedEvent] = field(default_factory=list)
    hidden: list[RejectedEvent] = field(default_factory=list)
    """Events that do not count and are answered as if they did, with the reason that reports give."""
    hidden_tallies: int = 0
    """Tallies among them; they are not stored."""


@dataclass(frozen=True, slots=True)
class _WrongCandidate:
    """An event whose candidate is not what its policy draws: the reason, and the row that excludes it.

    A tally of a candidate that its policy does not serve has no row.
    """

    reason: str
    row: EventRow | None

    def __str__(self) -> str:
        return self.reason


def needs(spec: StudySpec) -> Mapping[str, tuple[tuple[str, bool], ...]]:
    """By event name: the fields that metrics read numbers from, and whether every such event must have them.

    A field that is only read under a condition may be missing where the condition may not hold.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> needs(read_spec(EXAMPLE, "yaml"))
    {'watch': (('seconds', True),), 'like': (), 'view': ()}
    """
    found: dict[str, dict[str, bool]] = {}
    for column in spec.columns:
        fields = found.setdefault(column.event, {})
        for name in (column.value, column.by):
            if name is not None:
                fields[name] = fields.get(name, False) or not column.where
    return {event: tuple(fields.items()) for event, fields in found.items()}


class EventValidator:
    """Checks the events of one study.

    An exposure's candidate must be what its policy draws for its unit, which is drawn again here: so neither arm nor
    propensity is ever taken from the wire, and nothing forged can be told from a mistake, because both are refused.
    """

    def __init__(self, board: PolicyCache, standing: StudySnapshot, signing_key: str | None = None) -> None:
        self._board = board
        self._standing = standing
        self._signing_key = signing_key
        """None if the study takes unsigned exposures."""
        self._needs = needs(standing.spec)
        rows = standing.spec.candidates
        self._names = frozenset(rows.names) if isinstance(rows, Candidates) else frozenset()

    def sift(self, events: Sequence[Event | RejectedEvent], *, hides_draw: bool = False) -> ValidatedBatch:
        """Part a batch; every refusal has its event's place and a reason.

        With `hides_draw`, an event with a wrong candidate is stored as excluded instead: its answer, and that of the
        same event sent again, are those of a right one.
        """
        sifted = ValidatedBatch()
        rows, indexes, refused = sifted.rows, sifted.indexes, sifted.refused
        policies: dict[int, PublishedPolicy | None] = {}
        for index, event in enumerate(events):
            kind = type(event)
            result: EventRow | SenderCounts | str | _WrongCandidate
            if kind is ExposureEvent:
                result = self._exposure(event, policies)  # type: ignore[arg-type]
            elif kind is MetricEvent:
                result = self._measurement(event, policies)  # type: ignore[arg-type]
            elif kind is ExposureCounts:
                result = self._tally(event, policies)  # type: ignore[arg-type]
            else:
                refused.append(event)  # type: ignore[arg-type]
                continue
            if type(result) is EventRow and not result[0].startswith(OWN_IDS):
                rows.append(result)
                indexes.append(index)
            elif type(result) is SenderCounts:
                sifted.tallies.append(result)
            elif (
                type(result) is _WrongCandidate
                and hides_draw
                and (result.row is None or not result.row.id.startswith(OWN_IDS))
            ):
                if result.row is None:
                    sifted.hidden_tallies += 1
                else:
                    rows.append(result.row)
                    indexes.append(index)
                sifted.hidden.append(RejectedEvent(index, event.id, result.reason))  # its number came: the row has it
            else:
                if type(result) is EventRow or (type(result) is _WrongCandidate and hides_draw):
                    result = f"id begins with {OWN_IDS!r}, as only those of the service itself do; choose another id"
                sequence = None if kind is ExposureCounts else event.sequence
                refused.append(RejectedEvent(index, event.id, str(result), event.source, sequence))
        return sifted

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
        try:
            cell = policy.draw(event.unit)
        except InputError as error:
            return str(error)
        if cell.name != event.candidate:
            row = EventRow(
                event.id, EXPOSURE, event.unit, version, None, None, None, None, 1, event.source, event.sequence
            )
            return _WrongCandidate(_mismatch(event.candidate, version, policy), row)
        return EventRow(
            event.id,
            EXPOSURE,
            event.unit,
            version,
            cell.arm,
            cell.candidate,
            None,
            None,
            0,
            event.source,
            event.sequence,
        )

    def _measurement(
        self, event: MetricEvent, policies: dict[int, PublishedPolicy | None]
    ) -> EventRow | str | _WrongCandidate:
        required = self._needs.get(event.name)
        if required is None:
            known = ", ".join(map(repr, sorted(self._needs)))
            return f"name is {event.name!r}, which no metric of this study reads; its metrics read {known}"
        fields = event.fields
        for value in fields.values():
            if type(value) in _NUMBERS and not -LARGEST <= value <= LARGEST:  # type: ignore[operator]
                return _unfit(fields)
        for name, always in required:
            found = fields.get(name)
            if type(found) not in _NUMBERS and (always or found is not None):
                return _unlike_a_number(event, name, found)
        version, arm, candidate, excluded = event.version, None, None, 0
        if version is not None:
            policy = policies[version] if version in policies else self._policy(version, policies)
            if version == 0:
                excluded = 1
            elif policy is None:
                return self._unknown(version)
            else:
                try:
                    cell = policy.draw(event.unit)
                except InputError as error:
                    return str(error)
                if event.candidate is not None and cell.name != event.candidate:
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
                    return _WrongCandidate(_mismatch(event.candidate, version, policy), row)
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

    def _tally(
        self, event: ExposureCounts, policies: dict[int, PublishedPolicy | None]
    ) -> SenderCounts | str | _WrongCandidate:
        version = event.version
        policy = policies[version] if version in policies else self._policy(version, policies)
        if version and policy is None:
            return self._unknown(version)
        for name in (*event.assigned, *event.dropped):
            if policy is not None and name not in policy.named:
                reason = f"a tally counts candidate {name[:40]!r}, which version {version} does not serve"
                return _WrongCandidate(reason, None)
        assigned, dropped = _text(event.assigned).decode(), _text(event.dropped).decode()
        return SenderCounts(event.source, version, event.sequence, assigned, dropped)

    def _excluded(self, event: ExposureEvent, policy: PublishedPolicy | None) -> EventRow | str:
        """A unit that was served by fallback or override: kept and counted, never learned from."""
        if policy is None and (event.version or not event.fallback):
            return self._unknown(event.version)
        cell = None if policy is None else policy.named.get(event.candidate)
        if cell is None and not event.fallback and event.candidate not in self._names:
            return f"candidate is {event.candidate[:40]!r}, which is no candidate of this study"
        candidate = None if cell is None else cell.candidate
        return EventRow(
            event.id, EXPOSURE, event.unit, event.version, None, candidate, None, None, 1, event.source, event.sequence
        )

    def _check_signature(self, event: ExposureEvent, key: str) -> str | None:
        """Return what is wrong with an exposure's signature; None if it is valid."""
        if event.signature is None:
            return (
                "signature is missing, and this study takes signed exposures only; send them with an SDK whose key has "
                "the scope evaluate, or decide over HTTP with assign"
            )
        name = self._standing.row.name
        expected = sign_exposure(key, study=name, version=event.version, unit=event.unit, candidate=event.candidate)
        if not compare_digest(expected.encode(), event.signature.encode()):
            return (
                "signature is not that of this study, version, unit and candidate; sign with the key that the last "
                "answer to GET policy had"
            )
        return None

    def _policy(self, version: int, policies: dict[int, PublishedPolicy | None]) -> PublishedPolicy | None:
        found = self._board.published(self._standing, version) if version else None
        policies[version] = found
        return found

    def _unknown(self, version: int) -> str:
        name = self._standing.row.name
        return f"version is {version}, which study {name!r} never published; send the version of the policy served"


def check_open(standing: StudySnapshot) -> None:
    """WrongState for a study that takes no events: it has not begun, or is over."""
    row = standing.row
    if row.state not in SERVING:
        cure = "start it first" if row.state == "draft" else "it is over, and its log is closed"
        raise LifecycleError(f"study {row.name!r} is {row.state} and takes no events; {cure}")


def _mismatch(candidate: str, version: int, policy: PublishedPolicy) -> str:
    shown = repr(candidate[:40])
    if candidate not in policy.named:
        return f"candidate is {shown}, which version {version} does not serve"
    return (
        f"candidate is {shown}, which is not what version {version} draws for this unit; send what was drawn, or "
        "mark it as override"
    )


def _unfit(fields: Mapping[str, object]) -> str:
    name = next(
        name
        for name, value in fields.items()
        if isinstance(value, _NUMBERS) and not isinstance(value, bool) and not -LARGEST <= value <= LARGEST
    )
    return (
        f"fields.{name} is {str(fields[name])[:40]}; a number must be finite and at most {LARGEST:g}; send none instead"
    )


def _unlike_a_number(event: MetricEvent, name: str, found: object) -> str:
    if found is None:
        return f"fields.{name} is missing, which a metric reads from every {event.name!r}; send it as a number"
    return f"fields.{name} is {repr(found)[:40]}; a metric reads it as a number, so send one, without quotes"
