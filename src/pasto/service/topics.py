"""Kafka topics that a running service reads: named by its settings, read by a thread, told on /metrics."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

from pasto.errors import BadOption
from pasto.service.kafka import Taken, consume, subscribe
from pasto.service.service import Service
from pasto.service.settings import Settings

REST = 5.0
"""Seconds after a failure of the client before the topics are asked for again."""
log = logging.getLogger("pasto.kafka")


def read_topics(text: str) -> dict[str, str | None]:
    """The studies of topics, as the setting says them: TOPIC=STUDY, or TOPIC alone, with commas between.

    >>> read_topics("clicks=feed, everything")
    {'clicks': 'feed', 'everything': None}
    """
    found: dict[str, str | None] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        topic, sign, study = (piece.strip() for piece in part.partition("="))
        if not topic or (sign and not study) or topic in found:
            raise BadOption(
                f"--kafka-topic needs TOPIC=STUDY or TOPIC, each topic once and commas between, got {part!r}"
            )
        found[topic] = study or None
    return found


def read_properties(path: str) -> dict[str, str]:
    """A file of the Kafka client's settings, one NAME=VALUE a line; lines that begin with # say nothing."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"--kafka-properties names {path!r}, which cannot be read: {error}") from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        name, sign, value = (piece.strip() for piece in line.partition("="))
        if not name or name.startswith("#"):
            continue
        if not sign:  # never shown: it may be a password that lost its name
            raise BadOption(f"line {number} of {path!r} is no NAME=VALUE")
        found[name] = value
    return found


class Topics:
    """Reads topics into studies, in a thread of its own, for as long as the service runs.

    Whatever the client or the brokers do is logged and tried again; where it left off is in the topics' own offsets.
    """

    def __init__(self, service: Service, studies: Mapping[str, str | None], client: Mapping[str, Any]) -> None:
        self._service = service
        self._studies = studies
        self._client = client
        self._stop = Event()
        self._thread: Thread | None = None
        self._reading = False
        self._lag: dict[tuple[str, int], int] = {}
        self.taken = Taken()
        subscribe(list(studies), client).close()  # settings that do not do are told at the start

    @classmethod
    def of(cls, service: Service, settings: Settings) -> Topics | None:
        """Those that the settings name; None where they name none."""
        if not settings.kafka_servers and not settings.kafka_topic:
            return None
        for mine, other in (("kafka_servers", "kafka_topic"), ("kafka_topic", "kafka_servers")):
            if not getattr(settings, mine):
                here, there = (f"--{name.replace('_', '-')}" for name in (mine, other))
                raise BadOption(f"{there} is set and {here} is not; reading from Kafka needs both")
        further = read_properties(settings.kafka_properties) if settings.kafka_properties else {}
        client = {**further, "bootstrap.servers": settings.kafka_servers, "group.id": settings.kafka_group}
        return cls(service, read_topics(settings.kafka_topic), client)

    def start(self) -> None:
        """Begin; a second start does nothing."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name="pasto-kafka", daemon=True)
            self._thread.start()

    def stop(self, patience: float | None = None) -> None:
        """Finish the batch that is being taken, and end; one that takes longer than so many seconds comes again."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(patience)
            self._thread = None

    def told(self) -> Iterator[tuple[str, str, float, Mapping[str, str] | None]]:
        """What /metrics tells: (name, meaning, value, labels) each."""
        yield "pasto_kafka_up", "1 while topics are being read.", float(self._reading), None
        yield "pasto_kafka_errors", "Troubles of the Kafka client so far.", self.taken.errors, None
        yield "pasto_kafka_messages", "Messages taken so far.", self.taken.messages, None
        yield "pasto_kafka_lost", "Messages that the store would not keep so far.", self.taken.lost, None
        yield "pasto_kafka_uncommitted", "Batches that will come again so far.", self.taken.uncommitted, None
        for (study, result), number in sorted(self.taken.events.items()):
            labels = {"study": study, "result": result}
            yield "pasto_kafka_events", "Events from Kafka by what became of them.", number, labels
        for (topic, partition), lag in sorted(self._lag.items()):
            labels = {"topic": topic, "partition": str(partition)}
            yield "pasto_kafka_lag", "Messages that wait in a partition read here.", lag, labels

    def _run(self) -> None:
        while not self._stop.is_set():
            consumer = None
            try:
                consumer = subscribe(list(self._studies), self._client)
                consume(
                    self._service,
                    self._studies,
                    consumer,
                    stop=self._stop.is_set,
                    taken=self.taken,
                    looked=self._look,
                )
            except Exception as error:  # whatever it is, the thread must outlive it
                self.taken.errors += 1
                log.warning("reading from Kafka failed and begins again: %s: %s", type(error).__name__, error)
            finally:
                self._reading = False
                self._lag = {}
                if consumer is not None:
                    with suppress(Exception):  # it may be what failed
                        consumer.close()
            self._stop.wait(REST)

    def _look(self, consumer: Any) -> None:
        """See how far behind each partition is that this process reads."""
        self._reading = True
        lag = {}
        for place in consumer.position(consumer.assignment()):
            _, high = consumer.get_watermark_offsets(place, cached=True)
            if place.offset >= 0 and high >= 0:
                lag[place.topic, place.partition] = max(0, high - place.offset)
        self._lag = lag
