"""What a store holds, row by row: plain values, with documents as JSON text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class StudyRow:
    """One study as it stands; every change makes a new generation, and a writer must name the one it saw."""

    name: str
    number: int
    """The store's own short name for it, in every other table; 0 before it is created."""
    generation: int
    """Fences writers: a change is written only onto the generation it was made from."""
    state: str
    """Of its life: draft, learning, confirming, deployed, paused, archived; deleted for a draft that was."""
    study_file: str
    """The study file, whole."""
    seed: int
    round: int
    """The open round, from 1; 0 before the first."""
    version: int
    """Of the policy being served; 0 before the first."""
    opened_at: float
    """When the open round began, in seconds since 1970."""
    created_at: float
    details: str = "{}"
    """What its present state needs beside that: the state it was paused from, the blend that was frozen."""


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """A published policy: written once, served as it is."""

    version: int
    round: int
    learner_version: int | None
    """The version of the learner's own policy that it serves; None where the learner is not asked."""
    document: str
    """The document, exactly as everyone reads it."""
    checksum: str
    """SHA-256 of the text, in hexadecimal."""
    after_sequence: int
    """The last event before it: none of its own events has a smaller sequence."""
    published_at: float


@dataclass(frozen=True, slots=True)
class CloseRow:
    """How one round ended: what was seen and what came of it; enough to do it again."""

    round: int
    version: int
    """Of the policy that was served in it."""
    high_water: int
    """The last event that the close saw."""
    record: str
    """The rounds that were learned from now, with what they measured."""
    learner_checksum: str
    """SHA-256 of the learner's state afterwards."""
    next_version: int
    closed_at: float


INSTALLATION = 0
"""Study number of audit lines that belong to the whole installation, such as those about keys."""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One line of the log that is only ever added to: who did what to a study or a key, and why."""

    at: float
    who: str
    action: str
    reason: str
    detail: str = "{}"
    sequence: int = 0
    """Given by the store."""


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A key as it is kept: never the key itself."""

    prefix: str
    """The public part, by which it is found and named."""
    digest: str
    """SHA-256 of the whole key, in hexadecimal."""
    name: str
    scopes: tuple[str, ...]
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None


EXPOSURE, METRIC = 0, 1


class EventRow(NamedTuple):
    """One event, checked and ready to be kept."""

    id: str
    kind: int
    """EXPOSURE or METRIC."""
    unit: str
    version: int | None
    """None where a metric event names no policy: the store then credits the unit's latest exposure."""
    arm: str | None
    candidate: int | None
    name: str | None = None
    """A metric event's."""
    fields: str | None = None
    """A metric event's, as a flat JSON object."""
    excluded: int = 0
    """1 where it is kept and counted but never learned from: a fallback, an override."""
    source: str | None = None
    """Which sender, of a numbered stream."""
    position: int | None = None
    """In that stream."""


class SenderCounts(NamedTuple):
    """What one sender says it decided under one policy, so far: the other side of the books."""

    source: str
    version: int
    position: int
    """Later tallies replace earlier ones."""
    assigned: str
    """Decisions by candidate, as a JSON object."""
    dropped: str
    """Exposures it could not keep, by candidate."""


class RejectionReason(NamedTuple):
    """How many events were rejected for one reason."""

    kind: str
    """What it is counted under."""
    reason: str
    """As it was first given."""
    events: int
    first_at: float = 0.0
    """When it was first given; set by the store."""


class RejectedPositions(NamedTuple):
    """The rejected events of one numbered stream."""

    source: str
    events: int
    first: int
    last: int


class Rejections(NamedTuple):
    """The rejected events of a batch: their counts by reason, and by sender if they were numbered."""

    reasons: tuple[RejectionReason, ...] = ()
    positions: tuple[RejectedPositions, ...] = ()


NO_REJECTIONS = Rejections()


CONFLICT = "conflict"
"""What events are counted under whose id was used before with other content."""
CONFLICT_REASON = (
    "conflict: the same source sent another event with this id before, and that one counts; send each event with an "
    "id of its own"
)


class AppendResult(NamedTuple):
    """What became of a batch."""

    new: tuple[bool, ...]
    """By event: False where its id was kept before."""
    last: int
    """The store's last sequence after it."""
    conflicts: tuple[int, ...] = ()
    """Places of the events whose id was kept before with other content; the others that are not new are repeats."""


class ArchivedSpan(NamedTuple):
    """How many events of one policy were deleted together, because the archive holds them."""

    version: int
    """0 for events of no policy."""
    events: int
    first: int
    """The first sequence that was deleted."""
    last: int


class StoreSize(NamedTuple):
    """How much a store holds, and how much room that takes."""

    bytes: int
    """On disk, or in memory."""
    free_bytes: int | None
    """Of them: free, to be used by what comes next; None if the database does not tell."""
    ids: int
    """Event ids that are remembered, each for the life of its study."""
    archived: int
    """Events that were deleted because the archive holds them."""

    @property
    def events(self) -> int:
        """Events in the store: every id that is remembered is of one, or of an archived one."""
        return self.ids - self.archived

    @property
    def bytes_an_event(self) -> float:
        """Bytes in use for each event that ever came.

        >>> StoreSize(bytes=3000, free_bytes=600, ids=100, archived=90).bytes_an_event
        24.0
        """
        return (self.bytes - (self.free_bytes or 0)) / max(1, self.ids)
