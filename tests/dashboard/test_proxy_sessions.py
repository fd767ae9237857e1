"""The dashboard for people whom a trusted proxy signed in, and for keys of one study."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from pasto.dashboard import Dashboard
from pasto.dashboard.sessions import COOKIE
from pasto.service.http.app import Application
from pasto.service.service import Service
from pasto.service.settings import Settings
from tests.dashboard.conftest import DOCUMENT, Browser

SETTINGS = Settings(
    proxy_user_header="X-Forwarded-User",
    proxy_addresses="127.0.0.1",
    proxy_roles="ops=admin, feed-team=admin:feed, shop-team=admin:shop, readers=read",
    proxy_sign_out="/oauth2/sign_out?rd=%2F",
)
STUDY_PAGES = (
    "",
    "/head",
    "/actions",
    "/answer",
    "/report.html",
    "/log",
    "/series",
    "/tradeoff",
    "/edit",
    "/export.json",
)


class Visitor(Browser):
    """Browser behind the proxy, which adds the headers of one person."""

    def __init__(self, application: Application, user: str, groups: str = "") -> None:
        super().__init__(application)
        self.identity = {"x-forwarded-user": user, "x-forwarded-groups": groups}

    def ask(self, method: str, path: str, **given: Any) -> httpx.Response:
        headers = {**self.identity, **given.pop("headers", {})}
        return super().ask(method, path, headers=headers, **given)


@pytest.fixture
def proxied(learned: Service) -> Any:
    """Return an application with the study "feed" and a draft "shop", to which a proxy signs people in."""
    learned.create({**DOCUMENT, "name": "shop"}, who="ops")
    application = Application(learned, SETTINGS, pages=Dashboard(learned).routes)
    yield application
    application.context.pools.shutdown()


def test_a_person_is_signed_in_without_a_login(proxied: Application, learned: Service) -> None:
    ann = Visitor(proxied, "ann@example.org", "search,feed-team")
    page = ann.get("/studies/feed")
    assert page.status_code == 200
    assert "ann@example.org" in page.text
    assert 'href="/oauth2/sign_out?rd=%2F"' in page.text
    assert "/logout" not in page.text
    form = {"token": ann.token("/studies/feed"), "action": "pause", "reason": "lunch"}
    assert ann.post("/studies/feed/change", form).status_code == 303
    assert (learned.audit("feed")[-1].who, learned.show("feed").state) == ("ann@example.org", "paused")
    assert "Paused by ann@example.org: lunch" in ann.get("/studies/feed").text
    assert ann.get("/login").headers["location"] == "/"


def test_a_person_sees_and_changes_the_studies_of_the_role_only(proxied: Application, learned: Service) -> None:
    ann = Visitor(proxied, "ann@example.org", "feed-team")
    listed = ann.get("/").text
    assert "/studies/feed" in listed
    assert "shop" not in listed
    for page in STUDY_PAGES:
        other, unknown = ann.get(f"/studies/shop{page}"), ann.get(f"/studies/nowhere{page}")
        assert other.status_code == unknown.status_code == 404
        assert other.text.replace("shop", "nowhere") == unknown.text
    for page in ("change", "edit", "replay"):
        form = {"token": ann.token("/studies/feed"), "action": "delete", "reason": "x"}
        assert ann.post(f"/studies/shop/{page}", form).status_code == 404
    assert learned.show("shop").state == "draft"


def test_a_person_who_reads_changes_nothing(proxied: Application, learned: Service) -> None:
    bob = Visitor(proxied, "bob@example.org", "readers")
    page = bob.get("/studies/feed").text
    assert "Your role has the scope read for this study." in page
    assert "New study" not in page
    form = {"token": bob.token("/studies/feed"), "action": "pause", "reason": "x", "text": "name: x"}
    for path in ("/studies/feed/change", "/studies/feed/edit", "/new"):
        refused = bob.post(path, form)
        assert refused.status_code == 403
        assert "a role with the scope admin" in refused.text
    assert bob.post("/studies/feed/replay", form).status_code == 200
    assert learned.show("feed").state == "learning"


def test_an_admin_of_a_study_creates_that_study_only(proxied: Application, learned: Service) -> None:
    eve = Visitor(proxied, "eve@example.org", "shop-team")
    token = eve.token("/new")
    eve.post("/studies/shop/change", {"token": token, "action": "delete", "reason": "again"})
    for name, status in (("feed2", 403), ("feed", 403), ("shop", 303)):
        text = json.dumps({**DOCUMENT, "name": name})
        assert eve.post("/new", {"token": token, "text": text, "reason": ""}).status_code == status
    assert learned.audit("shop")[0].who == "eve@example.org"


def test_a_full_layer_does_not_name_studies_that_a_person_may_not_read(proxied: Application, learned: Service) -> None:
    learned.create({**DOCUMENT, "name": "search", "layer": {"name": "home", "share": "80%"}}, who="ops")
    text = json.dumps({**DOCUMENT, "name": "shop", "layer": {"name": "home", "share": "40%"}})
    for groups, is_named in (("shop-team", False), ("ops", True)):
        eve = Visitor(proxied, "eve@example.org", groups)
        form = {"token": eve.token("/studies/shop/edit"), "text": text, "reason": ""}
        refused = eve.post("/studies/shop/edit", form)
        assert (refused.status_code, "layer home has 20% free" in refused.text) == (422, True)
        assert ("search (80%" in refused.text) == is_named


def test_a_person_without_a_role_gets_a_page_with_the_reason(proxied: Application) -> None:
    eve = Visitor(proxied, "eve@example.org", "guests")
    for path in ("/", "/studies/feed", "/new"):
        page = eve.get(path)
        assert page.status_code == 403
        assert "eve@example.org is signed in, but none of their groups has a role here" in page.text
        assert "/oauth2/sign_out" in page.text
        assert "feed" not in page.text
    assert eve.post("/new", {"token": "0" * 64}).status_code == 403


def test_forms_of_a_person_need_their_own_token(proxied: Application, learned: Service) -> None:
    ann, bob = (Visitor(proxied, f"{name}@example.org", "ops") for name in ("ann", "bob"))
    token = ann.token("/studies/feed")
    form = {"action": "pause", "reason": "x"}
    for wrong in ("", "0" * 64):
        assert ann.post("/studies/feed/change", {**form, "token": wrong}).status_code == 403
    for headers in (
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
    ):
        refused = ann.post("/studies/feed/change", {**form, "token": token}, headers=headers)
        assert (refused.status_code, "forged_form" in refused.text) == (403, True)
    bob.cookies = ann.cookies  # set by a page of a neighbouring host, for example
    assert bob.post("/studies/feed/change", {**form, "token": token}).status_code == 403
    assert learned.show("feed").state == "learning"
    assert ann.post("/studies/feed/change", {**form, "token": token}).status_code == 303


def test_a_forged_header_opens_no_session(proxied: Application) -> None:
    eve = Visitor(proxied, "ann@example.org", "ops")
    proxied.context.authenticator._sign_in._networks = ()  # type: ignore[union-attr]
    page = eve.get("/studies/feed", headers={"x-forwarded-for": "127.0.0.1"})
    assert (page.status_code, page.headers["location"]) == (303, "/login?next=/studies/feed")


def test_a_person_comes_before_a_login_with_a_key(proxied: Application, learned: Service) -> None:
    made = proxied.context.keys.create("boss", ["admin"])
    direct = Browser(proxied)
    form = {"token": direct.token("/login"), "key": made.key, "next": "/"}
    assert direct.post("/login", form).status_code == 303
    assert "boss" in direct.get("/").text
    bob = Visitor(proxied, "bob@example.org", "readers")
    bob.cookies = direct.cookies
    login = bob.cookies[COOKIE]
    page = bob.get("/")
    assert "bob@example.org" in page.text
    assert "New study" not in page.text
    assert bob.cookies[COOKIE] != login


def test_a_key_of_one_study_opens_a_session_for_it(
    browser: Browser, application: Application, learned: Service
) -> None:
    learned.create({**DOCUMENT, "name": "shop"}, who="ops")
    made = application.context.keys.create("ann", ["admin:feed"])
    form = {"token": browser.token("/login"), "key": made.key, "next": "/"}
    assert browser.post("/login", form).headers["location"] == "/"
    assert "shop" not in browser.get("/").text
    assert browser.get("/studies/shop").status_code == 404
    change = {"token": browser.token("/studies/feed"), "action": "pause", "reason": "x"}
    assert browser.post("/studies/feed/change", change).status_code == 303
    assert browser.post("/studies/shop/change", {**change, "action": "start"}).status_code == 404
    assert learned.show("shop").state == "draft"


def test_a_reader_of_one_study_with_a_login_changes_nothing(
    browser: Browser, application: Application, learned: Service
) -> None:
    made = application.context.keys.create("ann", ["read:feed"])
    browser.post("/login", {"token": browser.token("/login"), "key": made.key, "next": "/"})
    change = {"token": browser.token("/studies/feed"), "action": "pause", "reason": "x"}
    refused = browser.post("/studies/feed/change", change)
    assert refused.status_code == 403
    assert "admin:feed" in refused.text
    assert browser.get("/studies/feed/edit").status_code == 403


@pytest.mark.parametrize(("scope", "is_listed"), [("read", True), ("admin", True), ("read:feed", False)])
def test_layers_and_the_holdout_are_for_readers_of_all_studies(
    browser: Browser, application: Application, learned: Service, scope: str, is_listed: bool
) -> None:
    learned.set_holdout("5%", who="ann")
    made = application.context.keys.create("ann", [scope])
    browser.post("/login", {"token": browser.token("/login"), "key": made.key, "next": "/"})
    assert ("Layers and holdout" in browser.get("/").text) is is_listed
