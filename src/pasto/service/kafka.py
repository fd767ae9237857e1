"""Events from a Kafka topic: read at least once, counted once, and its offsets committed only after they are durable.

A message holds what a request to the events endpoint would: one event, an array of events, or lines of them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pasto.errors import BadOption, StoreBusy
from pasto.service.service import Service
from pasto.service.wire import Event, Refusal

BATCH = 1000
"""Messages that are taken in together."""
PATIENCE = 0.2
"""Seconds to wait before a store that is busy is asked again."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Taken:
    """What came of a topic so far."""

    messages: int = 0
    accepted: int = 0
    duplicates: int = 0
    refused: int = 0
    uncommitted: int = 0
    """Batches whose offsets could not be committed: they come again, and their events are duplicates then."""


def subscribe(topic: str, settings: Mapping[str, Any]) -> Any:
    """A consumer of one topic from its beginning, that commits nothing by itself.

    `settings` are the Kafka client's own, such as bootstrap.servers and group.id; those that would commit offsets
    before events are durable are refused.
    """
    try:
        from confluent_kafka import Consumer
    except ImportError as error:
        raise BadOption("reading a Kafka topic needs its client: pip install 'pasto[kafka]'") from error
    fixed = {"enable.auto.commit": False, "enable.auto.offset.store": False}
    for name, value in fixed.items():
        if settings.get(name, value) != value:
            raise BadOption(
                f"{name} is {settings[name]!r}; leave it out, offsets are committed after events are durable"
            )
    for name in ("bootstrap.servers", "group.id"):
        if not settings.get(name):
            raise BadOption(f"{name} is missing from the Kafka settings; name it")
    consumer = Consumer({"auto.offset.reset": "earliest", **settings, **fixed})
    consumer.subscribe([topic])
    return consumer


def consume(
    service: Service,
    study: str,
    consumer: Any,
    *,
    stop: Callable[[], bool],
    batch: int = BATCH,
    wait: float = 0.5,
) -> Taken:
    """Take a topic's events into a study until told to stop; what came of it.

    A batch is durable before its offsets are committed, so whatever dies in between comes again and is known by its
    ids. Where the store is busy the topic waits; any other failure ends this with nothing committed of the batch.
    """
    taken = Taken()
    while not stop():
        messages = [_checked(message) for message in consumer.consume(batch, wait)]
        if not messages:
            continue
        events: list[Event | Refusal] = []
        for message in messages:
            body = message.value() or b""
            events += service.decode(body, lines=not body.lstrip().startswith(b"["))
        answer = _ingested(service, study, events, stop)
        if answer is None:
            break
        taken.messages += len(messages)
        taken.accepted += answer["accepted"]
        taken.duplicates += answer["duplicates"]
        taken.refused += len(answer["refused"])
        for refusal in answer["refused"][:10]:
            _log.warning("an event from Kafka was refused: %s", refusal["reason"], extra={"study": study})
        taken.uncommitted += not _committed(consumer, messages)
    return taken


def _ingested(
    service: Service, study: str, events: list[Event | Refusal], stop: Callable[[], bool]
) -> dict[str, Any] | None:
    """The answer once the events are durable; None where it was told to stop before the store took them."""
    while True:
        try:
            return service.ingest(study, events).result()
        except StoreBusy:
            if stop():
                return None
            time.sleep(PATIENCE)


def _checked(message: Any) -> Any:
    """The message; what the client reports instead of one is raised."""
    if message.error() is not None:
        from confluent_kafka import KafkaException

        raise KafkaException(message.error())
    return message


def _committed(consumer: Any, messages: list[Any]) -> bool:
    """Commit the place behind the last message of each partition; False where the group has moved on meanwhile."""
    from confluent_kafka import KafkaException, TopicPartition

    last = {(message.topic(), message.partition()): message.offset() + 1 for message in messages}
    try:
        consumer.commit(offsets=[TopicPartition(*place, offset) for place, offset in last.items()], asynchronous=False)
    except KafkaException as error:
        _log.warning("offsets could not be committed, so their events will come again: %s", error)
        return False
    return True
