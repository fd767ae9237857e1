"""Administration routes: API keys, the archive of old events, and erasing a unit's events."""

from __future__ import annotations

import logging

import msgspec

from pasto.durations import YEAR_SECONDS
from pasto.service.api_keys import LONGEST, MONTH
from pasto.service.http.request import HttpRequest
from pasto.service.http.responses import ApiError, HttpResponse, json_response
from pasto.service.http.schemas import ArchiveRequest, EmptyBody, KeyRotation, NewKey, UnitErasureRequest

UNIT_ERASURE = msgspec.json.Decoder(UnitErasureRequest)

ARCHIVE_REQUEST = msgspec.json.Decoder(ArchiveRequest)

SCAN_TIMEOUT_SECONDS = 3600.0
"""Seconds that a request may take that reads all stored events."""


async def erase_unit(call: HttpRequest) -> HttpResponse:
    """Erase the events of a unit. The body names it, because proxies log addresses."""
    name = call.path("name")
    body = await call.json(UNIT_ERASURE)
    work = lambda: call.service.erase_unit(name, body.unit, who=call.who, reason=body.reason)  # noqa: E731
    async with call.context.retention_lock:
        return json_response(await call.run(work, timeout=SCAN_TIMEOUT_SECONDS))


async def archive_events(call: HttpRequest) -> HttpResponse:
    """Move the events of learned rounds to the archive."""
    name = call.path("name")
    body = await call.json(ARCHIVE_REQUEST, empty=b"{}")
    age = body.delete_older
    older = None if age is None else call.duration("delete_older", age, 0.0, 100 * YEAR_SECONDS)
    work = lambda: call.service.archive_events(name, who=call.who, delete_older=older)  # noqa: E731
    async with call.context.retention_lock:
        return json_response(await call.run(work, timeout=SCAN_TIMEOUT_SECONDS))


EMPTY_BODY = msgspec.json.Decoder(EmptyBody)

NEW_KEY = msgspec.json.Decoder(NewKey)

KEY_ROTATION = msgspec.json.Decoder(KeyRotation)

log = logging.getLogger("pasto.keys")


async def list_webhooks(call: HttpRequest) -> HttpResponse:
    """List the webhooks of this node; their addresses are left out except for the hosts."""
    call.query()
    return json_response({"webhooks": await call.run(call.context.webhooks.records)})


async def try_webhook(call: HttpRequest) -> HttpResponse:
    """Send a test message to a webhook, and answer whether it was accepted."""
    name, webhooks = call.path("webhook"), call.context.webhooks
    await call.json(EMPTY_BODY, empty=b"{}")
    if name not in webhooks.names:
        raise ApiError(404, "unknown_webhook", f"there is no webhook {name[:60]!r}; list the webhooks to see the names")
    result = await call.run(lambda: webhooks.try_webhook(name))
    log.info("webhook tested", extra={"webhook": name, "who": call.who, "delivered": result.delivered})
    return json_response(result)


async def create_key(call: HttpRequest) -> HttpResponse:
    """Create a key and return it with its secret."""
    body = await call.json(NEW_KEY)
    keys = call.context.keys
    if call.context.authenticator.open and "admin" not in body.scopes:
        raise ApiError(
            409,
            "first_key_needs_admin",
            "the first key must have the scope admin: as soon as there is a key, all requests need one, and only an "
            "admin can create more",
            field="scopes",
        )
    lifetime = body.expires_in
    expires_in = None if lifetime is None else call.duration("expires_in", lifetime, 1.0, LONGEST)
    created = await call.run(lambda: keys.create(body.name, body.scopes, expires_in=expires_in, who=call.who))
    log.info("key created", extra={"prefix": created.prefix, "who": call.who})
    return json_response(created, 201, ((b"cache-control", b"no-store"),))


async def list_keys(call: HttpRequest) -> HttpResponse:
    """List all keys by their prefixes."""
    call.query()
    return json_response({"keys": await call.run(call.context.keys.listed)})


async def rotate_key(call: HttpRequest) -> HttpResponse:
    """Create a key's successor; the old key stays valid for a while."""
    prefix = call.path("prefix")
    body = await call.json(KEY_ROTATION, empty=b"{}")
    keys = call.context.keys
    if not await call.run(lambda: any(key.prefix == prefix and key.valid for key in keys.listed())):
        raise _unknown_key(prefix)
    grace = call.duration("grace", body.grace, 0.0, MONTH)
    created = await call.run(lambda: keys.rotate(prefix, grace=grace, who=call.who))
    log.info("key rotated", extra={"prefix": prefix, "successor": created.prefix, "who": call.who})
    return json_response(created, 201, ((b"cache-control", b"no-store"),))


async def revoke_key(call: HttpRequest) -> HttpResponse:
    """Revoke a key."""
    prefix = call.path("prefix")
    keys = call.context.keys
    if not await call.run(lambda: keys.revoke(prefix, who=call.who)):
        raise _unknown_key(prefix)
    log.info("key revoked", extra={"prefix": prefix, "who": call.who})
    return json_response({"revoked": True})


async def audit_keys(call: HttpRequest) -> HttpResponse:
    """Return the audit log of creating, rotating and revoking keys."""
    after, limit = call.page()
    return json_response({"audit": await call.run(lambda: call.service.key_audit(after, limit))})


def _unknown_key(prefix: str) -> ApiError:
    return ApiError(
        404, "unknown_key", f"no valid key has the prefix {prefix[:60]!r}; list the keys to see the prefixes"
    )
