"""The link to the service: two threads, one that fetches policies and one that brings events."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pasto_sdk.diagnostics import ErrorLog
from pasto_sdk.event_buffer import EventBuffer
from pasto_sdk.event_sender import CAP, EventSender
from pasto_sdk.http_transport import HttpTransport
from pasto_sdk.policy_holder import PolicyHolder
from pasto_sdk.policy_poller import PolicyPoller
from pasto_sdk.transport import Transport


class PeriodicThread:
    """Runs a step, waits as long as it says, and runs it again, until it is stopped.

    >>> import threading
    >>> ran = threading.Event()
    >>> lane = PeriodicThread("example", lambda: (ran.set(), 60.0)[1], ErrorLog())
    >>> lane.start(); ran.wait(5); lane.stop(5)
    True
    """

    def __init__(self, name: str, step: Callable[[], float], journal: ErrorLog) -> None:
        self._name = name
        self._step = step
        self._journal = journal
        self._wake = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._passed = threading.Condition()

    def start(self) -> None:
        """Begin, unless it runs already; RuntimeError where the system gives no thread."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=f"pasto-{self._name}", daemon=True)
            thread.start()
            self._thread = thread

    def wake(self) -> None:
        """Run the step now instead of when it is due."""
        self._wake.set()

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition holds, looking after each step; returns whether it does."""
        with self._passed:
            return self._passed.wait_for(condition, timeout)

    def stop(self, timeout: float) -> None:
        """End after the step that is running, waiting for that at most so many seconds."""
        self._stopped = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stopped:
            try:
                delay = self._step()
            except Exception as error:
                self._journal.note(f"{self._name} failed unexpectedly: {type(error).__name__}: {error}")
                delay = CAP
            with self._passed:
                self._passed.notify_all()
            if not self._stopped:
                self._wake.wait(delay)
                self._wake.clear()


RETRY_START = 1.0
"""Seconds before a thread is asked for again that the system would not give."""


class BackgroundTasks:
    """Runs the refresher and the sender: in threads of their own, or in the caller's where there are to be none."""

    def __init__(
        self,
        holder: PolicyHolder,
        outbox: EventBuffer,
        transport: Transport,
        url: str,
        headers: Mapping[str, str],
        journal: ErrorLog,
        *,
        refresh: float,
        flush: float,
        file: Path | None,
        background: bool,
        clock: Callable[[], float],
    ) -> None:
        self._holder = holder
        self._outbox = outbox
        self._transport = transport
        self._url = url
        self._headers = headers
        self._journal = journal
        self._refresh = refresh
        self._flush = flush
        self._file = file
        self._background = background
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        """Everything that belongs to one process alone: locks, threads and what they have under way."""
        # Reentrant, for a signal handler may come in while its own thread is inside.
        self._turn = threading.RLock()
        self._start_again = -math.inf
        self._stopped = False
        self.started = not self._background
        """False in a process whose threads are yet to be started: at first, and after a fork."""
        self._refresher = PolicyPoller(
            self._holder,
            self._transport,
            f"{self._url}/policy",
            self._headers,
            self._journal,
            refresh=self._refresh,
            file=self._file,
            patient=self._background,
            clock=self._clock,
        )
        self._sender = EventSender(
            self._holder,
            self._outbox,
            self._transport,
            f"{self._url}/events",
            self._headers,
            self._journal,
            flush=self._flush,
            clock=self._clock,
        )
        self._refreshing = PeriodicThread("refresh", self._refresher.step, self._journal)
        self._sending = PeriodicThread("send", self._sender.step, self._journal)

    def restore(self) -> None:
        """Take the policy that an earlier process left on disk."""
        self._refresher.restore()

    def start(self) -> None:
        """Start the threads, where they do not run in this process."""
        if self.started or self._stopped or time.monotonic() < self._start_again:
            return
        with self._turn:
            try:
                self._refreshing.start()
                self._sending.start()
                self.started = True
            except RuntimeError as error:
                self._journal.note(f"no thread could be started: {error}")
                self._start_again = time.monotonic() + RETRY_START

    def nudge(self) -> None:
        """Send a full batch at once."""
        self.start()
        self._sending.wake()

    def ready(self, timeout: float) -> bool:
        """Wait for the service's own policy; returns whether there is one to decide by, from it or from disk."""
        if self._background:
            self.start()
            return self._refreshing.wait_for(self._holder.current, timeout) or self._holder.fresh()
        with self._turn:
            self._refresher.step()
        return self._holder.fresh()

    def flush(self, timeout: float) -> bool:
        """Send what is waiting now; returns whether the service has answered for all of it in time."""
        last = self._outbox.sequence
        self._sender.urgent = True
        try:
            if self._background:
                self.start()
                self._sending.wake()
                return self._sending.wait_for(lambda: self._outbox.settled(last), timeout)
            return self._flush_here(last, self._clock() + timeout)
        finally:
            self._sender.urgent = False

    def close(self, timeout: float) -> None:
        """Send what is waiting, then end the threads; both together within the time given."""
        ends = time.monotonic() + timeout
        if not self._outbox.settled(self._outbox.sequence):
            self.flush(timeout)
        self._stopped = True
        self._refresher.stop()
        lanes = (self._refreshing, self._sending)
        for lane in lanes:
            lane.stop(0)
        if isinstance(self._transport, HttpTransport):
            self._transport.close()  # Wakes whoever waits for an answer.
        for lane in lanes:
            lane.stop(max(0.1, ends - time.monotonic()))

    def renew(self) -> None:
        """Begin anew in a child after a fork, with nothing of the parent's but the policy."""
        if isinstance(self._transport, HttpTransport):
            self._transport.forsake()
        self._outbox.renew()
        self._holder.renew()
        self._begin()

    def _flush_here(self, last: int, ends: float) -> bool:
        """The sender's work in the caller's own thread, as long as it goes well."""
        with self._turn:
            while not self._outbox.settled(last) and self._clock() < ends:
                self._sender.step()
                if self._sender.failing:
                    break
        return self._outbox.settled(last)
