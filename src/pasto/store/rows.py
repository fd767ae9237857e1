"""Rows of a store: plain values, with documents as JSON text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class StudyRow:
    """Current state of a study; every change makes a new generation."""

    name: str
    number: int
    """Identity of the study in every other table; 0 before it is created."""
    generation: int
    """Fencing token: a change is written only if the generation is still the one that the writer read."""
    state: str
    """draft, learning, confirming, deployed, paused or archived; deleted for a deleted draft."""
    study_file: str
    """The whole study file as JSON."""
    seed: int
    round: int
    """Number of the open round, from 1; 0 before the first."""
    version: int
    """Version of the served policy; 0 before the first."""
    opened_at: float
    """Start of the open round, in seconds since 1970."""
    created_at: float
    details: str = "{}"
    """Further state as JSON (`StudyState`): the state before a pause, the frozen blend."""


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """Published policy: written once, served unchanged."""

    version: int
    round: int
    learner_version: int | None
    """Version of the learner's own policy that it serves; None if the learner is not asked."""
    document: str
    """The policy document, byte for byte as clients read it."""
    checksum: str
    """SHA-256 of the document, in hexadecimal."""
    after_sequence: int
    """Last event before it: all its own events have greater sequences."""
    published_at: float


@dataclass(frozen=True, slots=True)
class CloseRow:
    """Closed round, with everything that a replay needs."""

    round: int
    version: int
    """Version of the policy that was served in the round."""
    high_water: int
    """Sequence of the last event that the close read."""
    record: str
    """Measurements and decisions of the close as JSON (`CloseRecord`)."""
    learner_checksum: str
    """SHA-256 of the learner's state after the close."""
    next_version: int
    closed_at: float


@dataclass(frozen=True, slots=True)
class LayerSliceRow:
    """Slice of a layer that one study holds, in millionths of the hash line."""

    layer: str
    unit: str
    """Unit of assignment, which all studies of a layer share."""
    start: int
    until: int
    """End of the slice, which is not part of it."""
    study: str = ""
    """Name of the study; set by the store."""
    state: str = ""
    """State of the study; set by the store."""


NO_SLICE = LayerSliceRow("", "", 0, 0)
"""Slice of a study that leaves its layer."""

INSTALLATION = 0
"""Study number of audit lines that belong to the whole installation, such as those about keys."""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """Line of the audit log, which only grows: who did what to a study or a key, and why."""

    at: float
    who: str
    action: str
    reason: str
    detail: Mapping[str, Any] = field(default_factory=dict)
    """Details of the action, in plain JSON."""
    sequence: int = 0
    """Set by the store."""


@dataclass(frozen=True, slots=True)
class KeyRow:
    """API key as it is stored, without the secret itself."""

    prefix: str
    """Public part, by which a key is found and named."""
    digest: str
    """SHA-256 of the whole key, in hexadecimal."""
    name: str
    scopes: tuple[str, ...]
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """Message to a webhook that waits to be delivered."""

    id: str
    """Identity of the message, the same at every attempt."""
    study: int
    webhook: str
    event: str
    body: str
    """Message as JSON."""
    created_at: float
    due_at: float
    """Time of the next attempt; a node that claims the message moves it into the future."""
    attempts: int = 0


class OutboxSize(NamedTuple):
    """Messages that wait for one webhook."""

    webhook: str
    messages: int
    oldest_at: float
    """Time at which the oldest of them was written."""


EXPOSURE, METRIC = 0, 1


class EventRow(NamedTuple):
    """Validated event."""

    id: str
    kind: int
    """EXPOSURE or METRIC."""
    unit: str
    version: int | None
    """Policy version; None if a metric event names none: the store then credits the unit's latest exposure."""
    arm: str | None
    candidate: int | None
    name: str | None = None
    """Name of a metric event."""
    fields: str | None = None
    """Fields of a metric event, as a flat JSON object."""
    excluded: int = 0
    """1 if the event is stored and counted but not analysed: a fallback or an override."""
    source: str | None = None
    """Sender of a numbered stream."""
    position: int | None = None
    """Number of the event in that stream."""


class SenderCounts(NamedTuple):
    """Running totals that a sender reports for one policy; compared with the exposures that came."""

    source: str
    version: int
    position: int
    """Number of the report; later ones replace earlier ones."""
    assigned: str
    """Decisions by candidate, as a JSON object."""
    dropped: str
    """Exposures that the sender had to drop, by candidate, as a JSON object."""


class RejectionReason(NamedTuple):
    """Number of events that were rejected for one reason."""

    kind: str
    """Group of reasons that are counted together."""
    reason: str
    """First reason of the group, as the sender got it."""
    events: int
    first_at: float = 0.0
    """Time of the first rejection; set by the store."""


class RejectedPositions(NamedTuple):
    """Rejected events of one numbered stream: how many, and the range of their positions."""

    source: str
    events: int
    first: int
    last: int


class Rejections(NamedTuple):
    """Rejected events of a batch: counts by reason, and by sender if they were numbered."""

    reasons: tuple[RejectionReason, ...] = ()
    positions: tuple[RejectedPositions, ...] = ()


NO_REJECTIONS = Rejections()


CONFLICT = "conflict"
"""Kind of rejection of events whose id was used before with other content."""
CONFLICT_REASON = (
    "conflict: the same source sent another event with this id before, and that one counts; send each event with an "
    "id of its own"
)


class AppendResult(NamedTuple):
    """Outcome of an appended batch."""

    new: tuple[bool, ...]
    """By event: False if its id was stored before."""
    last: int
    """Last sequence of the store after the batch."""
    conflicts: tuple[int, ...] = ()
    """Indices of events whose id was stored before with other content; other events that are not new are repeats."""


class ArchivedSpan(NamedTuple):
    """Events of one policy that were deleted together, because the archive holds them."""

    version: int
    """0 for events without a policy."""
    events: int
    first: int
    """First deleted sequence."""
    last: int


class StoreSize(NamedTuple):
    """Number of events in a store, and the space they take."""

    bytes: int
    """Space on disk, or in memory."""
    free_bytes: int | None
    """Part of `bytes` that is free for new rows; None if the database does not report it."""
    ids: int
    """Event ids; each is stored for the life of its study."""
    archived: int
    """Events that were deleted because the archive holds them."""

    @property
    def events(self) -> int:
        """Events in the store: every id belongs to one of them or to an archived one."""
        return self.ids - self.archived

    @property
    def bytes_an_event(self) -> float:
        """Used bytes divided by the number of all events that ever came.

        >>> StoreSize(bytes=3000, free_bytes=600, ids=100, archived=90).bytes_an_event
        24.0
        """
        return (self.bytes - (self.free_bytes or 0)) / max(1, self.ids)
