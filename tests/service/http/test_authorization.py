"""Every route with every kind of key that must not open it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from pasto.service.api_keys import ApiKeys
from pasto.service.http.routes import ROUTES, Route
from pasto.service.http_client import HttpStudyApi
from pasto.service.scopes import SCOPES
from pasto.service.study_file import EXAMPLE, read_document

if TYPE_CHECKING:
    from tests.service.http.conftest import Serve, Site

OPEN = {("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/openapi.json")}
"""What needs no key; nothing else may be added without thinking."""
ALLOWED = {
    ("POST", "/v1/studies"): {"admin"},
    ("POST", "/v1/check"): {"admin"},
    ("GET", "/v1/studies"): {"read"},
    ("GET", "/v1/studies/{name}"): {"read"},
    ("PATCH", "/v1/studies/{name}"): {"admin"},
    ("PUT", "/v1/studies/{name}"): {"admin"},
    ("DELETE", "/v1/studies/{name}"): {"admin"},
    ("GET", "/v1/studies/{name}/audit"): {"read"},
    ("GET", "/v1/studies/{name}/rounds"): {"read"},
    ("POST", "/v1/studies/{name}/rounds/close"): {"admin"},
    ("POST", "/v1/studies/{name}/rounds/resolve"): {"admin"},
    ("GET", "/v1/studies/{name}/policy"): {"evaluate", "read"},
    ("POST", "/v1/studies/{name}/assign"): {"evaluate"},
    ("POST", "/v1/studies/{name}/events"): {"ingest"},
    ("POST", "/v1/studies/{name}/events/archive"): {"admin"},
    ("POST", "/v1/studies/{name}/units/erase"): {"admin"},
    ("GET", "/v1/studies/{name}/report"): {"read"},
    ("GET", "/v1/studies/{name}/export"): {"evaluate", "read"},
    ("POST", "/v1/studies/{name}/replay"): {"read"},
    ("POST", "/v1/studies/{name}/what-if"): {"read"},
    ("GET", "/v1/layers"): {"read"},
    ("GET", "/v1/holdout"): {"read"},
    ("PUT", "/v1/holdout"): {"admin"},
    ("DELETE", "/v1/holdout"): {"admin"},
    ("GET", "/v1/keys"): {"admin"},
    ("POST", "/v1/keys"): {"admin"},
    ("GET", "/v1/keys/audit"): {"admin"},
    ("POST", "/v1/keys/{prefix}/rotate"): {"admin"},
    ("DELETE", "/v1/keys/{prefix}"): {"admin"},
    ("GET", "/v1/webhooks"): {"admin"},
    ("POST", "/v1/webhooks/{webhook}/test"): {"admin"},
    ("POST", "/ofrep/v1/evaluate/flags/{key}"): {"evaluate"},
    ("POST", "/ofrep/v1/evaluate/flags"): {"evaluate"},
    ("GET", "/metrics"): {"read"},
}
"""Who may do what, written down apart from the table that is examined."""
GUARDED = [route for route in ROUTES if (route.method, route.path) not in OPEN]
SOMEWHERE = {
    ("POST", "/v1/studies"),
    ("POST", "/v1/check"),
    ("GET", "/v1/studies"),
    ("POST", "/ofrep/v1/evaluate/flags/{key}"),
    ("POST", "/ofrep/v1/evaluate/flags"),
}
"""Routes without a study in the path that a scope for one study opens, for that study only."""
SECRETS = ("feed", "like_weight", "watch_time", "boss", "digest", "Traceback", "pasto_policy")


@pytest.fixture(scope="module")
def keys() -> dict[str, str]:
    return {}


@pytest.fixture(scope="module")
def locked(serve_long: Serve, keys: dict[str, str]) -> Site:
    """Return a service with the study "feed" and keys of every kind."""
    site = serve_long()
    site.study()
    ring = site.running.application.context.keys
    keys["admin"] = ring.create("boss", ["admin"]).key
    site.study("shop")
    for scope in SCOPES:
        keys.setdefault(scope, ring.create(scope, [scope]).key)
        keys[f"{scope}:feed"] = ring.create("team", [f"{scope}:feed"]).key
        keys[f"{scope}:shop"] = ring.create("team", [f"{scope}:shop"]).key
    revoked = ring.create("gone", ["admin"])
    ring.revoke(revoked.prefix)
    keys["revoked"] = revoked.key
    keys["expired"] = ring.create("late", ["admin"], expires_in=0.001).key
    keys["wrong"] = keys["admin"][:-4] + ("0000" if not keys["admin"].endswith("0000") else "1111")
    keys["unknown"] = "pasto_0123456789ab_" + "c" * 64
    time.sleep(0.002)
    return site


def ask(site: Site, route: Route, authorization: str | None, *, study: str = "feed", **headers: str) -> httpx.Response:
    """Call a route, as a caller elsewhere does."""
    path = route.path.replace("{name}", study).replace("{prefix}", "0123456789ab").replace("{key}", study)
    path = path.replace("{webhook}", "chat")
    sent = {"host": "pasto.example", **headers, **({"authorization": authorization} if authorization else {})}
    body: Any = None if route.method in ("GET", "DELETE") else {}
    if route.path.startswith("/ofrep/"):
        body = {"context": {"targetingKey": "ann"}}
    return site.client.request(route.method, path, json=body, headers=sent)


def test_every_route_is_in_this_matrix() -> None:
    assert {(route.method, route.path) for route in ROUTES} == set(ALLOWED) | OPEN
    for route in GUARDED:
        assert set(route.scopes) == ALLOWED[route.method, route.path]
        assert route.somewhere == ((route.method, route.path) in SOMEWHERE)
    assert all(route.scopes == () for route in ROUTES if (route.method, route.path) in OPEN)


@pytest.mark.parametrize("route", GUARDED, ids=lambda route: f"{route.method} {route.path}")
def test_no_request_passes_without_a_valid_key(locked: Site, keys: dict[str, str], route: Route) -> None:
    sent = [
        None,
        "",
        "Bearer",
        keys["admin"],
        f"Basic {keys['admin']}",
        f"Bearer {keys['admin']} {keys['admin']}",
        f"Bearer {keys['admin'][:-1]}",
        f"Bearer {keys['admin'].upper()}",
        "Bearer pasto_",
        "Bearer " + "x" * 5000,
        *(f"Bearer {keys[kind]}" for kind in ("revoked", "expired", "wrong", "unknown")),
    ]
    for authorization in sent:
        answer = ask(locked, route, authorization)
        assert answer.status_code == 401, (authorization, answer.text)
        assert "www-authenticate" in answer.headers
        assert not any(secret in answer.text for secret in SECRETS)
        assert keys["admin"].split("_")[1] not in answer.text


@pytest.mark.parametrize("route", GUARDED, ids=lambda route: f"{route.method} {route.path}")
@pytest.mark.parametrize("scope", SCOPES)
def test_a_key_opens_only_what_its_scope_does(locked: Site, keys: dict[str, str], route: Route, scope: str) -> None:
    answer = ask(locked, route, f"Bearer {keys[scope]}")
    if scope == "admin" or scope in ALLOWED[route.method, route.path]:
        assert answer.status_code not in (401, 403), answer.text
    else:
        assert answer.status_code == 403, answer.text
        assert not any(secret in answer.text for secret in SECRETS)


@pytest.mark.parametrize("route", GUARDED, ids=lambda route: f"{route.method} {route.path}")
@pytest.mark.parametrize("scope", SCOPES)
def test_a_key_of_a_study_opens_that_study_only(locked: Site, keys: dict[str, str], route: Route, scope: str) -> None:
    place = (route.method, route.path)
    authorization = f"Bearer {keys[f'{scope}:feed']}"
    own = ask(locked, route, authorization)
    if (scope == "admin" or scope in ALLOWED[place]) and ("{name}" in route.path or place in SOMEWHERE):
        expected = {403} if place in {("POST", "/v1/studies"), ("POST", "/v1/check")} else set()
        assert own.status_code not in {401, 403, 404} - expected, own.text
    else:
        assert own.status_code == 403, own.text
    assert "shop" not in own.text
    if "{name}" in route.path or "{key}" in route.path:
        other = ask(locked, route, authorization, study="shop")
        unknown = ask(locked, route, authorization, study="nowhere")
        assert other.status_code == unknown.status_code
        assert other.status_code == (403 if own.status_code == 403 and "{key}" in route.path else 404)
        assert other.text.replace("shop", "nowhere") == unknown.text
        assert dict(other.headers).keys() == dict(unknown.headers).keys()


def test_a_report_names_other_studies_to_readers_of_all_only(locked: Site, keys: dict[str, str]) -> None:
    def concurrent(scope: str) -> list[str]:
        headers = {"authorization": f"Bearer {keys[scope]}"}
        report = locked.client.get("/v1/studies/feed/report", headers=headers).json()
        return [study["name"] for study in report["concurrent"]]

    assert concurrent("read") == concurrent("admin") == ["shop"]
    assert concurrent("read:feed") == concurrent("admin:feed") == ["another study"]


def test_lists_have_the_studies_of_the_key_only(locked: Site, keys: dict[str, str]) -> None:
    def listed(scope: str) -> list[str]:
        headers = {"authorization": f"Bearer {keys[scope]}"}
        return [study["name"] for study in locked.client.get("/v1/studies", headers=headers).json()["studies"]]

    assert listed("read") == listed("admin") == ["feed", "shop"]
    assert listed("read:feed") == listed("admin:feed") == ["feed"]
    body = {"context": {"targetingKey": "ann"}}
    headers = {"authorization": f"Bearer {keys['evaluate:shop']}"}
    flags = locked.client.post("/ofrep/v1/evaluate/flags", json=body, headers=headers).json()["flags"]
    assert {flag["metadata"]["study"] for flag in flags} == {"shop"}
    own = locked.client.post("/ofrep/v1/evaluate/flags/shop", json=body, headers=headers)
    assert own.json()["metadata"]["study"] == "shop"


def test_an_admin_of_a_study_creates_and_checks_that_study_only(serve: Serve) -> None:
    site = serve()
    site.study("shop")
    made = site.running.application.context.keys.create("team", ["admin:feed"])
    site.client.headers["authorization"] = f"Bearer {made.key}"
    document = read_document(EXAMPLE, "yaml")
    for path in ("/v1/check", "/v1/studies"):
        for other in ("shop", "nowhere", " feed", ["feed"], None):
            answer = site.client.post(path, json={**document, "name": other})
            assert (answer.status_code, answer.json()["error"].get("field")) == (403, "name"), answer.text
        assert site.client.post(path, json={**document, "name": "feed@1"}).status_code == 422
        assert site.client.post(path, json={**document, "name": "feed"}).status_code in (200, 201)
    renamed = site.client.put("/v1/studies/feed", json={**document, "name": "shop"})
    assert renamed.status_code == 400
    assert site.client.get("/v1/studies/feed/audit").json()["audit"][0]["who"] == f"team ({made.prefix})"
    assert site.client.delete("/v1/studies/feed").json()["deleted_as"] == "feed@1"
    assert site.client.get("/v1/studies/feed@1/audit").status_code == 200
    assert site.client.get("/v1/studies/shop@1/audit").status_code == 404


def test_a_full_layer_names_its_studies_to_readers_of_all_studies_only(serve: Serve) -> None:
    site = serve()
    site.study("shop", layer={"name": "home", "share": "80%"}, start=False)
    document = {**read_document(EXAMPLE, "yaml"), "layer": {"name": "home", "share": "40%"}}
    ring = site.running.application.context.keys
    for scopes, is_named in ((["admin:feed"], False), (["admin:feed", "read"], True), (["admin"], True)):
        headers = {"authorization": f"Bearer {ring.create('team', scopes).key}"}
        answer = site.client.post("/v1/studies", json=document, headers=headers)
        assert answer.status_code == 422
        assert ("shop" in answer.text) == is_named, answer.text
        assert "layer home has 20% free" in answer.text


def test_a_key_of_a_study_gets_the_signing_key_of_that_study_only(serve: Serve) -> None:
    site = serve()
    for name in ("feed", "shop"):
        site.study(name, exposures={"signed": True})
    ring = site.running.application.context.keys
    made = ring.create("sdk", ["evaluate:feed", "read"])
    headers = {"authorization": f"Bearer {made.key}"}
    assert "pasto-signing-key" in site.client.get("/v1/studies/feed/policy", headers=headers).headers
    other = site.client.get("/v1/studies/shop/policy", headers=headers)
    assert other.status_code == 200
    assert "pasto-signing-key" not in other.headers


@pytest.mark.parametrize("path", sorted(path for _, path in OPEN))
def test_what_is_open_stays_open(locked: Site, path: str) -> None:
    assert locked.client.get(path, headers={"host": "pasto.example"}).status_code == 200


def test_metrics_need_a_key_as_soon_as_there_is_one(serve: Serve) -> None:
    site = serve()
    assert site.client.get("/metrics").status_code == 200
    ring = site.running.application.context.keys
    boss, reader = (ring.create(scope, [scope]).key for scope in ("admin", "read"))
    # A proxy on this machine may have forwarded the request for a stranger.
    assert site.client.get("/metrics").status_code == 401
    for key in (boss, reader):
        assert site.client.get("/metrics", headers={"authorization": f"Bearer {key}"}).status_code == 200


def test_metrics_are_open_if_the_operator_configures_it(serve: Serve) -> None:
    site = serve(public_metrics=True)
    site.running.application.context.keys.create("boss", ["admin"])
    assert "pasto_store_up" in site.client.get("/metrics", headers={"host": "pasto.example"}).text
    assert site.client.get("/v1/studies").status_code == 401


def test_an_unknown_study_is_not_found_for_a_permitted_key(locked: Site, keys: dict[str, str]) -> None:
    headers = {"authorization": f"Bearer {keys['admin']}"}
    for route in GUARDED:
        if "{name}" in route.path:
            body: Any = {"POST": {}, "PATCH": {"action": "start"}}.get(route.method)
            if route.path.endswith(("assign", "erase")):
                body = {"unit": "ann"}
            if route.path.endswith("events"):
                body = []
            if route.method == "PUT":
                body = {**read_document(EXAMPLE, "yaml"), "name": "nowhere"}
            if route.path.endswith("resolve"):
                body = {"round": 1, "resolution": "learn", "reason": "so"}
            path = route.path.replace("{name}", "nowhere")
            answer = locked.client.request(route.method, path, json=body, headers=headers)
            assert answer.status_code == 404, (route, answer.text)
            assert answer.json()["error"]["code"] == "unknown_study"


def test_the_audit_log_names_the_key(locked: Site, keys: dict[str, str]) -> None:
    headers = {"authorization": f"Bearer {keys['admin']}"}
    locked.client.post("/v1/studies/feed/rounds/close", headers=headers).raise_for_status()
    last = locked.client.get("/v1/studies/feed/audit", headers=headers).json()["audit"][-1]
    assert last["who"] == f"boss ({keys['admin'].split('_')[1]})"
    assert keys["admin"].split("_")[2] not in str(last)


def test_keys_are_made_listed_rotated_and_revoked_over_http(serve: Serve) -> None:
    site = serve()
    refused = site.client.post("/v1/keys", json={"name": "web", "scopes": ["read"]})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "first_key_needs_admin")
    admin = site.client.post("/v1/keys", json={"name": "boss", "scopes": ["admin"]}).json()
    assert site.client.get("/v1/studies").status_code == 401
    site.client.headers["authorization"] = f"Bearer {admin['key']}"
    web = site.client.post("/v1/keys", json={"name": "web", "scopes": ["read"], "expires_in": 60}).json()
    listed = site.client.get("/v1/keys").json()["keys"]
    assert [key["name"] for key in listed] == ["boss", "web"]
    assert all("key" not in key and "digest" not in key for key in listed)
    new = site.client.post(f"/v1/keys/{web['prefix']}/rotate", json={"grace": 600}).json()
    for key in (web, new):
        assert site.client.get("/v1/studies", headers={"authorization": f"Bearer {key['key']}"}).status_code == 200
    assert site.client.delete(f"/v1/keys/{web['prefix']}").json() == {"revoked": True}
    assert site.client.get("/v1/studies", headers={"authorization": f"Bearer {web['key']}"}).status_code == 401
    assert site.client.get("/v1/studies", headers={"authorization": f"Bearer {new['key']}"}).status_code == 200
    again = site.client.delete(f"/v1/keys/{web['prefix']}")
    assert (again.status_code, again.json()["error"]["code"]) == (404, "unknown_key")
    assert site.client.post("/v1/keys/ffffffffffff/rotate").status_code == 404


def test_a_retry_with_the_next_key_counts_once(serve: Serve) -> None:
    site = serve()
    site.study()
    admin = site.client.post("/v1/keys", json={"name": "boss", "scopes": ["admin"]}).json()
    site.client.headers["authorization"] = f"Bearer {admin['key']}"
    old = site.client.post("/v1/keys", json={"name": "shop", "scopes": ["ingest"]}).json()
    new = site.client.post(f"/v1/keys/{old['prefix']}/rotate", json={"grace": 600}).json()
    event = {"type": "metric", "id": "order-1", "unit": "ann", "name": "like", "source": "shop"}

    def send(key: str, event: dict[str, str]) -> dict[str, Any]:
        headers = {"authorization": f"Bearer {key}"}
        answer: dict[str, Any] = site.client.post("/v1/studies/feed/events", json=[event], headers=headers).json()
        return answer

    assert send(old["key"], event) == {"accepted": 1, "duplicates": 0, "rejected": []}
    assert send(new["key"], event) == {"accepted": 0, "duplicates": 1, "rejected": []}
    conflict = send(new["key"], {**event, "unit": "bob"})
    assert (conflict["accepted"], conflict["duplicates"]) == (0, 0)
    assert conflict["rejected"][0]["reason"].startswith("conflict: ")


def test_changes_of_keys_are_in_the_audit_log_of_keys(serve: Serve) -> None:
    site = serve()
    boss = HttpStudyApi(site.url).create_key("boss", ["admin"], who="ann")
    api = HttpStudyApi(site.url, boss.key)
    web = api.create_key("web", ["read"], who="bob")
    successor = api.rotate_key(web.prefix, grace=60.0, who="bob")
    assert api.revoke_key(web.prefix)
    assert not api.revoke_key(web.prefix)
    named = f"boss ({boss.prefix})"
    lines = api.key_audit()
    assert [(line.who, line.action, line.detail["name"], line.detail["prefix"]) for line in lines] == [
        ("ann", "key created", "boss", boss.prefix),
        (f"{named}: bob", "key created", "web", web.prefix),
        (f"{named}: bob", "key rotated", "web", web.prefix),
        (named, "key revoked", "web", web.prefix),
    ]
    assert lines[2].detail["successor"] == successor.prefix
    assert api.key_audit(after=lines[0].sequence, limit=2) == lines[1:3]
    for made in (boss, web, successor):
        assert made.key.split("_")[2] not in str(lines)
    reader = {"authorization": f"Bearer {successor.key}"}
    assert site.client.get("/v1/keys/audit", headers=reader).status_code == 403
    admin = {"authorization": f"Bearer {boss.key}", "pasto-who": "a%0Ab"}
    refused = site.client.delete(f"/v1/keys/{successor.prefix}", headers=admin)
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_text")
    assert api.key_audit() == lines


def test_a_key_revoked_by_another_node_stops_within_a_poll(serve: Serve) -> None:
    site = serve(poll=0.05)
    other = ApiKeys(site.running.service.store)
    made = other.create("boss", ["admin"])
    second = other.create("ops", ["admin"])
    headers = {"authorization": f"Bearer {made.key}"}
    site.until(lambda: site.client.get("/v1/studies").status_code == 401)
    assert site.client.get("/v1/studies", headers=headers).status_code == 200
    other.revoke(made.prefix)
    site.until(lambda: site.client.get("/v1/studies", headers=headers).status_code == 401)
    other.revoke(second.prefix)
    site.until(
        lambda: site.client.get("/v1/studies", headers={"authorization": f"Bearer {second.key}"}).status_code == 401
    )
    assert site.client.get("/v1/studies").status_code == 401  # the last key is gone, and access stays locked


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8300", "", "[::1", "10.0.0.7"]
)
def test_without_keys_only_our_own_names_are_answered(site: Site, host: str) -> None:
    answer = site.client.get("/v1/studies", headers={"host": host})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "host_not_allowed")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8300", "127.0.0.1:1", "[::1]:8300", "[::1]"])
def test_without_keys_our_own_names_are_answered(site: Site, host: str) -> None:
    assert site.client.get("/v1/studies", headers={"host": host}).status_code == 200


def test_a_page_elsewhere_changes_nothing(site: Site) -> None:
    answer = site.client.post(
        "/v1/studies/feed/rounds/close", content=b"{}", headers={"origin": "https://evil.example"}
    )
    assert answer.status_code == 403
    assert site.client.get("/v1/studies", headers={"origin": "http://localhost:3000"}).status_code == 200
    assert "access-control-allow-origin" not in site.client.get("/v1/studies").headers


def test_allowed_hosts_are_answered(serve: Serve) -> None:
    site = serve(allowed_hosts="pasto.internal, Other.Example")
    assert site.client.get("/v1/studies", headers={"host": "other.example:8300"}).status_code == 200
    assert site.client.get("/v1/studies", headers={"host": "evil.example"}).status_code == 403
