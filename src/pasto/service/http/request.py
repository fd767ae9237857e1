"""One request on its way through: what an endpoint sees of it, and what is done around every endpoint alike."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Hashable, MutableMapping
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec

from pasto.durations import describe_durations, parse_duration
from pasto.service.api_keys import ApiKeys
from pasto.service.http.auth import Authenticator, identify_caller
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
from pasto.service.http.responses import CLOSE, ApiError, HttpResponse, explained, problem_response, retry
from pasto.service.http.worker_pools import PoolFullError, PoolName, WorkerPools
from pasto.service.settings import Settings
from pasto.store import KeyRow, Store
from pasto_sdk.policy import PublishedPolicy

if TYPE_CHECKING:
    from pasto.service.http.connections import LimitedConnection
    from pasto.service.http.exposures import Exposures
    from pasto.service.http.long_poll import LongPollHub
    from pasto.service.http.routes import Route
    from pasto.service.http.store_health import StoreHealth
    from pasto.service.scheduler import Scheduler
    from pasto.service.service import Service

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Wanted = TypeVar("Wanted")
Given = TypeVar("Given")

log = logging.getLogger("pasto.http")
MAX_INLINE_BYTES = 16_384
"""Bytes up to which a body is read in the event loop: a few milliseconds at worst. Longer ones are read in a thread."""


@dataclass(slots=True)
class Context:
    """What every endpoint works with."""

    service: Service
    store: Store
    settings: Settings
    keys: ApiKeys
    guard: Authenticator
    meters: PrometheusMetrics
    waiting: LongPollHub
    exposures: Exposures
    threads: WorkerPools
    health: StoreHealth
    questions: Questions
    log: RequestLog
    rate_limit: RateLimit
    question_process: QuestionProcess | None = None
    """Computes the answers to questions; if there is none, threads of this process do."""
    scheduler: Scheduler | None = None
    working: int = 0
    """Requests in work now."""
    keeping: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by whoever archives or forgets: they take turns, and those who wait take no thread."""
    looks: list[GaugeSource] = field(default_factory=list)
    """What else tells Prometheus something when it asks."""
    known: set[str] = field(default_factory=set)
    """Studies that this process has met, so that asking for them reads no store."""


class HttpRequest:
    """One request, as its endpoint sees it."""

    __slots__ = ("_pool", "_receive", "context", "headers", "key", "scope", "service", "settings")

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        context: Context,
        headers: RequestHeaders,
        key: KeyRow | None,
        pool: PoolName = "general",
    ) -> None:
        self.scope = scope
        self.headers = headers
        self.context = context
        self.service = context.service
        self.settings = context.settings
        self.key = key
        self._receive = receive
        self._pool: PoolName = pool

    @property
    def who(self) -> str:
        """The caller as the audit log names it, with the name that the header Pasto-Who gives."""
        return identify_caller(self.key, unquote(self.header(b"pasto-who") or ""))

    @property
    def key_prefix(self) -> str | None:
        """The public part of the caller's key; None if it needs no key."""
        return None if self.key is None else self.key.prefix

    def path(self, name: str) -> str:
        """A part of the path that the route leaves open."""
        found: str = self.scope["path_params"][name]
        return found

    def header(self, name: bytes) -> str | None:
        """A header by its name in lower case."""
        found = self.headers.get(name)
        return None if found is None else found.decode("latin-1")

    def query(self, *known: str) -> dict[str, str]:
        """The query's fields; unknown and repeated ones are refused."""
        sent = self.scope["query_string"]
        if not sent:
            return {}
        try:
            pairs = parse_qsl(sent.decode("ascii"), keep_blank_values=True, max_num_fields=20, errors="strict")
        except ValueError:
            raise ApiError(400, "bad_request", "the query cannot be read; it is name=value with & between") from None
        found = dict(pairs)
        for name in found:
            if name not in known:
                raise ApiError(
                    400, "bad_request", f"{name[:60]} is no field of this query; there is {', '.join(known) or 'none'}"
                )
        if len(found) < len(pairs):
            raise ApiError(400, "bad_request", "a field of a query comes once")
        return found

    def number(self, sent: dict[str, str], name: str, default: int, least: int, most: int) -> int:
        """A whole number in the query."""
        text = sent.get(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) <= 18 and least <= int(text) <= most):
            raise ApiError(
                400, "bad_request", f"{name} is a whole number from {least} to {most}, got {text[:60]!r}", field=name
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
        """Return after which sequence a page of a log begins, and how many lines it has at most."""
        sent = self.query("after", "limit")
        return self.number(sent, "after", 0, 0, 2**53), self.number(sent, "limit", 100, 1, 1000)

    async def met(self, name: str) -> None:
        """Make sure that a study is known here; a new one is looked up in a thread, for that asks the store."""
        if name not in self.context.known:
            await self.run(lambda: self.service.board.standing(name))
            self.context.known.add(name)

    async def policy(self, name: str) -> PublishedPolicy:
        """The policy that a study serves."""
        if name not in self.context.known:
            await self.met(name)
        return self.service.board.current(name)

    async def body(self) -> bytes:
        """The whole body, within the limits."""
        body, is_packed = await read_body(self.headers, self._receive, self.settings)
        if not is_packed:
            return body
        return await self.reading(body, lambda: decompress(body, self.settings))

    async def json(self, decoder: msgspec.json.Decoder[Wanted], *, empty: bytes = b"") -> Wanted:
        """The body as a record; `empty` stands in for a body that is left out."""
        sent = parse_content_type(self.headers)
        if sent != "application/json":
            raise ApiError(
                415,
                "unsupported_type",
                f"the body must be application/json, got {sent[:60]!r}",
                field="content-type",
                rest=True,
            )
        body = await self.body() or empty
        return await self.reading(body, lambda: read_json(body, decoder, self.settings.depth_limit))

    async def reading(self, body: bytes, work: Callable[[], Given]) -> Given:
        """Read a body by `work`: here if that is short, otherwise in a thread, so that no other request waits."""
        return await self.run(work) if len(body) > MAX_INLINE_BYTES else work()

    async def run(self, work: Callable[[], Given], *, patience: float | None = None) -> Given:
        """Do slow work in a thread of the route's pool, while others are served."""
        seconds = self.settings.request_timeout if patience is None else patience
        pool = self.context.threads[self._pool]
        try:
            done = asyncio.wrap_future(pool.submit(work))
        except PoolFullError:
            raise self._ending() from None
        try:
            return await asyncio.wait_for(done, seconds)
        except TimeoutError:
            if not done.cancelled():
                raise  # the work's own
            raise self._too_slow(seconds) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise self._ending() from None  # the work was cancelled before it began, not the request

    async def ask(
        self,
        kind: str,
        name: str,
        question: Question,
        *asked: Hashable,
        cache: bool = False,
        patience: float | None = None,
        limit: int | None = None,
    ) -> HttpResponse:
        """Return the answer to a slow question about a study, which equal questions share.

        `question` is computed in the question process if the service has one. A caller waits for `patience` seconds.
        `asked` is all that the answer depends on apart from the study and its generation. `limit` is the number of
        questions of the kind that may be pending. See `Questions` for `cache`.
        """
        seconds = self.settings.request_timeout if patience is None else patience
        row = (await self.run(lambda: self.service.board.reread(name))).row
        work = partial(question, self.service)
        if (process := self.context.question_process) is not None:
            work = partial(process.compute, question, max(seconds, STUCK_SECONDS))
        questions, key = self.context.questions, (kind, name, row.number, row.generation, *asked)
        try:
            if limit is not None and not questions.is_pending(key) and questions.pending(kind) >= limit:
                raise PoolFullError
            return await questions.ask(key, work, seconds=seconds, cache=cache)
        except PoolFullError:
            if self.context.threads["questions"].closed:
                raise self._ending() from None
            raise ApiError(
                503,
                "too_busy",
                "too many slow questions wait for an answer; ask again later",
                headers=retry(self.settings.retry_after),
            ) from None
        except TimeoutError:
            raise self._too_slow(seconds) from None

    def _too_slow(self, seconds: float) -> ApiError:
        return ApiError(
            503,
            "too_slow",
            f"this took longer than {seconds:g} seconds; it may still be done: look before asking again",
            headers=retry(self.settings.retry_after),
        )

    def _ending(self) -> ApiError:
        return ApiError(
            503, "too_busy", "the service is ending; ask another node", headers=retry(self.settings.retry_after)
        )


class Endpoint:
    """One route as an ASGI application: lets in, answers, counts; no error leaves it but as an answer."""

    __slots__ = ("_context", "route")

    def __init__(self, route: Route, context: Context) -> None:
        self.route = route
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        route, context = self.route, self._context
        started = perf_counter()
        rest = False
        counted = not route.waits
        if counted:
            context.working += 1
        try:
            if counted and context.working > context.settings.max_concurrent:
                raise ApiError(
                    503,
                    "too_busy",
                    "too many requests are in work; come back in a moment",
                    headers=retry(context.settings.retry_after),
                    rest=True,
                )
            key = None
            headers = dict(scope["headers"])
            if route.scopes:
                key = context.guard.admit(headers, route.scopes)
            found = await route.endpoint(HttpRequest(scope, receive, context, headers, key, route.pool))
        except Exception as error:
            found = self._explained(error)
            rest = isinstance(error, ApiError) and error.rest
        finally:
            if counted:
                context.working -= 1
        if rest:
            await respond_early(found, scope, receive, send, context.settings)
        else:
            await respond(found, send)
        took = perf_counter() - started
        context.meters.count_request(route.method, route.path, found.status, took)
        if not route.hot or found.status >= 500:
            context.log.write(
                route.method,
                route.path,
                found.status,
                seconds=round(took, 6),
                study=scope["path_params"].get("name"),
            )

    def _explained(self, error: Exception) -> HttpResponse:
        found = explained(error, self._context.settings.retry_after)
        if found is None:
            found = unforeseen(error, self.route.path)
        return self.route.errors(found) if self.route.errors else found


def unforeseen(error: Exception, path: str) -> HttpResponse:
    """The answer to an error that nobody foresaw: a number to find it in the log by, and nothing else."""
    number = secrets.token_hex(8)
    log.error("unforeseen error %s in %s", number, path, exc_info=error, extra={"error_id": number})
    return problem_response(500, "internal_error", f"something went wrong; the log has it as {number}")


async def respond(found: HttpResponse, send: Send) -> None:
    """Send an answer."""
    status, body, headers = found
    sent = headers if status == 304 else (*headers, (b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": body})


async def respond_early(found: HttpResponse, scope: Scope, receive: Receive, send: Send, settings: Settings) -> None:
    """Send an answer to a request whose body was not read to its end.

    The answer is said, then lingers a little: a connection closed on a caller that still sends breaks its pipe before
    it has read why.
    """
    if not _has_body(scope):
        await respond(found, send)
        return
    connection: LimitedConnection | None = scope.get("state", {}).get("connection")
    if connection is not None:
        connection.answer_early()
    status, body, headers = found
    kept = (each for each in headers if each[0] != b"connection")
    closing = (*kept, *CLOSE, (b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": closing})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    await drain_body(receive, settings)
    await send({"type": "http.response.body", "body": b""})


def _has_body(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
