"""Kafka topics in a running service: start, stop, metrics, and continuation from the last offset."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from pasto.errors import OptionError, UnsafeStoreError
from pasto.service.http.server import ServiceProcess
from pasto.service.kafka import TopicConsumer, read_properties, read_topics
from pasto.service.service import Service
from pasto.service.settings import Settings
from pasto.store import open_store
from pasto.store.sqlite_connections import StoreDirectory

if TYPE_CHECKING:
    from tests.service.http.conftest import Serve, Site


@pytest.fixture(scope="module")
def producer() -> Iterator[Producer]:
    """Return a producer that carries the mock cluster."""
    made = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
    yield made
    made.flush(10)


def send(producer: Producer, topic: str, *bodies: Any) -> None:
    for body in bodies:
        producer.produce(topic, body if isinstance(body, bytes) else json.dumps(body).encode())
    assert producer.flush(20) == 0


def exposures(site: Site, first: int, last: int) -> list[dict[str, Any]]:
    policy = site.running.service.policy_cache.current("feed")
    units = [f"user {number}" for number in range(first, last)]
    drawn = {unit: policy.draw(unit).name for unit in units}
    return [
        {"type": "exposure", "id": f"e {unit}", "unit": unit, "version": policy.version, "candidate": name}
        for unit, name in drawn.items()
    ]


def read_metric(site: Site, line: str) -> float | None:
    for found in site.client.get("/metrics").text.splitlines():
        name, _, value = found.rpartition(" ")
        if name == line:
            return float(value)
    return None


def lag(site: Site) -> float | None:
    """Return the lag of all partitions of the topic clicks; None without a metric."""
    lines = [line for line in site.client.get("/metrics").text.splitlines() if line.startswith("pasto_kafka_lag{")]
    found = [float(line.rpartition(" ")[2]) for line in lines if 'topic="clicks"' in line]
    return sum(found) if found else None


def free(folder: Path) -> bool:
    """Return true if no process holds a store's directory."""
    try:
        StoreDirectory(folder).release()
    except UnsafeStoreError:
        return False
    return True


@pytest.mark.services
def test_a_service_reads_topics_and_continues_from_its_last_offset(
    producer: Producer, tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pasto.service.kafka.RECONNECT_SECONDS", 0.1)
    brokers = producer.list_topics(timeout=60).brokers.values()
    properties = tmp_path / "client.properties"
    properties.write_text(
        "# of the client\nsession.timeout.ms = 6000\nlog_level=0\ntopic.metadata.refresh.interval.ms=500\n"
    )
    settings = {
        "store": str(tmp_path / "store"),
        "kafka_servers": ",".join(f"{broker.host}:{broker.port}" for broker in brokers),
        "kafka_topic": "clicks=feed,everything",
        "kafka_properties": str(properties),
    }
    accepted = 'pasto_kafka_events{result="accepted",study="feed"}'
    site = serve(**settings)
    site.study()
    events = exposures(site, 0, 40)
    send(producer, "clicks", *events[:10], b"no event", events[10:20])
    send(producer, "everything", *({**event, "study": "feed"} for event in events[20:30]), events[30])
    site.until(lambda: read_metric(site, accepted) == 30.0)
    site.until(lambda: lag(site) == 0.0)
    site.until(lambda: read_metric(site, 'pasto_kafka_events{result="rejected",study=""}') == 1.0)
    assert read_metric(site, 'pasto_kafka_events{result="rejected",study="feed"}') == 1.0
    assert read_metric(site, "pasto_kafka_up") == 1.0
    site.running.stop()
    site.until(lambda: free(tmp_path / "store"))
    send(producer, "clicks", *events[30:40])
    again = serve(**settings)
    again.until(lambda: read_metric(again, accepted) == 10.0)
    assert read_metric(again, 'pasto_kafka_events{result="duplicate",study="feed"}') is None, (
        "what was committed is behind it"
    )
    assert again.running.service.store.read_high_water(1) == 40


def test_wrong_settings_are_reported_at_the_start(tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"kafka_servers": "x:9092"}, "--kafka-servers is set and --kafka-topic is not"),
        ({"kafka_topic": "t"}, "--kafka-topic is set and --kafka-servers is not"),
        ({"kafka_servers": "x:9092", "kafka_topic": "t="}, "TOPIC=STUDY or TOPIC"),
        ({"kafka_servers": "x:9092", "kafka_topic": "t", "kafka_properties": str(tmp_path / "no")}, "cannot be read"),
    ]
    for given, match in wrong:
        with pytest.raises(OptionError, match=match):
            ServiceProcess(Settings(store="memory:", port=0, **given))
    with pytest.raises(OptionError, match="each topic once"):
        read_topics("a=x,a=y")
    (tmp_path / "bad").write_text("secret-without-a-name\n")
    with pytest.raises(OptionError, match="line 1 of") as refused:
        read_properties(str(tmp_path / "bad"))
    assert "secret" not in str(refused.value)


def test_a_client_that_fails_to_the_last_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        closes = 0

        def consume(self, batch: int, wait: float) -> list[Any]:
            raise RuntimeError("the client is broken")

        def close(self) -> None:
            Broken.closes += 1
            if Broken.closes > 1:  # the first one comes from the check of the settings
                raise RuntimeError("and cannot even be closed")

    monkeypatch.setattr("pasto.service.kafka.subscribe", lambda topics, settings: Broken())
    monkeypatch.setattr("pasto.service.kafka.RECONNECT_SECONDS", 0.0)
    service = Service(open_store("memory:"))
    topics = TopicConsumer(service, {"clicks": "feed"}, {})
    topics.start()
    assert topics.wait_for(lambda: Broken.closes >= 5, timeout=60.0)
    topics.stop(20.0)
    service.shutdown()
    assert Broken.closes >= 5
