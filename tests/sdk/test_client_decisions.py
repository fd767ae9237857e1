"""Decisions of the client for valid and invalid units, with and without a policy."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from time import sleep
from typing import Any, Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pasto.errors import OptionError
from pasto_sdk import Client, Decision, FakeService, Response
from pasto_sdk.policy import PublishedPolicy

Make = Callable[..., PublishedPolicy]
Connect = Callable[..., Client]


class Clock(Protocol):
    def advance(self, seconds: float) -> None: ...


def test_a_decision_is_what_the_policy_draws(connect: Connect, service: FakeService) -> None:
    client = connect()
    assert service.current is not None
    for unit in ("ann", "bob", "zoë", "\N{SNOWMAN}", "x" * 256):
        cell, decision = service.current.draw(unit), client.assign(unit)
        assert (decision.unit, decision.name, decision.candidate, decision.arm) == (
            unit,
            cell.name,
            cell.candidate,
            cell.arm,
        )
        assert (decision.values, decision.propensity) == (cell.values, cell.propensity)
        assert (decision.version, decision.reason) == (1, "SPLIT")


def test_a_decision_cannot_be_changed(connect: Connect) -> None:
    decision = connect().assign("ann")
    for name in ("values", "name", "candidate", "version", "propensity", "arm", "reason", "unit", "anything"):
        with pytest.raises(AttributeError):
            setattr(decision, name, 1)
    with pytest.raises(TypeError):
        decision.values["weight"] = 9  # type: ignore[index]


def test_a_unit_is_exposed_once_a_version(connect: Connect, service: FakeService, policy: Make) -> None:
    client = connect()
    for _ in range(5):
        client.assign("ann")
    assert client.flush()
    assert [event["unit"] for event in service.exposures] == ["ann"]
    assert client.status()["repeated"] == 4
    service.publish(policy(2))
    assert client.wait_until_ready()
    client.assign("ann")
    client.assign("ann")
    assert client.flush()
    assert [(event["unit"], event["version"]) for event in service.exposures] == [("ann", 1), ("ann", 2)]


@pytest.mark.usefixtures("frequent_thread_switches")
def test_threads_that_meet_at_one_unit_expose_it_once(connect: Connect, service: FakeService) -> None:
    client = connect()
    together = threading.Barrier(8)

    def meet() -> None:
        for place in range(200):
            together.wait()
            client.assign(f"unit {place}")

    threads = [threading.Thread(target=meet) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.flush()
    assert len(service.exposures) == 200


def test_a_whole_number_is_its_digits(connect: Connect, service: FakeService) -> None:
    client = connect()
    assert client.assign(7).name == client.assign("7").name
    client.track(7, "like")
    assert client.flush()
    assert [event["unit"] for event in service.exposures + service.metrics] == ["7", "7"]


@pytest.mark.parametrize("unit", [None, "", "x" * 257, 1.5, True, b"ann", [], {}, object(), "\ud800"])
def test_what_is_no_unit_gets_the_baseline(connect: Connect, service: FakeService, unit: Any) -> None:
    client = connect(baseline={"weight": -1})
    decision = client.assign(unit)
    assert (decision.values, decision.reason, decision.name) == ({"weight": 0}, "DEFAULT", "c0")
    decision.track("like")
    client.track(unit, "like")
    assert client.flush()
    assert service.events == {}
    status = client.status()
    assert status["unlogged"] == 1
    assert status["errors"] == 3


@settings(deadline=None)
@given(st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=300), st.binary(), st.lists(st.text())))
def test_nothing_that_is_given_makes_it_raise(given_: Any) -> None:
    with Client("http://x", study="feed", cache=None, background=False, transport=FakeService()) as client:
        client.assign(given_).track(given_, field=given_)
        client.assign("ann", override=given_).track(given_)
        client.track(given_, given_, field=given_)


def test_before_any_policy_the_baseline_given_is_served(connect: Connect, service: FakeService) -> None:
    service.current = None
    client = connect(baseline={"weight": 5})
    decision = client.assign("ann")
    assert (dict(decision.values), decision.reason, decision.version) == ({"weight": 5}, "DEFAULT", 0)
    assert (decision.candidate, decision.propensity, decision.arm) == (None, 0.0, "none")
    nothing = connect().assign("ann")
    assert (dict(nothing.values), nothing.reason) == ({}, "DEFAULT")
    decision.track("like")
    assert client.flush()
    assert [(event["version"], event["fallback"]) for event in service.exposures] == [(0, True)]
    assert [event["version"] for event in service.metrics] == [0]


def test_an_override_is_served_and_not_learned_from(connect: Connect, service: FakeService) -> None:
    client = connect()
    looked = client.assign("ann", override="c3")
    assert (looked.name, dict(looked.values), looked.reason, looked.propensity) == (
        "c3",
        {"weight": 3},
        "OVERRIDE",
        0.0,
    )
    looked.track("like")
    client.track("ann", "share")
    drawn = client.assign("ann")
    assert drawn.reason == "SPLIT"
    client.track("ann", "watch", seconds=3)
    assert client.flush()
    assert [event.get("override", False) for event in service.exposures] == [True, False]
    credited = {event["name"]: event["version"] for event in service.metrics}
    assert credited == {"like": 0, "share": 0, "watch": 1}


def test_an_unknown_override_gets_the_baseline(connect: Connect, service: FakeService) -> None:
    client = connect()
    decision = client.assign("ann", override="c9")
    assert (decision.name, decision.reason) == ("c0", "DEFAULT")
    assert "c9" in client.status()["last_error"]
    assert client.flush()
    assert service.exposures[0]["fallback"]


def test_what_is_tracked_is_credited_to_what_was_served(connect: Connect, service: FakeService, policy: Make) -> None:
    client = connect()
    first = client.assign("ann")
    client.track("ann", "like")
    client.track("stranger", "like")
    service.publish(policy(2))
    assert client.wait_until_ready()
    first.track("watch", seconds=31.2, full=True, source="feed", unit="mine", event="e")
    client.track("ann", "share")
    assert client.flush()
    credited = [(event["unit"], event["name"], event.get("version")) for event in service.metrics]
    # After the policy changed, only the unit is sent: the service has its last exposure.
    assert credited == [
        ("ann", "like", 1),
        ("stranger", "like", None),
        ("ann", "watch", 1),
        ("ann", "share", None),
    ]
    assert service.metrics[2]["fields"] == {
        "seconds": 31.2,
        "full": True,
        "source": "feed",
        "unit": "mine",
        "event": "e",
    }


class ForeignNumber:
    """Number type of another library."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def item(self) -> Any:
        return self.value


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (1, 1),
        (2.5, 2.5),
        ("a", "a"),
        (True, True),
        (ForeignNumber(3), 3),
        (ForeignNumber(2.5), 2.5),
        (ForeignNumber(True), True),
        (-1e15, -1e15),
    ],
)
def test_a_field_is_sent_as_a_plain_value(connect: Connect, service: FakeService, value: Any, sent: Any) -> None:
    client = connect()
    client.track("ann", "watch", seconds=value)
    assert client.flush()
    assert service.metrics[0]["fields"] == {"seconds": sent}
    assert type(service.metrics[0]["fields"]["seconds"]) is type(sent)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 1e16, 10**16, None, [], {}, object(), ForeignNumber([1, 2]), 1j]
)
def test_a_field_that_cannot_be_sent_is_refused_here(connect: Connect, service: FakeService, value: Any) -> None:
    client = connect()
    client.track("ann", "watch", seconds=value)
    client.track("ann", "like")
    assert client.flush()
    assert [event["name"] for event in service.metrics] == ["like"]
    assert sum(client.status()["rejected"].values()) == 1
    assert "'seconds'" in client.status()["last_error"]


def test_after_its_end_a_client_serves_the_baseline(connect: Connect, service: FakeService) -> None:
    client = connect()
    client.assign("ann")
    assert client.close()
    assert client.close()
    for unit in ("ann", "bob"):
        decision = client.assign(unit)
        assert (decision.name, decision.reason) == ("c0", "DEFAULT")
        decision.track("like")
    client.track("ann", "like")
    assert not client.wait_until_ready()
    assert not client.flush()
    assert len(service.exposures) == 1
    assert service.metrics == []


def test_a_stale_policy_is_not_drawn_from(connect: Connect, service: FakeService, clock: Clock, policy: Make) -> None:
    service.publish(policy(2, expires_after=3600))
    client = connect()
    units = [f"unit {place}" for place in range(50)]
    drawn = {unit: client.assign(unit).name for unit in units}
    clock.advance(3599.9)
    assert {unit: client.assign(unit).name for unit in units} == drawn
    clock.advance(0.1)
    stale = [client.assign(unit) for unit in [*units, "new"]]
    assert {(decision.name, decision.reason, decision.version) for decision in stale} == {("c0", "STALE", 2)}
    assert client.status()["reason"] == "STALE"
    assert client.flush()
    assert all(event["fallback"] for event in service.exposures[50:])
    assert len(service.exposures) == 101
    assert client.wait_until_ready()
    assert {unit: client.assign(unit).name for unit in units} == drawn


def test_the_propensity_logged_is_the_one_executed(connect: Connect, service: FakeService, policy: Make) -> None:
    shares = (0.3, 0.4, 0.15, 0.001, 0.05)
    service.publish(policy(7, shares=shares))
    client = connect(decision_cache_size=10, max_buffered_events=1000)
    decisions = 100_000
    counts: Counter[tuple[str, str]] = Counter()
    claimed = {}
    for place in range(decisions):
        decision = client.assign(f"user-{place}")
        counts[decision.arm, decision.name] += 1
        claimed[decision.arm, decision.name] = decision.propensity
    assert sum(claimed.values()) == pytest.approx(1.0)
    for cell, p in claimed.items():
        z = (counts[cell] - decisions * p) / (decisions * p * (1 - p)) ** 0.5
        assert abs(z) <= 4.5, (cell, z)


def test_a_change_of_policy_during_a_request_mislabels_nothing(policy: Make) -> None:
    service = FakeService(policy())
    with Client("http://x", study="feed", cache=None, background=False, transport=service) as client:
        assert client.wait_until_ready()
        done = threading.Event()

        def change() -> None:
            for version in range(2, 60):
                service.publish(policy(version))
                client.wait_until_ready()
                before = len(decisions)
                while len(decisions) == before:  # a busy machine may not have let the other thread decide yet
                    sleep(0.0)
            done.set()

        decisions: list[Decision] = []
        changing = threading.Thread(target=change)
        changing.start()
        place = 0
        while not done.is_set():
            decisions.append(client.assign(f"unit {place % 500}"))
            place += 1
        changing.join()
        assert client.flush()
    for decision in decisions:
        cell = service.policies[decision.version].draw(decision.unit)
        assert (cell.name, cell.propensity) == (decision.name, decision.propensity)
    assert client.status()["rejected"] == {}
    assert len({decision.version for decision in decisions}) > 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "127.0.0.1:8300"}, "address such as"),
        ({"url": "http://key@host"}, "address such as"),
        ({"study": ""}, "study must"),
        ({"refresh": 5}, "now called poll_interval"),
        ({"api_key": "a\nb: c"}, "api_key must"),
        ({"api_key": ""}, "api_key must"),
        ({"poll_interval": 0}, "poll_interval must"),
        ({"flush_interval": float("nan")}, "flush_interval must"),
        ({"max_buffered_events": 0}, "max_buffered_events must"),
        ({"decision_cache_size": True}, "decision_cache_size must"),
    ],
)
def test_a_client_that_cannot_work_is_refused_at_once(options: dict[str, Any], message: str) -> None:
    settings = {"url": "http://x", "study": "feed", "background": False, **options}
    with pytest.raises(OptionError, match=message):
        Client(settings.pop("url"), **settings)


def test_the_key_goes_with_every_request_and_nowhere_else(connect: Connect, service: FakeService) -> None:
    client = connect(api_key="pasto_ab_secret")
    client.assign("ann")
    assert client.flush()
    assert {request.headers["Authorization"] for request in service.requests} == {"Bearer pasto_ab_secret"}
    service.fault = lambda request: Response(401)
    client.assign("bob")
    client.flush()
    assert "secret" not in json.dumps(client.status()) + repr(client)
