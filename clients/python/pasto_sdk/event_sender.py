"""Sender of events: batches with fixed ids, repeated until the service accounts for every event."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from pasto_sdk.diagnostics import ErrorLog
from pasto_sdk.event_buffer import EventBuffer, ExposureTally
from pasto_sdk.policy_holder import PolicyHolder
from pasto_sdk.transport import Request, Response, Transport

FIRST_WAIT_SECONDS = 2.0

MAX_WAIT_SECONDS = 30.0
"""Longest wait, so that a service that is back is found within half a minute."""

MIN_INTERVAL_SECONDS = 1.0
"""Shortest time between two requests of one kind."""


class Backoff:
    """Exponential back-off with jitter: each wait is between half and all of twice the wait before.

    >>> backoff = Backoff(random=lambda: 1.0)
    >>> [backoff.failed() for _ in range(6)]
    [2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    >>> backoff.succeeded()
    >>> backoff.failed(retry_after="5")
    5.0
    """

    def __init__(self, random: Callable[[], float] | None = None) -> None:
        self._random = random or Random().random  # noqa: S311 -- jitter is not a secret
        self.failures = 0

    def jitter(self) -> float:
        """Return a factor between 0.8 and 1, so that many clients do not act at the same moment."""
        return 0.8 + 0.2 * self._random()

    def failed(self, retry_after: str = "") -> float:
        """Count a failure and return the seconds to wait; Retry-After counts up to MAX_WAIT_SECONDS."""
        longest = min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** min(self.failures, 10))
        self.failures += 1
        wait = longest * (1 + self._random()) / 2
        return max(wait, min(float(retry_after), MAX_WAIT_SECONDS)) if retry_after.isdecimal() else wait

    def succeeded(self) -> None:
        """Start again with the first wait."""
        self.failures = 0


MAX_BATCH_EVENTS = 1000
"""Most events in one request."""

MAX_BATCH_BYTES = 500_000
"""Size at which a batch is full, before compression."""

MIN_COMPRESSED_BYTES = 4096

RESPONSE_TIMEOUT_SECONDS = 10.0
"""Time for a whole response."""

EVENTS_PER_SLICE = 20
"""Events serialized at a time; other threads run in between, so that none waits for a whole batch."""

TALLY_INTERVAL_SECONDS = 30.0
"""Time after which tallies are sent even while events keep coming."""

TOO_LARGE_STATUS = 413

BATCH_ERROR_STATUSES = (400, 422)
"""Statuses of the service itself that blame the content of a batch."""


class EventSender:
    """Sender of the buffered events, one request a step.

    A batch is settled only by a response that accounts for every event. Events that the service rejects are counted
    and dropped. A batch that it rejects as a whole is halved until the faulty event is alone. After any other response,
    or none, the same batch is sent again later. Exposures are signed when their batch is serialized, so that decisions
    made before the signing key arrived are signed too.
    """

    def __init__(
        self,
        holder: PolicyHolder,
        event_buffer: EventBuffer,
        transport: Transport,
        url: str,
        headers: Mapping[str, str],
        error_log: ErrorLog,
        *,
        flush_interval: float,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] | None = None,
    ) -> None:
        self._holder = holder
        self._buffer = event_buffer
        self._transport = transport
        self._url = url
        self._headers = {**headers, "Content-Type": "application/json"}
        self._error_log = error_log
        self._flush_interval = flush_interval
        self._clock = clock
        self._backoff = Backoff(random)
        self._limit = MAX_BATCH_EVENTS
        self._request_in_flight: Request | None = None
        """The request of the batch that is not settled, serialized once."""
        self._tallies: list[ExposureTally] = []
        self._last_tally = clock()
        self._send_tallies_alone = False
        """True if tallies go in their own request, because they are large."""
        self._last_attempt = -MIN_INTERVAL_SECONDS
        self._due = -MIN_INTERVAL_SECONDS
        self.urgent = False
        """True while a caller waits: retry at the shortest interval, not when it is due."""

    @property
    def failing(self) -> bool:
        """True if the last attempt failed."""
        return self._backoff.failures > 0

    def step(self) -> float:
        """Send one batch if it is due; return the seconds until the next."""
        now = self._clock()
        due = self._last_attempt + MIN_INTERVAL_SECONDS if self.urgent and self.failing else self._due
        if now < due:
            return due - now
        if self._holder.awaits_signing_key and not self._buffer.is_settled(self._buffer.sequence):
            self._last_attempt = now
            return self._failed("exposures of this study must be signed, and the service has not sent the key yet")
        request = self._request_in_flight or self._write()
        if request is None:
            self.urgent = False
            return self._flush_interval
        self._last_attempt = now
        try:
            response = self._transport(request)
        except Exception as error:
            return self._failed(f"{type(error).__name__}: {error}")
        answer = _answer(response, len(self._buffer.in_flight) + len(self._tallies))
        if answer is None and response.status != TOO_LARGE_STATUS:
            problem = f"the service answered {response.status} and does not account for the batch"
            if response.message:
                problem += f": {response.message}"
            if response.status in BATCH_ERROR_STATUSES and response.error:
                self._split(problem)
            return self._failed(problem, response.header("retry-after"))
        if answer is None:
            self._split("it is too large for the service")
        else:
            self._settle(answer)
        self._backoff.succeeded()
        self._due = now
        return 0.0 if self.urgent or len(self._buffer.waiting) >= self._limit else self._flush_interval

    def _write(self) -> Request | None:
        """Serialize the next batch, with the tallies after the last waiting events; None if there is nothing."""
        event_buffer = self._buffer
        tallies = event_buffer.changed_tallies() if self._clock() - self._last_tally >= TALLY_INTERVAL_SECONDS else []
        events = [] if self._send_tallies_alone and tallies else event_buffer.take(self._limit)
        texts: list[str] = []
        size = 0
        for place, event in enumerate(events):
            texts.append(
                json.dumps(self._holder.sign(event_buffer.serialize(event)), separators=(",", ":"), allow_nan=False)
            )
            size += len(texts[-1])
            if size >= MAX_BATCH_BYTES:
                event_buffer.return_events(events[place + 1 :])
                break
            if place % EVENTS_PER_SLICE == EVENTS_PER_SLICE - 1:
                time.sleep(0)
        if not tallies and not event_buffer.waiting and not (self._send_tallies_alone and events):
            tallies = event_buffer.changed_tallies()
        if tallies:
            self._tallies, self._last_tally = tallies, self._clock()
        texts.extend(json.dumps(tally.event, separators=(",", ":")) for tally in self._tallies)
        self._request_in_flight = self._request(f"[{','.join(texts)}]".encode()) if texts else None
        return self._request_in_flight

    def _request(self, body: bytes) -> Request:
        if len(body) < MIN_COMPRESSED_BYTES:
            return Request("POST", self._url, self._headers, body, RESPONSE_TIMEOUT_SECONDS)
        headers = {**self._headers, "Content-Encoding": "gzip"}
        return Request(
            "POST", self._url, headers, gzip.compress(body, compresslevel=1, mtime=0), RESPONSE_TIMEOUT_SECONDS
        )

    def _settle(self, rejected: Mapping[int, str]) -> None:
        for reason in rejected.values():
            self._error_log.refuse(reason)
        self._buffer.settle({place for place in rejected if place < len(self._buffer.in_flight)})
        # A rejected tally would be rejected again; the next change makes a new one.
        self._buffer.mark_reported(self._tallies)
        self._limit = min(MAX_BATCH_EVENTS, self._limit * 2)
        self._request_in_flight, self._tallies = None, []

    def _split(self, problem: str) -> None:
        """Send less at once: tallies alone, then half of the events; drop an event that is rejected alone."""
        in_flight = self._buffer.in_flight
        if len(in_flight) + len(self._tallies) <= 1 or not in_flight:
            self._settle(dict.fromkeys(range(len(in_flight) + len(self._tallies)), problem))
            return
        if self._tallies:
            self._send_tallies_alone = True
        else:
            self._limit = len(in_flight) // 2
        self._buffer.return_events(in_flight)
        self._request_in_flight, self._tallies = None, []

    def _failed(self, problem: str, retry_after: str = "") -> float:
        self._error_log.note(f"events do not reach {self._url}: {problem}")
        delay = self._backoff.failed(retry_after)
        self._due = self._clock() + delay
        return delay if not self.urgent else MIN_INTERVAL_SECONDS


def _answer(response: Response, events: int) -> dict[int, str] | None:
    """Return the reasons of rejected events by place; None if the response does not account for all events."""
    if response.status not in (200, 422):
        return None
    try:
        answer: Any = json.loads(response.body)
        counts = answer["accepted"], answer["duplicates"]
        rejected = {event["index"]: str(event["reason"])[:300] for event in answer["rejected"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    sound = all(type(count) is int and count >= 0 for count in counts) and all(
        type(place) is int and 0 <= place < events for place in rejected
    )
    return rejected if sound and sum(counts) + len(rejected) == events else None
