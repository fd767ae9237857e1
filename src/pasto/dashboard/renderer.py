"""Pages from templates, and the headers that keep a browser from doing anything else with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from pasto.dashboard.sessions import Session
from pasto.formatting import (
    format_confidence,
    format_lift,
    format_number,
    format_percent,
    format_signed,
    format_time,
    format_time_span,
)
from pasto.report.data_quality_text import departure_text
from pasto.report.edit_text import describe_change
from pasto.report.guardrail_text import basis_text, certificate_text
from pasto.report.ramp_text import describe_enrolment, describe_layer, describe_ramp, show_share
from pasto.report.verdict_html import render_verdict
from pasto.report.verdict_records import StudyVerdict
from pasto.report.verdict_text import verdict_text
from pasto.service.http.request import HttpRequest
from pasto.service.http.responses import ApiError, Headers, HttpResponse

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""What a page may load and do: its own scripts and styles, nothing written inside it, nothing from elsewhere."""

SAFE: Headers = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),  # with none at all, a browser would not say where our own forms come from
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)

HTML: Headers = ((b"content-type", b"text/html; charset=utf-8"), (b"cache-control", b"no-store"), *SAFE)


def _describe_change(change: Any) -> str:
    """Return a change of a study file, a record or its JSON in the audit log, as one line."""
    if isinstance(change, Mapping):
        return describe_change(change["field"], change["before"], change["after"])
    return describe_change(change.field, change.before, change.after)


def _render_verdict(verdict: StudyVerdict) -> Markup:
    return Markup(render_verdict(verdict))  # noqa: S704 - it escapes every name and sentence


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("pasto.dashboard"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)

TEMPLATES.filters.update(
    number=format_number,
    percent=format_percent,
    ramp=describe_ramp,
    enrolment=describe_enrolment,
    layer=describe_layer,
    share=show_share,
    signed=format_signed,
    lift=format_lift,
    time_span=format_time_span,
    time=format_time,
    json=_pretty,
    confidence=format_confidence,
    basis=basis_text,
    certificate=certificate_text,
    confirmation=verdict_text,
    verdict=_render_verdict,
    departure=departure_text,
    change=_describe_change,
)


@dataclass(frozen=True, slots=True)
class PageFrame:
    """Values that every page has; an error page has no session."""

    session: Session | None
    token: str = ""
    """Token of the session, which every form sends."""


def render_page(template: str, *records: Any, status: int = 200, headers: Headers = ()) -> HttpResponse:
    """Render a page, or a part of one; the fields of the records are the values of its template."""
    values = {field.name: getattr(record, field.name) for record in records for field in fields(record)}
    return HttpResponse(status, TEMPLATES.get_template(template).render(values).encode(), HTML + headers)


def redirect(to: str, headers: Headers = ()) -> HttpResponse:
    """Send the browser elsewhere on this site, with a GET."""
    return HttpResponse(
        303, b"", ((b"location", to.encode("latin-1")), (b"cache-control", b"no-store"), *SAFE, *headers)
    )


KINDS = {".css": b"text/css; charset=utf-8", ".js": b"text/javascript; charset=utf-8", ".svg": b"image/svg+xml"}

NAMES = (
    "app.css",
    "app.js",
    "charts.js",
    "formatting.js",
    "tradeoff.js",
    "verdict.css",
    "icon.svg",
    "vendor/htmx.min.js",
    "vendor/uPlot.iife.min.js",
    "vendor/uPlot.min.css",
)
"""All that there is; nothing else in the package can be asked for."""


@cache
def render_part(name: str) -> tuple[bytes, str]:
    """Return a static file and its digest."""
    folder = files("pasto.report") if name == "verdict.css" else files("pasto.dashboard").joinpath("static")
    body = folder.joinpath(*name.split("/")).read_bytes()
    return body, sha256(body).hexdigest()[:16]


async def serve_static(call: HttpRequest) -> HttpResponse:
    """Return a static file, or 304 if the browser has it already."""
    name = str(call.scope["path"]).removeprefix("/static/")
    if name not in NAMES:
        raise ApiError(404, "not_found", "there is no such file")
    body, digest = render_part(name)
    etag = f'"{digest}"'
    headers = (
        (b"content-type", KINDS[name[name.rindex(".") :]]),
        (b"cache-control", b"no-cache"),
        (b"etag", etag.encode()),
        *SAFE,
    )
    if call.header(b"if-none-match") == etag:
        return HttpResponse(304, b"", headers)
    return HttpResponse(200, body, headers)
