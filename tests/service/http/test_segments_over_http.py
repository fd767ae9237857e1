"""Policies with segments over HTTP: the attributes of a request decide on the segment, and the answer names it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pasto_sdk.enrolment import SegmentAttribute, SegmentRule
from pasto_sdk.policy import PublishedPolicy, publish_policy

if TYPE_CHECKING:
    from tests.service.http.conftest import Serve, Site

RULE = SegmentRule((SegmentAttribute("activity", ("new", "heavy")),), ("new", "heavy"))
FLAGS = "/ofrep/v1/evaluate/flags"
UNITS = [f"user {number}" for number in range(40)]


@pytest.fixture(scope="module")
def divided(serve_long: Serve) -> Site:
    """Return a service whose study serves a policy with segments."""
    site = serve_long()
    site.study("feed")
    snapshot = site.running.service.policy_cache.snapshot("feed")
    assert snapshot.policy is not None
    shares = {index: 1.0 / len(snapshot.policy.named) for index in range(len(snapshot.policy.named))}
    policy = publish_policy(
        study="feed",
        version=2,
        round=2,
        state="learning",
        mode="shuffled",
        salt="feed/2",
        candidates={bucket.candidate: (name, bucket.values) for name, bucket in snapshot.policy.named.items()},
        baseline=snapshot.policy.baseline.candidate,
        shares=[("learner", index, share) for index, share in shares.items()],
        valid_from=0.0,
        expires_after=86_400.0,
        segments=RULE,
        segment_shares={"new": [("learner", 1, 1.0)], "heavy": [("control", 1, 0.5), ("learner", 1, 0.5)]},
    )
    row = replace(snapshot.row, generation=snapshot.row.generation + 1)
    site.running.service.policy_cache.take(row, policy)
    return site


def policy_of(site: Site) -> PublishedPolicy:
    return PublishedPolicy.from_text(site.client.get("/v1/studies/feed/policy").content)


def assign(site: Site, **body: Any) -> Any:
    answer = site.client.post("/v1/studies/feed/assign", json=body)
    assert answer.status_code == 200
    return answer.json()


@pytest.mark.parametrize("activity", ["new", "heavy", "casual", None])
def test_assign_draws_by_the_segment_and_names_it(divided: Site, activity: str | None) -> None:
    attributes = {} if activity is None else {"activity": activity}
    policy = policy_of(divided)
    several = assign(divided, units=UNITS, attributes=attributes)["assignments"]
    for unit, answer in zip(UNITS, several, strict=True):
        bucket = policy.draw(unit, attributes)
        expected = (bucket.segment, bucket.name, bucket.arm, bucket.propensity)
        for found in (answer, assign(divided, unit=unit, attributes=attributes)):
            assert (found["segment"], found["candidate"], found["arm"], found["propensity"]) == expected
    assert {answer["segment"] for answer in several} == {activity if activity in ("new", "heavy") else "other"}


def test_flags_draw_by_the_segment_and_name_it(divided: Site) -> None:
    policy = policy_of(divided)
    tags = set()
    for activity in ("new", "heavy", "casual"):
        for unit in UNITS[:10]:
            context = {"targetingKey": unit, "activity": activity}
            bucket = policy.draw(unit, context)
            for key in ("feed", f"feed.{next(iter(bucket.values))}"):
                flag = divided.client.post(f"{FLAGS}/{key}", json={"context": context}).json()
                metadata = flag["metadata"]
                assert (flag["variant"], metadata["segment"], metadata["propensity"]) == (
                    bucket.name,
                    bucket.segment,
                    bucket.propensity,
                )
        answer = divided.client.post(FLAGS, json={"context": {"targetingKey": "user 1", "activity": activity}})
        tags.add(answer.headers["etag"])
        assert {flag["metadata"]["segment"] for flag in answer.json()["flags"]} == {
            policy.draw("user 1", context).segment
        }
    assert len(tags) == 3  # a caller whose segment changes gets the flags of the new one


def test_without_segments_no_answer_has_one(serve: Serve) -> None:
    site = serve()
    site.study("feed")
    assert "segment" not in assign(site, unit="ann", attributes={"activity": "new"})
    assert "segment" not in assign(site, units=["ann"])["assignments"][0]
    flag = site.client.post(f"{FLAGS}/feed", json={"context": {"targetingKey": "ann", "activity": "new"}}).json()
    assert "segment" not in flag["metadata"]
