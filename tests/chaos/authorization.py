"""Matrix of keys and routes: every route of the OpenAPI document with every kind of key, and pages without a key."""

from __future__ import annotations

from typing import Any

import httpx

from pasto.service.scopes import SCOPES
from tests.chaos.campaign import STORES, Scenario, Workshop
from tests.chaos.load import STUDY, create_studies
from tests.chaos.report import Outcome
from tests.chaos.service_process import ServiceProcess
from tests.service.http.test_authorization import ALLOWED, OPEN

HOSTS = ("localhost", "pasto.example")
EXPIRY_SECONDS = 1.0
PAGES = ("/", f"/studies/{STUDY}", "/new")
"""Pages of the dashboard; without a session they lead to the login, with a foreign cookie too."""
INTERFACE = ("/v1/", "/ofrep/")
METHODS = ("get", "post", "put", "patch", "delete")


def try_interface(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Call every route of the API with every kind of key."""
    _try_routes(workshop, outcome, repetitions, is_monitoring=False)


def try_monitoring(workshop: Workshop, outcome: Outcome, repetitions: int) -> None:
    """Call /metrics and other routes outside the API with every kind of key; then pages without a session."""
    _try_routes(workshop, outcome, repetitions, is_monitoring=True)


def _try_routes(workshop: Workshop, outcome: Outcome, repetitions: int, *, is_monitoring: bool) -> None:
    with workshop.serving(workshop.store(outcome.store)) as node:
        create_studies(node)
        keys = make_keys(node)
        with node.client() as client:
            paths = client.get("/openapi.json").raise_for_status().json()["paths"]
            before = _state(client)
        routes = {(method.upper(), path) for path, found in paths.items() for method in found if method in METHODS}
        unknown = routes - set(ALLOWED) - OPEN
        outcome.require(not unknown, f"routes that the matrix does not name: {sorted(unknown)}")
        for _ in range(repetitions):
            for method, path in sorted(routes - OPEN):
                if is_monitoring != path.startswith(INTERFACE):
                    _try_route(node, outcome, method, path, keys)
            if is_monitoring:
                _try_pages(node, outcome)
            outcome.repetitions += 1
        with node.client() as client:
            outcome.require(_state(client) == before, "the refused requests changed something")


def make_keys(node: ServiceProcess) -> dict[str, str]:
    """Make a key of each scope, and expired keys; return the headers that must not open anything."""
    node.make_key("campaign", "admin")
    keys = {scope: f"Bearer {node.make_key(scope, scope)[1]}" for scope in SCOPES}
    prefix, revoked = node.make_key("revoked", "admin")
    with node.client() as client:
        client.delete(f"/v1/keys/{prefix}").raise_for_status()
    _, expired = node.make_key("expired", "admin", expires_in=EXPIRY_SECONDS)
    keys["revoked"], keys["expired"] = f"Bearer {revoked}", f"Bearer {expired}"
    with node.client() as client:
        ask = {"authorization": keys["expired"]}
        node.wait_for(lambda: client.get("/v1/keys", headers=ask).status_code == 401, "the key did not expire", 10)
    last = "0" if not node.key.endswith("0") else "1"
    keys |= {
        "none": "",
        "wrong secret": f"Bearer {node.key[:-1]}{last}",
        "unknown": "Bearer pasto_0123456789ab_" + "c" * 64,
        "another scheme": f"Basic {node.key}",
        "without a scheme": node.key,
    }
    return keys


def _try_route(node: ServiceProcess, outcome: Outcome, method: str, path: str, keys: dict[str, str]) -> None:
    """Call a route with every key; a key of the scope `admin`, or of the route's own scope, may pass."""
    allowed = {"admin", *ALLOWED.get((method, path), ())}
    filled = path.replace("{name}", STUDY).replace("{prefix}", "0123456789ab").replace("{key}", STUDY)
    body: Any = None if method in ("GET", "DELETE") else {}
    with httpx.Client(base_url=node.url, timeout=60) as client:
        for kind, authorization in keys.items():
            for host in HOSTS:
                headers = {"host": host, **({"authorization": authorization} if authorization else {})}
                status = client.request(method, filled, json=body, headers=headers).status_code
                outcome.count_status(status)
                if kind in allowed:
                    outcome.require(status not in (401, 403), f"{kind} may not {method} {path}, and should: {status}")
                elif status not in (401, 403):
                    outcome.let_in += 1
                    outcome.broken.append(f"{method} {path} on {host} with the key {kind!r} was answered {status}")


def _try_pages(node: ServiceProcess, outcome: Outcome) -> None:
    """Request pages without a session: the answer must not contain data of a study."""
    with httpx.Client(base_url=node.url, timeout=60) as client:
        for page in PAGES:
            for cookie in ("", "pasto_session=forged", "session=admin"):
                answer = client.get(page, headers={"cookie": cookie} if cookie else {})
                outcome.count_status(answer.status_code)
                if answer.status_code == 200 and STUDY in answer.text:
                    outcome.let_in += 1
                    outcome.broken.append(f"the page {page} shows a study without a session")


def _state(client: httpx.Client) -> list[Any]:
    """Return the state that refused requests must not change."""
    keys = client.get("/v1/keys").raise_for_status().json()["keys"]
    studies = client.get("/v1/studies").raise_for_status().json()["studies"]
    return [sorted(key["prefix"] for key in keys), [(study["name"], study["state"]) for study in studies]]


SCENARIOS = (
    Scenario("authorization", "keys and routes", try_interface, 1, 1, STORES),
    Scenario("authorization", "keys, metrics and pages", try_monitoring, 1, 1, STORES),
)
