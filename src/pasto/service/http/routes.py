"""Table of the API's routes: the router, authentication, the OpenAPI document and the reference page use it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pasto.report.records import Report, WhatIfAnswer
from pasto.report.replay_report import ReplayReport
from pasto.service.api_keys import NewApiKey
from pasto.service.archive import ArchiveResult
from pasto.service.close_record import CloseSummary
from pasto.service.holdout import HoldoutRecord
from pasto.service.http import admin, events, monitoring, ofrep, policies, schemas, studies
from pasto.service.http.request import HttpRequest
from pasto.service.http.responses import HttpResponse
from pasto.service.http.worker_pools import PoolName
from pasto.service.ingest import BatchResult
from pasto.service.policy_export import FORMATS as EXPORT_FORMATS
from pasto.service.policy_export import PARTS
from pasto.service.retention import UnitErasure
from pasto.service.study_check import StudyFileCheck
from pasto.service.study_records import DeletedStudy, StudyOverview
from pasto.service.webhook_worker import WebhookTrial


@dataclass(frozen=True, slots=True)
class Query:
    """Query parameter of a route."""

    name: str
    meaning: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Route:
    """Route of the API: method and path, scopes, endpoint, and its description for the OpenAPI document."""

    method: str
    path: str
    scopes: tuple[str, ...]
    """The caller needs one of these scopes, or `admin`: for the study in the path, if any, or else for all studies;
    empty if everyone may call."""
    summary: str
    endpoint: Callable[[HttpRequest], Awaitable[HttpResponse]]
    responses: Mapping[int, Any] = field(default_factory=dict)
    """Responses by status: a schema, a name or a media type, a tuple of alternatives, or None for an empty body."""
    request: type | str | None = None
    """Request body: a schema, or the name of one in the OpenAPI module."""
    optional: bool = False
    """Whether the request body may be empty."""
    query: tuple[Query, ...] = ()
    hot: bool = False
    """Whether the route is dispatched before Starlette's router (see `app`), and logged only if it fails."""
    waits: bool = False
    """Whether requests may take long; they do not count toward `max_concurrent`."""
    pool: PoolName = "general"
    """Worker pool for the slow work of its requests."""
    somewhere: bool = False
    """Whether the scope for one study is enough. The endpoint then checks every study that it touches."""
    errors: Callable[[HttpResponse], HttpResponse] | None = None
    """Function that converts error responses to another protocol."""


READ, EVALUATE, INGEST, ADMIN = ("read",), ("evaluate",), ("ingest",), ("admin",)
STUDY = "/v1/studies/{name}"
PAGE = (
    Query("after", "Only entries after this number.", {"type": "integer", "minimum": 0, "maximum": 2**53}),
    Query("limit", "Maximum number of entries.", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}),
)
WAIT = Query(
    "wait",
    "Time to wait for another policy than the one in If-None-Match: a number of seconds, or a duration such as 30s.",
    {
        "anyOf": [
            {"type": "number", "minimum": 0, "maximum": 60},
            {"type": "string", "pattern": "^(?:[0-5]?[0-9]s|60s|1min)$"},
        ]
    },
)
SEED = Query(
    "seed",
    "Seed of the learner, for repeatable runs; random if left out.",
    {"type": "integer", "minimum": 0, "maximum": 2**53},
)
REASON = Query("reason", "Reason for the audit log.", {"type": "string", "maxLength": 1000})

GENERATION = Query(
    "generation",
    "Generation of the study that the edit is based on; 409 if the file was edited since.",
    {"type": "integer", "minimum": 0, "maximum": 2**53},
)
DRY_RUN = Query("dry_run", "Check the edit and list its changes; nothing is written.", {"type": "boolean"})
FORM = Query("format", "JSON, plain text, or an HTML page.", {"type": "string", "enum": ["json", "text", "html"]})
EXPORT = (
    Query(
        "format", "Platform that reads the export.", {"type": "string", "enum": [*EXPORT_FORMATS], "default": "json"}
    ),
    Query(
        "part",
        "The served policy with its control, or the blend alone.",
        {"type": "string", "enum": [*PARTS], "default": "policy"},
    ),
    Query(
        "attribute",
        "Attribute by which the platform assigns units; targetingKey in flagd and id in GrowthBook if left out.",
        {"type": "string", "minLength": 1, "maxLength": 63},
    ),
)

ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/studies",
        ADMIN,
        "Create a study from a study file; it starts as a draft.",
        studies.create_study,
        {201: StudyOverview},
        "StudyFile",
        query=(SEED, REASON),
        somewhere=True,
    ),
    Route(
        "POST",
        "/v1/check",
        ADMIN,
        "Check a study file and its source tables without creating a study.",
        studies.check_study_file,
        {200: StudyFileCheck},
        "StudyFile",
        somewhere=True,
    ),
    Route(
        "GET",
        "/v1/studies",
        READ,
        "List the studies that the caller may read.",
        studies.list_studies,
        {200: schemas.StudyList},
        somewhere=True,
    ),
    Route("GET", STUDY, READ, "Show a study.", studies.show_study, {200: StudyOverview}),
    Route(
        "PATCH",
        STUDY,
        ADMIN,
        "Start, pause, resume, confirm, deploy, archive or edit a study.",
        studies.change_study,
        {200: StudyOverview},
        schemas.StudyChange,
        pool="changes",
    ),
    Route(
        "PUT",
        STUDY,
        ADMIN,
        "Replace the study file of a draft or of a running study.",
        studies.edit_study,
        {200: StudyOverview},
        "StudyFile",
        query=(REASON, GENERATION, DRY_RUN),
        pool="changes",
    ),
    Route(
        "DELETE",
        STUDY,
        ADMIN,
        "Delete a draft and free its name.",
        studies.delete_study,
        {200: DeletedStudy},
        query=(REASON,),
        pool="changes",
    ),
    Route(
        "GET",
        STUDY + "/audit",
        READ,
        "Read the audit log of a study.",
        studies.read_audit_log,
        {200: schemas.AuditLog},
        query=PAGE,
    ),
    Route(
        "GET",
        STUDY + "/rounds",
        READ,
        "List the closed rounds.",
        studies.list_rounds,
        {200: schemas.RoundList},
        query=PAGE,
    ),
    Route(
        "POST",
        STUDY + "/rounds/close",
        ADMIN,
        "Close the open round.",
        studies.close_round,
        {200: CloseSummary},
        schemas.RoundClose,
        optional=True,
        pool="changes",
    ),
    Route(
        "POST",
        STUDY + "/rounds/resolve",
        ADMIN,
        "Learn or discard a round that is held back because events are missing.",
        studies.resolve_round,
        {200: StudyOverview},
        schemas.RoundResolution,
        pool="changes",
    ),
    Route(
        "GET",
        STUDY + "/policy",
        EVALUATE + READ,
        "Get the served policy; with `wait`, wait for the next one (long poll).",
        policies.get_policy,
        {200: "Policy", 304: None},
        query=(WAIT,),
        hot=True,
        waits=True,
        pool="ingest",
    ),
    Route(
        "POST",
        STUDY + "/assign",
        EVALUATE,
        "Assign one unit or several, and log their exposures (not yet durable when answered).",
        policies.assign,
        {200: (schemas.Assignment, schemas.AssignmentList)},
        schemas.AssignRequest,
        hot=True,
        pool="ingest",
    ),
    Route(
        "POST",
        STUDY + "/events",
        INGEST,
        "Ingest a batch of exposures, metric events and exposure counts (durable when answered).",
        events.ingest_events,
        {200: BatchResult, 422: BatchResult},
        "Events",
        hot=True,
        pool="ingest",
    ),
    Route(
        "POST",
        STUDY + "/events/archive",
        ADMIN,
        "Archive the events of learned rounds, and delete old archived events.",
        admin.archive_events,
        {200: ArchiveResult},
        schemas.ArchiveRequest,
        optional=True,
        waits=True,
    ),
    Route(
        "POST",
        STUDY + "/units/erase",
        ADMIN,
        "Erase the events of a unit, archived ones included; aggregates stay.",
        admin.erase_unit,
        {200: UnitErasure},
        schemas.UnitErasureRequest,
        waits=True,
    ),
    Route(
        "GET",
        STUDY + "/report",
        READ,
        "Get the report of a study: lifts, guardrails, blend and data quality.",
        studies.get_report,
        {200: (Report, "text/plain", "text/html")},
        query=(FORM,),
    ),
    Route(
        "GET",
        STUDY + "/export",
        EVALUATE + READ,
        "Export the served policy or the blend for flagd, for GrowthBook, or as plain JSON.",
        studies.export_policy,
        {200: dict[str, Any]},
        query=EXPORT,
    ),
    Route(
        "POST",
        STUDY + "/what-if",
        READ,
        "Compute the best blend for another objective, guardrail or set of candidates.",
        studies.what_if,
        {200: WhatIfAnswer},
        schemas.WhatIfQuestion,
    ),
    Route(
        "POST",
        STUDY + "/replay",
        READ,
        "Recompute all policies from the event log and compare them.",
        studies.replay_study,
        {200: ReplayReport},
        schemas.EmptyBody,
        optional=True,
        waits=True,
    ),
    Route(
        "GET",
        "/v1/layers",
        READ,
        "List the layers with their studies and free shares.",
        studies.list_layers,
        {200: schemas.LayerList},
    ),
    Route(
        "GET",
        "/v1/holdout",
        READ,
        "Show the holdout, and since when each study leaves it out.",
        studies.show_holdout,
        {200: HoldoutRecord},
    ),
    Route(
        "PUT",
        "/v1/holdout",
        ADMIN,
        "Hold a share of units out of all studies, each from its next policy on.",
        studies.set_holdout,
        {200: HoldoutRecord},
        schemas.HoldoutChange,
        pool="changes",
    ),
    Route(
        "DELETE",
        "/v1/holdout",
        ADMIN,
        "End the holdout, for each study from its next policy on.",
        studies.delete_holdout,
        {200: HoldoutRecord},
        query=(REASON,),
        pool="changes",
    ),
    Route(
        "GET",
        "/v1/keys",
        ADMIN,
        "List all keys by their prefixes.",
        admin.list_keys,
        {200: schemas.KeyList},
        pool="changes",
    ),
    Route(
        "POST",
        "/v1/keys",
        ADMIN,
        "Create a key; only this response contains its secret.",
        admin.create_key,
        {201: NewApiKey},
        schemas.NewKey,
        pool="changes",
    ),
    Route(
        "GET",
        "/v1/keys/audit",
        ADMIN,
        "Read the audit log of keys.",
        admin.audit_keys,
        {200: schemas.AuditLog},
        query=PAGE,
        pool="changes",
    ),
    Route(
        "POST",
        "/v1/keys/{prefix}/rotate",
        ADMIN,
        "Replace a key; the old one stays valid for a while.",
        admin.rotate_key,
        {201: NewApiKey},
        schemas.KeyRotation,
        optional=True,
        pool="changes",
    ),
    Route(
        "DELETE",
        "/v1/keys/{prefix}",
        ADMIN,
        "Revoke a key.",
        admin.revoke_key,
        {200: schemas.KeyRevocation},
        pool="changes",
    ),
    Route(
        "GET",
        "/v1/webhooks",
        ADMIN,
        "List the webhooks of this node with their waiting messages.",
        admin.list_webhooks,
        {200: schemas.WebhookList},
    ),
    Route(
        "POST",
        "/v1/webhooks/{webhook}/test",
        ADMIN,
        "Send a test message to a webhook.",
        admin.try_webhook,
        {200: WebhookTrial},
        schemas.EmptyBody,
        optional=True,
    ),
    Route(
        "POST",
        "/ofrep/v1/evaluate/flags/{key}",
        EVALUATE,
        "Evaluate one flag (OpenFeature).",
        ofrep.evaluate_flag,
        {200: schemas.Flag},
        schemas.FlagRequest,
        hot=True,
        somewhere=True,
        errors=ofrep.convert_error,
        pool="ingest",
    ),
    Route(
        "POST",
        "/ofrep/v1/evaluate/flags",
        EVALUATE,
        "Evaluate all flags of the studies that the caller may evaluate (OpenFeature).",
        ofrep.evaluate_flags,
        {200: schemas.FlagList, 304: None},
        schemas.FlagRequest,
        hot=True,
        somewhere=True,
        errors=ofrep.convert_error,
        pool="ingest",
    ),
    Route("GET", "/metrics", READ, "Metrics for Prometheus.", monitoring.get_metrics, {200: "text/plain"}),
    Route("GET", "/healthz", (), "Liveness: the process answers.", monitoring.check_liveness, {200: schemas.Health}),
    Route(
        "GET",
        "/readyz",
        (),
        "Readiness: the store takes writes and rounds are closed.",
        monitoring.check_readiness,
        {200: schemas.Health, 503: schemas.Health},
    ),
    Route(
        "GET",
        "/openapi.json",
        (),
        "OpenAPI document of this interface.",
        monitoring.get_openapi,
        {200: dict[str, Any]},
    ),
)
