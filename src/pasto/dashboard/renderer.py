"""Pages from templates, and the headers that keep a browser from doing anything else with them."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

import jinja2

from pasto.formatting import format_confidence
from pasto.report.guardrail_text import basis_text, certificate_text, verdict_text
from pasto.report.sender_text import departure_text
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

NONE = "–"
"""What stands where there is no number."""


def format_number(value: float | None, digits: int = 4) -> str:
    """A number as people read it.

    >>> format_number(12345.678), format_number(0.034567), format_number(None), format_number(1234567)
    ('12,346', '0.03457', '–', '1,234,567')
    """
    if value is None or not math.isfinite(value):
        return NONE
    if value and abs(value) < 1e-4:
        return f"{value:.2g}"
    if abs(value) >= 10**digits or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def format_percent(value: float | None, digits: int = 1) -> str:
    """A share in percent; a small one is not told as none, nor one that is nearly all as all.

    >>> [format_percent(share) for share in (0.25, 0.0004, None, 0.0, 0.99999, 1.0)]
    ['25.0%', '< 0.1%', '–', '0.0%', '> 99.9%', '100.0%']
    """
    if value is None or not math.isfinite(value):
        return NONE
    if 0 < value < 0.5 * 10 ** (-digits - 2):
        return f"< {10.0**-digits:g}%"
    if 1 - 0.5 * 10 ** (-digits - 2) <= value < 1:
        return f"> {100 - 10.0**-digits:g}%"
    return f"{value:.{digits}%}"


def format_signed(value: float | None, unit: str = "") -> str:
    """A number with its sign, in whatever unit is given.

    >>> format_signed(3.14159, "%"), format_signed(-2.0, "%"), format_signed(None)
    ('+3.14%', '−2%', '–')
    """
    if value is None or not math.isfinite(value):
        return NONE
    return f"{value:+.3g}{unit}".replace("-", "−")


def format_elapsed(seconds: float | None) -> str:
    """A time span in one or two words.

    >>> format_elapsed(42), format_elapsed(3900), format_elapsed(200000), format_elapsed(None)
    ('42 s', '1 h 5 min', '2 d 7 h', '–')
    """
    if seconds is None:
        return NONE
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    for large, small, size, part in (("min", "s", 60, 1), ("h", "min", 3600, 60), ("d", "h", 86400, 3600)):
        if whole < size * {"min": 60, "h": 24, "d": 10**9}[large]:
            rest = whole % size // part
            return f"{whole // size} {large}" + (f" {rest} {small}" if rest else "")
    return NONE


def format_time(at: float | None) -> str:
    """A time in UTC.

    >>> format_time(0)
    '1970-01-01 00:00:00'
    """
    if at is None:
        return NONE
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


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
    signed=format_signed,
    lasting=format_elapsed,
    moment=format_time,
    pretty=_pretty,
    stated=format_confidence,
    basis=basis_text,
    certificate=certificate_text,
    verdict=verdict_text,
    departure=departure_text,
)


def render_page(template: str, values: dict[str, Any], status: int = 200, headers: Headers = ()) -> HttpResponse:
    """A page, or a part of one."""
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
    "tradeoff.js",
    "icon.svg",
    "vendor/htmx.min.js",
    "vendor/uPlot.iife.min.js",
    "vendor/uPlot.min.css",
)
"""All that there is; nothing else in the package can be asked for."""


@cache
def render_part(name: str) -> tuple[bytes, str]:
    """A file and its digest."""
    body = files("pasto.dashboard").joinpath("static", *name.split("/")).read_bytes()
    return body, sha256(body).hexdigest()[:16]


async def serve_static(call: HttpRequest) -> HttpResponse:
    """One file; a browser that has it already is told so."""
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
