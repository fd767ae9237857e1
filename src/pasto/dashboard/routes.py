"""The dashboard's table of routes, and what is done around every page alike."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from pasto.dashboard.actions import Actions, read_form
from pasto.dashboard.pages import Pages
from pasto.dashboard.renderer import redirect, render_page, serve_static
from pasto.dashboard.sessions import Session, Sessions, clear_cookie, set_cookie
from pasto.service.http.request import HttpRequest
from pasto.service.http.responses import HttpResponse
from pasto.service.http.routes import Route
from pasto.service.http.worker_pools import PoolName
from pasto.service.service import Service

Work = Callable[[HttpRequest, Session], Awaitable[HttpResponse]]
STUDY = "/studies/{name}"


class Dashboard:
    """Pages over one service, as routes for its application.

    >>> from pasto.store import open_store
    >>> service = Service(open_store("memory:"))
    >>> [route.path for route in Dashboard(service).routes][:2]
    ['/', '/parts/studies']
    >>> service.shutdown()
    """

    def __init__(self, service: Service, clock: Callable[[], float] = time.time) -> None:
        self.visitors = Sessions(service.store, clock)
        views = Pages(service, self.visitors, clock)
        deeds = Actions(self.visitors, views)
        self.routes = (
            self._shown("/", "List every study.", views.studies),
            self._shown("/parts/studies", "The list again.", views.listed),
            self._shown("/new", "Write a new study.", deeds.blank),
            self._told("/new", "Create a study.", deeds.create),
            self._shown(STUDY, "One study.", views.study),
            self._shown(f"{STUDY}/edit", "Change a draft's file.", deeds.draft),
            self._told(f"{STUDY}/edit", "Save a draft's file.", deeds.edit),
            self._shown(f"{STUDY}/head", "How a study stands.", views.head),
            self._shown(f"{STUDY}/actions", "What can be done to a study.", views.actions),
            self._shown(f"{STUDY}/answer", "The answer so far, and the books.", views.answer),
            self._shown(f"{STUDY}/report.html", "The report as one file.", views.report),
            self._shown(f"{STUDY}/log", "Who did what.", views.log),
            self._shown(f"{STUDY}/series", "What its pictures are drawn from.", views.series),
            self._shown(f"{STUDY}/tradeoff", "What other limits would buy.", views.tradeoff),
            self._told(f"{STUDY}/replay", "Compute every policy again.", deeds.replay),
            self._told(
                f"{STUDY}/change", "Start, pause, resume, confirm, deploy, archive.", deeds.change, pool="changes"
            ),
            Route("GET", "/login", (), "Ask for a key.", self._login_page, errors=_told),
            Route("POST", "/login", (), "Log in with a key.", self._log_in, errors=_told),
            Route("POST", "/logout", (), "Log out.", self._log_out, errors=_told),
            Route("GET", "/static/{file}", (), "A file of the pages.", serve_static, errors=_told),
            Route("GET", "/static/vendor/{file}", (), "A file of others.", serve_static, errors=_told),
        )

    def _shown(self, path: str, summary: str, work: Work) -> Route:
        return Route("GET", path, (), summary, self._around(work), errors=_told)

    def _told(self, path: str, summary: str, work: Work, pool: PoolName = "general") -> Route:
        return Route("POST", path, (), summary, self._around(work), errors=_told, pool=pool)

    def _around(self, work: Work) -> Callable[[HttpRequest], Awaitable[HttpResponse]]:
        async def endpoint(call: HttpRequest) -> HttpResponse:
            visitor = await self.visitors.meet(call)
            if not visitor.may_read:
                return _to_login(call, visitor)
            found = await work(call, visitor)
            return found._replace(headers=found.headers + set_cookie(call, visitor)) if visitor.fresh else found

        return endpoint

    async def _login_page(self, call: HttpRequest) -> HttpResponse:
        visitor = await self.visitors.meet(call)
        if visitor.may_read:
            return redirect("/")
        return self._asking(call, visitor, _inside(call.query("next").get("next", "/")))

    async def _log_in(self, call: HttpRequest) -> HttpResponse:
        visitor = await self.visitors.meet(call)
        form = await read_form(call)
        self.visitors.check_form(call, visitor, form.get("token", ""))
        goal = _inside(form.get("next", "/"))
        if visitor.open:
            return redirect(goal)
        entered = self.visitors.log_in(call, form.get("key", ""))
        if entered is None:
            return self._asking(call, visitor, goal, "This key is not valid here, or may not look at studies.")
        return redirect(goal, set_cookie(call, entered))

    async def _log_out(self, call: HttpRequest) -> HttpResponse:
        visitor = await self.visitors.meet(call)
        self.visitors.check_form(call, visitor, (await read_form(call)).get("token", ""))
        await self.visitors.log_out(call, visitor)
        return redirect("/login", clear_cookie(call))

    def _asking(self, call: HttpRequest, visitor: Session, goal: str, problem: str = "") -> HttpResponse:
        values: dict[str, Any] = {
            "visitor": visitor,
            "token": self.visitors.token(visitor),
            "next": goal,
            "problem": problem,
        }
        return render_page(
            "login.html", values, 403 if problem else 200, set_cookie(call, visitor) if visitor.fresh else ()
        )


def _to_login(call: HttpRequest, visitor: Session) -> HttpResponse:
    """Whoever is a stranger logs in first; a part of a page asks its page to go there."""
    if call.header(b"hx-request") or call.scope["method"] != "GET":
        return HttpResponse(401, b"", ((b"hx-redirect", b"/login"), (b"cache-control", b"no-store")))
    found = redirect("/login?next=" + quote(call.scope["path"], safe="/"))
    return found._replace(headers=found.headers + set_cookie(call, visitor)) if visitor.fresh else found


def _inside(path: str) -> str:
    """Where to go after a login: somewhere on this site, or to the front.

    >>> _inside("/studies/feed"), _inside("//evil.example/"), _inside("https://evil.example/")
    ('/studies/feed', '/', '/')
    """
    good = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return quote(path, safe="/") if good else "/"


def _told(found: HttpResponse) -> HttpResponse:
    """An error as a page."""
    if not found.body:
        return found
    error = json.loads(found.body)["error"]
    kept = tuple(each for each in found.headers if each[0] in (b"retry-after", b"connection"))
    return render_page(
        "error.html", {"status": found.status, "error": error, "visitor": None, "token": ""}, found.status, kept
    )
