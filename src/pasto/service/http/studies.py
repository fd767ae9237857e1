"""Studies over HTTP: create, look, change, close rounds, report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import msgspec

from pasto.service.http.body import check_depth, parse_content_type
from pasto.service.http.request import HttpRequest
from pasto.service.http.responses import ApiError, Headers, HttpResponse, json_response
from pasto.service.http.schemas import EmptyBody, RoundClose, RoundResolution, StudyChange, WhatIfQuestion
from pasto.service.service import Service
from pasto.service.study_file import read_document

KINDS: dict[str, Literal["json", "yaml", "toml"]] = {
    "application/json": "json",
    "application/yaml": "yaml",
    "application/x-yaml": "yaml",
    "text/yaml": "yaml",
    "application/toml": "toml",
}
"""The forms of a study file, by their media type."""
LARGEST = 2**53
MAX_REASON_CHARACTERS = 1000
_SAFE = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'"),
)
FORMS: dict[str, Headers] = {
    "json": (),
    "text": ((b"content-type", b"text/plain; charset=utf-8"), *_SAFE),
    "html": ((b"content-type", b"text/html; charset=utf-8"), *_SAFE),
}
"""The forms of a report, with the headers they are sent with."""
CHANGE = msgspec.json.Decoder(StudyChange)
WHAT_IF = msgspec.json.Decoder(WhatIfQuestion)
CLOSE = msgspec.json.Decoder(RoundClose)
RESOLVE = msgspec.json.Decoder(RoundResolution)
EMPTY_BODY = msgspec.json.Decoder(EmptyBody)
REPLAY_PATIENCE = 3600.0
"""Seconds: a replay goes through every round there was."""


async def create(call: HttpRequest) -> HttpResponse:
    """Take in a study file."""
    asked = call.query("seed", "reason")
    seed = call.number(asked, "seed", 0, 0, LARGEST) if "seed" in asked else None
    read = await _study_file(call)
    reason = _reason(asked)
    return json_response(
        await call.run(lambda: call.service.create(read(), who=call.who, reason=reason, seed=seed)), 201
    )


async def edit(call: HttpRequest) -> HttpResponse:
    """Put another study file in the place of a draft's."""
    name, reason = call.path("name"), _reason(call.query("reason"))
    read = await _study_file(call)
    return json_response(await call.run(lambda: call.service.edit(name, read(), who=call.who, reason=reason)))


async def delete(call: HttpRequest) -> HttpResponse:
    """Delete a draft."""
    name, reason = call.path("name"), _reason(call.query("reason"))
    return json_response(await call.run(lambda: call.service.delete(name, who=call.who, reason=reason)))


async def check(call: HttpRequest) -> HttpResponse:
    """Check a study file, and create nothing."""
    call.query()
    read = await _study_file(call)
    return json_response(await call.run(lambda: call.service.check(read())))


async def studies(call: HttpRequest) -> HttpResponse:
    """Every study in a few words."""
    call.query()
    return json_response({"studies": await call.run(call.service.studies)})


async def show(call: HttpRequest) -> HttpResponse:
    """One study as it stands."""
    call.query()
    name = call.path("name")
    return json_response(await call.run(lambda: call.service.show(name)))


async def change(call: HttpRequest) -> HttpResponse:
    """One step in a study's life."""
    name = call.path("name")
    asked = await call.json(CHANGE)
    given = {
        "without_confirmation": asked.without_confirmation,
        "shares": asked.shares,
        "hold": asked.hold,
        "days": asked.days,
        "until": asked.until,
    }
    options = {option: value for option, value in given.items() if value is not msgspec.UNSET}
    return json_response(
        await call.run(lambda: call.service.change(name, asked.action, who=call.who, reason=asked.reason, **options))
    )


async def close(call: HttpRequest) -> HttpResponse:
    """End the open round now."""
    name = call.path("name")
    asked = await call.json(CLOSE, empty=b"{}")
    return json_response(await call.run(lambda: call.service.close_round(name, who=call.who, reason=asked.reason)))


async def resolve(call: HttpRequest) -> HttpResponse:
    """Decide about a round that is held back."""
    name = call.path("name")
    asked = await call.json(RESOLVE)

    def work() -> dict[str, Any]:
        return call.service.resolve_round(name, asked.round, asked.resolution, who=call.who, reason=asked.reason)

    return json_response(await call.run(work))


async def rounds(call: HttpRequest) -> HttpResponse:
    """Closed rounds in order."""
    name, (after, limit) = call.path("name"), call.page()
    return json_response({"rounds": await call.run(lambda: call.service.rounds(name, after, limit))})


async def audit(call: HttpRequest) -> HttpResponse:
    """Who did what, and why."""
    name, (after, limit) = call.path("name"), call.page()
    return json_response({"audit": await call.run(lambda: call.service.audit(name, after, limit))})


async def report(call: HttpRequest) -> HttpResponse:
    """What a study has shown, as JSON, as text or as a page."""
    form = call.query("format").get("format", "json")
    if form not in FORMS:
        raise ApiError(
            400, "bad_request", f"a report's format is {', '.join(FORMS)}, got {form[:60]!r}", field="format"
        )
    return await ask_report(call, call.path("name"), form)


async def ask_report(call: HttpRequest, name: str, form: str) -> HttpResponse:
    """Return a report; equal ones share one computation."""
    duplicates = call.context.meters.duplicates(name)
    return await call.ask("report", name, partial(answer_report, name=name, form=form, duplicates=duplicates), form)


def answer_report(service: Service, name: str, form: str, duplicates: int) -> HttpResponse:
    """Compute a report in one of the FORMS."""
    found = service.report(name)
    if found.quality is not None:
        found = replace(found, quality=replace(found.quality, duplicates=duplicates))
    if form == "json":
        return json_response(found)
    from pasto.report.html import render_html
    from pasto.report.text import render_text

    text = render_text(found) if form == "text" else render_html(found)
    return HttpResponse(200, text.encode(), FORMS[form])


async def what_if(call: HttpRequest) -> HttpResponse:
    """Another question, answered from what was learned."""
    name = call.path("name")
    asked = await call.json(WHAT_IF)
    question = msgspec.structs.asdict(asked)
    parts = tuple((part, tuple(texts)) for part, texts in question.items())
    return await call.ask("what-if", name, partial(answer_what_if, name=name, question=question), parts, cache=True)


def answer_what_if(service: Service, name: str, question: Mapping[str, Any]) -> HttpResponse:
    """Compute the answer to another question."""
    return json_response(service.what_if(name, **question))


async def replay(call: HttpRequest) -> HttpResponse:
    """Compute every policy again from the log, and compare."""
    name = call.path("name")
    await call.json(EMPTY_BODY, empty=b"{}")
    return await replayed(call, name)


async def replayed(call: HttpRequest, name: str) -> HttpResponse:
    """Replay a study; equal replays share one computation, and some question threads are left to others."""
    limit = max(1, call.settings.question_threads // 2)
    return await call.ask("replay", name, partial(answer_replay, name=name), patience=REPLAY_PATIENCE, limit=limit)


def answer_replay(service: Service, name: str) -> HttpResponse:
    """Compute every policy again, and compare."""
    return json_response(service.replay(name))


async def _study_file(call: HttpRequest) -> Callable[[], dict[str, Any]]:
    """Read the body as a study file; returns what decodes it, which is slow enough for a thread."""
    sent = parse_content_type(call.headers)
    kind = KINDS.get(sent)
    if kind is None:
        raise ApiError(
            415,
            "unsupported_type",
            f"a study file is {', '.join(KINDS)}; got {sent[:60]!r}",
            field="content-type",
            rest=True,
        )
    body = await call.body()
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise ApiError(400, "bad_request", f"a study file is UTF-8: {error.reason} at byte {error.start}") from None

    def read() -> dict[str, Any]:
        if kind == "json":
            check_depth(body, call.settings.depth_limit)
        return read_document(text, kind)

    return read


def _reason(asked: Mapping[str, str]) -> str:
    reason = asked.get("reason", "")
    if len(reason) > MAX_REASON_CHARACTERS:
        raise ApiError(400, "bad_request", f"a reason has at most {MAX_REASON_CHARACTERS} characters", field="reason")
    return reason
