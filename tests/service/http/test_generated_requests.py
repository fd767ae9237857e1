"""Generated requests: every route of the OpenAPI document with valid and invalid input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

from pasto.service.http.openapi import build_document
from pasto.service.http.routes import ROUTES, Route

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.service.http.conftest import Serve, Site


def document_without_keys() -> dict[str, Any]:
    """Return the document without its keys, which other tests cover: here every caller has one."""
    document = build_document()
    for methods in document["paths"].values():
        for operation in methods.values():
            operation.pop("security", None)
    return document


SCHEMA = schemathesis.openapi.from_dict(document_without_keys())
EXAMINED = CHECKS.get_by_names(
    [
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
    ]
)
QUICK, LONG = 20, 80
"""Requests to each route: some 300 in all, and some 1,300."""


@pytest.fixture(scope="module")
def target(serve_long: Serve) -> Site:
    """Return a service for generated requests: they read "feed" and change "life"."""
    site = serve_long(batch_limit=100, request_timeout=60)
    site.study()
    site.study("life", start=False)
    key = site.running.application.context.keys.create("stranger", ["admin"]).key
    site.client.headers["authorization"] = f"Bearer {key}"
    return site


@pytest.fixture
def session() -> Iterator[requests.Session]:
    with requests.Session() as session:
        yield session


def strategies(route: Route) -> Any:
    """Return strategies for valid and invalid requests, half of them about an existing study."""
    operation = SCHEMA[route.path][route.method]
    known = {"name": "life" if route.method == "PATCH" else "feed"}
    found = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
    if "{name}" in route.path:
        found |= operation.as_strategy(generation_mode=GenerationMode.POSITIVE, path_parameters=known)
    if route.request is not None or route.query:
        fixed: dict[str, Any] = {"path_parameters": known} if "{name}" in route.path else {}
        found |= operation.as_strategy(generation_mode=GenerationMode.NEGATIVE, **fixed)
    return found


def play(site: Site, session: requests.Session, route: Route, examples: int) -> int:
    """Send this many requests to a route, and check every answer."""
    asked = 0

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategies(route))
    def ask(case: Any) -> None:
        nonlocal asked
        if case.query and "wait" in case.query:
            case.query = {**case.query, "wait": 0}
        headers = {"Authorization": site.client.headers["authorization"]}
        answer = case.call(base_url=site.url, session=session, headers=headers, timeout=120)
        asked += 1
        assert answer.status_code not in (401, 403)
        case.validate_response(answer, checks=EXAMINED)

    ask()
    return asked


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_no_request_breaks_the_service(target: Site, session: requests.Session, route: Route) -> None:
    assert play(target, session, route, QUICK) > 0


@pytest.mark.services
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_no_request_of_many_breaks_the_service(target: Site, session: requests.Session, route: Route) -> None:
    assert play(target, session, route, LONG) > 0
