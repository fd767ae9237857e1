"""Events: the route that stores a batch and responds when it is durable, and the buffer of our own exposures."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

import msgspec

from pasto.service.http.body import parse_content_type
from pasto.service.http.request import MAX_INLINE_BYTES, HttpRequest
from pasto.service.http.responses import ApiError, HttpResponse, json_response, retry
from pasto.service.ingest import BatchResult, DrawnUnit, EventRejection
from pasto.service.service import Service
from pasto_sdk.policy import PublishedPolicy

FLUSH_SECONDS = 0.01
"""Seconds that an exposure may stay in the buffer."""
MAX_BUFFERED_EXPOSURES = 1_000
"""Exposures of one study and key that are written at once."""
LINES = {"application/x-ndjson": True, "application/ndjson": True, "application/jsonl": True, "application/json": False}
"""Whether each line is an event, by media type."""
MAX_COMMAS_PER_EVENT = 64
"""Commas per allowed event; a batch with more is rejected before it is decoded."""
MAX_INLINE_SEPARATORS = 256
"""Commas and line ends up to which a batch is decoded in the event loop. Each may separate two events, and
rejecting an item that is not an event takes ten microseconds."""
MAX_REASONS = 100
"""Rejected events with id and reason in a response; the others have their index only."""


class _RawBatch(msgspec.Struct):
    events: list[msgspec.Raw]


_RAW_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_RAW_BATCH = msgspec.json.Decoder(_RawBatch)


async def ingest_events(call: HttpRequest) -> HttpResponse:
    """Store a batch; respond when its accepted events are durable."""
    call.query()
    name = call.path("name")
    media_type = parse_content_type(call.headers)
    lines = LINES.get(media_type)
    if lines is None:
        raise ApiError(
            415,
            "unsupported_type",
            f"the body must be application/json or application/x-ndjson, got {media_type[:60]!r}",
            field="content-type",
            rest=True,
        )
    key, limit = call.key_prefix or "", call.context.rate_limit
    if seconds := limit.wait_seconds(key):
        raise ApiError(
            429,
            "rate_limited",
            f"a key may send {call.settings.key_rate} events per second, got more; send them again later",
            headers=retry(seconds),
            rest=True,
        )
    body = await call.body()
    await call.require_study(name)
    call.context.exposures.flush()  # the units of these events may have been assigned a moment ago
    max_events = call.settings.batch_limit
    hides_draw = not call.may(("evaluate",), name)

    def work() -> tuple[int, Future[BatchResult]]:
        _check_number(body, lines, max_events)
        batch = call.service.decode(body, lines=lines)
        if len(batch) > max_events:
            raise _too_many(max_events)
        return len(batch), call.service.ingest(name, batch, key=call.key_prefix, hides_draw=hides_draw)

    try:
        number, pending = work() if _is_cheap(body) else await call.run(work)
    except RecursionError:
        raise ApiError(
            400, "nesting_too_deep", "an event must be a flat object, got one that is nested too deep"
        ) from None
    limit.take(key, number)
    result = await _wait_until_durable(pending, call)
    call.context.metrics.count_events(name, result)
    is_rejected = result.rejected and not result.accepted and not result.duplicates
    return json_response(shorten(result), 422 if is_rejected else 200)


def shorten(result: BatchResult) -> BatchResult:
    """Return the result with id and reason of the first rejected events only.

    >>> rejected = tuple(EventRejection(place, "unit is missing", "a") for place in range(101))
    >>> shorten(BatchResult(0, 0, rejected)).rejected[99:]
    (EventRejection(index=99, reason='unit is missing', id='a'), EventRejection(index=100, reason='', id=UNSET))
    """
    first, rest = result.rejected[:MAX_REASONS], result.rejected[MAX_REASONS:]
    shortened = (*first, *(EventRejection(event.index, "") for event in rest))
    return BatchResult(result.accepted, result.duplicates, shortened)


async def _wait_until_durable(pending: Future[BatchResult], call: HttpRequest) -> BatchResult:
    try:
        async with asyncio.timeout(call.settings.request_timeout):
            # Shielded, because the writer still uses the batch after the timeout.
            return await asyncio.shield(asyncio.wrap_future(pending))
    except TimeoutError:
        raise ApiError(
            503,
            "store_busy",
            "the store did not confirm the events in time; send them again, each counts once by its id",
            headers=retry(call.settings.retry_after),
        ) from None


def _is_cheap(body: bytes) -> bool:
    """Return whether any batch of this size is decoded so fast that other requests need not wait."""
    return len(body) <= MAX_INLINE_BYTES and body.count(b",") + body.count(b"\n") <= MAX_INLINE_SEPARATORS


def _check_number(body: bytes, lines: bool, limit: int) -> None:
    """Raise `ApiError` for too many events before they are decoded, because invalid ones are slow."""
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
            return  # the decoder of events reports it
        if number > limit:
            raise _too_many(limit)


def _too_many(limit: int) -> ApiError:
    return ApiError(413, "batch_too_large", f"a batch may hold {limit} events, got more; send several batches")


class ExposureBuffer:
    """Buffer of exposures by study and key, flushed before later events are stored."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._batches: dict[tuple[str, str | None], tuple[PublishedPolicy, list[DrawnUnit]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, policy: PublishedPolicy, drawn: DrawnUnit, key: str | None = None) -> None:
        """Add an exposure of a decision for the caller with a key."""
        batch_key = (policy.study, key)
        batch = self._batches.get(batch_key)
        if batch is None or batch[0] is not policy:
            if batch is not None:
                self.flush()
            batch = self._batches[batch_key] = (policy, [])
        batch[1].append(drawn)
        if len(batch[1]) >= MAX_BUFFERED_EXPOSURES:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)

    def flush(self) -> None:
        """Pass the buffered exposures to the store, in order."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batches, self._batches = self._batches, {}
        for (study, key), (policy, drawn) in batches.items():
            self._service.expose_all(study, policy, drawn, key=key)
