"""Kafka ingest: reads events from topics at least once, counts them once, and commits offsets when they are durable.

A message has the content of a request to the events endpoint: one event, an array of events, or lines of them. A topic
belongs to one study, or its events name their study in a field `study`.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
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
from pasto.service.ingest import BatchResult, EventRejection
from pasto.service.service import Service
from pasto.service.settings import Settings
from pasto_sdk.periodic_thread import PeriodicThread

BATCH_MESSAGES = 1000
"""Messages that are ingested together."""

STORE_RETRY_SECONDS = 0.2
"""Time before a store that is busy or out of reach is tried again."""

RECONNECT_SECONDS = 5.0
"""Time after a failure of the client before the topics are subscribed again."""

SENDER = "kafka"
"""Stands for the API key of events from a topic."""

MAX_LOGGED_REJECTIONS = 10
"""Rejected events of a batch that are logged."""

Studies = str | Mapping[str, str | None]
"""Study of all events, or by topic: its study, or None if each event names its own."""

_DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Errors of a text that is not JSON, not UTF-8, or nested too deep."""

_FIXED_SETTINGS = {"enable.auto.commit": False, "enable.auto.offset.store": False}

log = logging.getLogger("pasto.kafka")


@dataclass(slots=True)
class ConsumerCounts:
    """Running counts of the messages and events that were read."""

    messages: int = 0
    accepted: int = 0
    duplicates: int = 0
    rejected: int = 0
    uncommitted: int = 0
    """Batches whose offsets could not be committed: they are read again, and their events are duplicates then."""
    lost: int = 0
    """Messages that a working store refused: they are skipped."""
    errors: int = 0
    """Errors that the client reported, and failures after which it was started again."""
    events: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Events by (study, result); results are accepted, duplicate and rejected; "" stands for unknown studies."""

    def add(self, study: str, answer: BatchResult) -> None:
        """Count one answer of the service."""
        results = {
            "accepted": answer.accepted,
            "duplicate": answer.duplicates,
            "rejected": len(answer.rejected),
        }
        self.accepted += results["accepted"]
        self.duplicates += results["duplicate"]
        self.rejected += results["rejected"]
        self.events.update({(study, result): number for result, number in results.items() if number})


class TopicConsumer:
    """Reads topics into studies in a thread of its own, as long as the service runs.

    Failures of the client or the brokers are logged, and the topics subscribed again; the committed offsets say where
    to go on.
    """

    def __init__(self, service: Service, studies: Mapping[str, str | None], client: Mapping[str, Any]) -> None:
        self._service = service
        self._studies = studies
        self._client = client
        self._thread = PeriodicThread("kafka", self._consume_until_failure, RECONNECT_SECONDS, log.warning)
        self._is_reading = False
        self._lag: dict[tuple[str, int], int] = {}
        self.counts = ConsumerCounts()
        subscribe(list(studies), client).close()  # so that wrong settings fail at the start

    @classmethod
    def from_settings(cls, service: Service, settings: Settings) -> TopicConsumer | None:
        """Return the consumer of the topics in the settings; None if there are none."""
        if not settings.kafka_servers and not settings.kafka_topic:
            return None
        for missing, given in (("kafka_servers", "kafka_topic"), ("kafka_topic", "kafka_servers")):
            if not getattr(settings, missing):
                missing_option, given_option = (f"--{name.replace('_', '-')}" for name in (missing, given))
                raise OptionError(f"{given_option} is set and {missing_option} is not; reading from Kafka needs both")
        properties = read_properties(settings.kafka_properties) if settings.kafka_properties else {}
        client = {**properties, "bootstrap.servers": settings.kafka_servers, "group.id": settings.kafka_group}
        return cls(service, read_topics(settings.kafka_topic), client)

    def start(self) -> None:
        """Start the thread, unless it runs."""
        self._thread.start()

    def stop(self, timeout: float | None = None) -> None:
        """Finish the batch that is being ingested, and stop; a batch that takes longer is read again later."""
        self._thread.stop(timeout)

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition holds, checked after each failure of the client; returns whether it does."""
        return self._thread.wait_for(condition, timeout)

    def read_metrics(self) -> Iterator[tuple[str, str, float, Mapping[str, str] | None]]:
        """Yield the metrics for /metrics: (name, help, value, labels) each."""
        counts = self.counts
        yield "pasto_kafka_up", "1 while topics are read.", float(self._is_reading), None
        yield "pasto_kafka_errors", "Errors of the Kafka client so far.", counts.errors, None
        yield "pasto_kafka_messages", "Messages read so far.", counts.messages, None
        yield "pasto_kafka_lost", "Messages that the store refused so far.", counts.lost, None
        yield "pasto_kafka_uncommitted", "Batches without committed offsets so far.", counts.uncommitted, None
        for (study, result), number in sorted(counts.events.items()):
            labels = {"study": study, "result": result}
            yield "pasto_kafka_events", "Events from Kafka by result.", number, labels
        for (topic, partition), lag in sorted(self._lag.items()):
            labels = {"topic": topic, "partition": str(partition)}
            yield "pasto_kafka_lag", "Messages that wait in a partition read here.", lag, labels

    def _consume_until_failure(self) -> None:
        """Subscribe to the topics and read them, until the thread stops or the client fails."""
        consumer = None
        try:
            consumer = subscribe(list(self._studies), self._client)
            consume(
                self._service,
                self._studies,
                consumer,
                should_stop=lambda: self._thread.is_stopping,
                counts=self.counts,
                after_poll=self._update_lag,
            )
        except Exception as error:  # the thread must survive every failure of the client
            self.counts.errors += 1
            log.warning("reading from Kafka failed and begins again: %s: %s", type(error).__name__, error)
        finally:
            self._is_reading = False
            self._lag = {}
            if consumer is not None:
                with suppress(Exception):  # it may be what failed
                    consumer.close()

    def _update_lag(self, consumer: Any) -> None:
        """Read the lag of each partition that this process reads."""
        self._is_reading = True
        lag = {}
        for partition in consumer.position(consumer.assignment()):
            _, high = consumer.get_watermark_offsets(partition, cached=True)
            if partition.offset >= 0 and high >= 0:
                lag[partition.topic, partition.partition] = max(0, high - partition.offset)
        self._lag = lag


def subscribe(topics: str | Sequence[str], settings: Mapping[str, Any]) -> Any:
    """Return a consumer of topics from their beginning that does not commit by itself.

    `settings` are those of the Kafka client, such as bootstrap.servers and group.id. Settings that commit offsets
    before events are durable are refused.
    """
    try:
        from confluent_kafka import Consumer, KafkaException
    except ImportError as error:
        raise MissingExtraError("reading a Kafka topic needs confluent-kafka", "kafka") from error
    for name, value in _FIXED_SETTINGS.items():
        if settings.get(name, value) != value:
            raise OptionError(
                f"{name} must not be set, got {settings[name]!r}; offsets are committed after events are durable"
            )
    for name in ("bootstrap.servers", "group.id"):
        if not settings.get(name):
            raise OptionError(f"{name} is missing from the Kafka settings; add it")
    try:
        consumer = Consumer({"auto.offset.reset": "earliest", **settings, **_FIXED_SETTINGS})
    except (KafkaException, TypeError, ValueError) as error:
        raise OptionError(f"the Kafka client refuses its settings: {error}") from error
    consumer.subscribe([topics] if isinstance(topics, str) else list(topics))
    return consumer


def consume(
    service: Service,
    studies: Studies,
    consumer: Any,
    *,
    should_stop: Callable[[], bool],
    batch: int = BATCH_MESSAGES,
    poll_seconds: float = 0.5,
    counts: ConsumerCounts | None = None,
    after_poll: Callable[[Any], None] = lambda consumer: None,
) -> ConsumerCounts:
    """Ingest the events of topics until `should_stop`; returns the counts, which are updated as it goes.

    A batch is durable before its offsets are committed. After a crash in between, its messages are read again, and
    their events recognised by their ids. Messages that are not events, or of a study that takes none, are counted,
    logged and skipped. If the store is busy or out of reach, the topics wait. `after_poll` gets the consumer after
    every poll.
    """
    counts = ConsumerCounts() if counts is None else counts
    while not should_stop():
        messages = [message for message in consumer.consume(batch, poll_seconds) if _is_message(message, counts)]
        if messages:
            if not _ingest(service, studies, messages, should_stop, counts):
                break
            counts.messages += len(messages)
            counts.uncommitted += not _commit(consumer, messages)
        after_poll(consumer)
    return counts


def _ingest(
    service: Service, studies: Studies, messages: Sequence[Any], should_stop: Callable[[], bool], counts: ConsumerCounts
) -> bool:
    """Store the events of messages and wait until they are durable; False if it had to stop before.

    If a working store refuses them, each message is tried alone, and the one that it refuses is skipped.
    """
    for study, events in _group_by_study(service, studies, messages).items():
        while True:
            try:
                answer = service.ingest(study, events, key=SENDER).result()
            except (UnknownStudyError, LifecycleError) as error:
                reason = str(error) if study else "it names no study; send a field study, or set the study of its topic"
                answer = BatchResult(0, 0, tuple(EventRejection(place, reason) for place in range(len(events))))
                study = study if isinstance(error, LifecycleError) else ""
            except StoreError as error:
                if isinstance(error, StoreBusyError) or not _is_writable(service):
                    if should_stop():
                        return False
                    time.sleep(STORE_RETRY_SECONDS)
                    continue
                if len(messages) > 1:
                    return all(_ingest(service, studies, [message], should_stop, counts) for message in messages)
                log.error("a message from Kafka cannot be stored, and is skipped: %s", error, extra={"study": study})
                counts.lost += 1
                break
            counts.add(study, answer)
            for rejection in answer.rejected[:MAX_LOGGED_REJECTIONS]:
                log.warning("an event from Kafka was rejected: %s", rejection.reason, extra={"study": study})
            break
    return True


def _is_writable(service: Service) -> bool:
    """Return whether the store accepts an empty batch."""
    try:
        service.store.append_events(0, ()).result()
    except PastoError:
        return False
    return True


def _group_by_study(
    service: Service, studies: Studies, messages: Sequence[Any]
) -> dict[str, list[Event | RejectedEvent]]:
    """Return the events of messages by study, each study's in their order."""
    grouped: dict[str, list[Event | RejectedEvent]] = {}
    for message in messages:
        body = message.value() or b""
        topic_study = studies if isinstance(studies, str) else studies.get(message.topic())
        parts = [(topic_study, body)] if topic_study is not None else _split_by_study(body)
        for study, part in parts:
            try:
                events = service.decode(part, lines=not part.lstrip().startswith(b"["))
            except InputError as error:
                events = [RejectedEvent(0, None, str(error))]
            grouped.setdefault(study, []).extend(events)
    return grouped


def _split_by_study(body: bytes) -> list[tuple[str, bytes]]:
    """Return (study, events) of a message whose events name their study, without that field; "" if one names none.

    >>> _split_by_study(b'{"study": "feed", "type": "metric"}')
    [('feed', b'[{"type":"metric"}]')]
    """
    grouped: dict[str, list[bytes]] = {}
    for item in _split_items(body):
        study, event = "", item
        try:
            fields = msgspec.json.decode(item, type=dict[str, msgspec.Raw])
            study = msgspec.json.decode(fields.pop("study", b'""'), type=str)
            event = msgspec.json.encode(fields)
        except _DECODE_ERRORS:
            pass  # not an event: the event decoder reports it
        grouped.setdefault(study, []).append(event)
    return [(study, b"[" + b",".join(events) + b"]") for study, events in grouped.items()]


def _split_items(body: bytes) -> list[bytes]:
    """Return the events of a message one by one, as they were written."""
    text = body.strip()
    if not text.startswith(b"["):
        return [line for line in text.split(b"\n") if line.strip()]
    try:
        return [bytes(item) for item in msgspec.json.decode(text, type=list[msgspec.Raw])]
    except _DECODE_ERRORS:
        return [text]


def _is_message(message: Any, counts: ConsumerCounts) -> bool:
    """Return whether it is a message; an error of the client is counted and logged, and raised if it is fatal."""
    error = message.error()
    if error is None:
        return True
    if error.fatal():
        from confluent_kafka import KafkaException

        raise KafkaException(error)
    counts.errors += 1
    log.warning("the Kafka client reports: %s", error)
    return False


def _commit(consumer: Any, messages: Sequence[Any]) -> bool:
    """Commit the offset after the last message of each partition; False if the partitions moved to another consumer."""
    from confluent_kafka import KafkaException, TopicPartition

    offsets = {(message.topic(), message.partition()): message.offset() + 1 for message in messages}
    try:
        consumer.commit(
            offsets=[TopicPartition(*partition, offset) for partition, offset in offsets.items()], asynchronous=False
        )
    except KafkaException as error:
        log.warning("offsets could not be committed, so their events are read again: %s", error)
        return False
    return True


def read_topics(text: str) -> dict[str, str | None]:
    """Return the study of each topic from the setting: TOPIC=STUDY or TOPIC, separated by commas.

    >>> read_topics("clicks=feed, everything")
    {'clicks': 'feed', 'everything': None}
    """
    studies: dict[str, str | None] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        topic, sign, study = (piece.strip() for piece in part.partition("="))
        if not topic or (sign and not study) or topic in studies:
            raise OptionError(
                f"--kafka-topic needs TOPIC=STUDY or TOPIC, each topic once and commas between, got {part!r}"
            )
        studies[topic] = study or None
    return studies


def read_properties(path: str) -> dict[str, str]:
    """Read a file of Kafka client settings, one NAME=VALUE per line; lines that begin with # are comments."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"--kafka-properties names {path!r}, which cannot be read: {error}") from error
    properties: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        name, sign, value = (piece.strip() for piece in line.partition("="))
        if not name or name.startswith("#"):
            continue
        if not sign:  # the line is not quoted: it may be a password without its name
            raise OptionError(f"line {number} of {path!r} must be NAME=VALUE")
        properties[name] = value
    return properties
