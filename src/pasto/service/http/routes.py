"""The table of routes: what the router, the key check, the pages and the OpenAPI document are made from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pasto.report.records import Report, WhatIfAnswer
from pasto.service.http import admin, events, monitoring, ofrep, policies, schemas, studies
from pasto.service.http.request import HttpRequest
from pasto.service.http.responses import HttpResponse
from pasto.service.http.worker_pools import PoolName


@dataclass(frozen=True, slots=True)
class Query:
    """One field of a query."""

    name: str
    meaning: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Route:
    """One thing that can be asked over HTTP."""

    method: str
    path: str
    scopes: tuple[str, ...]
    """Any one of these lets a key pass, and `admin` does; none: open to everyone."""
    summary: str
    endpoint: Callable[[HttpRequest], Awaitable[HttpResponse]]
    answers: Mapping[int, Any] = field(default_factory=dict)
    """By status: a record, a name or media type (or several, one of which it is), or None for an empty body."""
    request: type | str | None = None
    """The body: a record, or the name of one written down in the OpenAPI module."""
    optional: bool = False
    """Whether the body may be left out."""
    query: tuple[Query, ...] = ()
    hot: bool = False
    """Reached without the router, and not logged."""
    waits: bool = False
    """Whether it may take its time, and is not counted among the requests in work."""
    pool: PoolName = "general"
    """The threads that do its slow work."""
    errors: Callable[[HttpResponse], HttpResponse] | None = None
    """Rewrites errors into another protocol's form."""


READ, EVALUATE, INGEST, ADMIN = ("read",), ("evaluate",), ("ingest",), ("admin",)
STUDY = "/v1/studies/{name}"
PAGE = (
    Query("after", "Only what comes behind this number.", {"type": "integer", "minimum": 0, "maximum": 2**53}),
    Query("limit", "How many at most.", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}),
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
    "Of the learner's draws, for a run that can be repeated; drawn anew where it is left out.",
    {"type": "integer", "minimum": 0, "maximum": 2**53},
)
REASON = Query("reason", "Why, for the audit log.", {"type": "string", "maxLength": 1000})

FORM = Query("format", "JSON, text for people, or one HTML page.", {"type": "string", "enum": ["json", "text", "html"]})

ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/studies",
        ADMIN,
        "Create a study from a study file; it is then a draft.",
        studies.create,
        {201: schemas.Study},
        "StudyFile",
        query=(SEED, REASON),
    ),
    Route(
        "POST",
        "/v1/check",
        ADMIN,
        "Check a study file and the tables that it names; nothing is created.",
        studies.check,
        {200: schemas.StudyFileCheck},
        "StudyFile",
    ),
    Route("GET", "/v1/studies", READ, "List every study in a few words.", studies.studies, {200: schemas.StudyList}),
    Route("GET", STUDY, READ, "Show one study as it stands.", studies.show, {200: schemas.Study}),
    Route(
        "PATCH",
        STUDY,
        ADMIN,
        "Start, pause, resume, confirm, deploy or archive a study.",
        studies.change,
        {200: schemas.Study},
        schemas.StudyChange,
        pool="changes",
    ),
    Route(
        "PUT",
        STUDY,
        ADMIN,
        "Put another study file in the place of a draft's.",
        studies.edit,
        {200: schemas.Study},
        "StudyFile",
        query=(REASON,),
    ),
    Route(
        "DELETE",
        STUDY,
        ADMIN,
        "Delete a draft, which frees its name.",
        studies.delete,
        {200: schemas.DeletedStudy},
        query=(REASON,),
        pool="changes",
    ),
    Route(
        "GET",
        STUDY + "/audit",
        READ,
        "Who did what to a study, and why.",
        studies.audit,
        {200: schemas.AuditLog},
        query=PAGE,
    ),
    Route(
        "GET", STUDY + "/rounds", READ, "Closed rounds in order.", studies.rounds, {200: schemas.RoundList}, query=PAGE
    ),
    Route(
        "POST",
        STUDY + "/rounds/close",
        ADMIN,
        "Close the open round now.",
        studies.close,
        {200: dict[str, Any]},
        schemas.RoundClose,
        optional=True,
        pool="changes",
    ),
    Route(
        "POST",
        STUDY + "/rounds/resolve",
        ADMIN,
        "Learn or discard a round that is held back for lack of events.",
        studies.resolve,
        {200: schemas.Study},
        schemas.RoundResolution,
        pool="changes",
    ),
    Route(
        "GET",
        STUDY + "/policy",
        EVALUATE + READ,
        "The policy being served, to draw from locally; waits for the next with wait.",
        policies.policy,
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
        "Decide for one unit or several, and log their exposure; answered before it is on disk.",
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
        "Take a batch of exposures, metric events and exposure counts; answered when durable.",
        events.events,
        {200: schemas.BatchResult, 422: schemas.BatchResult},
        "Events",
        hot=True,
        pool="ingest",
    ),
    Route(
        "POST",
        STUDY + "/events/archive",
        ADMIN,
        "Move the events of learned rounds to the archive, and delete old ones there.",
        admin.archive,
        {200: schemas.ArchiveResult},
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
        {200: schemas.UnitErasureResult},
        schemas.UnitErasure,
        waits=True,
    ),
    Route(
        "GET",
        STUDY + "/report",
        READ,
        "What a study has shown and what can be claimed: lifts, guardrails, the answer, the books.",
        studies.report,
        {200: (Report, "text/plain", "text/html")},
        query=(FORM,),
    ),
    Route(
        "POST",
        STUDY + "/what-if",
        READ,
        "Answer another objective, threshold or set of candidates from what was learned.",
        studies.what_if,
        {200: WhatIfAnswer},
        schemas.WhatIfQuestion,
    ),
    Route(
        "POST",
        STUDY + "/replay",
        READ,
        "Compute every policy again from the log, and compare.",
        studies.replay,
        {200: schemas.Replay},
        schemas.EmptyBody,
        optional=True,
        waits=True,
    ),
    Route(
        "GET",
        "/v1/keys",
        ADMIN,
        "List every key by its prefix.",
        admin.listed,
        {200: schemas.KeyList},
        pool="changes",
    ),
    Route(
        "POST",
        "/v1/keys",
        ADMIN,
        "Make a key; it is shown once.",
        admin.create,
        {201: schemas.CreatedKey},
        schemas.NewKey,
        pool="changes",
    ),
    Route(
        "GET",
        "/v1/keys/audit",
        ADMIN,
        "Who created, rotated and revoked keys.",
        admin.audit,
        {200: schemas.AuditLog},
        query=PAGE,
        pool="changes",
    ),
    Route(
        "POST",
        "/v1/keys/{prefix}/rotate",
        ADMIN,
        "Make a key's successor; the old one lives on for a while.",
        admin.rotate,
        {201: schemas.CreatedKey},
        schemas.KeyRotation,
        optional=True,
        pool="changes",
    ),
    Route(
        "DELETE",
        "/v1/keys/{prefix}",
        ADMIN,
        "Revoke a key.",
        admin.revoke,
        {200: schemas.KeyRevocation},
        pool="changes",
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
        errors=ofrep.told,
        pool="ingest",
    ),
    Route(
        "POST",
        "/ofrep/v1/evaluate/flags",
        EVALUATE,
        "Evaluate every flag (OpenFeature).",
        ofrep.evaluate_flags,
        {200: schemas.FlagList, 304: None},
        schemas.FlagRequest,
        hot=True,
        errors=ofrep.told,
        pool="ingest",
    ),
    Route("GET", "/metrics", READ, "Counters for Prometheus.", monitoring.metrics, {200: "text/plain"}),
    Route("GET", "/healthz", (), "Whether the process answers.", monitoring.healthy, {200: schemas.Health}),
    Route(
        "GET",
        "/readyz",
        (),
        "Whether requests can be served.",
        monitoring.ready,
        {200: schemas.Health, 503: schemas.Health},
    ),
    Route(
        "GET",
        "/openapi.json",
        (),
        "This interface as an OpenAPI document.",
        monitoring.interface,
        {200: dict[str, Any]},
    ),
)
