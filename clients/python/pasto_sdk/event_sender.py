"""Brings events to the service: in batches, again and again with the same ids, until each is answered for."""

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

FIRST = 2.0

CAP = 30.0
"""Seconds: nobody waits longer, so that a service that is back is found within half a minute."""

LEAST = 1.0
"""Seconds between two requests of one kind, whatever happens."""


class Backoff:
    """Counts failures in a row; each waits between half and the whole of twice the one before.

    >>> backoff = Backoff(random=lambda: 1.0)
    >>> [backoff.failed() for _ in range(6)]
    [2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    >>> backoff.succeeded()
    >>> backoff.failed(retry_after="5")
    5.0
    """

    def __init__(self, random: Callable[[], float] | None = None) -> None:
        self._random = random or Random().random  # noqa: S311 -- jitter is no secret
        self.failures = 0

    def jitter(self) -> float:
        """A factor between 0.8 and 1, for whatever many clients would else do at the same moment."""
        return 0.8 + 0.2 * self._random()

    def failed(self, retry_after: str = "") -> float:
        """Seconds to wait now; what the service asks for in Retry-After is granted up to the cap."""
        longest = min(CAP, FIRST * 2.0 ** min(self.failures, 10))
        self.failures += 1
        wait = longest * (1 + self._random()) / 2
        return max(wait, min(float(retry_after), CAP)) if retry_after.isdecimal() else wait

    def succeeded(self) -> None:
        """Begin anew."""
        self.failures = 0


BATCH = 1000
"""Events in one request."""

LARGE = 500_000
"""Bytes at which a batch is full, before compression."""

WORTH_COMPRESSING = 4096

PATIENCE = 10.0
"""Seconds for an answer."""

BREATH = 20
"""Events written in one go; then the callers' threads are let in, so that none waits for a whole batch."""

TALLY_EVERY = 30.0
"""Seconds in which the books are told even while events never stop coming."""

TOO_LARGE = 413

ABOUT_THE_BATCH = (400, 422)
"""Answers that are about what was sent, where they come from the service itself."""


class EventSender:
    """Sends what waits in the outbox, one request a step.

    Only an answer that accounts for every event of the batch settles it. What the service refuses by name is counted
    and let go; a batch that it will not take at all is cut in half until the event at fault is alone; on every other
    answer, and on none, the same batch is sent again later. Exposures are signed when their batch is written: what
    was decided before the signing key came is signed too.
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
        self._limit = BATCH
        self._under_way: Request | None = None
        """The batch that was taken and not yet answered for, written once."""
        self._tallies: list[ExposureTally] = []
        self._tallied = clock()
        self._apart = False
        """Whether the books go in a request of their own, for they are large."""
        self._tried = -LEAST
        self._due = -LEAST
        self.urgent = False
        """Somebody waits: try again as soon as may be, instead of when it is due."""

    @property
    def failing(self) -> bool:
        """Whether the last try failed."""
        return self._backoff.failures > 0

    def step(self) -> float:
        """Send one batch, if there is anything to send and it is due; returns the seconds until the next."""
        now = self._clock()
        due = self._tried + LEAST if self.urgent and self.failing else self._due
        if now < due:
            return due - now
        if self._holder.awaits_signing_key and not self._buffer.settled(self._buffer.sequence):
            self._tried = now
            return self._failed("exposures of this study are signed, and the service has not sent the key yet")
        request = self._under_way or self._write()
        if request is None:
            self.urgent = False
            return self._flush_interval
        self._tried = now
        try:
            response = self._transport(request)
        except Exception as error:
            return self._failed(f"{type(error).__name__}: {error}")
        answer = _answer(response, len(self._buffer.flying) + len(self._tallies))
        if answer is None and response.status != TOO_LARGE:
            problem = f"the service answered {response.status} and does not account for the batch"
            if response.message:
                problem += f": {response.message}"
            if response.status in ABOUT_THE_BATCH and response.error:
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
        """Take the next batch and write it, with the books behind the last events that wait; None for nothing."""
        event_buffer = self._buffer
        tallies = event_buffer.tallies() if self._clock() - self._tallied >= TALLY_EVERY else []
        events = [] if self._apart and tallies else event_buffer.take(self._limit)
        texts: list[str] = []
        size = 0
        for place, event in enumerate(events):
            texts.append(
                json.dumps(self._holder.sign(event_buffer.wire(event)), separators=(",", ":"), allow_nan=False)
            )
            size += len(texts[-1])
            if size >= LARGE:
                event_buffer.put_back(events[place + 1 :])
                break
            if place % BREATH == BREATH - 1:
                time.sleep(0)
        if not tallies and not event_buffer.waiting and not (self._apart and events):
            tallies = event_buffer.tallies()
        if tallies:
            self._tallies, self._tallied = tallies, self._clock()
        texts.extend(json.dumps(tally.wire, separators=(",", ":")) for tally in self._tallies)
        self._under_way = self._request(f"[{','.join(texts)}]".encode()) if texts else None
        return self._under_way

    def _request(self, body: bytes) -> Request:
        if len(body) < WORTH_COMPRESSING:
            return Request("POST", self._url, self._headers, body, PATIENCE)
        headers = {**self._headers, "Content-Encoding": "gzip"}
        return Request("POST", self._url, headers, gzip.compress(body, compresslevel=1, mtime=0), PATIENCE)

    def _settle(self, refused: Mapping[int, str]) -> None:
        for reason in refused.values():
            self._error_log.refuse(reason)
        self._buffer.settle({place for place in refused if place < len(self._buffer.flying)})
        # A tally that was refused would be refused again; the next change makes a new one.
        self._buffer.told(self._tallies)
        self._limit = min(BATCH, self._limit * 2)
        self._under_way, self._tallies = None, []

    def _split(self, problem: str) -> None:
        """Send less at once: the books apart, then half the events; what is refused on its own is let go."""
        flying = self._buffer.flying
        if len(flying) + len(self._tallies) <= 1 or not flying:
            self._settle(dict.fromkeys(range(len(flying) + len(self._tallies)), problem))
            return
        if self._tallies:
            self._apart = True
        else:
            self._limit = len(flying) // 2
        self._buffer.put_back(flying)
        self._under_way, self._tallies = None, []

    def _failed(self, problem: str, retry_after: str = "") -> float:
        self._error_log.note(f"events do not reach {self._url}: {problem}")
        delay = self._backoff.failed(retry_after)
        self._due = self._clock() + delay
        return delay if not self.urgent else LEAST


def _answer(response: Response, events: int) -> dict[int, str] | None:
    """Return the reasons of refused events by place; None if the answer does not account for so many events."""
    if response.status not in (200, 422):
        return None
    try:
        found: Any = json.loads(response.body)
        counts = found["accepted"], found["duplicates"]
        refused = {one["index"]: str(one["reason"])[:300] for one in found["rejected"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    sound = all(type(count) is int and count >= 0 for count in counts) and all(
        type(place) is int and 0 <= place < events for place in refused
    )
    return refused if sound and sum(counts) + len(refused) == events else None
