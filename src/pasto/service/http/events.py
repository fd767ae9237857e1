"""Events over HTTP: taken in batches, answered when they are durable."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

import msgspec

from pasto.service.http.answers import Answer, Refused, answer, retry
from pasto.service.http.body import content_type
from pasto.service.http.calls import Call
from pasto.service.keys import permits

LINES = {"application/x-ndjson": True, "application/ndjson": True, "application/jsonl": True, "application/json": False}
"""Whether each line is an event, by media type."""
SEPARATORS = 64
"""More commas than this an event than a batch may have events, and it is not worth reading."""


async def events(call: Call) -> Answer:
    """Take a batch; answered when every event in it is durable, or refused with a reason."""
    call.query()
    name = call.path("name")
    sent = content_type(call.headers)
    lines = LINES.get(sent)
    if lines is None:
        raise Refused(
            415,
            "unsupported_type",
            f"events are application/json or application/x-ndjson, got {sent[:60]!r}",
            field="content-type",
            rest=True,
        )
    key, limit = call.key_prefix or "", call.context.rate_limit
    if seconds := limit.wait_seconds(key):
        raise Refused(
            429,
            "too_fast",
            f"a key may send {call.settings.key_rate} events a second and this one sent more; send them again later",
            headers=retry(seconds),
            rest=True,
        )
    body = await call.body()
    await call.met(name)
    call.context.exposures.flush()  # an event may be of a unit that was assigned a moment ago
    most = call.settings.batch_limit
    hides = call.key is not None and not permits(call.key, ("evaluate",))

    def work() -> tuple[int, Future[dict[str, Any]]]:
        _check_number(body, lines, most)
        batch = call.service.decode(body, lines=lines)
        if len(batch) > most:
            raise _too_many(most)
        return len(batch), call.service.ingest(name, batch, key=call.key_prefix, hides_draw=hides)

    try:
        number, pending = await call.reading(body, work)
    except RecursionError:
        raise Refused(400, "too_deep", "an event is a flat object, and one of these nests without end") from None
    limit.take(key, number)
    told = await _durable(pending, call)
    call.context.meters.events(name, told)
    nothing = told["refused"] and not told["accepted"] and not told["duplicates"]
    return answer(told, 422 if nothing else 200)


async def _durable(pending: Future[dict[str, Any]], call: Call) -> dict[str, Any]:
    try:
        async with asyncio.timeout(call.settings.request_timeout):
            # Shielded: the writer still owns the batch when the caller has given up on it.
            return await asyncio.shield(asyncio.wrap_future(pending))
    except TimeoutError:
        raise Refused(
            503,
            "store_busy",
            "the store did not say in time that the events are kept; send them again, each counts once by its id",
            headers=retry(call.settings.retry_after),
        ) from None


def _check_number(body: bytes, lines: bool, limit: int) -> None:
    """Refuse a batch with far too many events before anything is built of it."""
    if len(body) <= 2 * limit:
        return
    if lines:
        if body.count(b"\n") > 2 * limit:
            raise _too_many(limit)
        return
    commas = body.count(b",")
    if commas > SEPARATORS * limit:
        raise _too_many(limit)
    if commas >= limit and body.lstrip()[:1] == b"[":
        try:
            number = len(msgspec.json.decode(body, type=list[msgspec.Raw]))
        except msgspec.DecodeError:
            return  # said properly by whoever reads it
        if number > limit:
            raise _too_many(limit)


def _too_many(limit: int) -> Refused:
    return Refused(413, "too_many", f"a batch holds at most {limit} events; send several batches")
