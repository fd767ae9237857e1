"""Kafka consumer on Kafka's own mock cluster: events are delivered at least once, and counted once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition

from pasto.errors import OptionError, StoreBusyError, StoreError
from pasto.service.kafka import ConsumerCounts, consume, subscribe
from pasto.service.service import Service

Traffic = Callable[[Service, int], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def producer() -> Iterator[Producer]:
    """Return a producer that carries the mock cluster."""
    made = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
    yield made
    made.flush(10)


@pytest.fixture(scope="module")
def servers(producer: Producer) -> str:
    return ",".join(f"{broker.host}:{broker.port}" for broker in producer.list_topics(timeout=60).brokers.values())


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


MAX_LOOKS = 240
"""Looks of half a second before a test gives up; the session of a member that left takes six seconds to end."""


def until(counts: ConsumerCounts, messages: int) -> Callable[[], bool]:
    """Return a predicate that stops after this many messages; it fails if they do not come."""
    looks = iter(range(MAX_LOOKS))

    def stop() -> bool:
        assert next(looks, None) is not None, f"{messages} messages needed, {counts.messages} came"
        return counts.messages >= messages

    return stop


def test_every_event_of_a_topic_counts_once(
    learning: Service, traffic: Traffic, producer: Producer, consumers: Callable[..., Any]
) -> None:
    events = traffic(learning, 60)
    lines = "\n".join(map(json.dumps, events[20:40])).encode()
    bodies = [*(json.dumps(e).encode() for e in events[:20]), lines, json.dumps(events[40:]).encode()]
    bodies += [json.dumps(events[:10]).encode(), b"no event", b'{"type": "metric"}']
    send(producer, "once", bodies)
    counts = ConsumerCounts()
    consume(learning, "feed", consumers("once"), should_stop=until(counts, len(bodies)), batch=7, counts=counts)
    assert (counts.accepted, counts.duplicates, counts.rejected) == (len(events), 10, 2)
    assert learning.close_round("feed", who="ann").learned_from == (1,)


class DyingConsumer:
    """Consumer whose process dies before it can commit."""

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
    first, counts = consumers("again"), ConsumerCounts()
    consume(learning, "feed", DyingConsumer(first), should_stop=until(counts, len(events)), counts=counts)
    assert (counts.accepted, counts.uncommitted > 0) == (len(events), True)
    first.close()
    second, later = consumers("again"), ConsumerCounts()
    consume(learning, "feed", second, should_stop=until(later, len(events)), counts=later)
    assert (later.accepted, later.duplicates, later.uncommitted) == (0, len(events), 0)
    places = second.committed([TopicPartition("again", partition) for partition in range(2)], timeout=60)
    ends = [second.get_watermark_offsets(place, timeout=60)[1] for place in places]
    assert [place.offset for place in places] == ends, "what was committed does not come again"
    assert sum(ends) == len(events)


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

    def busy(name: str, batch: Any, **options: Any) -> Any:
        if next(refusals, None) is not None:
            raise StoreBusyError("too much is waiting")
        return real(name, batch, **options)

    monkeypatch.setattr(learning, "ingest", busy)
    counts = ConsumerCounts()
    consume(learning, "feed", consumers("busy"), should_stop=until(counts, len(events)), counts=counts)
    assert counts.accepted == len(events)


class Message:
    """Message as the client library returns it."""

    def __init__(self, body: bytes, topic: str = "t", offset: int = 0) -> None:
        self._body, self._topic, self._offset = body, topic, offset

    def error(self) -> None:
        return None

    def value(self) -> bytes:
        return self._body

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset


class Topic:
    """Consumer of existing messages; it stops its reader when all of them are committed."""

    def __init__(self, *bodies: bytes, topic: str = "t") -> None:
        self.messages = [Message(body, topic, offset) for offset, body in enumerate(bodies)]
        self.committed = 0

    def consume(self, batch: int, wait: float) -> list[Message]:
        return self.messages[self.committed : self.committed + batch]

    def commit(self, *, offsets: list[Any], asynchronous: bool) -> None:
        assert not asynchronous
        self.committed = offsets[0].offset

    def done(self) -> bool:
        return self.committed == len(self.messages)


def test_a_study_that_is_not_there_blocks_nothing(learning: Service, traffic: Traffic) -> None:
    events = traffic(learning, 5)
    topic = Topic(json.dumps(events).encode())
    counts = consume(learning, "nothing", topic, should_stop=topic.done)
    assert (counts.accepted, counts.rejected, topic.committed) == (0, len(events), 1)
    assert counts.events == {("", "rejected"): len(events)}, "names of senders must not fill the counters"


def test_events_name_their_study_where_the_topic_does_not(learning: Service, traffic: Traffic) -> None:
    events = traffic(learning, 8)
    named = [json.dumps({**event, "study": "feed"}).encode() for event in events]
    other = [json.dumps({**events[0], "study": "other"}).encode(), json.dumps({**events[0], "study": 7}).encode()]
    bad = [b"[1", b"no event", json.dumps(events[1]).encode(), b'{"study": "feed"}', b"\xff", b""]
    array = b"[" + b",".join(named[3:]) + b"]"
    topic = Topic(named[0], b"\n".join(named[1:3]), array, *other, *bad)
    counts = consume(learning, {"t": None}, topic, should_stop=topic.done)
    assert counts.accepted == len(events)
    assert counts.events["feed", "rejected"] == 1
    assert counts.rejected == len(other) + len(bad) - 1, "an empty message has no event to refuse"
    assert topic.done()


@pytest.mark.parametrize(
    "body",
    [
        b'{"study":"feed","fields":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b'{"study":"\xff"}',
        b'{"study":"\\ud800"}',
        b'{"study":"a\\u0000b"}',
    ],
    ids=["deep field", "deep array", "deep object", "no text", "half a letter", "nought"],
)
@pytest.mark.parametrize("study", [None, "feed"])
def test_a_message_that_cannot_be_read_blocks_nothing(
    learning: Service, traffic: Traffic, body: bytes, study: str | None
) -> None:
    (event, *_) = traffic(learning, 1)
    good = json.dumps(event if study else {**event, "study": "feed"}).encode()
    topic = Topic(body, good)
    counts = consume(learning, {"t": study}, topic, should_stop=topic.done)
    assert (counts.accepted, counts.rejected, counts.lost) == (1, 1, 0)


def test_a_message_that_no_store_keeps_is_passed_over(
    learning: Service, traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = traffic(learning, 6)
    real = learning.ingest

    def picky(name: str, batch: Any, **options: Any) -> Any:
        if any(getattr(event, "id", None) == events[3]["id"] for event in batch):
            raise StoreError("this cannot be written")
        return real(name, batch, **options)

    monkeypatch.setattr(learning, "ingest", picky)
    topic = Topic(*(json.dumps(event).encode() for event in events))
    counts = consume(learning, "feed", topic, should_stop=topic.done)
    assert (counts.accepted, counts.lost, topic.done()) == (len(events) - 1, 1, True)


def test_a_store_out_of_reach_is_waited_for(
    learning: Service, traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = traffic(learning, 6)
    real, failures = learning.store.append_events, iter(range(4))

    def append(*arguments: Any) -> Any:
        if next(failures, None) is not None:
            raise StoreError("the database cannot be reached")
        return real(*arguments)

    monkeypatch.setattr(learning.store, "append_events", append)
    monkeypatch.setattr("pasto.service.kafka.STORE_RETRY_SECONDS", 0.0)
    topic = Topic(json.dumps(events).encode())
    counts = consume(learning, "feed", topic, should_stop=topic.done)
    assert (counts.accepted, counts.lost) == (len(events), 0)


def test_settings_that_would_lose_events_are_refused() -> None:
    with pytest.raises(OptionError, match=r"enable\.auto\.commit must not be set, got True"):
        subscribe("t", {"bootstrap.servers": "x", "group.id": "g", "enable.auto.commit": True})
    with pytest.raises(OptionError, match=r"group\.id is missing"):
        subscribe("t", {"bootstrap.servers": "x"})
    with pytest.raises(OptionError, match="refuses its settings"):
        subscribe("t", {"bootstrap.servers": "x", "group.id": "g", "no.such.setting": "1"})
