from __future__ import annotations

import hashlib
import hmac
import itertools
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pasto.dashboard.sessions import COOKIE, LOGIN_SECONDS
from pasto.service.http.app import Application
from pasto.service.service import Service

PAGES = ("/", "/new", "/studies/feed", "/parts/studies", "/studies/feed/series", "/studies/feed/tradeoff")


def key(application: Application, *scopes: str) -> str:
    """Make a new key; after the first one every request needs a key."""
    return str(application.context.keys.create("ann", scopes).key)


def log_in(browser: Any, text: str) -> Any:
    return browser.post("/login", {"token": browser.token("/login"), "key": text, "next": "/studies/feed"})


def test_without_login_pages_are_closed_once_there_is_a_key(
    browser: Any, application: Application, learned: Service
) -> None:
    key(application, "admin")
    for path in PAGES:
        page = browser.get(path)
        assert page.status_code == 303, path
        assert page.headers["location"].startswith("/login?next=/")
        part = browser.get(path, headers={"hx-request": "true"})
        assert (part.status_code, part.headers["hx-redirect"], part.content) == (401, "/login", b"")
    for path in ("/new", "/studies/feed/change", "/studies/feed/replay"):
        assert (
            browser.post(
                path, {"token": "0" * 64, "action": "archive", "typed_name": "feed", "reason": "x"}
            ).status_code
            == 401
        )
    assert learned.show("feed").state == "learning"


def test_a_key_opens_a_session_that_no_script_can_read(
    browser: Any, application: Application, learned: Service
) -> None:
    text = key(application, "admin")
    page = log_in(browser, text)
    assert (page.status_code, page.headers["location"]) == (303, "/studies/feed")
    cookie = page.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Secure" not in cookie
    assert text not in cookie
    study_page = browser.get("/studies/feed")
    assert study_page.status_code == 200
    assert text not in study_page.text
    form = {"token": browser.token("/studies/feed"), "action": "pause", "reason": "lunch"}
    assert browser.post("/studies/feed/change", form).status_code == 303
    assert learned.audit("feed")[-1].who.startswith("ann (")


def test_a_session_gets_a_new_cookie_when_it_logs_in(browser: Any, application: Application) -> None:
    text = key(application, "read")
    browser.get("/login")
    before = browser.cookies[COOKIE]
    log_in(browser, text)
    assert browser.cookies[COOKIE] != before


def test_behind_tls_the_cookie_never_goes_in_the_clear(browser: Any) -> None:
    assert "Secure" in browser.get("/", headers={"x-forwarded-proto": "https"}).headers["set-cookie"]


@pytest.mark.parametrize("wrong", ["", "nonsense", "pasto_000000000000_" + "0" * 64, "<script>"])
def test_a_wrong_key_opens_nothing(browser: Any, application: Application, wrong: str) -> None:
    key(application, "admin")
    page = log_in(browser, wrong)
    assert page.status_code == 403
    assert "not valid, or may not read" in page.text
    assert browser.get("/").status_code == 303


def test_a_key_that_may_not_read_opens_nothing(browser: Any, application: Application) -> None:
    assert log_in(browser, key(application, "ingest")).status_code == 403


def test_a_key_that_may_only_read_changes_nothing(browser: Any, application: Application, learned: Service) -> None:
    log_in(browser, key(application, "read"))
    page = browser.get("/studies/feed")
    assert "has the scope read" in page.text
    assert browser.get("/new").status_code == 403
    token = browser.token("/studies/feed")
    for path in ("/new", "/studies/feed/change"):
        form = {"token": token, "action": "archive", "typed_name": "feed", "reason": "x", "text": "name: x"}
        assert browser.post(path, form).status_code == 403
    assert learned.show("feed").state == "learning"


def test_a_revoked_key_ends_its_sessions(browser: Any, application: Application) -> None:
    text = key(application, "admin")
    log_in(browser, text)
    assert browser.get("/").status_code == 200
    application.context.keys.revoke(text.split("_")[1])
    assert browser.get("/").status_code == 303


def test_a_session_ends_by_itself_and_by_logging_out(browser: Any, service: Service) -> None:
    from pasto.dashboard import Dashboard
    from pasto.service.settings import Settings

    now = [0.0]
    application = Application(service, Settings(), pages=Dashboard(service, clock=lambda: now[0]).routes)
    browser.application = application
    text = key(application, "admin")
    log_in(browser, text)
    now[0] = LOGIN_SECONDS - 1
    assert browser.get("/").status_code == 200
    now[0] = LOGIN_SECONDS + 1
    assert browser.get("/").status_code == 303
    log_in(browser, text)
    assert browser.get("/").status_code == 200
    out = browser.post("/logout", {"token": browser.token("/")})
    assert out.status_code == 303
    assert "Max-Age=0" in out.headers["set-cookie"]
    assert browser.get("/").status_code == 303
    application.context.pools.shutdown()


def log_out(browser: Any) -> str:
    """Log out, and return the cookie that was valid until then."""
    stolen: str = browser.cookies[COOKIE]
    assert browser.post("/logout", {"token": browser.token("/")}).status_code == 303
    return stolen


def test_a_stolen_cookie_opens_nothing_after_the_logout(browser: Any, application: Application) -> None:
    text = key(application, "admin")
    log_in(browser, text)
    other = browser.cookies[COOKIE]
    browser.cookies.clear()
    log_in(browser, text)
    stolen = log_out(browser)
    browser.cookies.clear()
    assert browser.get("/", headers={"cookie": f"{COOKIE}={stolen}"}).status_code == 303
    browser.cookies.clear()
    assert browser.get("/", headers={"cookie": f"{COOKIE}={other}"}).status_code == 200  # another login of the key


def test_a_cookie_cannot_be_made_from_what_a_backup_holds(
    browser: Any, application: Application, service: Service, tmp_path: Path
) -> None:
    text = key(application, "admin")
    log_in(browser, text)
    content, _, signature = browser.cookies[COOKIE].rpartition(".")
    service.store.write_backup(tmp_path / "backup.db")
    with closing(sqlite3.connect(tmp_path / "backup.db")) as backup:
        rows = [*backup.execute("SELECT * FROM api_keys"), *backup.execute("SELECT * FROM meta")]
    values = {str(value) for row in rows for value in row}
    assert hashlib.sha256(text.encode()).hexdigest() in values
    for secret in values:
        assert hmac.new(secret.encode(), f"login {content}".encode(), "sha256").hexdigest() != signature


def test_a_login_holds_on_every_node(browser: Any, application: Application, learned: Service) -> None:
    """Log in on one of two nodes on one store, behind a balancer that sends each request to the other node."""
    from pasto.dashboard import Dashboard
    from pasto.service.settings import Settings

    twin = Application(learned, Settings(), pages=Dashboard(learned).routes)
    nodes = itertools.cycle((application, twin))
    text = key(application, "admin")
    twin.context.keys.refresh()

    def ask(method: str, path: str, **given: Any) -> Any:
        browser.application = next(nodes)
        return type(browser).ask(browser, method, path, **given)

    browser.ask = ask
    assert log_in(browser, text).status_code == 303
    for _ in range(4):
        assert browser.get("/studies/feed").status_code == 200
    for action in ("pause", "resume"):
        form = {"token": browser.token("/studies/feed"), "action": action, "reason": "x"}
        assert browser.post("/studies/feed/change", form).status_code == 303
    application.context.keys.revoke(text.split("_")[1])
    twin.context.keys.refresh()
    assert [browser.get("/").status_code for _ in range(2)] == [303, 303]
    twin.context.pools.shutdown()


@pytest.mark.services
def test_a_login_holds_on_two_nodes_of_one_database(browser: Any, postgres_url: str) -> None:
    """Log in on one of two nodes that share only PostgreSQL; a key that one node revokes is refused by the other."""
    from pasto.dashboard import Dashboard
    from pasto.service.settings import Settings
    from pasto.store import open_store

    services = [Service(open_store(postgres_url)) for _ in range(2)]
    nodes = [Application(each, Settings(), pages=Dashboard(each).routes) for each in services]
    text = key(nodes[0], "admin")
    nodes[1].context.keys.refresh()  # a running service does this every second
    browser.application = nodes[0]
    page = browser.post("/login", {"token": browser.token("/login"), "key": text})
    assert page.status_code == 303
    for node in (nodes[1], nodes[0], nodes[1]):
        browser.application = node
        assert browser.get("/").status_code == 200
    browser.application = nodes[0]
    stolen = log_out(browser)
    for node in (nodes[1], nodes[0]):
        browser.application = node
        browser.cookies.clear()
        assert browser.get("/", headers={"cookie": f"{COOKIE}={stolen}"}).status_code == 303
    browser.cookies.clear()
    assert browser.post("/login", {"token": browser.token("/login"), "key": text}).status_code == 303
    nodes[1].context.keys.revoke(text.split("_")[1])
    assert browser.get("/").status_code == 200
    nodes[0].context.keys.refresh()
    assert browser.get("/").status_code == 303
    for node, service in zip(nodes, services, strict=True):
        node.context.pools.shutdown()
        service.shutdown()


def test_a_cookie_that_was_changed_opens_nothing(browser: Any, application: Application) -> None:
    text = key(application, "read")
    other = key(application, "admin").split("_")[1]
    log_in(browser, text)
    good = browser.cookies[COOKIE]
    prefix, until, number, signature = good.split(".")
    assert prefix == text.split("_")[1]
    for bad in (
        f"{other}.{until}.{number}.{signature}",  # the key of another session
        f"{'0' * 12}.{until}.{number}.{signature}",  # an unknown key
        f"{prefix}.{int(until) + 9}.{number}.{signature}",  # a longer lifetime
        f"{prefix}.{until}.{number[::-1]}.{signature}",
        f"{prefix}.{until}.{number}.{'0' * 64}",
        f"{prefix}.{until}.{number}.{hmac.new(b'', good.encode(), 'sha256').hexdigest()}",
        f"{prefix}.{until}.{number}",
        good.upper(),
    ):
        page = browser.get("/", headers={"cookie": f"{COOKIE}={bad}"})
        assert page.status_code == 303, bad
        browser.cookies.clear()
    assert browser.get("/", headers={"cookie": f"{COOKIE}={good}"}).status_code == 200


FORGERIES: list[dict[str, Any]] = [
    {"data": {"token": ""}},
    {"data": {}},
    {"data": {"token": "0" * 64}},
    {"headers": {"origin": "https://evil.example"}},
    {"headers": {"origin": "null"}},
    {"headers": {"sec-fetch-site": "cross-site"}},
    {"headers": {"sec-fetch-site": "same-site"}},
    {"headers": {"content-type": "text/plain"}},
    {"headers": {"content-type": "application/json"}},
    {"headers": {"cookie": f"{COOKIE}={'A' * 43}"}},
    {"headers": {"cookie": ""}},
]


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_form_changes_nothing(browser: Any, learned: Service, forgery: dict[str, Any]) -> None:
    good = {"token": browser.token("/studies/feed"), "action": "archive", "typed_name": "feed", "reason": "x"}
    data = {**good, "token": "", **forgery["data"]} if "data" in forgery else good
    page = browser.ask("POST", "/studies/feed/change", data=data, headers=forgery.get("headers", {}))
    assert page.status_code in (403, 415)
    assert learned.show("feed").state == "learning"
    assert browser.post("/studies/feed/change", good).status_code == 303
    assert learned.show("feed").state == "archived"


def test_no_look_changes_anything(browser: Any, learned: Service) -> None:
    for path in ("/studies/feed/change?action=archive&typed_name=feed&reason=x", "/logout"):
        assert browser.get(path).status_code == 405
    assert learned.show("feed").state == "learning"


def test_another_name_for_this_machine_is_refused_without_keys(application: Application, browser: Any) -> None:
    browser.base = "http://evil.example"
    assert browser.get("/").status_code == 403


@pytest.mark.parametrize("to", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"])
def test_a_login_leads_nowhere_else(browser: Any, application: Application, to: str) -> None:
    text = key(application, "read")
    page = browser.post("/login", {"token": browser.token("/login"), "key": text, "next": to})
    assert (page.status_code, page.headers["location"]) == (303, "/")
