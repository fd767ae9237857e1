"""A study's policy over HTTP: read, awaited, and drawn from."""

from __future__ import annotations

from typing import Any

import msgspec

from pasto.service.api_keys import is_permitted
from pasto.service.http.request import Context, HttpRequest
from pasto.service.http.responses import CLOSE, JSON, ApiError, Headers, HttpResponse, encode, retry
from pasto.service.http.schemas import AssignRequest
from pasto_sdk.policy import PublishedPolicy
from pasto_sdk.policy_document import Bucket

LONGEST = 60.0
"""Seconds that a caller may wait for a policy to change."""
MANY = 500
"""Units that are decided for in a thread, so that they hold nobody up."""
UNSURE = 60.0
"""Seconds without a word from the store after which nobody is told any more that a policy still holds."""
SIGNING_KEY = b"pasto-signing-key"
UNITS = msgspec.json.Decoder(AssignRequest)


async def policy(call: HttpRequest) -> HttpResponse:
    """The policy being served, or 304 where the caller has it; with `wait`, as soon as it is another one."""
    name = call.path("name")
    wait = _wait(call)
    board, waiting = call.service.board, call.context.waiting
    held = call.header(b"if-none-match")
    current = await call.policy(name)
    further: Headers = ()
    if wait and held and _same(held, current):
        if waiting.number >= waiting.limit:
            # Answered at once, and disconnected until it asks again, because other callers need the connection.
            further = (*CLOSE, *retry(call.settings.retry_after))
        else:
            event = waiting.event(name)
            current = board.current(name)
            if _same(held, current):
                await waiting.wait(event, wait)
                current = board.current(name)
    if board.silence > UNSURE:
        # It may have been paused elsewhere. A caller that hears nothing goes on until its policy expires, no longer.
        raise ApiError(
            503,
            "store_unavailable",
            "the store has not answered for a while, so this node cannot say which policy holds; ask another node",
            headers=retry(call.settings.retry_after),
        )
    further = (*await _signing_key(call, current), *further)
    tag = (b"etag", f'"{current.checksum}"'.encode())
    if held and _same(held, current):
        return HttpResponse(304, b"", (tag, *further))
    return HttpResponse(200, current.text.encode(), (*JSON, tag, *further))


async def assign(call: HttpRequest) -> HttpResponse:
    """Decide for one unit or several, and log that they were exposed."""
    name = call.path("name")
    asked = await call.json(UNITS)
    current = await call.policy(name)
    if asked.unit is not msgspec.UNSET and asked.units is msgspec.UNSET:
        return HttpResponse(200, decided(call.context, name, current, asked.unit, call.key_prefix))
    if asked.units is msgspec.UNSET or asked.unit is not msgspec.UNSET:
        raise ApiError(400, "bad_request", "name one unit under unit, or several under units", field="unit")
    if len(asked.units) > call.settings.batch_limit:
        raise ApiError(
            413, "batch_too_large", f"at most {call.settings.batch_limit} units can be assigned at once", field="units"
        )
    units = asked.units
    head, parts = _parts(current)
    call.context.exposures.flush()

    def work() -> list[bytes]:
        drawn = list(zip(units, current.draw_many(units), strict=True))
        call.service.expose_all(name, current, drawn, key=call.key_prefix)
        return [b'{"unit":%b,%b}' % (encode(unit), parts[cell.arm, cell.candidate]) for unit, cell in drawn]

    written = await call.run(work) if len(units) > MANY else work()
    call.context.meters.decisions(name, "assign", len(units))
    return HttpResponse(200, head.replace(b'"unit":', b'"assignments":[') + b",".join(written) + b"]}")


def decided(context: Context, name: str, current: PublishedPolicy, unit: str, key: str | None) -> bytes:
    """Decide for one unit of the caller with a key, log that it was exposed, and say what it gets."""
    cell = current.draw(unit)
    context.exposures.add(current, unit, cell, key)
    context.meters.decisions(name, "assign")
    head, parts = _parts(current)
    return b"%b%b,%b}" % (head, encode(unit), parts[cell.arm, cell.candidate])


def reason(policy: PublishedPolicy) -> str:
    """Why units get what they get, in OpenFeature's words."""
    return "DEFAULT" if policy.state == "paused" else "SPLIT"


def described(policy: PublishedPolicy, cell: Bucket) -> dict[str, Any]:
    """A cell as callers see it."""
    return {
        "candidate": cell.name,
        "index": cell.candidate,
        "values": dict(cell.values),
        "propensity": cell.propensity,
        "arm": cell.arm,
        "reason": reason(policy),
    }


async def _signing_key(call: HttpRequest, policy: PublishedPolicy) -> Headers:
    """Return the headers about caching, with the key that exposures are signed with if the caller may have it."""
    if not policy.signed or not (call.key is None or is_permitted(call.key, ("evaluate",))):
        return ((b"cache-control", b"no-cache"),)
    key = await call.run(lambda: call.service.signing_key(policy.study))  # the first time, it reads the store
    return ((SIGNING_KEY, key.encode()), (b"cache-control", b"no-store"))


Parts = tuple[bytes, dict[tuple[str, int], bytes]]
_written: dict[str, tuple[PublishedPolicy, Parts]] = {}


def _parts(policy: PublishedPolicy) -> Parts:
    """What is the same for every unit: an answer's beginning, and its end by cell; written once a policy."""
    kept = _written.get(policy.study)
    if kept is None or kept[0] is not policy:
        head = b'{"study":%b,"version":%d,"round":%d,"unit":' % (encode(policy.study), policy.version, policy.round)
        parts = {(cell.arm, cell.candidate): encode(described(policy, cell))[1:-1] for cell in policy.cells}
        kept = _written[policy.study] = (policy, (head, parts))
    return kept[1]


def _same(held: str, policy: PublishedPolicy) -> bool:
    """Whether an If-None-Match header names this policy."""
    if held == f'"{policy.checksum}"':
        return True
    tags = [tag.strip().removeprefix("W/") for tag in held.split(",")]
    return "*" in tags or f'"{policy.checksum}"' in tags


def _wait(call: HttpRequest) -> float:
    return call.duration("wait", call.query("wait").get("wait", 0.0), 0.0, LONGEST)
