"""Data quality records: rounds without their events, senders and event counts as a report holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pasto.report.lift_records import (
    SampleRatioReport,
)


@dataclass(frozen=True, slots=True)
class RejectionCount:
    """Number of events that were rejected for one reason."""

    reason: str
    events: int
    first_at: float


@dataclass(frozen=True, slots=True)
class RejectedEvents:
    """Events that the service rejected."""

    events: int = 0
    reasons: tuple[RejectionCount, ...] = ()


@dataclass(frozen=True, slots=True)
class SenderDeparture:
    """A sender whose units depart from those of the others."""

    kind: str
    sender: str | None
    round: int
    test: str
    p_value: float
    arm: str | None = None
    candidate: str | None = None
    metric: str | None = None
    effect: float | None = None
    others: float | None = None


@dataclass(frozen=True, slots=True)
class LateEvents:
    """Events that came too late to be learned."""

    events: int
    share: float | None


@dataclass(frozen=True, slots=True)
class ClippedUnits:
    """Units whose value was clipped to the range of its metric."""

    units: int
    share: float


@dataclass(frozen=True, slots=True)
class QualityReport:
    """Quality of the data."""

    units: int
    events: int
    late: LateEvents
    clipped: Mapping[str, ClippedUnits]
    uncredited: int
    excluded: int
    rejected: RejectedEvents
    missing: int
    """Numbered events that never came."""
    departures: tuple[SenderDeparture, ...]
    gap: int
    """Decisions without a logged exposure."""
    sample_ratio: SampleRatioReport | None = None
    understated_errors: Mapping[str, float] = field(default_factory=dict)
    duplicates: int | None = None
    """Events that came again since the service started; None if the report was not made by a server."""


@dataclass(frozen=True, slots=True)
class EventTotals:
    """Events of a study by kind."""

    exposures: int
    metrics: int
    excluded: int
    uncredited: int


@dataclass(frozen=True, slots=True)
class CandidateCounts:
    """Exposures of one candidate."""

    name: str | None
    logged: int
    excluded: int
    numbered: int


@dataclass(frozen=True, slots=True)
class CandidateGap:
    """Exposures of one candidate under one policy, and the decisions that its senders report."""

    name: str | None
    logged: int
    excluded: int
    numbered: int
    assigned: int
    dropped: int
    gap: int


@dataclass(frozen=True, slots=True)
class PolicyExposures:
    """Exposures under one policy."""

    version: int
    logged: int
    excluded: int
    assigned: int
    dropped: int
    gap: int
    arms: Mapping[str, int]
    candidates: tuple[CandidateGap, ...]


@dataclass(frozen=True, slots=True)
class SequenceGap:
    """Numbered events of one source that never came."""

    source: str
    missing: int


@dataclass(frozen=True, slots=True)
class NumberedSenders:
    """Senders that number their events."""

    numbered: int
    missing: int
    gaps: tuple[SequenceGap, ...]


@dataclass(frozen=True, slots=True)
class SenderLine:
    """Units, events and means of one sender."""

    sender: str | None
    name: str | None
    units: int
    exposures: int
    metrics: int
    rejected: int
    means: Mapping[str, float]
    departs: bool


@dataclass(frozen=True, slots=True)
class LateRound:
    """Late events of one round."""

    round: int
    exposures: int
    metrics: int
    arms: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LateRounds:
    """Late events, in all and by round."""

    events: int
    rounds: tuple[LateRound, ...]


@dataclass(frozen=True, slots=True)
class AccountingReport:
    """Events of a study, counted by candidate, policy, sender and round."""

    events: EventTotals
    candidates: tuple[CandidateCounts, ...]
    versions: tuple[PolicyExposures, ...]
    senders: NumberedSenders
    rejected: RejectedEvents
    keys: tuple[SenderLine, ...]
    sources: tuple[SenderLine, ...]
    late: LateRounds
    clipped: Mapping[str, int]
    departures: tuple[SenderDeparture, ...] = ()
