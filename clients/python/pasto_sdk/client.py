"""Client of a study: assigns units in this process and exchanges policies and events in the background."""

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
from pasto_sdk.event_sender import MAX_BATCH_EVENTS
from pasto_sdk.http_transport import HttpTransport
from pasto_sdk.policy import MAX_UNIT_CHARACTERS
from pasto_sdk.policy_document import Bucket, Value
from pasto_sdk.policy_holder import PolicyHolder, PolicyState
from pasto_sdk.transport import Transport

EXIT_TIMEOUT_SECONDS = 5.0
"""Time that the end of the process may wait for the last events."""


class Client:
    """Client of one study: assigns units to candidates and sends events; its methods never block and never raise.

    Decisions are made in this process from the last good policy. One background thread keeps the policy up to date and
    on disk, another one sends the events. Make one client for each study and process, and use it until the end.

    `baseline` holds the values to serve before any policy is available. `cache` is the folder for the last good
    policy: the user's cache folder by default, None for no file. `poll_interval` is the time in seconds between two
    requests for the policy if the service does not support long polls. `flush_interval` is the time in seconds that
    an event may wait for others. `max_buffered_events` limits the events that wait while the service is unavailable.
    `decision_cache_size` limits the units whose decisions are cached, so that a repeated unit is decided at once and
    its exposure is sent once. `background=False` starts no threads, for scripts and tests: `wait_until_ready` and
    `flush` then do the work when they are called.

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
        api_key: str | None = None,
        baseline: Mapping[str, Value] | None = None,
        cache: str | os.PathLike[str] | bool | None = True,
        poll_interval: float = 20.0,
        flush_interval: float = 1.0,
        max_buffered_events: int = 100_000,
        decision_cache_size: int = 50_000,
        transport: Transport | None = None,
        background: bool = True,
        clock: Callable[[], float] = time.monotonic,
        **unknown: object,
    ) -> None:
        client_options.check_unknown(unknown)
        self._url = client_options.check_address(url)
        self._study = client_options.check_study_name(study)
        self._default = Bucket("none", -1, "baseline", MappingProxyType(dict(baseline or {})), 0, 0.0)
        self._clock = clock
        self._closed = False
        self._error_log = ErrorLog()
        self._holder = PolicyHolder(
            study, clock, client_options.check_amount("decision_cache_size", decision_cache_size)
        )
        self._buffer = EventBuffer(
            client_options.check_amount("max_buffered_events", max_buffered_events), self._on_dropped
        )
        self._on_metric = self._send_decision_metric
        self._repeats = CallCounter()
        self._not_logged = CallCounter()
        self._not_enrolled = CallCounter()
        self._not_enrolled_events = CallCounter()
        self._background = BackgroundTasks(
            self._holder,
            self._buffer,
            transport or HttpTransport(),
            f"{self._url}/v1/studies/{quote(self._study, safe='')}",
            client_options.request_headers(api_key),
            self._error_log,
            poll_interval=client_options.check_seconds("poll_interval", poll_interval),
            flush_interval=client_options.check_seconds("flush_interval", flush_interval),
            file=client_options.cache_file(cache, self._url, study),
            background=background,
            clock=clock,
        )
        self._background.restore()
        self._background.start()
        _CLIENTS.add(self)
        atexit.register(self.close, EXIT_TIMEOUT_SECONDS)

    def assign(self, unit: str | int, /, *, override: str | None = None, **attributes: object) -> Decision:
        """Return the candidate of a unit, and log its exposure once for each unit and policy.

        An integer stands for its digits. The study's audience and segments read the attributes: `assign(unit,
        country="de")`. If the study assigns clusters, one attribute names the cluster of the unit: `assign(unit,
        school="north")`. A unit that does not take part in the study gets the baseline with the reason DEFAULT and the
        arm "not_enrolled", without an exposure, and no metric events are sent for it. `override` serves a candidate of
        the current policy by its name, for a preview; the learner ignores that exposure and the events after it.
        """
        try:
            live = self._holder.live
            if override is None and not live.reads_attributes:
                decision = live.decisions.young.get(unit)  # type: ignore[arg-type]
                if decision is not None and decision._reason is SPLIT and self._clock() < live.until:
                    self._repeats.tick()
                    return decision
            return self._decide(live, unit, override, attributes)
        except Exception as error:
            self._error_log.note(f"a unit was given the baseline: {type(error).__name__}: {error}")
            return self._unlogged()

    def track(self, unit: str | int, event: str, /, **fields: object) -> None:
        """Send a metric event of a unit; it counts for the candidate that the unit was served last."""
        try:
            unit = _unit(unit)
            live = self._holder.live
            decision = live.not_enrolled.get(unit) or live.decisions.get(unit)
        except Exception as error:
            self._error_log.refuse(f"{type(error).__name__}: {error}")
            return
        self._send_metric(unit, decision, event, fields)

    def wait_until_ready(self, timeout: float = 5.0) -> bool:
        """Wait for the current policy of the service; return whether there is one.

        If the service cannot be reached, the policy on disk counts until it expires.
        """
        try:
            return not self._closed and self._background.wait_until_ready(timeout)
        except Exception as error:
            self._error_log.note(f"wait_until_ready() failed: {type(error).__name__}: {error}")
            return False

    def flush(self, timeout: float = 5.0) -> bool:
        """Send the waiting events now; return whether the service answered for all of them in time."""
        try:
            return not self._closed and self._background.flush(timeout)
        except Exception as error:
            self._error_log.note(f"flush() failed: {type(error).__name__}: {error}")
            return False

    def close(self, timeout: float = EXIT_TIMEOUT_SECONDS) -> bool:
        """Send the waiting events, then stop; return whether all arrived. A closed client serves the baseline."""
        if not self._closed:
            try:
                self._background.close(timeout)
            except Exception as error:
                self._error_log.note(f"close() failed: {type(error).__name__}: {error}")
            self._closed = True
            self._holder.live = replace(self._holder.live, until=-math.inf)
            atexit.unregister(self.close)
            _CLIENTS.discard(self)
        return self._buffer.is_settled(self._buffer.sequence)

    def status(self) -> dict[str, Any]:
        """Return the state of the client as plain values, for a health page, a metric or a log line.

        >>> with Client("http://127.0.0.1:8300", study="feed", cache=None, background=False) as client:
        ...     client.status()["reason"]
        'DEFAULT'
        """
        live, now = self._holder.live, self._clock()
        accounts = self._buffer.count_by_candidate()
        return {
            "study": self._study,
            "source": self._buffer.source,
            "version": live.policy.version if live.policy is not None else 0,
            "state": live.policy.state if live.policy is not None else None,
            "age": now - live.contact if math.isfinite(live.contact) else None,
            "reason": self._current_reason(live),
            "repeated": self._repeats.read(),
            "unlogged": self._not_logged.read(),
            "not_enrolled": self._not_enrolled.read(),
            "not_enrolled_events": self._not_enrolled_events.read(),
            "buffered": self._buffer.pending(),
            "dropped": sum(line["dropped"] for lines in accounts.values() for line in lines.values()),
            "dropped_metrics": self._buffer.dropped_metrics,
            "rejected": dict(self._error_log.refused),
            "errors": self._error_log.errors,
            "last_error": self._error_log.last,
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

    # Private methods

    def _decide(
        self, live: PolicyState, unit: object, override: str | None, attributes: Mapping[str, object]
    ) -> Decision:
        """Choose a candidate for a unit, log its exposure if it is new, and cache the decision."""
        unit = _unit(unit)
        cell, reason = self._choose(live, unit, override, attributes)
        version = 0 if live.policy is None else live.policy.version
        cluster = None if live.policy is None else live.policy.find_cluster(attributes)
        if self._closed:
            self._not_logged.tick()
            return Decision(self._on_metric, unit, version, cell, reason, cluster)
        if live.policy is not None and cell is live.policy.not_enrolled:
            self._not_enrolled.tick()
            decision = Decision(self._on_metric, unit, version, cell, reason, cluster)
            live.not_enrolled.put(unit, decision)
            return decision
        with self._buffer.lock:
            live.not_enrolled.forget(unit)
            known = live.decisions.get(unit)
            if known is not None and known._reason is reason and known._cell is cell and known._cluster == cluster:
                self._repeats.tick()
                return known
            decision = Decision(self._on_metric, unit, version, cell, reason, cluster)
            live.decisions.put(unit, decision)
            waiting = self._buffer.add_exposure(decision)
        if waiting == MAX_BATCH_EVENTS or not self._background.started:
            self._background.nudge()
        return decision

    def _choose(
        self, live: PolicyState, unit: str, override: str | None, attributes: Mapping[str, object]
    ) -> tuple[Bucket, Reason]:
        """Return the bucket of a unit, and the reason."""
        policy, reason = live.policy, self._current_reason(live)
        if policy is None or reason is DEFAULT:
            return (self._default if policy is None else policy.baseline), reason
        if override is None and (reason is SPLIT or policy.is_partial):
            cell = policy.draw(unit, attributes)
            if cell is policy.not_enrolled:  # also if the policy has expired: an outage makes no exposures of others
                return cell, DEFAULT
            if reason is SPLIT:
                return cell, SPLIT
        if override is None or reason is not SPLIT:
            return policy.baseline, reason
        if override in policy.named:
            return policy.named[override], OVERRIDE
        self._error_log.note(
            f"override={override!r} is not a candidate of version {policy.version}; the baseline is served"
        )
        return policy.baseline, DEFAULT

    def _current_reason(self, live: PolicyState) -> Reason:
        """Return the reason of a decision that is made now."""
        if live.policy is None or self._closed:
            return DEFAULT
        return SPLIT if self._clock() < live.until else STALE

    def _unlogged(self) -> Decision:
        """Return the baseline for a unit that is not valid; nothing is logged."""
        self._not_logged.tick()
        policy = self._holder.live.policy
        cell = self._default if policy is None else policy.baseline
        return Decision(self._on_metric, "", 0 if policy is None else policy.version, cell, DEFAULT)

    def _send_decision_metric(self, decision: Decision, event: str, fields: dict[str, object]) -> None:
        """Send a metric event of a decision."""
        self._send_metric(decision._unit, decision, event, fields)

    def _send_metric(self, unit: str, decision: Decision | None, event: str, fields: dict[str, object]) -> None:
        try:
            if self._closed:
                raise FieldError("the client is closed")
            if not unit:
                raise FieldError("the event has no unit")
            if decision is not None and decision.is_not_enrolled:
                self._not_enrolled_events.tick()
                return
            waiting = self._buffer.add_metric(unit, decision, *check_fields(event, fields))
            if waiting == MAX_BATCH_EVENTS or not self._background.started:
                self._background.nudge()
        except Exception as error:
            self._error_log.refuse(str(error))

    def _on_dropped(self, decision: Decision) -> None:
        """Forget the decision of a dropped exposure, so that the unit's next one is logged again."""
        live = self._holder.live
        if live.policy is None or live.policy.version == decision._version:
            live.decisions.forget(decision._unit)

    def _after_fork(self) -> None:
        """Start again in a child process: keep the policy, and leave the waiting events to the parent."""
        self._repeats = CallCounter()
        self._not_logged = CallCounter()
        self._not_enrolled = CallCounter()
        self._not_enrolled_events = CallCounter()
        self._background.renew()


_CLIENTS: weakref.WeakSet[Client] = weakref.WeakSet()


def _after_fork() -> None:
    for client in list(_CLIENTS):
        client._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _unit(unit: object) -> str:
    """Return a unit as text, as it is drawn and sent."""
    if isinstance(unit, int) and not isinstance(unit, bool):
        return str(unit)
    if not isinstance(unit, str):
        raise FieldError(f"a unit must be a string or an integer, got {type(unit).__name__}")
    if not 0 < len(unit) <= MAX_UNIT_CHARACTERS:
        raise FieldError(f"a unit must have 1 to {MAX_UNIT_CHARACTERS} characters, got {len(unit)}")
    if not unit.isascii():
        unit.encode()  # Half a surrogate pair cannot be sent.
    return unit
