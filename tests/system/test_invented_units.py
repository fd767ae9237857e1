"""Invented units: those of one ingest key raise an alarm within three rounds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pasto.report.records import write_record
from pasto.report.text import render_text
from pasto.service.http.monitoring import AlertGauges
from pasto.service.ingest import BatchResult
from pasto.service.notifications import Notifier
from pasto.service.service import Service
from pasto.service.webhook import WebhookSpec
from pasto.store import open_store

MEANS = {"a=0": 30.0, "a=1": 33.0, "a=2": 36.0}
HONEST, INVENTED = 600, 60
DOCUMENT: dict[str, Any] = {
    "name": "feed",
    "baseline": {"a": 1},
    "parameters": {"a": [0, 1, 2]},
    "metrics": {"watch": {"event": "watch", "value": "seconds", "aggregate": "sum", "range": [0, 100]}},
    "goal": {"maximize": "watch"},
    "traffic": {"control": "10%"},
    "rounds": {"every": "1h"},
}
Events = list[dict[str, Any]]


def read_messages(service: Service) -> list[dict[str, Any]]:
    """Return the messages about senders to a webhook."""
    with service.store.read_transaction() as connection:
        rows = connection.execute("SELECT body FROM outbox WHERE event = 'sender_departure'").fetchall()
    return [json.loads(body) for (body,) in rows]


@pytest.fixture
def service(place: str) -> Iterator[Service]:
    notifier = Notifier([WebhookSpec("ops", "https://hooks.example.com/")])
    service = Service(open_store(place), notifier=notifier)
    service.create(DOCUMENT, who="ann", seed=7)
    service.change("feed", "start", who="ann")
    yield service
    service.shutdown()


def send(service: Service, events: Events, key: str) -> BatchResult:
    return service.ingest("feed", service.decode(json.dumps(events).encode()), key=key).result(timeout=60)


def honest(service: Service, rng: np.random.Generator, sender: int, users: int) -> Events:
    policy = service.policy_cache.current("feed")
    found: Events = []
    for number in range(users):
        unit = f"user {sender}/{policy.version}/{number}"
        name = policy.draw(unit).name
        seconds = min(100.0, (1.0 + sender) * float(rng.gamma(3.0, MEANS[name] / 3.0)))
        drawn = {"unit": unit, "version": policy.version, "candidate": name, "source": f"pod-{sender}"}
        found.append({"type": "exposure", "id": f"e/{unit}", **drawn})
        found.append({"type": "metric", "id": f"m/{unit}", "name": "watch", "fields": {"seconds": seconds}, **drawn})
    return found


def invented(service: Service, version: int) -> Events:
    """Return events of a holder of only an ingest key: it does not know the draw, so it tries every candidate."""
    found: Events = []
    for number in range(INVENTED):
        unit = f"ghost {version}/{number}"
        for name in MEANS:
            found.append(
                {"type": "exposure", "id": f"{unit}/{name}", "unit": unit, "version": version, "candidate": name}
            )
        event = {"type": "metric", "id": f"m/{unit}", "unit": unit, "name": "watch", "fields": {"seconds": 100.0}}
        found.append({**event, "version": version, "candidate": "a=0"})
    return found


def play(service: Service, rounds: int, *, attacked: bool, honest_rounds: int = 0) -> None:
    rng = np.random.default_rng(3)
    for number in range(honest_rounds + rounds):
        version = service.policy_cache.current("feed").version
        for sender in (0, 1):
            send(service, honest(service, rng, sender, HONEST // 2), f"key{sender}")
        if number < honest_rounds:
            send(service, honest(service, rng, 2, INVENTED), "thief")
        elif attacked:
            send(service, invented(service, version), "thief")
        service.close_round("feed", who="ann")


def test_invented_units_raise_an_alarm_within_three_rounds(service: Service) -> None:
    play(service, 3, attacked=True)
    report = service.report("feed")
    document = write_record(report)
    by_key = [one for one in document["quality"]["departures"] if one["kind"] == "key"]
    assert [one["sender"] for one in by_key] == ["thief"]
    assert by_key[0]["round"] <= 3
    senders = [message["sender"] for message in read_messages(service)]
    assert {"kind": "key", "name": "thief"} in senders
    assert "sender departs" in render_text(report)
    gauges = {name: value for name, _, value, study in AlertGauges(service).collect() if study == "feed"}
    assert gauges["pasto_sender_alarm"] == 1.0


def test_units_invented_after_honest_rounds_raise_an_alarm_too(service: Service) -> None:
    """Check the case in which the policy has left the raised candidate, so most invented units have no metric."""
    play(service, 3, attacked=True, honest_rounds=2)
    report = service.report("feed")
    document = write_record(report)
    by_key = [one for one in document["quality"]["departures"] if one["kind"] == "key"]
    assert [one["sender"] for one in by_key] == ["thief"]
    assert by_key[0]["round"] in (3, 4, 5)
    assert "key thief: " in render_text(report)
    assert service.replay("feed").identical


def test_a_report_counts_units_and_events_by_key_and_by_source(service: Service) -> None:
    play(service, 2, attacked=True)
    accounting = write_record(service.report("feed"))["accounting"]
    keys = {line["sender"]: line for line in accounting["keys"]}
    assert set(keys) == {"key0", "key1", "thief"}
    assert accounting["keys"][0]["sender"] == "thief"
    assert (keys["key0"]["units"], keys["key0"]["exposures"], keys["key0"]["metrics"]) == (HONEST, HONEST, HONEST)
    assert keys["key0"]["rejected"] == 0
    assert (keys["thief"]["units"], keys["thief"]["exposures"]) == (2 * INVENTED, 2 * INVENTED)
    assert keys["thief"]["rejected"] > 2 * INVENTED
    assert 25.0 < keys["key0"]["means"]["watch"] < 40.0 < keys["key1"]["means"]["watch"]
    sources = {line["sender"]: line for line in accounting["sources"]}
    assert set(sources) == {"pod-0", "pod-1", None}
    assert sources["pod-1"]["units"] == HONEST


def test_honest_senders_of_different_levels_raise_none(service: Service) -> None:
    play(service, 5, attacked=False)
    assert write_record(service.report("feed"))["quality"]["departures"] == []
    assert read_messages(service) == []
    assert service.replay("feed").identical
