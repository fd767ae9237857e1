"""Schemas of request and response bodies: requests are decoded with them, and the OpenAPI document lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from pasto.durations import DURATION_PATTERN
from pasto.report.records import ClosedRoundRecord
from pasto.service.api_keys import ApiKeyRecord
from pasto.service.layers import LayerRecord
from pasto.service.scopes import SCOPE_PATTERN
from pasto.service.study_records import StudySummary
from pasto.service.webhook_worker import WebhookRecord
from pasto.store import AuditRow
from pasto_sdk.policy_document import Value

Unit = Annotated[
    str, Meta(min_length=1, max_length=256, description="The unit to decide for: a user, session or request.")
]
Reason = Annotated[str, Meta(max_length=1000, description="Why, for the audit log.")]
Duration = Annotated[
    Annotated[float, Meta(ge=0)] | Annotated[str, Meta(max_length=40, pattern=DURATION_PATTERN)],
    Meta(description="A number of seconds, or a duration such as 30min."),
]
Share = Annotated[float, Meta(gt=0, lt=1)]
Scope = Annotated[
    str,
    Meta(
        pattern=f"^{SCOPE_PATTERN}$",
        max_length=80,
        description="admin, evaluate, ingest or read; with a study, such as read:feed, for that study only.",
    ),
]
MAX_SCOPES = 100


class RequestBody(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Base of request bodies. An unknown field is an error, so that a misspelt one is noticed."""


class StudyChange(RequestBody, kw_only=True):
    """Step of a study's life cycle, an edit of its file, or a step of its ramp."""

    action: Literal["start", "pause", "resume", "confirm", "deploy", "archive", "edit", "ramp"]
    reason: Reason = ""
    without_confirmation: (
        Annotated[bool, Meta(description="deploy: deploy a blend that is not confirmed; needs a reason.")] | UnsetType
    ) = UNSET
    shares: (
        Annotated[
            dict[str, Share], Meta(max_length=3, description="confirm: the arms' shares of traffic, which sum to 1.")
        ]
        | UnsetType
    ) = UNSET
    hold: (
        Annotated[
            Literal["blend", "baseline"], Meta(description="pause: what all units get while the study is paused.")
        ]
        | UnsetType
    ) = UNSET
    days: (
        Annotated[float, Meta(gt=0, le=3660, description="confirm: number of days after which it is judged.")]
        | UnsetType
    ) = UNSET
    until: (
        Annotated[str, Meta(max_length=40, description="confirm: time at which it is judged (ISO 8601).")] | UnsetType
    ) = UNSET
    set: (
        Annotated[
            dict[str, Any],
            Meta(
                max_length=100,
                description="edit: values by field, such as traffic.explore or guardrails.like_rate.at_least; null "
                "removes a field.",
            ),
        ]
        | UnsetType
    ) = UNSET
    add: (
        Annotated[
            list[dict[str, Any]],
            Meta(max_length=10_000, description="edit: new candidates, as a study file lists them."),
        ]
        | UnsetType
    ) = UNSET
    retire: (
        Annotated[list[str], Meta(max_length=10_000, description="edit: candidates that are not served any more.")]
        | UnsetType
    ) = UNSET
    restore: (
        Annotated[list[str], Meta(max_length=10_000, description="edit: retired candidates that are served again.")]
        | UnsetType
    ) = UNSET
    generation: (
        Annotated[
            int, Meta(ge=0, description="edit: generation that it is based on; 409 if the file was edited since.")
        ]
        | UnsetType
    ) = UNSET
    dry_run: (
        Annotated[bool, Meta(description="edit: check it and list its changes; nothing is written.")] | UnsetType
    ) = UNSET
    to: (
        Annotated[
            str | float,
            Meta(
                description="ramp: the share of one of its steps, such as 25%; or next, back, hold or resume. A ramp "
                "that is held takes no step forward."
            ),
        ]
        | UnsetType
    ) = UNSET


class UnitErasureRequest(RequestBody):
    """Request to erase the events of a unit."""

    unit: Unit
    reason: Reason = ""


class ArchiveRequest(RequestBody):
    """Request to move the events of learned rounds to the archive."""

    delete_older: Annotated[
        Duration | None,
        Meta(description="Then delete archived events of rounds that were closed longer ago than this."),
    ] = None


class RoundClose(RequestBody):
    """Request to close the open round."""

    reason: Reason = ""


class RoundResolution(RequestBody, kw_only=True):
    """Decision about a round that is held back because events are missing."""

    round: Annotated[int, Meta(ge=1)]
    resolution: Annotated[
        Literal["learn", "discard"],
        Meta(description="learn: learn from the events it has, at the next close. discard: never learn from it."),
    ]
    reason: Annotated[str, Meta(min_length=1, max_length=1000, description="Why, for the audit log.")]


Expressions = Annotated[list[Annotated[str, Meta(min_length=1, max_length=300)]], Meta(max_length=100)]


class WhatIfQuestion(RequestBody, kw_only=True):
    """Objective to evaluate: the study's own, with these parts replaced."""

    maximize: Annotated[Expressions, Meta(description="Metrics to maximize, each with an optional weight.")] = []
    minimize: Annotated[Expressions, Meta(description="Metrics to minimize.")] = []
    keep: Annotated[Expressions, Meta(description="Guardrails to add or replace, such as 'like_rate >= -1%'.")] = []
    drop: Annotated[Expressions, Meta(description="Guardrails to remove.")] = []
    only: Annotated[Expressions, Meta(description="Candidates to choose from.")] = []


class EmptyBody(RequestBody):
    """An empty object."""


ATTRIBUTES = (
    "Attributes of the unit, or of all units, that the study's audience and segments read: texts, numbers and "
    "booleans. One that is missing, or has another type, meets no condition."
)
SEGMENT = "Segment of the unit, if the policy has segments and the unit takes part."


class AssignRequest(RequestBody):
    """Units to decide for: one `unit`, or several `units`."""

    unit: Unit | UnsetType = UNSET
    units: Annotated[list[Unit], Meta(max_length=1_000_000)] | UnsetType = UNSET
    attributes: Annotated[dict[str, Any], Meta(max_length=100, description=ATTRIBUTES)] | UnsetType = UNSET


class NewKey(RequestBody, kw_only=True):
    """API key to create."""

    name: Annotated[
        str, Meta(min_length=1, max_length=100, description="Name of its holder, as the audit log shows it.")
    ]
    scopes: Annotated[list[Scope], Meta(min_length=1, max_length=MAX_SCOPES)]
    expires_in: Annotated[Duration | None, Meta(description="Up to 3650d; without it the key does not expire.")] = None


class KeyRotation(RequestBody):
    """Request to replace a key. The old one stays valid during `grace`."""

    grace: Annotated[Duration, Meta(description="Up to 30d.")] = 86400.0


class StudyList(Struct):
    """Short descriptions of all studies."""

    studies: list[StudySummary]


class RoundList(Struct):
    """Closed rounds, oldest first."""

    rounds: list[ClosedRoundRecord]


class AuditLog(Struct):
    """Audit log, oldest entry first."""

    audit: list[AuditRow]


class DrawnCandidate(Struct, frozen=True):
    """Candidate that is drawn for a unit, with its propensity."""

    candidate: str
    index: int
    values: Mapping[str, Value]
    propensity: float
    arm: str
    reason: Literal["SPLIT", "DEFAULT"]
    segment: Annotated[str | UnsetType, Meta(description=SEGMENT)] = UNSET


class UnitAssignment(DrawnCandidate, frozen=True, kw_only=True):
    """Candidate of a unit, with its propensity."""

    unit: str


class Assignment(UnitAssignment, frozen=True, kw_only=True):
    """Candidate of a unit, with the policy it was drawn from."""

    study: str
    version: int
    round: int


class AssignmentList(Struct):
    """Candidates of several units, in the order of the request."""

    study: str
    version: int
    round: int
    assignments: list[UnitAssignment]


class LayerList(Struct):
    """All layers."""

    layers: list[LayerRecord]


class HoldoutChange(RequestBody):
    """Share of units that no study may use."""

    share: Annotated[
        Annotated[float, Meta(gt=0, le=0.5)] | Annotated[str, Meta(max_length=40)],
        Meta(description="A share such as 0.05 or 5%, up to 50%."),
    ]
    unit: Annotated[
        str, Meta(pattern="^[A-Za-z][A-Za-z0-9_-]{0,62}$", description="Unit of the studies that it applies to.")
    ] = "user"
    reason: Reason = ""


class KeyList(Struct):
    """All API keys."""

    keys: list[ApiKeyRecord]


class WebhookList(Struct):
    """All webhooks of a node."""

    webhooks: list[WebhookRecord]


class KeyRevocation(Struct):
    """Confirmation that a key is revoked."""

    revoked: bool


FlagContext = Annotated[
    dict[str, Any],
    Meta(
        description="Evaluation context: the targeting key, which is the unit, and the attributes that the audience of "
        "a study reads.",
        extra_json_schema={"properties": {"targetingKey": {"type": "string"}}},
    ),
]


class FlagRequest(Struct):
    """Flag evaluation of the OpenFeature Remote Evaluation Protocol."""

    context: FlagContext | UnsetType | None = UNSET


class FlagMetadata(Struct):
    """Decision that a flag's value comes from."""

    study: str
    candidate: str
    propensity: float
    round: int
    version: int
    arm: str


class Flag(Struct):
    """Value of a flag."""

    key: str
    value: dict[str, float | str | bool] | float | str | bool
    reason: Literal["SPLIT", "DEFAULT"]
    variant: str
    metadata: FlagMetadata


class FlagList(Struct):
    """Values of all flags."""

    flags: list[Flag]


class FlagError(Struct, omit_defaults=True):
    """Error of a flag evaluation."""

    errorCode: Literal[  # noqa: N815 -- the protocol's names
        "PARSE_ERROR", "TARGETING_KEY_MISSING", "INVALID_CONTEXT", "FLAG_NOT_FOUND", "GENERAL"
    ]
    errorDetails: str  # noqa: N815
    key: str | None = None


class Health(Struct, omit_defaults=True):
    """Health of the service."""

    status: Literal["ok", "unavailable"]
    problems: list[str] | None = None
    warnings: Annotated[list[str] | None, Meta(description="Failures that do not keep requests from being served.")] = (
        None
    )
