"""ASGI application of the service.

The routes of the table are on Starlette's router, except the hot ones (`Route.hot`: policy, assign, events and a single
flag), which are dispatched before it. Microseconds per request inside the process, best of 15 runs of 3,000:

| route | dispatched directly | own router with hot routes first | Starlette application |
|---|---|---|---|
| assign | 6.3 | 8.9 | 15.6 |
| policy | 8.3 | 11.5 | 20.7 |
| one flag | 10.4 | 16.3 | 29.9 |
| healthz | - | - | 28.7 |

So the router would more than double the cost of a decision. For the other routes it is small against their work.
"""

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
from pasto.service.http.events import ExposureBuffer
from pasto.service.http.fast_assign import FastAssign
from pasto.service.http.long_poll import LongPollHub
from pasto.service.http.monitoring import AlertGauges, collect_gauges
from pasto.service.http.prometheus import PrometheusMetrics
from pasto.service.http.question_process import QuestionProcess
from pasto.service.http.questions import Questions
from pasto.service.http.rate_limit import RateLimit
from pasto.service.http.request import Context, Endpoint, Scope, Send, internal_error_response
from pasto.service.http.request_log import RequestLog
from pasto.service.http.responses import HttpResponse, problem_response
from pasto.service.http.routes import ROUTES, Route
from pasto.service.http.store_health import StoreHealth
from pasto.service.http.worker_pools import WorkerPools
from pasto.service.scheduler import Scheduler
from pasto.service.service import Service
from pasto.service.settings import Settings
from pasto.service.webhook_worker import WebhookWorker

log = logging.getLogger("pasto.http")


class Application:
    """ASGI application with all routes of a service.

    `pages` are routes that the OpenAPI document does not list. A browser that requests an unknown address gets their
    error page. `question_process` computes slow answers; without it, threads do.
    """

    def __init__(
        self,
        service: Service,
        settings: Settings | None = None,
        *,
        scheduler: Scheduler | None = None,
        pages: Sequence[Route] = (),
        question_process: QuestionProcess | None = None,
        webhooks: WebhookWorker | None = None,
    ) -> None:
        settings = settings or Settings()
        webhooks = webhooks or WebhookWorker(service.store, ())
        keys = ApiKeys(service.store)
        authenticator = Authenticator(keys, settings)
        pools, requests = WorkerPools(settings), RequestLog()
        self.context = context = Context(
            service=service,
            store=service.store,
            settings=settings,
            keys=keys,
            authenticator=authenticator,
            metrics=PrometheusMetrics(lambda: collect_gauges(context), lambda: requests.suppressed),
            long_poll=LongPollHub(settings.max_waiters),
            exposures=ExposureBuffer(service),
            pools=pools,
            store_health=StoreHealth(service.store),
            request_log=requests,
            questions=Questions(pools["questions"]),
            rate_limit=RateLimit(settings.key_rate),
            question_process=question_process,
            scheduler=scheduler,
            gauge_sources=[AlertGauges(service).collect, webhooks.read_metrics, authenticator.read_metrics],
            webhooks=webhooks,
        )
        service.policy_cache.listen(context.long_poll.changed)
        routes = (*(_apply_settings(route, settings) for route in ROUTES), *pages)
        endpoints = {(route.method, route.path): Endpoint(route, context) for route in routes}
        self._hot: dict[tuple[str, str], Endpoint | FastAssign] = {
            (method, path.rpartition("/")[2]): endpoint
            for (method, path), endpoint in endpoints.items()
            if path.startswith("/v1/studies/{name}/") and endpoint.route.hot
        }
        self.fast_assign = FastAssign(endpoints["POST", "/v1/studies/{name}/assign"], context)
        self._hot["POST", "assign"] = self.fast_assign
        self._flag = endpoints["POST", "/ofrep/v1/evaluate/flags/{key}"]
        self._starlette = Starlette(
            routes=[
                StarletteRoute(path, _PathEndpoint(by_method), methods=list(by_method))
                for path, by_method in _group_by_path(endpoints).items()
            ],
            exception_handlers={HTTPException: self._routing_error, Exception: _internal_error},
            lifespan=self._running,
        )
        self._starlette.router.redirect_slashes = False
        self._error_page = next((route.errors for route in pages if route.errors), None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or the start and end of the server."""
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
        await self._starlette(scope, receive, send)

    @contextlib.asynccontextmanager
    async def _running(self, _: Starlette) -> AsyncIterator[None]:
        """Run the background tasks while the server runs."""
        context = self.context
        context.long_poll.begin(asyncio.get_running_loop())
        context.store_health.start()
        watching = asyncio.create_task(self._watch_keys())
        try:
            yield
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
            context.store_health.stop()
            context.long_poll.end()
            context.exposures.flush()
            context.request_log.summarize(now=True)
            context.questions.close()
            context.pools.shutdown()
            if context.question_process is not None:
                context.question_process.close()

    def _routing_error(self, request: Request, error: Exception) -> Response:
        """Return the response to an error of the router: a page for a browser, else JSON."""
        status = error.status_code if isinstance(error, HTTPException) else 500
        headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
        page = self._error_page if _wants_page(request) else None
        not_found = "there is no route at this address; /openapi.json lists the routes"
        code, message = {
            404: ("not_found", not_found if page is None else "there is no page at this address"),
            405: (
                "method_not_allowed",
                f"this address needs the method {headers.get('Allow', 'of its route')}, got {request.method}",
            ),
        }.get(status, ("bad_request", "the request cannot be served"))
        response = problem_response(status, code, message)
        return _to_starlette(response if page is None else page(response), headers)

    async def _watch_keys(self) -> None:
        """Read keys periodically, because other nodes create and revoke them."""
        context = self.context
        while True:
            await asyncio.sleep(context.settings.poll)
            context.request_log.summarize()
            try:
                await asyncio.to_thread(context.keys.refresh)  # not in a pool that requests may occupy
            except Exception as error:  # the keys read before stay valid
                log.warning("the keys could not be read: %s", error)


class _PathEndpoint:
    """Endpoints of one path by method. A class, because Starlette would wrap a function.

    One route per path makes Starlette list all methods of the path in the Allow header of a 405.
    """

    def __init__(self, endpoints: dict[str, Endpoint]) -> None:
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        await self._endpoints[method](scope, receive, send)


def _apply_settings(route: Route, settings: Settings) -> Route:
    """Return a route without its scopes if a setting opens it to callers without a key."""
    return replace(route, scopes=()) if settings.public_metrics and route.path == "/metrics" else route


def _group_by_path(endpoints: dict[tuple[str, str], Endpoint]) -> dict[str, dict[str, Endpoint]]:
    by_path: dict[str, dict[str, Endpoint]] = {}
    for (method, path), endpoint in endpoints.items():
        by_path.setdefault(path, {})[method] = endpoint
    return by_path


def _wants_page(request: Request) -> bool:
    """Return whether a request accepts HTML and its address is not one of the API."""
    is_api = f"{request.scope['path']}/".startswith(("/v1/", "/ofrep/"))
    return not is_api and "text/html" in request.headers.get("accept", "").lower()


def _internal_error(request: Request, error: Exception) -> Response:
    return _to_starlette(internal_error_response(error, request.url.path), {})


def _to_starlette(http_response: HttpResponse, headers: dict[str, str]) -> Response:
    response = Response(http_response.body, http_response.status, headers)
    for name, value in http_response.headers:
        response.headers[name.decode()] = value.decode()
    return response
