"""Keys over HTTP: made, listed, rotated, revoked."""

from __future__ import annotations

import logging

import msgspec

from pasto.service.http.answers import Answer, Refused, answer
from pasto.service.http.calls import Call
from pasto.service.http.schemas import NewKey, Rotation

NEW = msgspec.json.Decoder(NewKey)
ROTATION = msgspec.json.Decoder(Rotation)
log = logging.getLogger("pasto.keys")


async def create(call: Call) -> Answer:
    """Make a key and show it, once."""
    asked = await call.json(NEW)
    keys = call.context.keys
    if keys.none and "admin" not in asked.scopes:
        raise Refused(
            409,
            "first_key",
            "the first key must have the scope admin: from then on nobody comes in without a key, so nobody could "
            "make another one",
            field="scopes",
        )
    made = await call.run(lambda: keys.create(asked.name, asked.scopes, expires_in=asked.expires_in, who=call.who))
    log.info("key made", extra={"prefix": made["prefix"], "who": call.who})
    return answer(made, 201, ((b"cache-control", b"no-store"),))


async def listed(call: Call) -> Answer:
    """Every key by its prefix."""
    call.query()
    return answer({"keys": await call.run(call.context.keys.listed)})


async def rotate(call: Call) -> Answer:
    """Make a successor, and let the old key live on for a while."""
    prefix = call.path("prefix")
    asked = await call.json(ROTATION, empty=b"{}")
    keys = call.context.keys
    if not await call.run(lambda: any(key["prefix"] == prefix and key["valid"] for key in keys.listed())):
        raise _unknown(prefix)
    made = await call.run(lambda: keys.rotate(prefix, grace=asked.grace, who=call.who))
    log.info("key rotated", extra={"prefix": prefix, "successor": made["prefix"], "who": call.who})
    return answer(made, 201, ((b"cache-control", b"no-store"),))


async def revoke(call: Call) -> Answer:
    """Stop a key from working."""
    prefix = call.path("prefix")
    keys = call.context.keys
    if not await call.run(lambda: keys.revoke(prefix, who=call.who)):
        raise _unknown(prefix)
    log.info("key revoked", extra={"prefix": prefix, "who": call.who})
    return answer({"revoked": True})


async def audit(call: Call) -> Answer:
    """Answer who created, rotated and revoked keys."""
    after, limit = call.page()
    return answer({"audit": await call.run(lambda: call.service.key_audit(after, limit))})


def _unknown(prefix: str) -> Refused:
    return Refused(404, "unknown_key", f"no working key has the prefix {prefix[:60]!r}; list the keys to see them")
