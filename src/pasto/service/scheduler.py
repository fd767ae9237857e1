"""Scheduler: threads that close the rounds that are due, and refresh the policy cache."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from pasto_sdk.periodic_thread import PeriodicThread

if TYPE_CHECKING:
    from pasto.service.service import Service

log = logging.getLogger("pasto.rounds")
MAX_RETRY_SECONDS = 60.0
"""Longest time between two tries at a study that cannot be closed."""
CLOSE_THREADS = 4
OWN_EVENTS = ""
"""Group of the studies whose events are in this store; other groups are the sources of the teams' own tables."""


@dataclass(frozen=True, slots=True)
class PendingClose:
    """Close that runs, or waits for a thread."""

    overdue: float
    """Seconds for which the round had been due when the close was requested."""
    requested_at: float
    """Time of the request by the monotonic clock."""

    def measure_lag(self, now: float) -> float:
        """Return the seconds for which the round has been due."""
        return self.overdue + now - self.requested_at


class ClosePool:
    """Bounded pool of threads that close rounds; each group occupies at most a part of them.

    So one slow source, which may delay many studies of its own, leaves threads to those of other sources.
    """

    def __init__(self, name: str, threads: int, threads_per_group: int) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=f"pasto-close-{name}")
        self._threads = threads
        self._threads_per_group = threads_per_group
        self._waiting: deque[tuple[str, Future[int], Callable[[], int]]] = deque()
        self._running: Counter[str] = Counter()
        self._lock = Lock()

    @property
    def waiting(self) -> int:
        """Closes that wait for a thread."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Closes that run."""
        return self._running.total()

    def submit(self, group: str, work: Callable[[], int]) -> Future[int]:
        """Run a close as soon as there is a thread for its group; the first one that waits goes first."""
        future: Future[int] = Future()
        with self._lock:
            self._waiting.append((group, future, work))
        self._start_waiting()
        return future

    def shutdown(self) -> None:
        """Cancel the closes that wait, and finish those that run."""
        with self._lock:
            cancelled, self._waiting = self._waiting, deque()
        for _, future, _ in cancelled:
            future.cancel()
        self._executor.shutdown(wait=True)

    def _start_waiting(self) -> None:
        with self._lock:
            for entry in tuple(self._waiting):
                group = entry[0]
                if self._running.total() >= self._threads:
                    return
                if self._running[group] < self._threads_per_group:
                    self._waiting.remove(entry)
                    self._running[group] += 1
                    self._executor.submit(self._run, *entry)

    def _run(self, group: str, future: Future[int], work: Callable[[], int]) -> None:
        try:
            result = work()
        except BaseException as error:
            self._release(group)
            future.set_exception(error)
        else:
            self._release(group)
            future.set_result(result)

    def _release(self, group: str) -> None:
        with self._lock:
            self._running[group] -= 1
        self._start_waiting()


class Scheduler:
    """Threads that check every `poll` seconds which rounds are due, close them, and refresh the policy cache.

    Each study is closed by at most one thread at a time, and studies do not wait for each other. Those that read a
    team's own tables have threads of their own, because a source can be slow. The cache is refreshed by another thread,
    so that this node reads another node's pause while it computes a long close. Several schedulers may run over one
    store: a node claims a round before it measures it, and the first commit of a close wins in any case. A failing
    study is logged and tried again, with increasing back-off.
    """

    def __init__(
        self,
        service: Service,
        poll: float = 1.0,
        threads: int = CLOSE_THREADS,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service = service
        self._poll = poll
        self._monotonic = monotonic
        self._refresher = PeriodicThread("refresh", self.refresh, poll, log.warning)
        self._closer = PeriodicThread("close_due", self._request_all_due, poll, log.warning)
        self._own_pool = ClosePool("own", threads, threads)
        self._source_pool = ClosePool("source", threads, max(1, threads // 2))
        self._pending: dict[str, PendingClose] = {}
        self._lags: dict[str, float] = {}
        """By study: the seconds between due and closed of the last round that this node closed."""
        self._failing: dict[str, tuple[int, int]] = {}
        """By study: polls to wait, and failures in a row."""

    @property
    def alive(self) -> bool:
        """True while its threads are running."""
        return self._refresher.is_alive and self._closer.is_alive

    def start(self) -> None:
        """Start the threads; a second start does nothing."""
        self._refresher.start()
        self._closer.start()

    def stop(self) -> None:
        """Finish the present closes and stop the threads."""
        self._closer.stop()
        self._own_pool.shutdown()
        self._source_pool.shutdown()
        self._refresher.stop()

    def tick(self) -> int:
        """Check every study once, and wait for the closes; return the number of rounds that this node closed."""
        self.refresh()
        return sum(future.result() for future in self._request_due())

    def refresh(self) -> None:
        """Read the changes of other nodes, and extend the claims on the rounds that this node closes."""
        try:
            self._service.policy_cache.refresh()
            self._service.claims.extend()
        except Exception as error:  # the store may be unreachable for a while, and the thread must survive that
            log.warning("the policy cache could not be refreshed: %s: %s", type(error).__name__, error)

    def read_metrics(self) -> Iterator[tuple[str, str, float, Mapping[str, str] | None]]:
        """Yield the metrics for /metrics: (name, help, value, labels) each."""
        running = self._own_pool.running + self._source_pool.running
        waiting = self._own_pool.waiting + self._source_pool.waiting
        yield "pasto_closes_running", "Rounds that this node closes now.", running, None
        yield "pasto_closes_waiting", "Due rounds that wait for a thread.", waiting, None
        lags = dict(self._lags)
        now = self._monotonic()
        for name, pending in list(self._pending.items()):
            lags[name] = max(lags.get(name, 0.0), pending.measure_lag(now))
        meaning = "Seconds from due to closed, of the last round that this node closed or is closing."
        for name in self._service.policy_cache.names():
            yield "pasto_round_close_lag_seconds", meaning, lags.get(name, 0.0), {"study": name}

    def _request_all_due(self) -> None:
        self._request_due()

    def _request_due(self) -> list[Future[int]]:
        """Request the closes of the rounds that are due; return their results to come."""
        requested = []
        for name in self._service.policy_cache.names():
            if self._closer.is_stopping:
                break
            if name in self._pending:
                continue
            wait, failures = self._failing.get(name, (0, 0))
            if wait:
                self._failing[name] = (wait - 1, failures)
                continue
            try:
                overdue = self._service.measure_overdue(name)
                source = self._service.policy_cache.snapshot(name).spec.source
            except Exception as error:  # the failure of one study must not end the thread for all
                self._record_failure(name, error)
                continue
            if overdue is not None:
                requested.append(self._request_close(name, overdue, None if source is None else source.origin))
        return requested

    def _request_close(self, name: str, overdue: float, origin: str | None) -> Future[int]:
        self._pending[name] = PendingClose(overdue, self._monotonic())
        pool = self._own_pool if origin is None else self._source_pool
        return pool.submit(OWN_EVENTS if origin is None else origin, lambda: self._close(name))

    def _close(self, name: str) -> int:
        """Close a study's round in a thread of a pool."""
        try:
            closed = self._service.close_if_due(name)
            if closed:
                self._lags[name] = self._pending[name].measure_lag(self._monotonic())
            self._failing.pop(name, None)
        except Exception as error:  # the failure of one study must not affect the others
            self._record_failure(name, error)
            closed = 0
        finally:
            del self._pending[name]
        return closed

    def _record_failure(self, name: str, error: Exception) -> None:
        _, failures = self._failing.get(name, (0, 0))
        polls = int(min(2**failures, MAX_RETRY_SECONDS / max(self._poll, 1e-3)))
        self._failing[name] = (polls, failures + 1)
        log.warning("a round of study %r could not be closed: %s: %s", name, type(error).__name__, error)
