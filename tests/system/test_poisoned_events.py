"""Poisoned events: mistakes and malice do not change an estimate."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pasto.service.ingest import BatchResult
from pasto.service.service import Service
from pasto.store import open_store
from pasto_sdk.policy import PublishedPolicy

Events = list[dict[str, Any]]
Checksums = list[str | None]
World = Callable[[PublishedPolicy, int], Events]
Send = Callable[[Service, str, Events], BatchResult]
SAME = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

numbers: st.SearchStrategy[Any] = st.sampled_from(
    [math.nan, math.inf, -math.inf, 1e300, -1e300, 1e16, 10**400, "1e999", "NaN", "3", True, False, None, [], {}, [1]]
)
units = st.sampled_from(["user 1", "user 2", "user 77", "stranger"])
names = st.sampled_from(["w=0", "w=1", "w=2", "w=3", "w=9", "control", "'; DROP TABLE events; --"])


@st.composite
def forged(draw: st.DrawFn, policy: PublishedPolicy) -> dict[str, Any]:
    """Return an event that no honest client could send: it must be refused, or not be learned from."""
    unit, name, version = draw(units), draw(names), draw(st.sampled_from([0, 1, 1, 1, 2, 99, -1, "1", 1.5, 2**60]))
    identity = f"forged/{draw(st.integers(0, 10**9))}"
    honest = version == 1 and policy.draw(unit).name == name
    drawn = {"id": identity, "unit": unit, "version": version, "candidate": name}
    kind = draw(st.sampled_from(["poison", "exposure", "extra", "metric", "fallback", "override", "unknown"]))
    if kind == "poison":
        values = {"x": draw(numbers), "y": draw(st.sampled_from([0.0, 1.0]))}
        return {"type": "metric", "id": identity, "unit": unit, "name": "seen", "fields": values, "version": 1}
    if kind == "extra" or honest:
        return {"type": "exposure", **drawn, draw(st.sampled_from(["propensity", "arm", "round", "weight"])): 1e-6}
    if kind == "exposure":
        return {"type": "exposure", **drawn}
    if kind == "metric":
        fields = {"x": 5.0, "y": 5.0}
        return {"type": "metric", **drawn, "name": "seen", "fields": fields}
    if kind == "unknown":
        return {"type": "metric", "id": identity, "unit": unit, "name": "unseen", "fields": {"x": 5.0}}
    return {"type": "exposure", **drawn, kind: True}


def _run(document: dict[str, Any], world: World, spoil: Callable[[PublishedPolicy, Events], Events]) -> Checksums:
    """Run two rounds, each with its poisoned events; return the checksums of the learned states."""
    service = Service(open_store("memory:"))
    try:
        service.create(document, who="ann", seed=7)
        service.change("feed", "start", who="ann")
        for _ in range(2):
            policy = service.policy_cache.current("feed")
            body = json.dumps(spoil(policy, world(policy, 40))).encode()
            service.ingest("feed", service.decode(body)).result(timeout=60)
            service.close_round("feed", who="ann")
            served = service.policy_cache.current("feed")
            assert math.fsum(cell.propensity for cell in served.cells) == 1.0
            assert all(0 < cell.propensity <= 1 for cell in served.cells)
        assert service.replay("feed").identical
        return [one.learner_checksum for one in service.rounds("feed")]
    finally:
        service.shutdown()


@pytest.fixture
def clean(quick: dict[str, Any], world: World) -> Checksums:
    return _run(quick, world, lambda policy, events: events)


def _check_forgery(quick: dict[str, Any], world: World, clean: Checksums, data: st.DataObject) -> None:
    def spoil(policy: PublishedPolicy, events: Events) -> Events:
        if policy.version > 1:
            return events
        bad = data.draw(st.lists(forged(policy), min_size=1, max_size=8), label="bad")
        places = data.draw(st.lists(st.integers(0, len(events)), min_size=len(bad), max_size=len(bad)))
        for place, event in zip(places, bad, strict=True):
            events.insert(place, event)
        return events

    assert _run(quick, world, spoil) == clean


@settings(SAME, max_examples=60)
@given(st.data())
def test_poison_and_forgery_leave_the_learner_bit_identical(
    quick: dict[str, Any], world: World, clean: Checksums, data: st.DataObject
) -> None:
    _check_forgery(quick, world, clean, data)


@pytest.mark.services
@settings(SAME, max_examples=2000)
@given(st.data())
def test_poison_and_forgery_at_length(
    quick: dict[str, Any], world: World, clean: Checksums, data: st.DataObject
) -> None:
    _check_forgery(quick, world, clean, data)


@settings(SAME, max_examples=25)
@given(value=st.floats(min_value=-1e15, max_value=1e15), user=st.integers(0, 39))
def test_any_number_is_cut_to_its_range(quick: dict[str, Any], world: World, value: float, user: int) -> None:
    def with_value(number: float) -> Callable[[PublishedPolicy, Events], Events]:
        def spoil(policy: PublishedPolicy, events: Events) -> Events:
            events[2 * user + 1]["fields"]["x"] = number
            return events

        return spoil

    assert _run(quick, world, with_value(value)) == _run(quick, world, with_value(min(9.0, max(-9.0, value))))


def test_the_order_and_number_of_arrivals_do_not_matter(document: dict[str, Any], world: World) -> None:
    rng = random.Random(7)

    def shuffled(policy: PublishedPolicy, events: Events) -> Events:
        sent = [event for event in events for _ in range(rng.randint(1, 3))]
        rng.shuffle(sent)
        return sent

    clean = _run(document, world, lambda policy, events: events)
    for _ in range(6):
        assert _run(document, world, shuffled) == clean


@pytest.mark.services
def test_a_hundred_orders_of_arrival_give_one_policy_log(document: dict[str, Any], world: World) -> None:
    rng = random.Random(8)

    def shuffled(policy: PublishedPolicy, events: Events) -> Events:
        rng.shuffle(events)
        return events

    clean = _run(document, world, lambda policy, events: events)
    assert all(_run(document, world, shuffled) == clean for _ in range(100))
