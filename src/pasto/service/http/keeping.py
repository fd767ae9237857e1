"""Events over HTTP once they are old: archived, deleted, and a unit's forgotten."""

from __future__ import annotations

import msgspec

from pasto.service.http.answers import Answer, Refused, answer
from pasto.service.http.calls import Call
from pasto.service.http.schemas import Archiving, Forget

FORGET = msgspec.json.Decoder(Forget)
ARCHIVING = msgspec.json.Decoder(Archiving)
PATIENCE = 3600.0
"""Seconds: every event that was ever kept is looked at."""


async def forget(call: Call) -> Answer:
    """Delete all that is kept of a unit, which is named in the body: addresses are logged, by others too."""
    name = call.path("name")
    asked = await call.json(FORGET)
    work = lambda: call.service.forget(name, asked.unit, who=call.who, reason=asked.reason)  # noqa: E731
    async with call.context.keeping:
        return answer(await call.run(work, patience=PATIENCE))


async def archive(call: Call) -> Answer:
    """Move the events of learned rounds to the archive."""
    name = call.path("name")
    asked = await call.json(ARCHIVING, empty=b"{}")
    older = asked.delete_older
    if older is not None and not 0 <= older < float("inf"):
        raise Refused(400, "bad_request", f"delete_older is {older}; it is seconds, from 0", field="delete_older")
    work = lambda: call.service.archive_events(name, who=call.who, delete_older=older)  # noqa: E731
    async with call.context.keeping:
        return answer(await call.run(work, patience=PATIENCE))
