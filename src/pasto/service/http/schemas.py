"""The records that cross the wire, as requests are read and as the OpenAPI document tells them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from pasto.durations import DURATION_PATTERN

Unit = Annotated[str, Meta(min_length=1, max_length=256, description="Whom to decide for: a user, session or request.")]
Reason = Annotated[str, Meta(max_length=1000, description="Why, for the audit log.")]
Duration = Annotated[
    Annotated[float, Meta(ge=0)] | Annotated[str, Meta(max_length=40, pattern=DURATION_PATTERN)],
    Meta(description="A number of seconds, or a duration such as 30min."),
]
Share = Annotated[float, Meta(gt=0, lt=1)]
Scope = Literal["admin", "evaluate", "ingest", "read"]


class RequestBody(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a caller sends: a field that nobody knows is refused, so that none is ignored in silence."""


class StudyChange(RequestBody, kw_only=True):
    """One step in a study's life."""

    action: Literal["start", "pause", "resume", "confirm", "deploy", "archive"]
    reason: Reason = ""
    without_confirmation: (
        Annotated[bool, Meta(description="deploy: though it is not confirmed; needs a reason.")] | UnsetType
    ) = UNSET
    shares: (
        Annotated[
            dict[str, Share], Meta(max_length=3, description="confirm: the arms' shares of traffic, which sum to 1.")
        ]
        | UnsetType
    ) = UNSET
    hold: (
        Annotated[Literal["blend", "baseline"], Meta(description="pause: what everyone gets meanwhile.")] | UnsetType
    ) = UNSET
    days: Annotated[float, Meta(gt=0, le=3660, description="confirm: judge it after so many days.")] | UnsetType = UNSET
    until: Annotated[str, Meta(max_length=40, description="confirm: judge it then (ISO 8601).")] | UnsetType = UNSET


class UnitErasure(RequestBody):
    """Deletes all that is kept of a unit."""

    unit: Unit
    reason: Reason = ""


class ArchiveRequest(RequestBody):
    """Moves the events of learned rounds to the archive."""

    delete_older: Annotated[
        Duration | None, Meta(description="Then delete archived events of rounds closed longer ago.")
    ] = None


class UnitErasureResult(Struct):
    """What was kept of a unit, and is no more."""

    study: str
    events: int
    rounds: list[int]


class ArchiveResult(Struct):
    """What went to the archive, and what left it."""

    study: str
    files: int
    events: int
    deleted_rounds: list[int]


class RoundClose(RequestBody):
    """Ends the open round now."""

    reason: Reason = ""


class RoundResolution(RequestBody, kw_only=True):
    """Decides about a round that is held back for lack of events."""

    round: Annotated[int, Meta(ge=1)]
    resolution: Annotated[
        Literal["learn", "discard"], Meta(description="learn: as it is, at the next close. discard: never learn it.")
    ]
    reason: Annotated[str, Meta(min_length=1, max_length=1000, description="Why, for the audit log.")]


Expressions = Annotated[list[Annotated[str, Meta(min_length=1, max_length=300)]], Meta(max_length=100)]


class WhatIfQuestion(RequestBody, kw_only=True):
    """Another question: the study's own objective with these parts replaced."""

    maximize: Annotated[Expressions, Meta(description="Metrics to raise, each with a weight if it has one.")] = []
    minimize: Annotated[Expressions, Meta(description="Metrics to lower.")] = []
    keep: Annotated[Expressions, Meta(description="Guardrails, as in 'like_rate >= -1%'.")] = []
    drop: Annotated[Expressions, Meta(description="Guardrails to leave out.")] = []
    only: Annotated[Expressions, Meta(description="Candidates that may take part.")] = []


class EmptyBody(RequestBody):
    """An empty object."""


class AssignRequest(RequestBody):
    """Whom to decide for: one unit, or several."""

    unit: Unit | UnsetType = UNSET
    units: Annotated[list[Unit], Meta(max_length=1_000_000)] | UnsetType = UNSET


class NewKey(RequestBody, kw_only=True):
    """A key to be made."""

    name: Annotated[str, Meta(min_length=1, max_length=100, description="Whose it is, as the audit log will call it.")]
    scopes: Annotated[list[Scope], Meta(min_length=1, max_length=4)]
    expires_in: Annotated[Duration | None, Meta(description="Up to 3650d; never, if left out.")] = None


class KeyRotation(RequestBody):
    """How long the old key lives on."""

    grace: Annotated[Duration, Meta(description="Up to 30d.")] = 86400.0


class Problem(Struct, omit_defaults=True):
    """What was wrong."""

    code: str
    message: str
    field: str | None = None
    problems: dict[str, str] | None = None


class ErrorBody(Struct):
    """The form of every error."""

    error: Problem


class Study(Struct):
    """A study as it stands; more fields may follow."""

    name: str
    state: Literal["draft", "learning", "confirming", "deployed", "paused", "archived", "deleted"]
    round: int
    version: int


class SourceCheck(Struct, rename={"origin": "from"}):
    """A study's own tables as they were found."""

    origin: str
    engine: Literal["duckdb", "postgres", "spark"]
    tables: Annotated[
        dict[str, dict[str, str] | None],
        Meta(description="The type of each column, by table; null for a folder without files yet."),
    ]


class StudyFileCheck(Struct):
    """A study file that could be created."""

    name: str
    warnings: list[str]
    source: SourceCheck | None


class DeletedStudy(Struct):
    """A draft that was deleted."""

    name: str
    state: Literal["deleted"]
    deleted_as: Annotated[str, Meta(description="The name that its audit log stays under.")]


class StudyList(Struct):
    """Every study in a few words."""

    studies: list[Study]


class RoundList(Struct):
    """Closed rounds in order."""

    rounds: list[dict[str, Any]]


class AuditEntry(Struct):
    """Who did what, and why."""

    sequence: int
    at: float
    who: str
    action: str
    reason: str


class AuditLog(Struct):
    """The audit log in order."""

    audit: list[AuditEntry]


class Replay(Struct):
    """Whether the log alone leads to the same policies."""

    identical: bool
    rounds: int
    first_difference: Any = None


class UnitAssignment(Struct):
    """One unit's candidate, with the probability it was drawn with."""

    unit: str
    candidate: str
    index: int
    values: dict[str, float | str | bool]
    propensity: float
    arm: str
    reason: Literal["SPLIT", "DEFAULT"]


class Assignment(UnitAssignment):
    """One unit's candidate, and the policy it was drawn from."""

    study: str
    version: int
    round: int


class AssignmentList(Struct):
    """Several units' candidates, in their order."""

    study: str
    version: int
    round: int
    assignments: list[UnitAssignment]


class EventRejection(Struct):
    """An event that was not taken; after the first 100 of an answer without an id, and with an empty reason."""

    index: int
    reason: str
    id: str | None = None


class BatchResult(Struct):
    """What became of a batch."""

    accepted: int
    duplicates: int
    rejected: list[EventRejection]


class Key(Struct):
    """A key, without what would let anyone use it."""

    prefix: str
    name: str
    scopes: list[Scope]
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    valid: bool


class CreatedKey(Key):
    """A new key: the only time that it is shown."""

    key: str


class KeyList(Struct):
    """Every key."""

    keys: list[Key]


class KeyRevocation(Struct):
    """That a key no longer works."""

    revoked: bool


class FlagContext(Struct):
    """Whom a flag is evaluated for; further attributes are ignored."""

    targetingKey: Any = UNSET  # noqa: N815 -- the protocol's own name; its errors are told in the protocol's words


class FlagRequest(Struct):
    """A flag evaluation of the OpenFeature Remote Evaluation Protocol."""

    context: FlagContext | UnsetType | None = UNSET


class FlagMetadata(Struct):
    """How a flag's value came about."""

    study: str
    candidate: str
    propensity: float
    round: int
    version: int
    arm: str


class Flag(Struct):
    """A flag's value."""

    key: str
    value: dict[str, float | str | bool] | float | str | bool
    reason: Literal["SPLIT", "DEFAULT"]
    variant: str
    metadata: FlagMetadata


class FlagList(Struct):
    """Every flag's value."""

    flags: list[Flag]


class FlagError(Struct, omit_defaults=True):
    """Why a flag could not be evaluated."""

    errorCode: Literal[  # noqa: N815 -- the protocol's own names
        "PARSE_ERROR", "TARGETING_KEY_MISSING", "INVALID_CONTEXT", "FLAG_NOT_FOUND", "GENERAL"
    ]
    errorDetails: str  # noqa: N815
    key: str | None = None


class Health(Struct, omit_defaults=True):
    """How the service is."""

    status: Literal["ok", "unavailable"]
    problems: list[str] | None = None
    warnings: Annotated[list[str] | None, Meta(description="What fails while requests are served.")] = None
