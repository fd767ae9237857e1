"""Study routes: create, list, change and delete studies; rounds, reports, what-if and replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import msgspec

from pasto.service.http.auth import Caller, permits_caller
from pasto.service.http.body import check_depth, parse_content_type
from pasto.service.http.request import HttpRequest
from pasto.service.http.responses import ApiError, Headers, HttpResponse, json_response
from pasto.service.http.schemas import (
    EmptyBody,
    HoldoutChange,
    RoundClose,
    RoundResolution,
    StudyChange,
    WhatIfQuestion,
)
from pasto.service.service import Service
from pasto.service.study_check import StudyFileCheck
from pasto.service.study_file import read_document
from pasto.service.study_records import StudyOverview

STUDY_FILE_FORMATS: dict[str, Literal["json", "yaml", "toml"]] = {
    "application/json": "json",
    "application/yaml": "yaml",
    "application/x-yaml": "yaml",
    "text/yaml": "yaml",
    "application/toml": "toml",
}
"""Formats of a study file by media type."""
MAX_SEED = 2**53
UNNAMED = "another study"
"""Name of a study in the report of another one, for callers who may not read all studies."""
MAX_REASON_CHARACTERS = 1000
_SAFE = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'"),
)
REPORT_HEADERS: dict[str, Headers] = {
    "json": (),
    "text": ((b"content-type", b"text/plain; charset=utf-8"), *_SAFE),
    "html": ((b"content-type", b"text/html; charset=utf-8"), *_SAFE),
}
"""Headers of a report by its format."""
HOLDOUT = msgspec.json.Decoder(HoldoutChange)
CHANGE = msgspec.json.Decoder(StudyChange)
WHAT_IF = msgspec.json.Decoder(WhatIfQuestion)
CLOSE = msgspec.json.Decoder(RoundClose)
RESOLVE = msgspec.json.Decoder(RoundResolution)
EMPTY_BODY = msgspec.json.Decoder(EmptyBody)
EDIT_PARTS = {
    "set": "fields",
    "add": "add",
    "retire": "retire",
    "restore": "restore",
    "generation": "generation",
    "dry_run": "dry_run",
}
"""Parts of a requested edit, and their names in `Service.edit`."""
REPLAY_TIMEOUT_SECONDS = 3600.0
"""Seconds that a replay may take, because it recomputes all rounds."""


async def create_study(call: HttpRequest) -> HttpResponse:
    """Create a study from a study file."""
    query = call.query("seed", "reason")
    seed = call.number(query, "seed", 0, 0, MAX_SEED) if "seed" in query else None
    read = await _read_study_file(call)
    reason = _reason(query)

    def work() -> StudyOverview:
        document = read()
        check_own_study(call.caller, document)
        return call.service.create(document, who=call.who, reason=reason, seed=seed)

    return json_response(await call.run(work), 201)


async def edit_study(call: HttpRequest) -> HttpResponse:
    """Replace the study file of a draft or of a running study."""
    name, query = call.path("name"), call.query("reason", "generation", "dry_run")
    reason = _reason(query)
    generation = call.number(query, "generation", 0, 0, 2**53) if "generation" in query else None
    dry_run = query.get("dry_run", "false")
    if dry_run not in ("true", "false"):
        raise ApiError(400, "bad_request", f"dry_run must be true or false, got {dry_run[:60]!r}", field="dry_run")
    read = await _read_study_file(call)

    def work() -> StudyOverview:
        return call.service.edit(
            name, read(), who=call.who, reason=reason, generation=generation, dry_run=dry_run == "true"
        )

    return json_response(await call.run(work))


async def delete_study(call: HttpRequest) -> HttpResponse:
    """Delete a draft."""
    name, reason = call.path("name"), _reason(call.query("reason"))
    return json_response(await call.run(lambda: call.service.delete(name, who=call.who, reason=reason)))


async def check_study_file(call: HttpRequest) -> HttpResponse:
    """Check a study file without creating a study."""
    call.query()
    read = await _read_study_file(call)

    def work() -> StudyFileCheck:
        document = read()
        check_own_study(call.caller, document)
        return call.service.check(document)

    return json_response(await call.run(work))


def check_own_study(caller: Caller, document: Mapping[str, Any]) -> None:
    """Raise `ApiError` if a caller with scopes for some studies sends the file of another one."""
    name = document.get("name")
    if not permits_caller(caller, ("admin",), name if isinstance(name, str) else ""):
        raise ApiError(
            403, "forbidden", "the scope admin is needed for the study that the file names in name", field="name"
        )


async def list_studies(call: HttpRequest) -> HttpResponse:
    """List the studies that the caller may read."""
    call.query()
    studies = await call.run(call.service.studies)
    return json_response({"studies": [study for study in studies if call.may(("read",), study.name)]})


async def list_layers(call: HttpRequest) -> HttpResponse:
    """List the layers with their studies."""
    call.query()
    return json_response({"layers": await call.run(call.service.layers)})


async def show_holdout(call: HttpRequest) -> HttpResponse:
    """Return the holdout with the studies that leave it out."""
    call.query()
    return json_response(await call.run(call.service.holdout))


async def set_holdout(call: HttpRequest) -> HttpResponse:
    """Hold a share of units out of all studies."""
    body = await call.json(HOLDOUT)
    work = lambda: call.service.set_holdout(body.share, unit=body.unit, who=call.who, reason=body.reason)  # noqa: E731
    return json_response(await call.run(work))


async def delete_holdout(call: HttpRequest) -> HttpResponse:
    """End the holdout."""
    reason = _reason(call.query("reason"))
    return json_response(await call.run(lambda: call.service.delete_holdout(who=call.who, reason=reason)))


async def show_study(call: HttpRequest) -> HttpResponse:
    """Return a study."""
    call.query()
    name = call.path("name")
    return json_response(await call.run(lambda: call.service.show(name)))


async def change_study(call: HttpRequest) -> HttpResponse:
    """Start, pause, resume, confirm, deploy, archive or edit a study, or move its ramp."""
    name = call.path("name")
    body = await call.json(CHANGE)
    edit = {part: value for part in EDIT_PARTS if (value := getattr(body, part)) is not msgspec.UNSET}
    given = {
        "without_confirmation": body.without_confirmation,
        "shares": body.shares,
        "hold": body.hold,
        "days": body.days,
        "until": body.until,
    }
    options = {option: value for option, value in given.items() if value is not msgspec.UNSET}
    to = {} if body.to is msgspec.UNSET else {"to": body.to}
    allowed = {"edit": edit, "ramp": to}.get(body.action, options)
    foreign = {part: value for parts in (options, edit, to) if parts is not allowed for part, value in parts.items()}
    if foreign:
        field = next(iter(foreign))
        raise ApiError(400, "bad_request", f"{body.action} takes no {field!r}; leave it out", field=field)
    if body.action == "ramp":
        if body.to is msgspec.UNSET:
            raise ApiError(400, "bad_request", "ramp needs a step in to, such as 25%, next, back or hold", field="to")
        step = body.to
        return json_response(
            await call.run(lambda: call.service.move_ramp(name, step, who=call.who, reason=body.reason))
        )
    if body.action == "edit":
        parts = {EDIT_PARTS[part]: value for part, value in edit.items()}
        return json_response(await call.run(lambda: call.service.edit(name, who=call.who, reason=body.reason, **parts)))
    return json_response(
        await call.run(lambda: call.service.change(name, body.action, who=call.who, reason=body.reason, **options))
    )


async def close_round(call: HttpRequest) -> HttpResponse:
    """Close the open round."""
    name = call.path("name")
    body = await call.json(CLOSE, empty=b"{}")
    return json_response(await call.run(lambda: call.service.close_round(name, who=call.who, reason=body.reason)))


async def resolve_round(call: HttpRequest) -> HttpResponse:
    """Decide about a round that is held back."""
    name = call.path("name")
    body = await call.json(RESOLVE)
    work = partial(call.service.resolve_round, name, body.round, body.resolution, who=call.who, reason=body.reason)
    return json_response(await call.run(work))


async def list_rounds(call: HttpRequest) -> HttpResponse:
    """List closed rounds, oldest first."""
    name, (after, limit) = call.path("name"), call.page()
    return json_response({"rounds": await call.run(lambda: call.service.rounds(name, after, limit))})


async def read_audit_log(call: HttpRequest) -> HttpResponse:
    """Return entries of the audit log, oldest first."""
    name, (after, limit) = call.path("name"), call.page()
    return json_response({"audit": await call.run(lambda: call.service.audit(name, after, limit))})


async def get_report(call: HttpRequest) -> HttpResponse:
    """Return the report of a study as JSON, text or HTML."""
    form = call.query("format").get("format", "json")
    if form not in REPORT_HEADERS:
        raise ApiError(
            400, "bad_request", f"format must be {', '.join(REPORT_HEADERS)}, got {form[:60]!r}", field="format"
        )
    return await ask_report(call, call.path("name"), form, names_others=call.may(("read",), ""))


async def ask_report(call: HttpRequest, name: str, form: str, *, names_others: bool) -> HttpResponse:
    """Return a report; equal ones share one computation. Without `names_others`, other studies have no name in it."""
    duplicates = call.context.metrics.duplicates(name)
    question = partial(answer_report, name=name, form=form, duplicates=duplicates, names_others=names_others)
    return await call.ask("report", name, question, form, names_others)


def answer_report(
    service: Service, name: str, form: str, duplicates: int, *, names_others: bool = True
) -> HttpResponse:
    """Compute a report in one of the formats of REPORT_HEADERS."""
    report = service.report(name)
    if not names_others:
        report = replace(report, concurrent=tuple(replace(study, name=UNNAMED) for study in report.concurrent))
    if report.quality is not None:
        report = replace(report, quality=replace(report.quality, duplicates=duplicates))
    if form == "json":
        return json_response(report)
    from pasto.report.html import render_html
    from pasto.report.text import render_text

    text = render_text(report) if form == "text" else render_html(report)
    return HttpResponse(200, text.encode(), REPORT_HEADERS[form])


async def export_policy(call: HttpRequest) -> HttpResponse:
    """Return the served policy or the blend in the form of another platform."""
    name, query = call.path("name"), call.query("format", "part", "attribute")
    format, part = query.get("format", "json"), query.get("part", "policy")
    return json_response(
        await call.run(lambda: call.service.export(name, format, part=part, attribute=query.get("attribute")))
    )


async def what_if(call: HttpRequest) -> HttpResponse:
    """Return the best blend for another objective, guardrail or set of candidates."""
    name = call.path("name")
    body = await call.json(WHAT_IF)
    question = msgspec.structs.asdict(body)
    parts = tuple((part, tuple(texts)) for part, texts in question.items())
    return await call.ask("what-if", name, partial(answer_what_if, name=name, question=question), parts, cache=True)


def answer_what_if(service: Service, name: str, question: Mapping[str, Any]) -> HttpResponse:
    """Compute the best blend for a what-if question."""
    return json_response(service.what_if(name, **question))


async def replay_study(call: HttpRequest) -> HttpResponse:
    """Recompute all policies from the event log and compare them."""
    name = call.path("name")
    await call.json(EMPTY_BODY, empty=b"{}")
    return await ask_replay(call, name)


async def ask_replay(call: HttpRequest, name: str) -> HttpResponse:
    """Replay a study; equal replays share one computation, and some question threads are left to others."""
    limit = max(1, call.settings.question_threads // 2)
    return await call.ask(
        "replay", name, partial(answer_replay, name=name), timeout=REPLAY_TIMEOUT_SECONDS, limit=limit
    )


def answer_replay(service: Service, name: str) -> HttpResponse:
    """Recompute all policies and compare them."""
    return json_response(service.replay(name))


async def _read_study_file(call: HttpRequest) -> Callable[[], dict[str, Any]]:
    """Read the body as a study file; return a function that decodes it, to be run in a thread."""
    media_type = parse_content_type(call.headers)
    file_format = STUDY_FILE_FORMATS.get(media_type)
    if file_format is None:
        raise ApiError(
            415,
            "unsupported_type",
            f"a study file must be {', '.join(STUDY_FILE_FORMATS)}, got {media_type[:60]!r}",
            field="content-type",
            rest=True,
        )
    body = await call.body()
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise ApiError(
            400, "bad_request", f"a study file must be UTF-8, got {error.reason} at byte {error.start}"
        ) from None

    def read() -> dict[str, Any]:
        if file_format == "json":
            check_depth(body, call.settings.depth_limit)
        return read_document(text, file_format)

    return read


def _reason(query: Mapping[str, str]) -> str:
    reason = query.get("reason", "")
    if len(reason) > MAX_REASON_CHARACTERS:
        raise ApiError(
            400,
            "bad_request",
            f"a reason may have {MAX_REASON_CHARACTERS} characters, got {len(reason)}",
            field="reason",
        )
    return reason
