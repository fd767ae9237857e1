"""Clusters in the client: units of one cluster get one candidate, and exposures name the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pasto_sdk import Client, FakeService
from pasto_sdk.policy import PublishedPolicy, publish_policy

Connect = Callable[..., Client]


def publish(version: int = 2, **changes: Any) -> PublishedPolicy:
    fields: dict[str, Any] = {
        "study": "feed",
        "version": version,
        "round": version,
        "state": "learning",
        "mode": "shuffled",
        "salt": f"feed/{version}",
        "candidates": {k: (f"c{k}", {"weight": k}) for k in range(3)},
        "baseline": 0,
        "shares": [("learner", 1, 0.5), ("learner", 2, 0.5)],
        "valid_from": 100.0,
        "expires_after": 86_400,
        "cluster": "school",
    }
    return publish_policy(**fields | changes)


def test_a_cluster_gets_one_candidate_and_units_send_their_own_events(connect: Connect, service: FakeService) -> None:
    service.publish(publish())
    client = connect()
    pupils = [client.assign(f"pupil {number}", school=f"school {number % 4}") for number in range(40)]
    by_school = {decision.cluster: decision.name for decision in pupils}
    assert len(by_school) == 4
    assert all(decision.name == by_school[decision.cluster] for decision in pupils)
    assert len(set(by_school.values())) == 2
    client.track("pupil 7", "answer", points=3)
    pupils[8].track("answer", points=4)
    assert client.flush()
    assert [(event["unit"], event["cluster"]) for event in service.exposures] == [
        (f"pupil {number}", f"school {number % 4}") for number in range(40)
    ]
    assert [(event["unit"], event["version"], event.get("cluster")) for event in service.metrics] == [
        ("pupil 7", 2, None),
        ("pupil 8", 2, None),
    ]
    assert client.status()["rejected"] == {}


def test_a_unit_that_moves_is_exposed_in_both_clusters(connect: Connect, service: FakeService) -> None:
    service.publish(publish(shares=[("learner", 1, 1.0)]))
    client = connect()
    first = client.assign("ann", school="north")
    assert client.assign("ann", school="north") is first
    second = client.assign("ann", school="south")
    assert (first.cluster, second.cluster) == ("north", "south")
    assert client.flush()
    assert [event["cluster"] for event in service.exposures] == ["north", "south"]


@pytest.mark.parametrize("school", [None, "", True, 7.5, ["north"], "\ud800", "x" * 257, float("nan")])
def test_a_unit_without_a_cluster_takes_no_part(connect: Connect, service: FakeService, school: object) -> None:
    service.publish(publish())
    client = connect()
    for decision in (client.assign("ann", school=school), client.assign("bob")):
        assert (decision.name, decision.arm, decision.reason) == ("c0", "not_enrolled", "DEFAULT")
        assert decision.cluster is None
    client.track("ann", "answer")
    assert client.flush()
    assert service.exposures == []
    assert service.metrics == []
    assert client.status()["not_enrolled"] == 2


def test_an_integer_stands_for_its_digits(connect: Connect, service: FakeService) -> None:
    service.publish(publish())
    client = connect()
    assert {client.assign(f"p{n}", school=school).cluster for n, school in enumerate((7, 7.0, "7"))} == {"7"}


def test_a_policy_with_clusters_replaces_one_without(connect: Connect, service: FakeService) -> None:
    service.publish(publish(cluster=None))
    client = connect()
    assert client.assign("ann", school="north").cluster is None
    service.publish(publish(3))
    client.wait_until_ready()
    assert client.assign("ann", school="north").cluster == "north"
    assert client.assign("bob", override="c2").reason == "OVERRIDE"
