"""The service as an ASGI application: hot routes are reached straight, all others through Starlette's router."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from pasto.service.api_keys import ApiKeys
from pasto.service.http.auth import Authenticator
from pasto.service.http.body import Receive
from pasto.service.http.exposures import Exposures
from pasto.service.http.fast_assign import FastAssign
from pasto.service.http.long_poll import LongPollHub
from pasto.service.http.monitoring import AlertGauges, collect_gauges
from pasto.service.http.prometheus import PrometheusMetrics
from pasto.service.http.question_process import QuestionProcess
from pasto.service.http.questions import Questions
from pasto.service.http.rate_limit import RateLimit
from pasto.service.http.request import Context, Endpoint, Scope, Send, unforeseen
from pasto.service.http.request_log import RequestLog
from pasto.service.http.responses import HttpResponse, problem_response
from pasto.service.http.routes import ROUTES, Route
from pasto.service.http.store_health import StoreHealth
from pasto.service.http.worker_pools import WorkerPools
from pasto.service.scheduler import Scheduler
from pasto.service.service import Service
from pasto.service.settings import Settings

log = logging.getLogger("pasto.http")


class Application:
    """Everything that a service answers over HTTP.

    `pages` are further routes beside the table's; the OpenAPI document does not list them. A browser that asks for an
    address that does not exist gets the error in the form that the pages give theirs. `question_process`
    computes slow answers; if there is none, threads do.
    """

    def __init__(
        self,
        service: Service,
        settings: Settings | None = None,
        *,
        scheduler: Scheduler | None = None,
        pages: Sequence[Route] = (),
        question_process: QuestionProcess | None = None,
    ) -> None:
        settings = settings or Settings()
        keys = ApiKeys(service.store)
        pools, requests = WorkerPools(settings), RequestLog()
        self.context = context = Context(
            service=service,
            store=service.store,
            settings=settings,
            keys=keys,
            guard=Authenticator(keys, settings),
            meters=PrometheusMetrics(lambda: collect_gauges(context), lambda: requests.suppressed),
            waiting=LongPollHub(settings.max_waiters),
            exposures=Exposures(service),
            threads=pools,
            health=StoreHealth(service.store),
            log=requests,
            questions=Questions(pools["questions"]),
            rate_limit=RateLimit(settings.key_rate),
            question_process=question_process,
            scheduler=scheduler,
            looks=[AlertGauges(service).collect],
        )
        service.board.listen(context.waiting.changed)
        routes = (*(_opened(route, settings) for route in ROUTES), *pages)
        endpoints = {(route.method, route.path): Endpoint(route, context) for route in routes}
        self._hot: dict[tuple[str, str], Endpoint | FastAssign] = {
            (method, path.rpartition("/")[2]): endpoint
            for (method, path), endpoint in endpoints.items()
            if path.startswith("/v1/studies/{name}/") and endpoint.route.hot
        }
        self.fast_assign = FastAssign(endpoints["POST", "/v1/studies/{name}/assign"], context)
        self._hot["POST", "assign"] = self.fast_assign
        self._flag = endpoints["POST", "/ofrep/v1/evaluate/flags/{key}"]
        self._behind = Starlette(
            routes=[
                StarletteRoute(path, _Mounted(each), methods=list(each)) for path, each in _by_path(endpoints).items()
            ],
            exception_handlers={HTTPException: self._refused, Exception: _failed},
            lifespan=self._running,
        )
        self._behind.router.redirect_slashes = False
        self._error_page = next((route.errors for route in pages if route.errors), None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or begin and end with the server."""
        if scope["type"] == "http":
            path: str = scope["path"]
            if path.startswith("/v1/studies/"):
                name, _, last = path[12:].partition("/")
                endpoint = self._hot.get((scope["method"], last))
                if endpoint is not None and name:
                    scope["path_params"] = {"name": name}
                    await endpoint(scope, receive, send)
                    return
            elif path.startswith("/ofrep/v1/evaluate/flags/") and scope["method"] == "POST":
                scope["path_params"] = {"key": path[25:]}
                await self._flag(scope, receive, send)
                return
        await self._behind(scope, receive, send)

    @contextlib.asynccontextmanager
    async def _running(self, _: Starlette) -> AsyncIterator[None]:
        """What goes on beside the requests."""
        context = self.context
        context.waiting.begin(asyncio.get_running_loop())
        context.health.start()
        watching = asyncio.create_task(self._watch_keys())
        try:
            yield
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
            context.health.stop()
            context.waiting.end()
            context.exposures.flush()
            context.log.summarize(now=True)
            context.questions.close()
            context.threads.shutdown()
            if context.question_process is not None:
                context.question_process.close()

    def _refused(self, request: Request, error: Exception) -> Response:
        """Return the router's own refusals: as a page for a browser, else in the form that all errors have."""
        status = error.status_code if isinstance(error, HTTPException) else 500
        headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
        page = self._error_page if _wants_page(request) else None
        nothing = "there is nothing at this address; /openapi.json lists what there is"
        code, message = {
            404: ("not_found", nothing if page is None else "there is no page at this address"),
            405: (
                "method_not_allowed",
                f"this address takes {headers.get('Allow', 'another method')}, not {request.method}",
            ),
        }.get(status, ("bad_request", "the request cannot be served"))
        answer = problem_response(status, code, message)
        return _response(answer if page is None else page(answer), headers)

    async def _watch_keys(self) -> None:
        """Learn of keys that other nodes made or revoked."""
        context = self.context
        while True:
            await asyncio.sleep(context.settings.poll)
            context.log.summarize()
            try:
                await asyncio.to_thread(context.keys.refresh)  # apart from the threads that requests may keep busy
            except Exception as error:  # the keys known so far stay in force
                log.warning("the keys could not be read: %s", error)


class _Mounted:
    """The endpoints of one path as Starlette mounts them; an instance of a class, for it would wrap a function."""

    def __init__(self, endpoints: dict[str, Endpoint]) -> None:
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        await self._endpoints[method](scope, receive, send)


def _opened(route: Route, settings: Settings) -> Route:
    """Return a route without its scopes if a setting opens it to callers without a key."""
    return replace(route, scopes=()) if settings.public_metrics and route.path == "/metrics" else route


def _by_path(endpoints: dict[tuple[str, str], Endpoint]) -> dict[str, dict[str, Endpoint]]:
    found: dict[str, dict[str, Endpoint]] = {}
    for (method, path), endpoint in endpoints.items():
        found.setdefault(path, {})[method] = endpoint
    return found


def _wants_page(request: Request) -> bool:
    """Return whether a browser asks for a page: it names HTML among what it takes, and the address is not the API's."""
    is_api = f"{request.scope['path']}/".startswith(("/v1/", "/ofrep/"))
    return not is_api and "text/html" in request.headers.get("accept", "").lower()


def _failed(request: Request, error: Exception) -> Response:
    return _response(unforeseen(error, request.url.path), {})


def _response(found: HttpResponse, headers: dict[str, str]) -> Response:
    response = Response(found.body, found.status, headers)
    for name, value in found.headers:
        response.headers[name.decode()] = value.decode()
    return response
