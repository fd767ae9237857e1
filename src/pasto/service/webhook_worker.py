"""Webhook worker: threads that deliver the messages of the outbox, one for each webhook."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct

from pasto.errors import OptionError
from pasto.service.notifications import build_message, build_trial
from pasto.service.webhook import Webhook
from pasto.store import INSTALLATION, AuditRow, OutboxRow, Store
from pasto_sdk.periodic_thread import PeriodicThread

log = logging.getLogger("pasto.webhook")
POLL_SECONDS = 10.0
"""Seconds between two looks for messages that another node wrote; messages of this node end the wait."""
CLAIM_SECONDS = 120.0
"""Seconds for which a node holds a message that it sends, much longer than an attempt takes."""
FIRST_RETRY_SECONDS = 5.0
LAST_RETRY_SECONDS = 6 * 3600.0
RETRY_FACTOR = 4.0
"""Factor between the waits after two attempts."""
GIVE_UP_SECONDS = 3 * 86400.0
"""Age at which a message is deleted undelivered, with an audit line of its study."""
SENDER = "webhooks"
"""Name in the audit log."""


class WebhookRecord(Struct, frozen=True):
    """Webhook as it is listed. The address is left out except for its host, because it may be a secret."""

    name: str
    host: str
    format: str
    signed: bool
    events: tuple[str, ...]
    studies: tuple[str, ...]
    waiting: int
    """Messages that wait to be delivered, those of other nodes included."""
    oldest_at: float | None
    """Time at which the oldest of them was written."""
    last_error: str | None
    """Error of the last attempt of this node; None after a success."""


@dataclass(frozen=True, slots=True)
class WebhookTrial:
    """Result of trying a webhook out."""

    name: str
    delivered: bool
    error: str | None = None


def retry_seconds(attempts: int) -> float:
    """Return the seconds between a failed attempt and the next one.

    >>> [retry_seconds(attempts) for attempts in (1, 2, 3, 8, 100)]
    [5.0, 20.0, 80.0, 21600.0, 21600.0]
    """
    return min(FIRST_RETRY_SECONDS * RETRY_FACTOR ** min(attempts - 1, 20), LAST_RETRY_SECONDS)


class WebhookWorker:
    """Deliverer of messages to a service's webhooks; each has a thread, so a slow receiver delays no other.

    A message is delivered at least once; one that is tried again does not hold up later ones. It stays in the store
    until its receiver accepts it, so a restart or another node continues. A node claims a message before it sends it,
    and the claim of a node that dies ends by itself.
    """

    def __init__(self, store: Store, webhooks: Sequence[Webhook], *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._webhooks = {webhook.spec.name: webhook for webhook in webhooks}
        self._threads = {name: self._make_thread(webhook) for name, webhook in self._webhooks.items()}
        self._results: Counter[tuple[str, str]] = Counter()
        self._errors: dict[str, str] = {}

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads.values():
            thread.start()

    def wake(self) -> None:
        """Send the messages that were just written."""
        for thread in self._threads.values():
            thread.wake()

    def stop(self, timeout: float) -> None:
        """Stop the threads; a message that is being sent may be finished."""
        deadline = time.monotonic() + timeout
        for thread in self._threads.values():
            thread.stop(0.0)
        for thread in self._threads.values():
            thread.stop(max(0.0, deadline - time.monotonic()))

    def send_due(self, name: str) -> float | None:
        """Send the due messages of a webhook; return the seconds until its next one, None if that is not known."""
        self._give_up_old_messages()
        webhook = self._webhooks[name]
        while not self._threads[name].is_stopping:
            now = self._clock()
            message = self._store.claim_message(name, now, now + CLAIM_SECONDS)
            if message is None:
                break
            self._deliver(webhook, message)
        due = self._store.read_next_due(name)
        return None if due is None else min(POLL_SECONDS, max(0.05, due - self._clock()))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the webhooks."""
        return tuple(self._webhooks)

    def records(self) -> list[WebhookRecord]:
        """Return the webhooks with their waiting messages."""
        sizes = {size.webhook: size for size in self._store.measure_outbox()}
        records = []
        for name, webhook in self._webhooks.items():
            spec, size = webhook.spec, sizes.get(name)
            waiting, oldest_at = (0, None) if size is None else (size.messages, size.oldest_at)
            is_signed = spec.secret is not None
            error = self._errors.get(name)
            records.append(
                WebhookRecord(
                    name, webhook.host, spec.format, is_signed, spec.events, spec.studies, waiting, oldest_at, error
                )
            )
        return records

    def try_webhook(self, name: str) -> WebhookTrial:
        """Send a test message now; the result has the error if it was not accepted."""
        webhook = self._webhooks.get(name)
        if webhook is None:
            raise OptionError(f"there is no webhook {name!r}; the service has {', '.join(self._webhooks) or 'none'}")
        now = self._clock()
        message = build_message(webhook.spec, build_trial(now), INSTALLATION)
        try:
            webhook.post(message.id, message.body, int(now))
        except Exception as error:  # a receiver can fail in any way
            return WebhookTrial(name, False, describe_error(error))
        return WebhookTrial(name, True)

    def read_metrics(self) -> Iterator[tuple[str, str, float, Mapping[str, str] | None]]:
        """Yield the metrics for /metrics: (name, help, value, labels) each."""
        meaning = "Messages to a webhook by the result of an attempt: delivered, failed or given_up."
        for name in self._webhooks:
            for result in ("delivered", "failed", "given_up"):
                yield (
                    "pasto_webhook_attempts",
                    meaning,
                    self._results[name, result],
                    {"webhook": name, "result": result},
                )
        now = self._clock()
        for record in self.records():
            labels = {"webhook": record.name}
            yield "pasto_webhook_waiting", "Messages that wait for a webhook.", record.waiting, labels
            age = 0.0 if record.oldest_at is None else max(0.0, now - record.oldest_at)
            yield "pasto_webhook_oldest_seconds", "Age of the oldest message that waits.", age, labels

    def _make_thread(self, webhook: Webhook) -> PeriodicThread:
        name = webhook.spec.name
        return PeriodicThread(f"webhook-{name}", lambda: self.send_due(name), POLL_SECONDS, log.warning)

    def _deliver(self, webhook: Webhook, message: OutboxRow) -> None:
        name = webhook.spec.name
        try:
            webhook.post(message.id, message.body, int(self._clock()))
        except Exception as error:  # no failure of the receiver ends the thread
            wait = retry_seconds(message.attempts)
            self._errors[name] = describe_error(error)
            self._results[name, "failed"] += 1
            log.warning(
                "a message to the webhook %r was not accepted, and is sent again in %g seconds: %s",
                name,
                wait,
                self._errors[name],
                extra={"message_id": message.id, "attempts": message.attempts},
            )
            self._store.postpone_message(message, self._clock() + wait)
            return
        self._errors.pop(name, None)
        self._results[name, "delivered"] += 1
        self._store.delete_message(message)

    def _give_up_old_messages(self) -> None:
        """Delete messages that are too old, those of webhooks that are not configured any more too."""
        now = self._clock()

        def describe(message: OutboxRow) -> AuditRow:
            detail = {"webhook": message.webhook, "event": message.event, "id": message.id}
            reason = f"the message could not be delivered in {message.attempts} attempts"
            return AuditRow(now, SENDER, "give up", reason, {**detail, "attempts": message.attempts})

        for message in self._store.delete_old_messages(now - GIVE_UP_SECONDS, describe):
            self._results[message.webhook, "given_up"] += 1
            log.error(
                "a message to the webhook %r was given up after %d attempts",
                message.webhook,
                message.attempts,
                extra={"message_id": message.id, "message_event": message.event},
            )


def describe_error(error: Exception) -> str:
    """Return an error of a receiver in one line."""
    return f"{type(error).__name__}: {error}"
