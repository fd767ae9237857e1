"""People whom a trusted proxy signs in: whose headers count, what roles permit, and whom the audit log names."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from pasto.errors import OptionError
from pasto.service.http.app import Application
from pasto.service.http.auth import check_safe
from pasto.service.http.proxy_sign_in import MAX_GROUPS_BYTES, MAX_NAME_CHARACTERS, ProxySignIn, read_sign_in
from pasto.service.http.responses import ApiError
from pasto.service.http.routes import ROUTES
from pasto.service.scopes import permits, permits_somewhere
from pasto.service.service import Service
from pasto.service.settings import Settings
from pasto.service.study_file import EXAMPLE, read_document
from pasto.store import open_store
from tests.service.http.test_authorization import ALLOWED, OPEN

PROXY, ELSEWHERE = "10.0.0.7", "203.0.113.9"
SAFE: dict[str, Any] = {
    "proxy_user_header": "X-Forwarded-User",
    "proxy_addresses": f"{PROXY}, fd00::/64",
    "proxy_roles": "ops=admin, feed-team=admin:feed, shop-readers=read:shop, everyone=read:feed",
}
Call = Callable[..., httpx.Response]


@pytest.fixture
def application() -> Iterator[Application]:
    """Return a service with the studies "feed" and "shop", to which a proxy signs people in."""
    service = Service(open_store("memory:"))
    for name in ("feed", "shop"):
        service.create({**read_document(EXAMPLE, "yaml"), "name": name}, who="ops")
        service.change(name, "start", who="ops")
    application = Application(service, Settings(**SAFE))
    with ExitStack() as stack:
        stack.callback(service.shutdown)
        stack.callback(application.context.pools.shutdown)
        yield application


@pytest.fixture
def call(application: Application) -> Call:
    """Return a function that calls a route from an address, in the name of a person."""

    def ask(
        method: str,
        path: str,
        user: str | None = "ann@example.org",
        groups: str = "",
        *,
        peer: str = PROXY,
        headers: list[tuple[str, str]] | None = None,
        **given: Any,
    ) -> httpx.Response:
        sent = [("x-forwarded-groups", groups)] if groups else []
        sent += [] if user is None else [("x-forwarded-user", user)]

        async def go() -> httpx.Response:
            transport = httpx.ASGITransport(app=application, client=(peer, 5))
            async with httpx.AsyncClient(transport=transport, base_url="http://pasto.example") as client:
                return await client.request(method, path, headers=[*sent, *(headers or [])], **given)

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, go()).result()

    return ask


def test_a_person_reads_and_changes_what_the_groups_permit(call: Call) -> None:
    names = [study["name"] for study in call("GET", "/v1/studies").json()["studies"]]
    assert names == ["feed"]
    assert call("PATCH", "/v1/studies/feed", json={"action": "pause"}).status_code == 403
    assert call("GET", "/v1/studies/shop").status_code == 404
    team = call("PATCH", "/v1/studies/feed", groups="search, feed-team", json={"action": "pause", "reason": "so"})
    assert team.status_code == 200
    assert call("GET", "/v1/keys", groups="feed-team").status_code == 403
    assert call("GET", "/v1/keys", groups="ops").status_code == 200
    assert call("GET", "/v1/studies/shop", groups="shop-readers").status_code == 200


@pytest.mark.parametrize("route", [route for route in ROUTES if (route.method, route.path) not in OPEN])
@pytest.mark.parametrize("group", ["ops", "feed-team", "shop-readers"])
def test_every_route_knows_the_role_of_a_person(call: Call, group: str, route: Any) -> None:
    scopes = {"ops": ["admin"], "feed-team": ["admin:feed"], "shop-readers": ["read:shop", "read:feed"]}[group]
    path = route.path.replace("{name}", "feed").replace("{prefix}", "0123456789ab").replace("{key}", "feed")
    needed = ALLOWED[route.method, route.path]
    may = permits(scopes, needed, "feed" if "{name}" in route.path else "")
    may = (may or (route.somewhere and permits_somewhere(scopes, needed))) and bool(needed & {"admin", "read"})
    body: Any = None if route.method in ("GET", "DELETE") else {}
    answer = call(route.method, path.replace("{webhook}", "chat"), groups=group, json=body)
    code = answer.json()["error"].get("code", "") if answer.status_code >= 400 and answer.content else ""
    if may:
        assert code not in ("unauthorized", "unknown_study"), answer.text
        assert code != "forbidden" or "names in name" in answer.text, answer.text
    else:
        assert answer.status_code == 403, answer.text


def test_people_never_assign_units_or_send_events(call: Call) -> None:
    for path, body in (("assign", {"unit": "ann"}), ("events", [])):
        answer = call("POST", f"/v1/studies/feed/{path}", groups="ops", json=body)
        assert (answer.status_code, "an API key with the scope" in answer.text) == (403, True)


@pytest.mark.parametrize(
    "peer", [ELSEWHERE, "10.0.0.8", "127.0.0.1", "::1", "fd00:0:0:1::1", "::ffff:203.0.113.9", "", "testclient"]
)
def test_a_header_from_elsewhere_is_ignored_and_counted(
    call: Call, application: Application, peer: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "pasto.sign_in")
    for _ in range(3):
        forged = [("x-forwarded-for", PROXY), ("x-real-ip", PROXY), ("forwarded", f"for={PROXY}")]
        answer = call("GET", "/v1/studies", groups="ops", peer=peer, headers=forged)
        assert answer.status_code == 401
    lines = [record.getMessage() for record in caplog.records if record.name == "pasto.sign_in"]
    assert len(lines) == 1
    assert peer in lines[0]
    assert "ann@example.org" not in lines[0]
    assert "pasto_proxy_header_ignored 3.0" in application.context.metrics.text().decode()


@pytest.mark.parametrize("peer", [PROXY, "::ffff:10.0.0.7", "fd00::5"])
def test_the_addresses_of_the_proxy_are_trusted(call: Call, peer: str) -> None:
    assert call("GET", "/v1/studies", peer=peer).status_code == 200


def test_log_lines_about_ignored_headers_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    sign_in = ProxySignIn(Settings(**SAFE))
    caplog.set_level(logging.WARNING, "pasto.sign_in")
    for number in range(1000):
        assert sign_in.identify((f"203.0.{number // 250}.{number % 250}", 1), [(b"x-forwarded-user", b"x")]) is None
    assert (sign_in.ignored, len(caplog.records)) == (1000, 100)


@pytest.mark.parametrize("twice", [("x-forwarded-user", "bob@example.org"), ("x-forwarded-user", "ann@example.org")])
def test_a_header_that_was_sent_twice_is_refused(call: Call, twice: tuple[str, str]) -> None:
    answer = call("GET", "/v1/studies", headers=[twice])
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_identity")


def test_groups_that_were_sent_twice_are_refused(call: Call) -> None:
    answer = call("GET", "/v1/keys", groups="search", headers=[("x-forwarded-groups", "ops")])
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_identity")


@pytest.mark.parametrize(
    "name",
    [
        b"",
        b" ",
        b"ann\x1b[2J",
        b"ann\tbob",
        b"\xff\xfe",
        "ann\u202egro.elpmaxe".encode(),
        b"x" * (MAX_NAME_CHARACTERS + 1),
        b"boss (0123456789ab)",
        b"local",
        b"Scheduler",
        b"guardrail monitor",
    ],
)
def test_a_name_that_cannot_be_one_is_refused(name: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        ProxySignIn(Settings(**SAFE)).identify((PROXY, 1), [(b"x-forwarded-user", name)])
    assert (refused.value.status, refused.value.code) == (400, "bad_identity")


@pytest.mark.parametrize("groups", [b"ops\x00", b"\xff", b"x" * (MAX_GROUPS_BYTES + 1)])
def test_groups_that_cannot_be_read_are_refused(groups: bytes) -> None:
    sent = [(b"x-forwarded-user", b"ann"), (b"x-forwarded-groups", groups)]
    with pytest.raises(ApiError, match=r"groups of a person|printable"):
        ProxySignIn(Settings(**SAFE)).identify((PROXY, 1), sent)


@pytest.mark.parametrize("name", ["ann@example.org", "Zoë Müller", "auth0|5f7c", "CORP\\ann", "https://id.example#7"])
def test_usual_names_are_taken_as_they_are(name: str) -> None:
    person = ProxySignIn(Settings(**SAFE)).identify((PROXY, 1), [(b"x-forwarded-user", name.encode())])
    assert person is not None
    assert person.name == name


def test_roles_are_of_exact_groups(call: Call) -> None:
    for groups in ("OPS", "opsx", "op", "ops=admin", "everyone", "feed-team2", ";ops", "ops;x"):
        assert call("GET", "/v1/keys", groups=groups).status_code == 403


def test_a_person_without_a_role_is_refused_with_the_reason(application: Application, call: Call) -> None:
    sign_in = ProxySignIn(Settings(**{**SAFE, "proxy_roles": "ops=admin"}))
    application.context.authenticator._sign_in = sign_in
    answer = call("GET", "/v1/studies", groups="search")
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "no_role")
    assert "ann@example.org is signed in, but none of their groups has a role" in answer.text


def test_a_key_decides_alone(application: Application, call: Call) -> None:
    reader = application.context.keys.create("reader", ["read"])
    bearer = [("authorization", f"Bearer {reader.key}")]
    assert call("GET", "/v1/studies/shop", groups="ops", headers=bearer).status_code == 200
    assert call("GET", "/v1/keys", groups="ops", headers=bearer).status_code == 403
    wrong = [("authorization", "Bearer pasto_0123456789ab_" + "c" * 64)]
    assert call("GET", "/v1/keys", groups="ops", headers=wrong).status_code == 401
    for foreign in ("Basic YW5uOmFubg==", "Bearer eyJhbGciOiJSUzI1NiJ9.e30.c2ln"):
        assert call("GET", "/v1/keys", groups="ops", headers=[("authorization", foreign)]).status_code == 200
    assert call("GET", "/v1/keys", None, peer=ELSEWHERE, headers=bearer).status_code == 403


def test_a_request_without_a_name_is_refused_even_on_this_machine(call: Call) -> None:
    for peer in (PROXY, "127.0.0.1"):
        answer = call(
            "GET", "/v1/studies", None, peer=peer, headers=[("host", "127.0.0.1"), ("x-forwarded-groups", "ops")]
        )
        assert answer.status_code == 401


@pytest.mark.parametrize(
    "header",
    [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("origin", "https://evil.example"),
        ("origin", "null"),
        ("origin", "http://pasto.example.evil.example"),
    ],
)
def test_another_site_changes_nothing_in_the_name_of_a_person(call: Call, header: tuple[str, str]) -> None:
    change = {"action": "pause", "reason": "so"}
    answer = call("PATCH", "/v1/studies/feed", groups="ops", headers=[header], json=change)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "cross_site")
    assert call("GET", "/v1/studies/feed", groups="ops").json()["state"] == "learning"
    own = [("origin", "http://pasto.example"), ("sec-fetch-site", "same-origin")]
    assert call("PATCH", "/v1/studies/feed", groups="ops", headers=own, json=change).status_code == 200


def test_the_audit_log_names_the_person(call: Call) -> None:
    imitated = [("pasto-who", "bob")]
    call("POST", "/v1/studies/feed/rounds/close", groups="feed-team", headers=imitated).raise_for_status()
    call("PATCH", "/v1/studies/feed", groups="ops", json={"action": "pause", "reason": "x"}).raise_for_status()
    call("POST", "/v1/keys", groups="ops", json={"name": "web", "scopes": ["read:feed"]}).raise_for_status()
    lines = call("GET", "/v1/studies/feed/audit", groups="ops").json()["audit"]
    assert [line["who"] for line in lines[-2:]] == ["ann@example.org"] * 2
    assert call("GET", "/v1/keys/audit", groups="ops").json()["audit"][-1]["who"] == "ann@example.org"


def test_the_sign_in_is_off_without_settings(application: Application, call: Call) -> None:
    application.context.authenticator._sign_in = None
    assert call("GET", "/v1/studies", groups="ops").status_code == 401
    assert read_sign_in(Settings()) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"proxy_addresses": ""}, "proxy_addresses is empty"),
        ({"proxy_addresses": " , "}, "proxy_addresses is empty"),
        ({"proxy_addresses": "0.0.0.0/0"}, "from which anyone could sign in as anyone"),
        ({"proxy_addresses": "10.0.0.7, ::/0"}, "from which anyone could sign in as anyone"),
        ({"proxy_addresses": "0.0.0.0/1,128.0.0.0/1"}, "from which anyone could sign in as anyone"),
        ({"proxy_addresses": "any, 10.0.0.7"}, "needs addresses or networks"),
        ({"proxy_addresses": "10.0.0.7/24"}, "has host bits set"),
        ({"proxy_addresses": "proxy.example"}, "needs addresses or networks"),
        ({"proxy_roles": ""}, "no person could do anything"),
        ({"proxy_roles": "ops"}, "GROUP=SCOPE"),
        ({"proxy_roles": "=admin"}, "GROUP=SCOPE"),
        ({"proxy_roles": "ops=ingest"}, "with the scope admin or read"),
        ({"proxy_roles": "ops=admin:"}, "GROUP=SCOPE"),
        ({"proxy_roles": "ops=Admin"}, "GROUP=SCOPE"),
        ({"proxy_user_header": "X Forwarded"}, "proxy_user_header needs the name of a header"),
        ({"proxy_user_header": "Authorization"}, "that only the proxy sets"),
        ({"proxy_user_header": "X-Forwarded-For"}, "that only the proxy sets"),
        ({"proxy_groups_header": ""}, "proxy_groups_header needs the name of a header"),
        ({"proxy_groups_header": "x-forwarded-USER"}, "name two headers"),
        ({"proxy_sign_out": "javascript:alert(1)"}, "proxy_sign_out needs a path"),
        ({"proxy_sign_out": "//evil.example"}, "proxy_sign_out needs a path"),
        ({"proxy_user_header": ""}, "proxy_addresses is set without proxy_user_header"),
        ({"proxy_user_header": "", "proxy_addresses": "", "proxy_sign_out": ""}, "proxy_roles is set without"),
    ],
)
def test_unsafe_settings_do_not_start(changes: dict[str, str], message: str) -> None:
    service = Service(open_store("memory:"))
    settings = Settings(**{**SAFE, **changes})
    with pytest.raises(OptionError, match=message):
        check_safe(Application(service, Settings()).context.keys, settings)
    with pytest.raises(OptionError, match=message):
        Application(service, settings)
    service.shutdown()


def test_every_address_is_trusted_only_by_the_word() -> None:
    sign_in = ProxySignIn(Settings(**{**SAFE, "proxy_addresses": "any"}))
    for address in (ELSEWHERE, "2001:db8::1"):
        assert sign_in.identify((address, 1), [(b"x-forwarded-user", b"ann")]) is not None
    assert sign_in.identify(None, [(b"x-forwarded-user", b"ann")]) is None
