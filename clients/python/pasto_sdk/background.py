"""Background tasks of a client: one thread polls for policies, one sends events."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pasto_sdk.diagnostics import ErrorLog
from pasto_sdk.event_buffer import EventBuffer
from pasto_sdk.event_sender import MAX_WAIT_SECONDS, EventSender
from pasto_sdk.http_transport import HttpTransport
from pasto_sdk.periodic_thread import PeriodicThread
from pasto_sdk.policy_holder import PolicyHolder
from pasto_sdk.policy_poller import PolicyPoller
from pasto_sdk.transport import Transport

RETRY_START_SECONDS = 1.0
"""Time before a thread that could not be started is tried again."""


class BackgroundTasks:
    """Policy poller and event sender, run by two threads, or by the caller if there are no threads."""

    def __init__(
        self,
        holder: PolicyHolder,
        event_buffer: EventBuffer,
        transport: Transport,
        url: str,
        headers: Mapping[str, str],
        error_log: ErrorLog,
        *,
        poll_interval: float,
        flush_interval: float,
        file: Path | None,
        background: bool,
        clock: Callable[[], float],
    ) -> None:
        self._holder = holder
        self._buffer = event_buffer
        self._transport = transport
        self._url = url
        self._headers = headers
        self._error_log = error_log
        self._poll_interval = poll_interval
        self._flush_interval = flush_interval
        self._file = file
        self._background = background
        self._clock = clock
        self._reset()

    def _reset(self) -> None:
        """Create the locks, threads and requests, which belong to one process alone."""
        # Reentrant, because a signal handler may run while its own thread holds the lock.
        self._turn = threading.RLock()
        self._start_again = -math.inf
        self._stopped = False
        self.started = not self._background
        """False until the threads of this process run: at first, and after a fork."""
        self._poller = PolicyPoller(
            self._holder,
            self._transport,
            f"{self._url}/policy",
            self._headers,
            self._error_log,
            poll_interval=self._poll_interval,
            file=self._file,
            long_poll=self._background,
            clock=self._clock,
        )
        self._sender = EventSender(
            self._holder,
            self._buffer,
            self._transport,
            f"{self._url}/events",
            self._headers,
            self._error_log,
            flush_interval=self._flush_interval,
            clock=self._clock,
        )
        report = self._error_log.note
        self._poll_thread = PeriodicThread("refresh", self._poller.step, MAX_WAIT_SECONDS, report)
        self._send_thread = PeriodicThread("send", self._sender.step, MAX_WAIT_SECONDS, report)

    def restore(self) -> None:
        """Load the policy that an earlier process saved on disk."""
        self._poller.restore()

    def start(self) -> None:
        """Start the threads, if they do not run in this process."""
        if self.started or self._stopped or time.monotonic() < self._start_again:
            return
        with self._turn:
            try:
                self._poll_thread.start()
                self._send_thread.start()
                self.started = True
            except RuntimeError as error:
                self._error_log.note(f"no thread could be started: {error}")
                self._start_again = time.monotonic() + RETRY_START_SECONDS

    def nudge(self) -> None:
        """Send a full batch at once."""
        self.start()
        self._send_thread.wake()

    def wait_until_ready(self, timeout: float) -> bool:
        """Wait for the policy of the service; return whether there is one, from the service or from disk."""
        if self._background:
            self.start()
            return self._poll_thread.wait_for(self._holder.is_current, timeout) or self._holder.is_fresh()
        with self._turn:
            self._poller.step()
        return self._holder.is_fresh()

    def flush(self, timeout: float) -> bool:
        """Send the waiting events now; return whether the service answered for all of them in time."""
        last = self._buffer.sequence
        self._sender.urgent = True
        try:
            if self._background:
                self.start()
                self._send_thread.wake()
                return self._send_thread.wait_for(lambda: self._buffer.is_settled(last), timeout)
            return self._flush_here(last, self._clock() + timeout)
        finally:
            self._sender.urgent = False

    def close(self, timeout: float) -> None:
        """Send the waiting events, then stop the threads, within `timeout` seconds."""
        ends = time.monotonic() + timeout
        if not self._buffer.is_settled(self._buffer.sequence):
            self.flush(timeout)
        self._stopped = True
        self._poller.stop()
        threads = (self._poll_thread, self._send_thread)
        for thread in threads:
            thread.stop(0)
        if isinstance(self._transport, HttpTransport):
            self._transport.close()  # Ends requests that wait for a response.
        for thread in threads:
            thread.stop(max(0.1, ends - time.monotonic()))

    def renew(self) -> None:
        """Start again in a child process after a fork, with the policy only."""
        if isinstance(self._transport, HttpTransport):
            self._transport.release_after_fork()
        self._buffer.renew()
        self._holder.renew()
        self._reset()

    def _flush_here(self, last: int, ends: float) -> bool:
        """Send events in the caller's thread until one attempt fails."""
        with self._turn:
            while not self._buffer.is_settled(last) and self._clock() < ends:
                self._sender.step()
                if self._sender.failing:
                    break
        return self._buffer.is_settled(last)
