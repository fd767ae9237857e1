"""Events over HTTP once they are old: archived, deleted, and a unit's forgotten."""

from __future__ import annotations

import logging

import msgspec

from pasto.durations import YEAR_SECONDS
from pasto.service.api_keys import LONGEST, MONTH
from pasto.service.http.request import HttpRequest
from pasto.service.http.responses import ApiError, HttpResponse, json_response
from pasto.service.http.schemas import ArchiveRequest, KeyRotation, NewKey, UnitErasure

UNIT_ERASURE = msgspec.json.Decoder(UnitErasure)

ARCHIVE_REQUEST = msgspec.json.Decoder(ArchiveRequest)

PATIENCE = 3600.0
"""Seconds: every event that was ever kept is looked at."""


async def erase_unit(call: HttpRequest) -> HttpResponse:
    """Delete all that is kept of a unit, which is named in the body: addresses are logged, by others too."""
    name = call.path("name")
    asked = await call.json(UNIT_ERASURE)
    work = lambda: call.service.forget(name, asked.unit, who=call.who, reason=asked.reason)  # noqa: E731
    async with call.context.keeping:
        return json_response(await call.run(work, patience=PATIENCE))


async def archive(call: HttpRequest) -> HttpResponse:
    """Move the events of learned rounds to the archive."""
    name = call.path("name")
    asked = await call.json(ARCHIVE_REQUEST, empty=b"{}")
    age = asked.delete_older
    older = None if age is None else call.duration("delete_older", age, 0.0, 100 * YEAR_SECONDS)
    work = lambda: call.service.archive_events(name, who=call.who, delete_older=older)  # noqa: E731
    async with call.context.keeping:
        return json_response(await call.run(work, patience=PATIENCE))


NEW = msgspec.json.Decoder(NewKey)

ROTATION = msgspec.json.Decoder(KeyRotation)

log = logging.getLogger("pasto.keys")


async def create(call: HttpRequest) -> HttpResponse:
    """Make a key and show it, once."""
    asked = await call.json(NEW)
    keys = call.context.keys
    if keys.none and "admin" not in asked.scopes:
        raise ApiError(
            409,
            "first_key_needs_admin",
            "the first key must have the scope admin: from then on nobody comes in without a key, so nobody could "
            "make another one",
            field="scopes",
        )
    lifetime = asked.expires_in
    expires_in = None if lifetime is None else call.duration("expires_in", lifetime, 1.0, LONGEST)
    made = await call.run(lambda: keys.create(asked.name, asked.scopes, expires_in=expires_in, who=call.who))
    log.info("key made", extra={"prefix": made["prefix"], "who": call.who})
    return json_response(made, 201, ((b"cache-control", b"no-store"),))


async def listed(call: HttpRequest) -> HttpResponse:
    """Every key by its prefix."""
    call.query()
    return json_response({"keys": await call.run(call.context.keys.listed)})


async def rotate(call: HttpRequest) -> HttpResponse:
    """Make a successor, and let the old key live on for a while."""
    prefix = call.path("prefix")
    asked = await call.json(ROTATION, empty=b"{}")
    keys = call.context.keys
    if not await call.run(lambda: any(key["prefix"] == prefix and key["valid"] for key in keys.listed())):
        raise _unknown(prefix)
    grace = call.duration("grace", asked.grace, 0.0, MONTH)
    made = await call.run(lambda: keys.rotate(prefix, grace=grace, who=call.who))
    log.info("key rotated", extra={"prefix": prefix, "successor": made["prefix"], "who": call.who})
    return json_response(made, 201, ((b"cache-control", b"no-store"),))


async def revoke(call: HttpRequest) -> HttpResponse:
    """Stop a key from working."""
    prefix = call.path("prefix")
    keys = call.context.keys
    if not await call.run(lambda: keys.revoke(prefix, who=call.who)):
        raise _unknown(prefix)
    log.info("key revoked", extra={"prefix": prefix, "who": call.who})
    return json_response({"revoked": True})


async def audit(call: HttpRequest) -> HttpResponse:
    """Answer who created, rotated and revoked keys."""
    after, limit = call.page()
    return json_response({"audit": await call.run(lambda: call.service.key_audit(after, limit))})


def _unknown(prefix: str) -> ApiError:
    return ApiError(404, "unknown_key", f"no working key has the prefix {prefix[:60]!r}; list the keys to see them")
