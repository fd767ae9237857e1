"""Units that do not take part: the baseline, no exposure, no events, and counts of both."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
import pytest

from pasto_sdk import Client, FakeService
from pasto_sdk.enrolment import AudienceCondition, EnrolmentSlice
from pasto_sdk.errors import PolicyError
from pasto_sdk.policy import PublishedPolicy

Make = Callable[..., PublishedPolicy]
Connect = Callable[..., Client]

GERMAN = [AudienceCondition("country", "in", ("de", "at")), AudienceCondition("days", ">=", (7.0,))]


class Clock(Protocol):
    def advance(self, seconds: float) -> None: ...


def ramp(share: float) -> list[EnrolmentSlice]:
    return [EnrolmentSlice("ramp", "ramp:feed", 0, int(share * 2**53))]


def test_a_unit_outside_the_ramp_gets_the_baseline_and_leaves_no_trace(
    connect: Connect, service: FakeService, policy: Make
) -> None:
    service.publish(policy(2, enrolment=ramp(0.25)))
    client = connect()
    decisions = [client.assign(f"user {number}") for number in range(400)]
    inside = [decision for decision in decisions if not decision.is_not_enrolled]
    outside = [decision for decision in decisions if decision.is_not_enrolled]
    assert 70 < len(inside) < 130
    assert {(d.name, d.arm, d.reason, d.propensity, d.version) for d in outside} == {
        ("c0", "not_enrolled", "DEFAULT", 0.0, 2)
    }
    assert {decision.reason for decision in inside} == {"SPLIT"}
    for decision in decisions:
        decision.track("like")
        client.track(decision.unit, "watch", seconds=1)
    assert client.flush()
    assert {event["unit"] for event in service.exposures} == {decision.unit for decision in inside}
    assert len(service.metrics) == 2 * len(inside)
    status = client.status()
    assert status["not_enrolled"] == len(outside)
    assert status["not_enrolled_events"] == 2 * len(outside)
    assert status["errors"] == 0


def test_a_larger_share_keeps_every_unit(connect: Connect, service: FakeService, policy: Make) -> None:
    client = connect()
    inside: list[set[int]] = []
    for version, share in enumerate((0.01, 0.05, 0.25, 1.0), start=2):
        service.publish(policy(version, enrolment=ramp(share)))
        assert client.wait_until_ready()
        inside.append({unit for unit in range(2_000) if not client.assign(unit).is_not_enrolled})
        assert len(inside[-1]) == pytest.approx(2_000 * share, abs=60)
    assert inside[0] < inside[1] < inside[2] < inside[3]


def test_attributes_decide_at_every_call(connect: Connect, service: FakeService, policy: Make) -> None:
    service.publish(policy(2, audience=GERMAN))
    client = connect()
    met: dict[str, Any] = {"country": "de", "days": 9}
    first = client.assign("ann", **met)
    assert first.reason == "SPLIT"
    assert client.assign("ann", **met) is first
    for unmet in ({}, {"country": "de"}, {"country": "fr", "days": 9}, {"country": "de", "days": "9"}):
        assert client.assign("ann", **unmet).is_not_enrolled
    client.track("ann", "like")  # the unit was served the baseline last
    assert client.assign("ann", **met) is first
    client.track("ann", "like")
    assert client.flush()
    assert [event["unit"] for event in service.exposures] == ["ann"]
    assert [(event["version"], event["candidate"]) for event in service.metrics] == [(2, first.name)]
    status = client.status()
    assert (status["not_enrolled"], status["not_enrolled_events"], status["repeated"]) == (4, 1, 2)


class Country(StrEnum):
    GERMANY = "de"


@pytest.mark.parametrize(
    ("attributes", "is_inside"),
    [
        ({"country": Country.GERMANY, "days": np.int64(7)}, True),
        ({"country": np.str_("at"), "days": np.float32(7.5)}, True),
        ({"country": "at", "days": 7.0, "unit": "x", "self": 1}, True),
        ({"country": "de", "days": np.array([9, 9])}, False),
        ({"country": "de", "days": np.bool_(True)}, False),
        ({"country": "de", "days": float("nan")}, False),
        ({"country": "de", "days": float("inf")}, False),
        ({"country": "de", "days": 10**400}, False),
        ({"country": b"de", "days": 9}, False),
        ({"country": None, "days": 9}, False),
        ({"country": {"de"}, "days": 9}, False),
    ],
)
def test_attributes_of_any_type_are_read_without_an_error(
    connect: Connect, service: FakeService, policy: Make, attributes: dict[str, Any], is_inside: bool
) -> None:
    service.publish(policy(2, audience=GERMAN))
    client = connect()
    assert client.assign("ann", **attributes).is_not_enrolled is not is_inside
    assert client.status()["errors"] == 0


def test_an_outage_makes_no_exposures_of_others(
    connect: Connect, service: FakeService, policy: Make, clock: Clock
) -> None:
    service.publish(policy(2, enrolment=ramp(0.25)))
    client = connect()
    clock.advance(90_000)
    reasons = {client.assign(f"user {number}").reason for number in range(100)}
    assert reasons == {"STALE", "DEFAULT"}
    assert client.flush()
    assert 0 < len(service.exposures) < 50
    assert all(event["fallback"] for event in service.exposures)


def test_units_outside_displace_no_others(connect: Connect, service: FakeService, policy: Make) -> None:
    service.publish(policy(2, enrolment=ramp(0.25)))
    client = connect(decision_cache_size=10)
    assert service.current is not None
    drawn = {f"user {n}": service.current.draw(f"user {n}").arm for n in range(500)}
    inside = next(unit for unit, arm in drawn.items() if arm != "not_enrolled")
    client.assign(inside)
    for unit, arm in drawn.items():
        if arm == "not_enrolled":
            client.assign(unit)
    client.assign(inside)
    assert client.flush()
    assert len(service.exposures) == 1


def test_an_override_is_served_outside_too(connect: Connect, service: FakeService, policy: Make) -> None:
    service.publish(policy(2, audience=GERMAN))
    decision = connect().assign("ann", override="c3")
    assert (decision.name, decision.reason) == ("c3", "OVERRIDE")


def test_an_exposure_of_a_unit_outside_is_rejected(service: FakeService, policy: Make) -> None:
    service.publish(policy(2, enrolment=ramp(0.25)))
    assert service.current is not None
    unit = next(f"user {n}" for n in range(100) if service.current.draw(f"user {n}").arm == "not_enrolled")
    event = {"type": "exposure", "id": "x", "unit": unit, "version": 2, "candidate": "c0"}
    assert service._find_fault(event) == "unit is not enrolled in version 2"


@pytest.mark.parametrize(
    ("operator", "values", "message"),
    [
        ("like", ("d%",), "has the operator 'like'; the operators are in, <, <=, >, >="),
        ("in", (), "needs texts, numbers or booleans"),
        ("in", ("de", 7.0), "all of one type"),
        ("in", (7,), "all of one type"),
        (">", ("7",), "> takes one number"),
        (">", (7.0, 8.0), "> takes one number"),
        ("in", (1e16,), "number above 1e[+]15"),
    ],
)
def test_a_condition_that_cannot_be_applied_is_refused(operator: str, values: Any, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        AudienceCondition("country", operator, values)
