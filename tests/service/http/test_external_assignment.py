"""A study whose units another platform assigns, over HTTP: its exposures count, and PASTO draws no unit of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.service.http.conftest import Site


@pytest.fixture
def shared(serve: Callable[..., Site]) -> Site:
    """One study of each kind."""
    site = serve()
    site.study("external", exposures={"assigned_by": "external"})
    site.study("own")
    return site


@pytest.mark.parametrize("body", [{"unit": "ann"}, {"units": ["ann", "bob"]}])
def test_assign_is_refused(shared: Site, body: dict[str, object]) -> None:
    answer = shared.client.post("/v1/studies/external/assign", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "wrong_state")
    assert "assigned by another platform" in answer.json()["error"]["message"]
    assert shared.client.post("/v1/studies/own/assign", json=body).status_code == 200


def test_flags_are_those_of_the_other_studies(shared: Site) -> None:
    context = {"context": {"targetingKey": "ann"}}
    answer = shared.client.post("/ofrep/v1/evaluate/flags/external", json=context)
    assert (answer.status_code, answer.json()["errorCode"]) == (404, "FLAG_NOT_FOUND")
    flags = shared.client.post("/ofrep/v1/evaluate/flags", json=context).json()["flags"]
    assert {flag["key"].partition(".")[0] for flag in flags} == {"own"}


def test_the_policy_and_its_export_are_published(shared: Site) -> None:
    policy = shared.client.get("/v1/studies/external/policy").json()
    exported = shared.client.get("/v1/studies/external/export?format=flagd").json()
    assert exported["metadata"]["policy_version"] == policy["version"]
    assert shared.client.get("/v1/studies/external").json()["assigned_by"] == "external"
    candidate = next(iter(exported["flags"]["external"]["variants"]))
    events = [{"type": "exposure", "id": "1", "unit": "ann", "version": 1, "candidate": candidate}]
    assert shared.client.post("/v1/studies/external/events", json=events).json()["accepted"] == 1
