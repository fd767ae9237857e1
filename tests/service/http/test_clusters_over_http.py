"""Clusters over HTTP: an attribute of the request is drawn instead of the unit, and exposures name it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pasto_sdk.policy import PublishedPolicy

if TYPE_CHECKING:
    from tests.service.http.conftest import Serve, Site

FLAGS = "/ofrep/v1/evaluate/flags"
UNITS = [f"pupil {number}" for number in range(20)]


@pytest.fixture(scope="module")
def schools(serve_long: Serve) -> Site:
    site = serve_long()
    site.study("feed", unit={"name": "pupil", "cluster": "school"}, guardrails=[])
    return site


def policy_of(site: Site) -> PublishedPolicy:
    return PublishedPolicy.from_text(site.client.get("/v1/studies/feed/policy").content)


def stored_clusters(site: Site) -> dict[str, str]:
    """Return the fields of the stored exposures by unit."""
    service = site.running.service
    query = "SELECT unit, fields FROM events WHERE kind = 0"
    with service.store.read_transaction() as connection:
        return dict(connection.execute(query).fetchall())


def test_assign_and_flags_draw_the_cluster_and_log_it(schools: Site) -> None:
    policy = policy_of(schools)
    names: dict[str, set[Any]] = {}
    for number, school in enumerate(("north", "söuth", 7)):
        attributes = {"school": school}
        body = {"units": [f"{school} {unit}" for unit in UNITS], "attributes": attributes}
        several = schools.client.post("/v1/studies/feed/assign", json=body).json()["assignments"]
        one = schools.client.post("/v1/studies/feed/assign", json={"unit": f"one {number}", "attributes": attributes})
        context = {"targetingKey": f"flag {number}", **attributes}
        flag = schools.client.post(f"{FLAGS}/feed", json={"context": context}).json()
        names[str(school)] = {answer["candidate"] for answer in (*several, one.json())} | {flag["variant"]}
        assert names[str(school)] == {policy.draw("anybody", attributes).name}
    expected = {f"{school} {unit}": f'{{"cluster":"{school}"}}' for school in names for unit in UNITS}
    for number, school in enumerate(names):
        expected |= {f"{kind} {number}": f'{{"cluster":"{school}"}}' for kind in ("one", "flag")}
    schools.until(lambda: stored_clusters(schools) == expected)


def test_without_the_attribute_nothing_is_exposed(schools: Site) -> None:
    for body in ({"unit": "nobody"}, {"unit": "nobody", "attributes": {"school": True}}):
        answer = schools.client.post("/v1/studies/feed/assign", json=body).json()
        assert (answer["arm"], answer["reason"]) == ("not_enrolled", "DEFAULT")
    assert "nobody" not in stored_clusters(schools)


def test_all_flags_change_with_the_cluster(schools: Site) -> None:
    tags = set()
    for school in ("a", "b", "c"):
        context = {"targetingKey": "ann", "school": school}
        tags.add(schools.client.post(FLAGS, json={"context": context}).headers["etag"])
    assert len(tags) == 3


def test_the_study_and_its_report_name_the_cluster(schools: Site) -> None:
    study = schools.client.get("/v1/studies/feed").json()
    assert study["document"]["unit"] == {"name": "pupil", "cluster": "school"}
    assert study["unit"] == "pupil"
    assert schools.client.get("/v1/studies/feed/report").json()["clusters"] is None
