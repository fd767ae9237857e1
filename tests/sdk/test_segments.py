"""Segments in the client: each group of units has its own shares, and its events carry the segment."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any

import pytest

from pasto_sdk import Client, FakeService
from pasto_sdk.enrolment import AudienceCondition, EnrolmentSlice, SegmentAttribute, SegmentRule
from pasto_sdk.errors import PolicyError
from pasto_sdk.exposure_signature import sign_exposure
from pasto_sdk.policy import PublishedPolicy, publish_policy
from pasto_sdk.policy_holder import PolicyHolder

Connect = Callable[..., Client]

ACTIVITY = SegmentRule((SegmentAttribute("activity", ("new", "heavy")),), ("new", "heavy"))
SHARES = {"new": [("learner", 1, 1.0)], "heavy": [("learner", 1, 0.5), ("learner", 2, 0.5)]}


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
        "shares": [("learner", 0, 1.0)],
        "valid_from": 100.0,
        "expires_after": 86_400,
        "segments": ACTIVITY,
        "segment_shares": SHARES,
    }
    return publish_policy(**fields | changes)


def test_the_segment_decides_and_travels_with_the_events(connect: Connect, service: FakeService) -> None:
    service.publish(publish())
    client = connect()
    new, heavy, rest = (
        client.assign("ann", activity="new"),
        client.assign("bob", activity="heavy"),
        client.assign("cid"),
    )
    assert (new.name, new.segment) == ("c1", "new")
    assert heavy.name in ("c1", "c2")
    assert (heavy.segment, heavy.propensity) == ("heavy", 0.5)
    assert (rest.name, rest.segment) == ("c0", "other")
    for decision in (new, heavy, rest):
        decision.track("like")
    assert client.flush()
    expected = [("ann", "c1", "new"), ("bob", heavy.name, "heavy"), ("cid", "c0", "other")]
    for events in (service.exposures, service.metrics):
        assert [(event["unit"], event["candidate"], event["segment"]) for event in events] == expected
    assert client.status()["rejected"] == {}


def test_a_unit_that_changes_its_segment_is_exposed_in_both(connect: Connect, service: FakeService) -> None:
    service.publish(publish())
    client = connect()
    both = [service.current.draw(f"user {n}", {"activity": "heavy"}).name for n in range(50)] if service.current else []
    unit = f"user {both.index('c1')}"  # the same candidate in both segments
    first = client.assign(unit, activity="new")
    assert client.assign(unit, activity="new") is first
    second = client.assign(unit, activity="heavy")
    assert (first.name, second.name) == ("c1", "c1")
    client.track(unit, "like")
    assert client.flush()
    assert [event["segment"] for event in service.exposures] == ["new", "heavy"]
    assert [event["segment"] for event in service.metrics] == ["heavy"]


def test_what_is_not_drawn_has_no_segment(connect: Connect, service: FakeService, clock: Any) -> None:
    in_germany = [AudienceCondition("country", "in", ("de",))]
    service.publish(publish(audience=in_germany))
    client = connect()
    assert client.assign("ann", activity="new").segment is None
    assert client.assign("bob", activity="new", country="de").segment == "new"
    assert client.assign("cid", override="c2", activity="new").segment is None
    clock.advance(90_000)
    stale = client.assign("dan", activity="new", country="de")
    assert (stale.reason, stale.segment, stale.name) == ("STALE", None, "c0")
    assert client.flush()
    assert [event.get("segment") for event in service.exposures] == ["new", None, None]


def test_an_exposure_with_another_segment_is_rejected(service: FakeService) -> None:
    service.publish(publish())
    event = {"type": "exposure", "id": "x", "unit": "ann", "version": 2, "candidate": "c1", "segment": "new"}
    assert service._find_fault(event) is None
    assert service._find_fault({**event, "segment": "other"}) == "candidate is not what version 2 draws"
    for wrong in ({}, {"segment": "casual"}):
        fault = service._find_fault({**{k: v for k, v in event.items() if k != "segment"}, **wrong})
        assert fault is not None
        assert "version 2 has new, heavy, other; send the segment of the decision" in fault


def test_the_signature_covers_the_segment() -> None:
    holder = PolicyHolder("feed", lambda: 0.0, 10)
    holder.signing_key = "secret"
    event = {"type": "exposure", "version": 3, "unit": "ann", "candidate": "a", "segment": "new"}
    expected = hmac.digest(b"secret", b"feed\x003\x00ann\x00a\x00new", "sha256").hex()
    assert holder.sign(event)["signature"] == expected
    assert sign_exposure("secret", study="feed", version=3, unit="ann", candidate="a") != expected


def test_equal_shares_in_every_segment_draw_as_a_policy_without_segments() -> None:
    shares = [("control", 0, 0.1), ("learner", 1, 0.3), ("learner", 2, 0.6)]
    for mode in ("shuffled", "sticky"):
        common = publish(mode=mode, shares=shares, segments=None, segment_shares={})
        divided = publish(mode=mode, shares=shares, segment_shares={"new": shares, "heavy": shares})
        for unit in map(str, range(300)):
            for attributes in ({}, {"activity": "new"}, {"activity": "heavy"}):
                one, other = common.draw(unit, attributes), divided.draw(unit, attributes)
                assert (one.arm, one.candidate, one.width) == (other.arm, other.candidate, other.width)


def test_enrolment_does_not_depend_on_the_segment() -> None:
    ramp = [EnrolmentSlice("ramp", "ramp:feed", 0, 2**51)]
    policy = publish(enrolment=ramp)
    for unit in map(str, range(300)):
        drawn = [policy.draw(unit, {"activity": name}) for name in ("new", "heavy", "x")]
        assert len({bucket is policy.not_enrolled for bucket in drawn}) == 1
        assert {bucket.segment for bucket in drawn} in ({None}, {"new", "heavy", "other"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"segments": None}, "segment_shares need segments, the rule"),
        ({"segment_shares": {}}, "segment_shares must have new, heavy, got "),
        ({"segment_shares": {**SHARES, "casual": SHARES["new"]}}, "must have new, heavy, got new, heavy, casual"),
        ({"segment_shares": {**SHARES, "new": [("learner", 1, 0.9)]}}, "the shares must sum to one"),
        ({"segment_shares": {**SHARES, "new": [("learner", 7, 1.0)]}}, "candidate 7 in arm 'learner'"),
    ],
)
def test_shares_that_do_not_fit_the_segments_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        publish(**changes)


def test_the_document_holds_the_candidates_of_all_segments() -> None:
    policy = publish()
    assert set(policy.named) == {"c0", "c1", "c2"}
    assert repr(policy) == "<PublishedPolicy 'feed' version 2: learning, shuffled, 4 buckets in 3 segments>"
    assert list(policy.cells_by_segment) == ["new", "heavy", "other"]
