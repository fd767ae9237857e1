"""The files that pages load: ours and others', all from this package."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files

from pasto.dashboard.rendering import SAFE
from pasto.service.http.answers import Answer, Refused
from pasto.service.http.calls import Call

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
def content(name: str) -> tuple[bytes, str]:
    """A file and its digest."""
    body = files("pasto.dashboard").joinpath("static", *name.split("/")).read_bytes()
    return body, sha256(body).hexdigest()[:16]


async def static(call: Call) -> Answer:
    """One file; a browser that has it already is told so."""
    name = str(call.scope["path"]).removeprefix("/static/")
    if name not in NAMES:
        raise Refused(404, "not_found", "there is no such file")
    body, digest = content(name)
    etag = f'"{digest}"'
    headers = (
        (b"content-type", KINDS[name[name.rindex(".") :]]),
        (b"cache-control", b"no-cache"),
        (b"etag", etag.encode()),
        *SAFE,
    )
    if call.header(b"if-none-match") == etag:
        return Answer(304, b"", headers)
    return Answer(200, body, headers)
