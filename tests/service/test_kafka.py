"""Events from a topic of Kafka's own mock cluster: at least once in, counted once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from pasto.errors import BadOption, StoreBusy, UnknownStudy
from pasto.service.kafka import consume, subscribe
from pasto.service.service import Service

Traffic = Callable[[Service, int], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def producer() -> Iterator[Producer]:
    """A producer that carries the mock cluster."""
    made = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
    yield made
    made.flush(10)


@pytest.fixture(scope="module")
def servers(producer: Producer) -> str:
    return ",".join(f"{broker.host}:{broker.port}" for broker in producer.list_topics(timeout=10).brokers.values())


@pytest.fixture
def consumers(servers: str) -> Iterator[Callable[..., Any]]:
    made: list[Any] = []

    def make(topic: str, **settings: Any) -> Any:
        base = {"bootstrap.servers": servers, "group.id": f"pasto {topic}", "session.timeout.ms": 6000, "log_level": 0}
        made.append(subscribe(topic, {**base, **settings}))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


def send(producer: Producer, topic: str, bodies: list[bytes]) -> None:
    for place, body in enumerate(bodies):
        producer.produce(topic, body, partition=place % 2)
    assert producer.flush(20) == 0


def until(service: Service, wanted: int, tries: int = 60) -> Callable[[], bool]:
    """Stop when the store has so many events, or after as many empty looks as would take half a minute."""
    looks = iter(range(tries))

    def stop() -> bool:
        return service.store.high_water(1) >= wanted or next(looks, None) is None

    return stop


def test_every_event_of_a_topic_counts_once(
    learning: Service, traffic: Traffic, producer: Producer, consumers: Callable[..., Any]
) -> None:
    events = traffic(learning, 60)
    lines = "\n".join(map(json.dumps, events[20:40])).encode()
    send(producer, "once", [*(json.dumps(e).encode() for e in events[:20]), lines, json.dumps(events[40:]).encode()])
    send(producer, "once", [json.dumps(events[:10]).encode(), b"no event", b'{"type": "metric"}'])
    taken = consume(learning, "feed", consumers("once"), stop=until(learning, len(events)), batch=7)
    rest = consume(learning, "feed", consumers("once"), stop=until(learning, 10**9, 12), batch=7)
    assert taken.accepted == len(events)
    assert taken.duplicates + rest.duplicates == 10
    assert taken.refused + rest.refused == 2
    assert learning.close_round("feed", who="ann")["learned_from"] == [1]


class Dying:
    """A consumer whose process dies before it can commit."""

    def __init__(self, consumer: Any) -> None:
        self.consumer = consumer

    def consume(self, *arguments: Any) -> Any:
        return self.consumer.consume(*arguments)

    def commit(self, **_: Any) -> None:
        raise KafkaException("gone")


@pytest.mark.services
def test_what_was_not_committed_comes_again_and_changes_nothing(
    learning: Service, traffic: Traffic, producer: Producer, consumers: Callable[..., Any]
) -> None:
    events = traffic(learning, 30)
    send(producer, "again", [json.dumps(event).encode() for event in events])
    first = consumers("again")
    taken = consume(learning, "feed", Dying(first), stop=until(learning, len(events)))
    assert (taken.accepted, taken.uncommitted > 0) == (len(events), True)
    first.close()
    later = consume(learning, "feed", consumers("again"), stop=until(learning, 10**9, 12))
    assert (later.accepted, later.duplicates, later.uncommitted) == (0, len(events), 0)
    last = consume(learning, "feed", consumers("again"), stop=until(learning, 10**9, 12))
    assert last.messages == 0, "what was committed does not come again"


def test_a_busy_store_makes_the_topic_wait(
    learning: Service,
    traffic: Traffic,
    producer: Producer,
    consumers: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = traffic(learning, 10)
    send(producer, "busy", [json.dumps(event).encode() for event in events])
    real, refusals = learning.ingest, iter(range(2))

    def busy(name: str, batch: Any) -> Any:
        if next(refusals, None) is not None:
            raise StoreBusy("too much is waiting")
        return real(name, batch)

    monkeypatch.setattr(learning, "ingest", busy)
    taken = consume(learning, "feed", consumers("busy"), stop=until(learning, len(events)))
    assert taken.accepted == len(events)


@pytest.mark.services
def test_a_failure_commits_nothing(
    learning: Service, traffic: Traffic, producer: Producer, consumers: Callable[..., Any]
) -> None:
    events = traffic(learning, 5)
    send(producer, "failing", [json.dumps(event).encode() for event in events])
    first = consumers("failing")
    with pytest.raises(UnknownStudy):
        consume(learning, "nothing", first, stop=until(learning, 10**9))
    first.close()
    assert consume(learning, "feed", consumers("failing"), stop=until(learning, len(events))).accepted == len(events)


def test_settings_that_would_lose_events_are_refused() -> None:
    with pytest.raises(BadOption, match=r"enable\.auto\.commit is True"):
        subscribe("t", {"bootstrap.servers": "x", "group.id": "g", "enable.auto.commit": True})
    with pytest.raises(BadOption, match=r"group\.id is missing"):
        subscribe("t", {"bootstrap.servers": "x"})
