"""Routes of the dashboard, with the session check and the error page that they share."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import quote

import msgspec

from pasto.dashboard.actions import Actions, read_form
from pasto.dashboard.pages import Pages
from pasto.dashboard.renderer import PageFrame, redirect, render_page, serve_static
from pasto.dashboard.sessions import Session, Sessions, clear_cookie, set_cookie
from pasto.errors import UnknownStudyError
from pasto.service.http.auth import check_role, no_role_text
from pasto.service.http.proxy_sign_in import Person
from pasto.service.http.request import HttpRequest
from pasto.service.http.responses import ErrorBody, HttpResponse, Problem
from pasto.service.http.routes import Route
from pasto.service.http.worker_pools import PoolName
from pasto.service.service import Service

PageFunction = Callable[[HttpRequest, Session], Awaitable[HttpResponse]]
STUDY = "/studies/{name}"


@dataclass(frozen=True, slots=True)
class LoginForm:
    """Login form: the path to go to afterwards, and the problem of a failed login."""

    next: str
    problem: str


@dataclass(frozen=True, slots=True)
class ErrorPage:
    """Error of a request."""

    status: int
    error: Problem
    sign_out: str = ""
    """Address that ends the session of the proxy, if the error is that a person has no role."""


class Dashboard:
    """Dashboard of a service, as routes for its application.

    >>> from pasto.store import open_store
    >>> service = Service(open_store("memory:"))
    >>> [route.path for route in Dashboard(service).routes][:2]
    ['/', '/parts/studies']
    >>> service.shutdown()
    """

    def __init__(self, service: Service, clock: Callable[[], float] = time.time) -> None:
        self.sessions = Sessions(service.store, clock)
        pages = Pages(service, self.sessions, clock)
        actions = Actions(self.sessions, pages)
        self.routes = (
            self._get("/", "List all studies.", pages.studies),
            self._get("/parts/studies", "Refresh the list of studies.", pages.study_list),
            self._get("/new", "Show the form for a new study.", actions.show_new_form),
            self._post("/new", "Create a study.", actions.create),
            self._get(STUDY, "Show a study.", pages.study),
            self._get(f"{STUDY}/edit", "Show the form for the file of a study.", actions.show_edit_form),
            self._post(f"{STUDY}/edit", "Edit a study.", actions.edit, pool="changes"),
            self._get(f"{STUDY}/head", "Refresh the state of a study.", pages.head),
            self._get(f"{STUDY}/actions", "Refresh the actions on a study.", pages.actions),
            self._get(f"{STUDY}/verdict", "Refresh the verdict on a study.", pages.verdict),
            self._get(f"{STUDY}/answer", "Refresh the blend and the data quality.", pages.answer),
            self._get(f"{STUDY}/report.html", "Download the report.", pages.report),
            self._get(f"{STUDY}/export.json", "Download the shares for another platform.", pages.export),
            self._get(f"{STUDY}/log", "Refresh the audit log.", pages.log),
            self._get(f"{STUDY}/series", "Get the data of the charts.", pages.series),
            self._get(f"{STUDY}/tradeoff", "Get the trade-off curve.", pages.tradeoff),
            self._post(f"{STUDY}/replay", "Replay a study.", actions.replay),
            self._post(f"{STUDY}/change", "Change a study.", actions.change, pool="changes"),
            Route("GET", "/login", (), "Show the login form.", self._login_page, errors=_error_page),
            Route("POST", "/login", (), "Log in with a key.", self._log_in, errors=_error_page),
            Route("POST", "/logout", (), "Log out.", self._log_out, errors=_error_page),
            Route("GET", "/static/{file}", (), "Get a static file.", serve_static, errors=_error_page),
            Route(
                "GET",
                "/static/vendor/{file}",
                (),
                "Get a static file of a third party.",
                serve_static,
                errors=_error_page,
            ),
        )

    def _get(self, path: str, summary: str, page: PageFunction) -> Route:
        return Route("GET", path, (), summary, self._with_session(page), errors=_error_page)

    def _post(self, path: str, summary: str, page: PageFunction, pool: PoolName = "general") -> Route:
        return Route("POST", path, (), summary, self._with_session(page), errors=_error_page, pool=pool)

    def _with_session(self, page: PageFunction) -> Callable[[HttpRequest], Awaitable[HttpResponse]]:
        async def endpoint(call: HttpRequest) -> HttpResponse:
            session = await self.sessions.get_session(call)
            if session.person is not None and not session.person.scopes and call.scope["method"] in ("GET", "HEAD"):
                return _no_role_page(session.person, session.sign_out)
            if session.person is not None:
                check_role(session.person)
            if not session.may_read:
                return _to_login(call, session)
            study = call.scope["path_params"].get("name")
            if study is not None and not session.may_read_study(study):
                raise UnknownStudyError.named(study)
            response = await page(call, session)
            if not session.is_new:
                return response
            return response._replace(headers=response.headers + set_cookie(call, session))

        return endpoint

    async def _login_page(self, call: HttpRequest) -> HttpResponse:
        session = await self.sessions.get_session(call)
        if session.may_read or session.person is not None:
            return redirect("/")
        return self._login_form(call, session, _local_path(call.query("next").get("next", "/")))

    async def _log_in(self, call: HttpRequest) -> HttpResponse:
        session = await self.sessions.get_session(call)
        form = await read_form(call)
        self.sessions.check_form(call, session, form.get("token", ""))
        next_path = _local_path(form.get("next", "/"))
        if session.is_open or session.person is not None:
            return redirect(next_path)
        login = self.sessions.log_in(call, form.get("key", ""))
        if login is None:
            return self._login_form(call, session, next_path, "This key is not valid, or may not read studies.")
        return redirect(next_path, set_cookie(call, login))

    async def _log_out(self, call: HttpRequest) -> HttpResponse:
        session = await self.sessions.get_session(call)
        self.sessions.check_form(call, session, (await read_form(call)).get("token", ""))
        await self.sessions.log_out(call, session)
        return redirect("/login", clear_cookie(call))

    def _login_form(self, call: HttpRequest, session: Session, next_path: str, problem: str = "") -> HttpResponse:
        return render_page(
            "login.html",
            PageFrame(session, self.sessions.form_token(session)),
            LoginForm(next_path, problem),
            status=403 if problem else 200,
            headers=set_cookie(call, session) if session.is_new else (),
        )


def _no_role_page(person: Person, sign_out: str) -> HttpResponse:
    """Return the page for a person none of whose groups has a role."""
    error = Problem("no_role", no_role_text(person))
    return render_page("error.html", PageFrame(None), ErrorPage(403, error, sign_out), status=403)


def _to_login(call: HttpRequest, session: Session) -> HttpResponse:
    """Redirect to the login; for a part of a page, make the page redirect."""
    if call.header(b"hx-request") or call.scope["method"] != "GET":
        return HttpResponse(401, b"", ((b"hx-redirect", b"/login"), (b"cache-control", b"no-store")))
    response = redirect("/login?next=" + quote(call.scope["path"], safe="/"))
    return response._replace(headers=response.headers + set_cookie(call, session)) if session.is_new else response


def _local_path(path: str) -> str:
    """Return a path on this site to go to after the login, or the front page.

    >>> _local_path("/studies/feed"), _local_path("//evil.example/"), _local_path("https://evil.example/")
    ('/studies/feed', '/', '/')
    """
    is_local = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return quote(path, safe="/") if is_local else "/"


def _error_page(response: HttpResponse) -> HttpResponse:
    """Convert an error response to a page."""
    if not response.body:
        return response
    error = msgspec.json.decode(response.body, type=ErrorBody).error
    headers = tuple(header for header in response.headers if header[0] in (b"retry-after", b"connection"))
    return render_page(
        "error.html", PageFrame(None), ErrorPage(response.status, error), status=response.status, headers=headers
    )
