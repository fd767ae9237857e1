"""HTTP requests as endpoints see them, and the ASGI application around each endpoint."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Hashable, MutableMapping
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec

from pasto.durations import describe_durations, parse_duration
from pasto.service.api_keys import ApiKeys
from pasto.service.http.auth import ANONYMOUS, Authenticator, Caller, hide_studies, identify_caller, permits_caller
from pasto.service.http.body import (
    Receive,
    RequestHeaders,
    decompress,
    drain_body,
    parse_content_type,
    read_body,
    read_json,
)
from pasto.service.http.prometheus import GaugeSource, PrometheusMetrics
from pasto.service.http.question_process import STUCK_SECONDS, Question, QuestionProcess
from pasto.service.http.questions import Questions
from pasto.service.http.rate_limit import RateLimit
from pasto.service.http.request_log import RequestLog
from pasto.service.http.responses import CLOSE, ApiError, HttpResponse, error_response, problem_response, retry
from pasto.service.http.worker_pools import PoolFullError, PoolName, WorkerPools
from pasto.service.settings import Settings
from pasto.service.webhook_worker import WebhookWorker
from pasto.store import KeyRow, Store
from pasto_sdk.policy import PublishedPolicy

if TYPE_CHECKING:
    from pasto.service.http.events import ExposureBuffer
    from pasto.service.http.long_poll import LongPollHub
    from pasto.service.http.request_head_limits import LimitedConnection
    from pasto.service.http.routes import Route
    from pasto.service.http.store_health import StoreHealth
    from pasto.service.scheduler import Scheduler
    from pasto.service.service import Service

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Body = TypeVar("Body")
Result = TypeVar("Result")

log = logging.getLogger("pasto.http")
MAX_INLINE_BYTES = 16_384
"""Bytes up to which a body is decoded in the event loop, in at most a few milliseconds; else in a thread."""


@dataclass(slots=True)
class Context:
    """Objects that the endpoints share."""

    service: Service
    store: Store
    settings: Settings
    keys: ApiKeys
    authenticator: Authenticator
    metrics: PrometheusMetrics
    long_poll: LongPollHub
    exposures: ExposureBuffer
    pools: WorkerPools
    store_health: StoreHealth
    questions: Questions
    request_log: RequestLog
    rate_limit: RateLimit
    webhooks: WebhookWorker
    question_process: QuestionProcess | None = None
    """Computes the answers to questions; if there is none, threads of this process do."""
    scheduler: Scheduler | None = None
    active_requests: int = 0
    """Number of requests that are being answered."""
    retention_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Lock of archiving and erasing: one request at a time, and the waiting ones occupy no thread."""
    gauge_sources: list[GaugeSource] = field(default_factory=list)
    """Functions that yield further gauges for Prometheus."""
    known_studies: set[str] = field(default_factory=set)
    """Studies that exist, as this process has seen; requests for them do not read the store."""


class HttpRequest:
    """Request as its endpoint sees it."""

    __slots__ = ("_pool", "_receive", "caller", "context", "headers", "scope", "service", "settings")

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        context: Context,
        headers: RequestHeaders,
        caller: Caller,
        pool: PoolName = "general",
    ) -> None:
        self.scope = scope
        self.headers = headers
        self.context = context
        self.service = context.service
        self.settings = context.settings
        self.caller = caller
        self._receive = receive
        self._pool: PoolName = pool

    @property
    def who(self) -> str:
        """Name of the caller for the audit log, with the name in the header Pasto-Who."""
        return identify_caller(self.caller, unquote(self.header(b"pasto-who") or ""))

    @property
    def key_prefix(self) -> str | None:
        """Public part of the caller's key; None if it has none."""
        return self.caller.prefix if isinstance(self.caller, KeyRow) else None

    def may(self, scopes: Collection[str], study: str) -> bool:
        """Return whether the caller has one of the scopes for a study."""
        return permits_caller(self.caller, scopes, study)

    def path(self, name: str) -> str:
        """Return a parameter of the path."""
        value: str = self.scope["path_params"][name]
        return value

    def header(self, name: bytes) -> str | None:
        """Return a header by its name in lower case."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    def query(self, *known: str) -> dict[str, str]:
        """Return the fields of the query; raise `ApiError` for unknown and repeated ones."""
        sent = self.scope["query_string"]
        if not sent:
            return {}
        try:
            pairs = parse_qsl(sent.decode("ascii"), keep_blank_values=True, max_num_fields=20, errors="strict")
        except ValueError:
            raise ApiError(400, "bad_request", "the query cannot be read; write it as name=value&name=value") from None
        found = dict(pairs)
        for name in found:
            if name not in known:
                raise ApiError(
                    400, "bad_request", f"the query may have {', '.join(known) or 'no fields'}, got {name[:60]}"
                )
        if len(found) < len(pairs):
            raise ApiError(400, "bad_request", "a field of the query may occur once, got it twice")
        return found

    def number(self, sent: dict[str, str], name: str, default: int, least: int, most: int) -> int:
        """Return a whole number of the query."""
        text = sent.get(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) <= 18 and least <= int(text) <= most):
            raise ApiError(
                400,
                "bad_request",
                f"{name} must be a whole number from {least} to {most}, got {text[:60]!r}",
                field=name,
            )
        return int(text)

    def duration(self, name: str, given: float | str, least: float, most: float) -> float:
        """Return a field's duration in seconds."""
        try:
            seconds = parse_duration(given)
        except ValueError:
            seconds = -1.0
        if not least <= seconds <= most:
            got = given[:60] if isinstance(given, str) else given
            raise ApiError(
                400, "bad_request", f"{name} must be {describe_durations(least, most)}, got {got!r}", field=name
            )
        return seconds

    def page(self) -> tuple[int, int]:
        """Return the number after which a page of a log starts, and its maximum number of entries."""
        sent = self.query("after", "limit")
        return self.number(sent, "after", 0, 0, 2**53), self.number(sent, "limit", 100, 1, 1000)

    async def require_study(self, name: str) -> None:
        """Raise an error if a study does not exist; only the first request for a study reads the store."""
        if name not in self.context.known_studies:
            await self.run(lambda: self.service.policy_cache.snapshot(name))
            self.context.known_studies.add(name)

    async def policy(self, name: str) -> PublishedPolicy:
        """Return the policy that a study serves."""
        if name not in self.context.known_studies:
            await self.require_study(name)
        return self.service.policy_cache.current(name)

    async def drawn_policy(self, name: str) -> PublishedPolicy:
        """Return the policy from which PASTO draws the units of a study."""
        await self.policy(name)
        return self.service.policy_cache.drawn(name)

    async def body(self) -> bytes:
        """Return the body, decompressed and within the limits."""
        body, is_compressed = await read_body(self.headers, self._receive, self.settings)
        if not is_compressed:
            return body
        return await self.decode(body, lambda: decompress(body, self.settings))

    async def json(self, decoder: msgspec.json.Decoder[Body], *, empty: bytes = b"") -> Body:
        """Return the body as a record; `empty` replaces an empty body."""
        media_type = parse_content_type(self.headers)
        if media_type != "application/json":
            raise ApiError(
                415,
                "unsupported_type",
                f"the body must be application/json, got {media_type[:60]!r}",
                field="content-type",
                rest=True,
            )
        body = await self.body() or empty
        return await self.decode(body, lambda: read_json(body, decoder, self.settings.depth_limit))

    async def decode(self, body: bytes, work: Callable[[], Result]) -> Result:
        """Decode a body with `work`: a short one in the event loop, a long one in a thread."""
        return await self.run(work) if len(body) > MAX_INLINE_BYTES else work()

    async def run(self, work: Callable[[], Result], *, timeout: float | None = None) -> Result:
        """Run slow work in a thread of the route's pool."""
        seconds = self.settings.request_timeout if timeout is None else timeout
        pool = self.context.pools[self._pool]
        try:
            done = asyncio.wrap_future(pool.submit(work))
        except PoolFullError:
            raise self._shutdown_error() from None
        try:
            return await asyncio.wait_for(done, seconds)
        except TimeoutError:
            if not done.cancelled():
                raise  # raised by the work
            raise self._timeout_error(seconds) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise self._shutdown_error() from None  # the work was cancelled before it began, not the request

    async def ask(
        self,
        kind: str,
        name: str,
        question: Question,
        *asked: Hashable,
        cache: bool = False,
        timeout: float | None = None,
        limit: int | None = None,
    ) -> HttpResponse:
        """Return the answer to a slow question about a study, which equal questions share.

        `question` is computed in the question process if the service has one. A caller waits for `timeout` seconds.
        `asked` is all that the answer depends on apart from the study and its generation. `limit` is the number of
        questions of the kind that may be pending. See `Questions` for `cache`.
        """
        seconds = self.settings.request_timeout if timeout is None else timeout
        row = (await self.run(lambda: self.service.policy_cache.reload(name))).row
        work = partial(question, self.service)
        if (process := self.context.question_process) is not None:
            work = partial(process.compute, question, max(seconds, STUCK_SECONDS))
        questions, key = self.context.questions, (kind, name, row.number, row.generation, *asked)
        try:
            if limit is not None and not questions.is_pending(key) and questions.pending(kind) >= limit:
                raise PoolFullError
            return await questions.ask(key, work, seconds=seconds, cache=cache)
        except PoolFullError:
            if self.context.pools["questions"].closed:
                raise self._shutdown_error() from None
            raise ApiError(
                503,
                "overloaded",
                "too many slow requests are waiting; try again later",
                headers=retry(self.settings.retry_after),
            ) from None
        except TimeoutError:
            raise self._timeout_error(seconds) from None

    def _timeout_error(self, seconds: float) -> ApiError:
        return ApiError(
            503,
            "timeout",
            f"the request took longer than {seconds:g} seconds; it may still complete; check before you repeat it",
            headers=retry(self.settings.retry_after),
        )

    def _shutdown_error(self) -> ApiError:
        return ApiError(
            503,
            "overloaded",
            "the service is shutting down; ask another node",
            headers=retry(self.settings.retry_after),
        )


class Endpoint:
    """ASGI application of a route: authenticates, responds and counts. Every error becomes a response."""

    __slots__ = ("_context", "route")

    def __init__(self, route: Route, context: Context) -> None:
        self.route = route
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        route, context = self.route, self._context
        started = perf_counter()
        caller: Caller = ANONYMOUS
        rest = False
        counted = not route.waits
        if counted:
            context.active_requests += 1
        try:
            if counted and context.active_requests > context.settings.max_concurrent:
                raise ApiError(
                    503,
                    "overloaded",
                    "too many requests are being answered; try again in a moment",
                    headers=retry(context.settings.retry_after),
                    rest=True,
                )
            headers = dict(scope["headers"])
            if route.scopes:
                study = scope["path_params"].get("name", "")
                caller = context.authenticator.admit(
                    headers, route.scopes, study, somewhere=route.somewhere, request=scope
                )
            response = await route.endpoint(HttpRequest(scope, receive, context, headers, caller, route.pool))
        except Exception as error:
            response = self._error_response(hide_studies(error, caller))
            rest = isinstance(error, ApiError) and error.rest
        finally:
            if counted:
                context.active_requests -= 1
        if rest:
            await respond_early(response, scope, receive, send, context.settings)
        else:
            await respond(response, send)
        took = perf_counter() - started
        context.metrics.count_request(route.method, route.path, response.status, took)
        if not route.hot or response.status >= 500:
            context.request_log.write(
                route.method,
                route.path,
                response.status,
                seconds=round(took, 6),
                study=scope["path_params"].get("name"),
            )

    def _error_response(self, error: Exception) -> HttpResponse:
        response = error_response(error, self._context.settings.retry_after)
        if response is None:
            response = internal_error_response(error, self.route.path)
        return self.route.errors(response) if self.route.errors else response


def internal_error_response(error: Exception, path: str) -> HttpResponse:
    """Log an unexpected error, and return a response with its number in the log only."""
    number = secrets.token_hex(8)
    log.error("unexpected error %s in %s", number, path, exc_info=error, extra={"error_id": number})
    return problem_response(
        500, "internal_error", f"an unexpected error occurred; the service's log has it under the number {number}"
    )


async def respond(response: HttpResponse, send: Send) -> None:
    """Send a response."""
    status, body, headers = response
    all_headers = headers if status == 304 else (*headers, (b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": all_headers})
    await send({"type": "http.response.body", "body": body})


async def respond_early(response: HttpResponse, scope: Scope, receive: Receive, send: Send, settings: Settings) -> None:
    """Send a response to a request whose body was not read completely.

    The connection stays open for a moment: if it is closed while the caller sends, the caller cannot read the response.
    """
    if not _has_body(scope):
        await respond(response, send)
        return
    connection: LimitedConnection | None = scope.get("state", {}).get("connection")
    if connection is not None:
        connection.answer_early()
    status, body, headers = response
    other_headers = (header for header in headers if header[0] != b"connection")
    closing = (*other_headers, *CLOSE, (b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": closing})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    await drain_body(receive, settings)
    await send({"type": "http.response.body", "body": b""})


def _has_body(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
