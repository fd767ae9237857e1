"""Worker pools: threads for slow work, apart for each kind of it, so that no kind can starve another.

All threads share one interpreter lock, so a pool also limits how much of the processor its kind of work can take.
The threads for questions only wait for the question process, unless that is switched off or the store is in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Literal, TypeVar

from pasto.service.settings import Settings

PoolName = Literal["ingest", "changes", "general", "questions"]
Result = TypeVar("Result")


class PoolFullError(Exception):
    """A pool has as much waiting work as it may have."""


class WorkerPool:
    """Threads for one kind of work; `max_waiting` limits the work that waits for a thread.

    >>> pool = WorkerPool("example", threads=1)
    >>> pool.submit(lambda: 6 * 7).result()
    42
    >>> pool.close()
    """

    def __init__(self, name: str, threads: int, max_waiting: int | None = None) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=f"pasto-{name}")
        self._limit = None if max_waiting is None else threads + max_waiting
        self._threads = threads
        self._pending = 0
        self._lock = Lock()
        self.closed = False

    @property
    def waiting(self) -> int:
        """Work that waits for a thread."""
        return max(0, self._pending - self._threads)

    @property
    def is_busy(self) -> bool:
        """True while work is in progress or waits."""
        return self._pending > 0

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        """Do work in a thread; PoolFullError if too much waits already, or the pool is closed."""
        with self._lock:
            if self.closed or (self._limit is not None and self._pending >= self._limit):
                raise PoolFullError
            self._pending += 1
        try:
            future = self._executor.submit(work)
        except BaseException as error:
            self._settle(None)
            if isinstance(error, RuntimeError):  # closed in between
                raise PoolFullError from error
            raise
        future.add_done_callback(self._settle)
        return future

    def close(self) -> None:
        """Take no more work, and cancel the work that waits; work under way is not interrupted."""
        self.closed = True
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _settle(self, _: Future[Result] | None) -> None:
        with self._lock:
            self._pending -= 1


class WorkerPools:
    """Every pool of a service.

    `ingest` reads and takes in events and decides for many units, `changes` takes studies through their life and
    changes keys, `questions` has answers computed that take long, and `general` does the rest.
    """

    def __init__(self, settings: Settings) -> None:
        threads = settings.threads
        self._pools: dict[PoolName, WorkerPool] = {
            "ingest": WorkerPool("ingest", threads),
            "changes": WorkerPool("changes", threads),
            "general": WorkerPool("general", threads),
            "questions": WorkerPool("questions", settings.question_threads, settings.max_questions),
        }

    def __getitem__(self, name: PoolName) -> WorkerPool:
        return self._pools[name]

    @property
    def is_busy(self) -> bool:
        """True while work is in progress or waits."""
        return any(pool.is_busy for pool in self._pools.values())

    def shutdown(self) -> None:
        """Close every pool."""
        for pool in self._pools.values():
            pool.close()
