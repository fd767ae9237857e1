"""The client: decides here and now, and talks to the service behind the caller's back."""

from __future__ import annotations

import atexit
import math
import os
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType, TracebackType
from typing import Any, Self
from urllib.parse import quote

from pasto_sdk import client_options
from pasto_sdk.background import BackgroundTasks
from pasto_sdk.decision import DEFAULT, OVERRIDE, SPLIT, STALE, Decision, FieldError, Reason, check_fields
from pasto_sdk.diagnostics import CallCounter, ErrorLog
from pasto_sdk.event_buffer import EventBuffer
from pasto_sdk.event_sender import BATCH
from pasto_sdk.http_transport import HttpTransport
from pasto_sdk.policy import LONGEST
from pasto_sdk.policy_document import Bucket, Value
from pasto_sdk.policy_holder import PolicyHolder, PolicyState
from pasto_sdk.transport import Transport

AT_EXIT = 5.0
"""Seconds that the end of the process may wait for the last events."""


class Client:
    """Assigns units to candidates and reports what happened: never blocks, never raises, never gives up.

    Decisions are made in this process from the last good policy, which one background thread keeps up to date and on
    disk; another one brings the events to the service. Make one client for each study and process, and keep it.

    `baseline` is what to serve before any policy is known. `cache` is the folder for the last good policy: the user's
    own by default, None for no file. `refresh` and `flush` are seconds: how long a policy may be out of date where
    the service cannot say at once that it changed, and how long an event waits for company. `buffer` is how many
    events are kept while the service is away. `remember` is how many units' decisions are kept, so that a unit that
    comes again is decided at once and its exposure is sent once. `background=False` starts no threads: `ready` and
    `flush` then do the work when they are called, for scripts and for tests.

    >>> client = Client("http://127.0.0.1:8300", study="feed", baseline={"weight": 1}, cache=None, background=False)
    >>> decision = client.assign("user 7")
    >>> dict(decision.values), decision.reason
    ({'weight': 1}, 'DEFAULT')
    >>> _ = client.close()
    """

    def __init__(
        self,
        url: str,
        *,
        study: str,
        key: str | None = None,
        baseline: Mapping[str, Value] | None = None,
        cache: str | os.PathLike[str] | bool | None = True,
        refresh: float = 20.0,
        flush: float = 1.0,
        buffer: int = 100_000,
        remember: int = 50_000,
        transport: Transport | None = None,
        background: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = client_options.check_address(url)
        self._study = client_options.check_study_name(study)
        self._default = Bucket("none", -1, "baseline", MappingProxyType(dict(baseline or {})), 0, 0.0)
        self._clock = clock
        self._closed = False
        self._journal = ErrorLog()
        self._holder = PolicyHolder(study, clock, client_options.check_amount("remember", remember))
        self._outbox = EventBuffer(client_options.check_amount("buffer", buffer), self._lost)
        self._handle = self._measured
        self._repeats = CallCounter()
        self._not_logged = CallCounter()
        self._link = BackgroundTasks(
            self._holder,
            self._outbox,
            transport or HttpTransport(),
            f"{self._url}/v1/studies/{quote(self._study, safe='')}",
            client_options.request_headers(key),
            self._journal,
            refresh=client_options.check_seconds("refresh", refresh),
            flush=client_options.check_seconds("flush", flush),
            file=client_options.cache_file(cache, self._url, study),
            background=background,
            clock=clock,
        )
        self._link.restore()
        self._link.start()
        _CLIENTS.add(self)
        atexit.register(self.close, AT_EXIT)

    def assign(self, unit: str | int, *, override: str | None = None) -> Decision:
        """The unit's candidate, and its exposure logged: once for each unit and policy, however often it is asked.

        A whole number is taken as its digits. `override` serves a candidate of the present policy by its name, to
        look at it; neither that exposure nor what follows from it is learned from.
        """
        try:
            live = self._holder.live
            if override is None:
                decision = live.remembered.young.get(unit)  # type: ignore[arg-type]
                if decision is not None and decision._reason is SPLIT and self._clock() < live.until:
                    self._repeats.tick()
                    return decision
            return self._decide(live, unit, override)
        except Exception as error:
            self._journal.note(f"a unit was given the baseline: {type(error).__name__}: {error}")
            return self._unlogged()

    def track(self, unit: str | int, event: str, /, **fields: object) -> None:
        """Say what happened to a unit; it is credited to what the unit was served last."""
        try:
            unit = _unit(unit)
            decision = self._holder.live.remembered.get(unit)
        except Exception as error:
            self._journal.refuse(f"{type(error).__name__}: {error}")
            return
        self._measure(unit, decision, event, fields)

    def ready(self, timeout: float = 5.0) -> bool:
        """Wait for the service to say which policy holds; returns whether there is one to decide by.

        In an outage that is the one kept on disk, where it has not expired.
        """
        try:
            return not self._closed and self._link.ready(timeout)
        except Exception as error:
            self._journal.note(f"ready() failed: {type(error).__name__}: {error}")
            return False

    def flush(self, timeout: float = 5.0) -> bool:
        """Send what is waiting now; returns whether the service has answered for all of it in time."""
        try:
            return not self._closed and self._link.flush(timeout)
        except Exception as error:
            self._journal.note(f"flush() failed: {type(error).__name__}: {error}")
            return False

    def close(self, timeout: float = AT_EXIT) -> bool:
        """Send what is waiting, then stop; returns whether everything arrived. From then on it serves the baseline."""
        if not self._closed:
            try:
                self._link.close(timeout)
            except Exception as error:
                self._journal.note(f"close() failed: {type(error).__name__}: {error}")
            self._closed = True
            self._holder.live = replace(self._holder.live, until=-math.inf)
            atexit.unregister(self.close)
            _CLIENTS.discard(self)
        return self._outbox.settled(self._outbox.sequence)

    def status(self) -> dict[str, Any]:
        """How things stand, as plain values: for a health page, a metric, or a log line.

        >>> with Client("http://127.0.0.1:8300", study="feed", cache=None, background=False) as client:
        ...     client.status()["reason"]
        'DEFAULT'
        """
        live, now = self._holder.live, self._clock()
        accounts = self._outbox.accounts()
        return {
            "study": self._study,
            "source": self._outbox.source,
            "version": live.policy.version if live.policy is not None else 0,
            "state": live.policy.state if live.policy is not None else None,
            "age": now - live.contact if math.isfinite(live.contact) else None,
            "reason": self._standing(live),
            "repeated": self._repeats.read(),
            "unlogged": self._not_logged.read(),
            "buffered": self._outbox.pending(),
            "dropped": sum(line["dropped"] for lines in accounts.values() for line in lines.values()),
            "dropped_metrics": self._outbox.dropped_metrics,
            "rejected": dict(self._journal.refused),
            "errors": self._journal.errors,
            "last_error": self._journal.last,
            "accounts": accounts,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client of {self._study!r} at {self._url}>"

    # What the calls above are made of

    def _decide(self, live: PolicyState, unit: object, override: str | None) -> Decision:
        """Choose for a unit, log its exposure where it is a new one, and remember it."""
        unit = _unit(unit)
        cell, reason = self._choose(live, unit, override)
        version = 0 if live.policy is None else live.policy.version
        if self._closed:
            self._not_logged.tick()
            return Decision(self._handle, unit, version, cell, reason)
        with self._outbox.lock:
            known = live.remembered.get(unit)
            if known is not None and known._reason is reason and known._cell is cell:
                self._repeats.tick()
                return known
            decision = Decision(self._handle, unit, version, cell, reason)
            live.remembered.put(unit, decision)
            waiting = self._outbox.expose(decision)
        if waiting == BATCH or not self._link.started:
            self._link.nudge()
        return decision

    def _choose(self, live: PolicyState, unit: str, override: str | None) -> tuple[Bucket, Reason]:
        """Which candidate a unit is served, and why."""
        policy, reason = live.policy, self._standing(live)
        if policy is None or reason is not SPLIT:
            return (self._default if policy is None else policy.baseline), reason
        if override is None:
            return policy.draw(unit), SPLIT
        if override in policy.named:
            return policy.named[override], OVERRIDE
        self._journal.note(f"override={override!r} is no candidate of version {policy.version}: the baseline is served")
        return policy.baseline, DEFAULT

    def _standing(self, live: PolicyState) -> Reason:
        """Why a unit would be served what it is served now."""
        if live.policy is None or self._closed:
            return DEFAULT
        return SPLIT if self._clock() < live.until else STALE

    def _unlogged(self) -> Decision:
        """The baseline for what is no unit."""
        self._not_logged.tick()
        policy = self._holder.live.policy
        cell = self._default if policy is None else policy.baseline
        return Decision(self._handle, "", 0 if policy is None else policy.version, cell, DEFAULT)

    def _measured(self, decision: Decision, event: str, fields: dict[str, object]) -> None:
        """What a decision's handle reports."""
        self._measure(decision._unit, decision, event, fields)

    def _measure(self, unit: str, decision: Decision | None, event: str, fields: dict[str, object]) -> None:
        try:
            if self._closed:
                raise FieldError("the client is closed")
            if not unit:
                raise FieldError("it belongs to no unit")
            waiting = self._outbox.measure(unit, decision, *check_fields(event, fields))
            if waiting == BATCH or not self._link.started:
                self._link.nudge()
        except Exception as error:
            self._journal.refuse(str(error))

    def _lost(self, decision: Decision) -> None:
        """An exposure was dropped: the unit's next decision is to be logged again."""
        live = self._holder.live
        if live.policy is None or live.policy.version == decision._version:
            live.remembered.forget(decision._unit)

    def _after_fork(self) -> None:
        """Become a client of one's own in a child: the policy stays, what waits is the parent's to send."""
        self._repeats = CallCounter()
        self._not_logged = CallCounter()
        self._link.renew()


_CLIENTS: weakref.WeakSet[Client] = weakref.WeakSet()


def _after_fork() -> None:
    for client in list(_CLIENTS):
        client._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _unit(unit: object) -> str:
    """A unit as it is drawn for and sent."""
    if isinstance(unit, int) and not isinstance(unit, bool):
        return str(unit)
    if not isinstance(unit, str):
        raise FieldError(f"a unit is a text or a whole number, got {type(unit).__name__}")
    if not 0 < len(unit) <= LONGEST:
        raise FieldError(f"a unit has 1 to {LONGEST} characters, got {len(unit)}")
    if not unit.isascii():
        unit.encode()  # Half a surrogate pair cannot be sent.
    return unit
