"""Forged requests: no page of another origin changes anything here, on any route."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from pasto.dashboard import Dashboard
from pasto.dashboard.sessions import COOKIE
from pasto.service.http.app import Application
from pasto.service.http.routes import ROUTES
from pasto.service.service import Service
from pasto.service.settings import Settings
from pasto.service.study_file import EXAMPLE, read_document
from pasto.store import open_store

HERE = "http://127.0.0.1:8300"
READS = {"GET", "HEAD", "OPTIONS"}
FORM = {
    "action": "archive",
    "typed_name": "feed",
    "reason": "x",
    "text": EXAMPLE.replace("name: feed", "name: other"),
    "hold": "baseline",
}
FOREIGN: list[dict[str, str]] = [
    {"origin": "https://evil.example"},
    {"origin": "http://127.0.0.1:9999"},
    {"origin": "http://localhost.evil.example"},
    {"origin": f"{HERE}.evil.example"},
    {"origin": "null"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"origin": "https://evil.example", "sec-fetch-site": "same-origin"},
    {"origin": HERE, "sec-fetch-site": "cross-site"},
]
API_FOREIGN: list[dict[str, str]] = [
    {"origin": "https://evil.example"},
    {"origin": "http://localhost.evil.example"},
    {"origin": "null"},
    {"host": "evil.example"},
    {"host": "127.0.0.1.evil.example:8300"},
    {"host": "evil.example", "origin": "http://evil.example"},
]


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service(open_store("memory:"))
    service.create(read_document(EXAMPLE, "yaml"), who="ann", seed=1)
    service.change("feed", "start", who="ann", reason="go")
    yield service
    service.shutdown()


@pytest.fixture
def dashboard(service: Service) -> Dashboard:
    return Dashboard(service)


@pytest.fixture
def application(service: Service, dashboard: Dashboard) -> Iterator[Application]:
    application = Application(service, Settings(), pages=dashboard.routes)
    yield application
    application.context.pools.shutdown()


def ask(
    application: Application, method: str, path: str, cookies: dict[str, str] | None = None, **given: Any
) -> httpx.Response:
    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(app=application, client=("127.0.0.1", 5))
        async with httpx.AsyncClient(transport=transport, base_url=HERE, cookies=cookies) as client:
            return await client.request(method, path, **given)

    return asyncio.run(go())


def snapshot(service: Service) -> Any:
    """Return everything that a request could have changed."""
    rows = service.store.list_studies()
    logs = [service.store.read_audit_log(row.number) for row in rows]
    return rows, logs, [service.store.read_high_water(row.number) for row in rows], service.store.list_keys()


def visitor(application: Application) -> tuple[str, str]:
    """Return the cookie of a session, and the token that belongs to it."""
    page = ask(application, "GET", "/studies/feed")
    found = re.search(r'name="token" value="([0-9a-f]{64})"', page.text)
    assert found is not None
    return page.cookies[COOKIE], found[1]


def posts(dashboard: Dashboard) -> list[str]:
    return [route.path.replace("{name}", "feed") for route in dashboard.routes if route.method not in READS]


def test_no_route_changes_anything_by_being_looked_at(
    service: Service, dashboard: Dashboard, application: Application
) -> None:
    cookie, token = visitor(application)
    before = snapshot(service)
    everything = [*dashboard.routes, *ROUTES]
    for path in sorted({route.path.replace("{name}", "feed").replace("{file}", "app.js") for route in everything}):
        for method in sorted(READS):
            query = {**FORM, "token": token}
            ask(application, method, path, params=query, cookies={COOKIE: cookie})
            ask(application, method, path, cookies={COOKIE: cookie})
    assert snapshot(service) == before


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_every_form_is_refused_when_it_comes_from_elsewhere(
    service: Service, dashboard: Dashboard, application: Application, headers: dict[str, str]
) -> None:
    cookie, token = visitor(application)
    before = snapshot(service)
    for path in posts(dashboard):
        # The token is right: the origin of the request is enough reason to refuse it.
        sent = ask(application, "POST", path, data={**FORM, "token": token}, headers=headers, cookies={COOKIE: cookie})
        assert sent.status_code == 403, path
    assert snapshot(service) == before


def test_every_form_needs_its_own_visitor_s_token(
    service: Service, dashboard: Dashboard, application: Application
) -> None:
    (cookie, token), (other, theirs) = visitor(application), visitor(application)
    assert token != theirs
    before = snapshot(service)
    for path in posts(dashboard):
        for jar, given in ((cookie, theirs), (other, token), (cookie, ""), (cookie, "0" * 64), (None, token)):
            sent = ask(
                application,
                "POST",
                path,
                data={**FORM, "token": given},
                cookies=None if jar is None else {COOKIE: jar},
            )
            assert sent.status_code == 403, path
        for kind in ("text/plain", "multipart/form-data; boundary=x", "application/json", ""):
            sent = ask(
                application,
                "POST",
                path,
                content=f"token={token}&action=archive&typed_name=feed&reason=x",
                headers={"content-type": kind},
                cookies={COOKIE: cookie},
            )
            assert sent.status_code == 415, path
    assert snapshot(service) == before


def test_a_form_of_our_own_goes_through(service: Service, application: Application) -> None:
    cookie, token = visitor(application)
    headers = {"origin": HERE, "sec-fetch-site": "same-origin"}
    sent = ask(
        application,
        "POST",
        "/studies/feed/change",
        data={**FORM, "token": token},
        headers=headers,
        cookies={COOKIE: cookie},
    )
    assert sent.status_code == 303
    assert service.show("feed").state == "archived"


@pytest.mark.parametrize("headers", API_FOREIGN, ids=str)
def test_the_open_interface_answers_no_page_elsewhere(
    service: Service, application: Application, headers: dict[str, str]
) -> None:
    """Check the API without keys: every local caller may do everything, so a foreign page must be refused."""
    before = snapshot(service)
    bodies: dict[str, Any] = {"PATCH": {"action": "archive"}, "POST": read_document(EXAMPLE, "yaml")}
    for route in ROUTES:
        if route.method not in READS and route.scopes:
            path = route.path.replace("{name}", "feed").replace("{prefix}", "0" * 12).replace("{key}", "feed")
            for kind in ("application/json", "text/plain"):
                sent = ask(
                    application,
                    route.method,
                    path,
                    json=bodies.get(route.method, {}),
                    headers={**headers, "content-type": kind},
                )
                assert sent.status_code == 403, (route.method, path)
    assert snapshot(service) == before


def test_a_login_of_the_pages_is_no_key_of_the_interface(service: Service, application: Application) -> None:
    """Check that the API ignores the session cookie, because a browser adds it to every request."""
    text = application.context.keys.create("ann", ["admin"]).key
    page = ask(application, "GET", "/login")
    token = re.search(r'name="token" value="([0-9a-f]{64})"', page.text)
    assert token is not None
    entered = ask(
        application,
        "POST",
        "/login",
        data={"token": token[1], "key": text},
        cookies={COOKIE: page.cookies[COOKIE]},
    )
    login = {COOKIE: entered.cookies[COOKIE]}
    assert ask(application, "GET", "/studies/feed", cookies=login).status_code == 200
    before = snapshot(service)
    for route in ROUTES:
        if route.scopes:
            path = route.path.replace("{name}", "feed").replace("{prefix}", "0" * 12).replace("{key}", "feed")
            assert ask(application, route.method, path, cookies=login).status_code == 401, (route.method, path)
    assert snapshot(service) == before
