"""Events from Kafka topics: read at least once, counted once, and offsets committed only after they are durable.

A message holds what a request to the events endpoint would: one event, an array of events, or lines of them. A topic is
one study's, or its events name theirs in a field `study`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec

from pasto.errors import (
    InputError,
    LifecycleError,
    MissingExtraError,
    OptionError,
    PastoError,
    StoreBusyError,
    StoreError,
    UnknownStudyError,
)
from pasto.service.event_decoder import Event, RejectedEvent
from pasto.service.service import Service
from pasto.service.settings import Settings

BATCH = 1000
"""Messages that are taken in together."""

PATIENCE = 0.2
"""Seconds to wait before a store that is busy, or out of reach, is asked again."""

SENDER = "kafka"
"""What stands in the place of an API key for events from a topic."""

SHOWN = 10
"""Refusals of a batch that are logged."""

Studies = str | Mapping[str, str | None]
"""The study of all events, or by topic: its study, or None where each event names its own."""

_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What reading a text raises that is no JSON, no UTF-8, or nests too deep."""

_FIXED = {"enable.auto.commit": False, "enable.auto.offset.store": False}

_log = logging.getLogger("pasto.kafka")


@dataclass(slots=True)
class ConsumedBatch:
    """What came of topics so far."""

    messages: int = 0
    accepted: int = 0
    duplicates: int = 0
    refused: int = 0
    uncommitted: int = 0
    """Batches whose offsets could not be committed: they come again, and their events are duplicates then."""
    lost: int = 0
    """Messages that no store would keep, though it works: they are passed over."""
    errors: int = 0
    """Troubles that the client reported and went on from, or that made it begin again."""
    events: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By study and by what became of them: accepted, duplicate or refused; an unknown study's are under ""."""

    def add(self, study: str, answer: Mapping[str, Any]) -> None:
        """Count one answer of the service."""
        told = {
            "accepted": answer["accepted"],
            "duplicate": answer["duplicates"],
            "rejected": len(answer["rejected"]),
        }
        self.accepted += told["accepted"]
        self.duplicates += told["duplicate"]
        self.refused += told["rejected"]
        self.events.update({(study, result): number for result, number in told.items() if number})


def subscribe(topics: str | Sequence[str], settings: Mapping[str, Any]) -> Any:
    """A consumer of topics from their beginning, that commits nothing by itself.

    `settings` are the Kafka client's own, such as bootstrap.servers and group.id; those that would commit offsets
    before events are durable are refused.
    """
    try:
        from confluent_kafka import Consumer, KafkaException
    except ImportError as error:
        raise MissingExtraError("reading a Kafka topic needs confluent-kafka", "kafka") from error
    for name, value in _FIXED.items():
        if settings.get(name, value) != value:
            raise OptionError(
                f"{name} is {settings[name]!r}; leave it out, offsets are committed after events are durable"
            )
    for name in ("bootstrap.servers", "group.id"):
        if not settings.get(name):
            raise OptionError(f"{name} is missing from the Kafka settings; name it")
    try:
        consumer = Consumer({"auto.offset.reset": "earliest", **settings, **_FIXED})
    except (KafkaException, TypeError, ValueError) as error:
        raise OptionError(f"the Kafka client refuses its settings: {error}") from error
    consumer.subscribe([topics] if isinstance(topics, str) else list(topics))
    return consumer


def consume(
    service: Service,
    studies: Studies,
    consumer: Any,
    *,
    stop: Callable[[], bool],
    batch: int = BATCH,
    wait: float = 0.5,
    taken: ConsumedBatch | None = None,
    looked: Callable[[Any], None] = lambda consumer: None,
) -> ConsumedBatch:
    """Take topics' events in until told to stop; what came of it, counted in `taken` as it goes.

    A batch is durable before its offsets are committed, so whatever dies in between comes again and is known by its
    ids. What is no event, or a study's that is not there or takes none, is counted, logged and passed over; where the
    store is busy or out of reach the topics wait. `looked` is called with the consumer after every look.
    """
    taken = ConsumedBatch() if taken is None else taken
    while not stop():
        messages = [message for message in consumer.consume(batch, wait) if _sound(message, taken)]
        if messages:
            if not _ingested(service, studies, messages, stop, taken):
                break
            taken.messages += len(messages)
            taken.uncommitted += not _committed(consumer, messages)
        looked(consumer)
    return taken


def _ingested(
    service: Service, studies: Studies, messages: Sequence[Any], stop: Callable[[], bool], taken: ConsumedBatch
) -> bool:
    """Whether all that can be kept of some messages is durable; False where it was told to stop before.

    Where a working store refuses some messages, each is tried alone, and the one that it refuses is passed over.
    """
    for study, events in _by_study(service, studies, messages).items():
        while True:
            try:
                answer = service.ingest(study, events, key=SENDER).result()
            except (UnknownStudyError, LifecycleError) as error:
                reason = str(error) if study else "it names no study; send a field study, or say whose its topic is"
                answer = {"accepted": 0, "duplicates": 0, "rejected": [{"reason": reason}] * len(events)}
                study = study if isinstance(error, LifecycleError) else ""
            except StoreError as error:
                if isinstance(error, StoreBusyError) or not _works(service):
                    if stop():
                        return False
                    time.sleep(PATIENCE)
                    continue
                if len(messages) > 1:
                    return all(_ingested(service, studies, [message], stop, taken) for message in messages)
                _log.error("a message from Kafka cannot be kept, and is passed over: %s", error, extra={"study": study})
                taken.lost += 1
                break
            taken.add(study, answer)
            for refusal in answer["rejected"][:SHOWN]:
                _log.warning("an event from Kafka was refused: %s", refusal["reason"], extra={"study": study})
            break
    return True


def _works(service: Service) -> bool:
    """Whether the store takes a write that has nothing in it."""
    try:
        service.store.append_events(0, ()).result()
    except PastoError:
        return False
    return True


def _by_study(service: Service, studies: Studies, messages: Sequence[Any]) -> dict[str, list[Event | RejectedEvent]]:
    """The events of some messages by their study, each study's in their order."""
    found: dict[str, list[Event | RejectedEvent]] = {}
    for message in messages:
        body = message.value() or b""
        study = studies if isinstance(studies, str) else studies.get(message.topic())
        parts = [(study, body)] if study is not None else _named(body)
        for name, part in parts:
            try:
                events = service.decode(part, lines=not part.lstrip().startswith(b"["))
            except InputError as error:
                events = [RejectedEvent(0, None, str(error))]
            found.setdefault(name, []).extend(events)
    return found


def _named(body: bytes) -> list[tuple[str, bytes]]:
    """A message's events by the study that each names, as they are without that name; "" where one names none.

    >>> _named(b'{"study": "feed", "type": "metric"}')
    [('feed', b'[{"type":"metric"}]')]
    """
    found: dict[str, list[bytes]] = {}
    for item in _items(body):
        name, event = "", item
        try:
            fields = msgspec.json.decode(item, type=dict[str, msgspec.Raw])
            name = msgspec.json.decode(fields.pop("study", b'""'), type=str)
            event = msgspec.json.encode(fields)
        except _UNREADABLE:
            pass  # no event, which will be told where events are read
        found.setdefault(name, []).append(event)
    return [(name, b"[" + b",".join(events) + b"]") for name, events in found.items()]


def _items(body: bytes) -> list[bytes]:
    """A message's events one by one, as they were written."""
    text = body.strip()
    if not text.startswith(b"["):
        return [line for line in text.split(b"\n") if line.strip()]
    try:
        return [bytes(item) for item in msgspec.json.decode(text, type=list[msgspec.Raw])]
    except _UNREADABLE:
        return [text]


def _sound(message: Any, taken: ConsumedBatch) -> bool:
    """Whether it is a message; what the client reports instead of one is counted and logged, and raised if fatal."""
    error = message.error()
    if error is None:
        return True
    if error.fatal():
        from confluent_kafka import KafkaException

        raise KafkaException(error)
    taken.errors += 1
    _log.warning("the Kafka client reports: %s", error)
    return False


def _committed(consumer: Any, messages: Sequence[Any]) -> bool:
    """Commit the place behind the last message of each partition; False where the group has moved on meanwhile."""
    from confluent_kafka import KafkaException, TopicPartition

    last = {(message.topic(), message.partition()): message.offset() + 1 for message in messages}
    try:
        consumer.commit(offsets=[TopicPartition(*place, offset) for place, offset in last.items()], asynchronous=False)
    except KafkaException as error:
        _log.warning("offsets could not be committed, so their events will come again: %s", error)
        return False
    return True


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
            raise OptionError(
                f"--kafka-topic needs TOPIC=STUDY or TOPIC, each topic once and commas between, got {part!r}"
            )
        found[topic] = study or None
    return found


def read_properties(path: str) -> dict[str, str]:
    """A file of the Kafka client's settings, one NAME=VALUE a line; lines that begin with # say nothing."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"--kafka-properties names {path!r}, which cannot be read: {error}") from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        name, sign, value = (piece.strip() for piece in line.partition("="))
        if not name or name.startswith("#"):
            continue
        if not sign:  # never shown: it may be a password that lost its name
            raise OptionError(f"line {number} of {path!r} is no NAME=VALUE")
        found[name] = value
    return found


class TopicConsumer:
    """Reads topics into studies, in a thread of its own, for as long as the service runs.

    Whatever the client or the brokers do is logged and tried again; where it left off is in the topics' own offsets.
    """

    def __init__(self, service: Service, studies: Mapping[str, str | None], client: Mapping[str, Any]) -> None:
        self._service = service
        self._studies = studies
        self._client = client
        self._stop = threading.Event()
        self._thread: Thread | None = None
        self._reading = False
        self._lag: dict[tuple[str, int], int] = {}
        self.taken = ConsumedBatch()
        subscribe(list(studies), client).close()  # settings that do not do are told at the start

    @classmethod
    def of(cls, service: Service, settings: Settings) -> TopicConsumer | None:
        """Those that the settings name; None where they name none."""
        if not settings.kafka_servers and not settings.kafka_topic:
            return None
        for mine, other in (("kafka_servers", "kafka_topic"), ("kafka_topic", "kafka_servers")):
            if not getattr(settings, mine):
                here, there = (f"--{name.replace('_', '-')}" for name in (mine, other))
                raise OptionError(f"{there} is set and {here} is not; reading from Kafka needs both")
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
