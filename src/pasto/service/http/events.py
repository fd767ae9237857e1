"""Events over HTTP: taken in batches, answered when they are durable."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

import msgspec

from pasto.service.api_keys import is_permitted
from pasto.service.http.body import parse_content_type
from pasto.service.http.request import MAX_INLINE_BYTES, HttpRequest
from pasto.service.http.responses import ApiError, HttpResponse, json_response, retry

LINES = {"application/x-ndjson": True, "application/ndjson": True, "application/jsonl": True, "application/json": False}
"""Whether each line is an event, by media type."""
MAX_COMMAS_PER_EVENT = 64
"""A batch with more commas than this for each event that it may hold is refused unread."""
MAX_INLINE_SEPARATORS = 256
"""Commas and line ends up to which a batch is read in the event loop: each may separate two events, and one that is
not an event costs ten microseconds to refuse."""
MAX_REASONS = 100
"""Refused events whose ids and reasons an answer tells; of the others it tells the index only."""


class _RawBatch(msgspec.Struct):
    events: list[msgspec.Raw]


_RAW_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_RAW_BATCH = msgspec.json.Decoder(_RawBatch)


async def events(call: HttpRequest) -> HttpResponse:
    """Take a batch; answered when every event in it is durable, or refused with a reason."""
    call.query()
    name = call.path("name")
    sent = parse_content_type(call.headers)
    lines = LINES.get(sent)
    if lines is None:
        raise ApiError(
            415,
            "unsupported_type",
            f"events are application/json or application/x-ndjson, got {sent[:60]!r}",
            field="content-type",
            rest=True,
        )
    key, limit = call.key_prefix or "", call.context.rate_limit
    if seconds := limit.wait_seconds(key):
        raise ApiError(
            429,
            "rate_limited",
            f"a key may send {call.settings.key_rate} events a second and this one sent more; send them again later",
            headers=retry(seconds),
            rest=True,
        )
    body = await call.body()
    await call.met(name)
    call.context.exposures.flush()  # an event may be of a unit that was assigned a moment ago
    most = call.settings.batch_limit
    hides = call.key is not None and not is_permitted(call.key, ("evaluate",))

    def work() -> tuple[int, Future[dict[str, Any]]]:
        _check_number(body, lines, most)
        batch = call.service.decode(body, lines=lines)
        if len(batch) > most:
            raise _too_many(most)
        return len(batch), call.service.ingest(name, batch, key=call.key_prefix, hides_draw=hides)

    try:
        number, pending = work() if _is_cheap(body) else await call.run(work)
    except RecursionError:
        raise ApiError(
            400, "nesting_too_deep", "an event is a flat object, and one of these nests without end"
        ) from None
    limit.take(key, number)
    told = await _durable(pending, call)
    call.context.meters.count_events(name, told)
    nothing = told["rejected"] and not told["accepted"] and not told["duplicates"]
    if len(told["rejected"]) > MAX_REASONS:
        told = {**told, "rejected": shorten(told["rejected"])}
    return json_response(told, 422 if nothing else 200)


def shorten(refused: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return every refused event by its index, with an id and a reason for the first ones only.

    >>> shorten([{"index": place, "id": "a", "reason": "unit is missing"} for place in range(101)])[99:]
    [{'index': 99, 'id': 'a', 'reason': 'unit is missing'}, {'index': 100, 'reason': ''}]
    """
    rest = ({"index": one["index"], "reason": ""} for one in refused[MAX_REASONS:])
    return [*refused[:MAX_REASONS], *rest]


async def _durable(pending: Future[dict[str, Any]], call: HttpRequest) -> dict[str, Any]:
    try:
        async with asyncio.timeout(call.settings.request_timeout):
            # Shielded: the writer still owns the batch when the caller has given up on it.
            return await asyncio.shield(asyncio.wrap_future(pending))
    except TimeoutError:
        raise ApiError(
            503,
            "store_busy",
            "the store did not say in time that the events are kept; send them again, each counts once by its id",
            headers=retry(call.settings.retry_after),
        ) from None


def _is_cheap(body: bytes) -> bool:
    """Whether a batch is read so quickly that no other request waits for it, whatever it holds."""
    return len(body) <= MAX_INLINE_BYTES and body.count(b",") + body.count(b"\n") <= MAX_INLINE_SEPARATORS


def _check_number(body: bytes, lines: bool, limit: int) -> None:
    """Refuse a batch with too many events before any of them is read: a bad one costs more than a good one."""
    if lines:
        if body.count(b"\n") >= limit and sum(not line.isspace() for line in body.split(b"\n") if line) > limit:
            raise _too_many(limit)
        return
    commas = body.count(b",")
    if commas > MAX_COMMAS_PER_EVENT * limit:
        raise _too_many(limit)
    if commas >= limit:
        try:
            is_array = body.lstrip()[:1] == b"["
            number = len(_RAW_ARRAY.decode(body) if is_array else _RAW_BATCH.decode(body).events)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return  # the decoder of events explains it
        if number > limit:
            raise _too_many(limit)


def _too_many(limit: int) -> ApiError:
    return ApiError(413, "batch_too_large", f"a batch holds at most {limit} events; send several batches")
