"""What a browser's form sends."""

from __future__ import annotations

from urllib.parse import parse_qsl

from pasto.service.http.answers import Refused
from pasto.service.http.body import content_type
from pasto.service.http.calls import Call

FIELDS = 50
"""Fields that a form has at most."""


async def read_form(call: Call) -> dict[str, str]:
    """A form's fields; line ends are as on Unix."""
    sent = content_type(call.headers)
    if sent != "application/x-www-form-urlencoded":
        raise Refused(415, "unsupported_type", f"a form of these pages was expected, got {sent[:60]!r}", rest=True)
    body = await call.body()
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, max_num_fields=FIELDS, errors="strict", encoding="utf-8"
        )
    except ValueError:
        raise Refused(400, "bad_request", "the form cannot be read; load the page again and repeat") from None
    return {name: value.replace("\r\n", "\n") for name, value in pairs}


def kind_of(text: str) -> str:
    """Which form a pasted study file has.

    >>> kind_of('{"name": "feed"}'), kind_of("name: feed"), kind_of('name = "feed"')
    ('json', 'yaml', 'toml')
    """
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    if lines and lines[0].startswith("{"):
        return "json"
    first = lines[0] if lines else ""
    equals, colon = first.find("="), first.find(":")
    return "toml" if first.startswith("[") or (equals > 0 and (colon < 0 or equals < colon)) else "yaml"
