"""Questions: slow answers, computed once for all who ask the same, and cached if they cannot change."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from pasto.service.http.responses import HttpResponse
from pasto.service.http.worker_pools import PoolFullError, WorkerPool

Key = tuple[Any, ...]
"""All that an answer depends on: the kind of question, the study with its generation, and what was asked."""
MAX_CACHED_BYTES = 16_000_000


@dataclass(slots=True)
class _Computation:
    """An answer that is being computed or waits for a thread, and the number of callers that wait for it."""

    work: Future[HttpResponse]
    answer: asyncio.Future[HttpResponse]
    callers: int = 0


class Questions:
    """Answers by their keys; used by the event loop's thread only."""

    def __init__(self, pool: WorkerPool, max_cached_bytes: int = MAX_CACHED_BYTES) -> None:
        self._pool = pool
        self._computations: dict[Key, _Computation] = {}
        self._cache: OrderedDict[Key, HttpResponse] = OrderedDict()
        self._cached_bytes = 0
        self._max_cached_bytes = max_cached_bytes

    def is_pending(self, key: Key) -> bool:
        """Return whether the answer is being computed, or waits for a thread."""
        return key in self._computations

    def pending(self, kind: str) -> int:
        """Return how many questions of a kind, the first part of their keys, are being computed or wait."""
        return sum(key[0] == kind for key in self._computations)

    async def ask(
        self, key: Key, work: Callable[[], HttpResponse], *, seconds: float, cache: bool = False
    ) -> HttpResponse:
        """Return the answer: from the cache, from the computation of an equal question, or computed by `work`.

        An answer is cached with `cache`: only if it is the same for as long as its key is. A caller that joins a
        computation gets an answer as of when that began. TimeoutError after `seconds`; a computation that has begun
        goes on. PoolFullError if too many questions wait.
        """
        cached = self._cache.get(key)
        if cached is not None:
            self._cache.move_to_end(key)
            return cached
        computation = self._computations.get(key) or self._begin(key, work, cache)
        computation.callers += 1
        try:
            await asyncio.wait((computation.answer,), timeout=seconds)
            if not computation.answer.done():
                raise TimeoutError
        finally:
            computation.callers -= 1
            if not computation.callers and computation.work.cancel():  # which fails once it has begun
                self._computations.pop(key, None)
        if computation.answer.cancelled():  # the pool was closed
            raise PoolFullError
        return computation.answer.result()

    def close(self) -> None:
        """Answer those who wait with PoolFullError."""
        for computation in self._computations.values():
            computation.answer.cancel()

    def _begin(self, key: Key, work: Callable[[], HttpResponse], cache: bool) -> _Computation:
        future = self._pool.submit(work)
        computation = _Computation(future, asyncio.wrap_future(future))

        def finish(answer: asyncio.Future[HttpResponse]) -> None:
            if self._computations.get(key) is computation:
                del self._computations[key]
            if not answer.cancelled() and answer.exception() is None and cache:
                self._remember(key, answer.result())

        self._computations[key] = computation
        computation.answer.add_done_callback(finish)
        return computation

    def _remember(self, key: Key, answer: HttpResponse) -> None:
        if key not in self._cache:
            self._cache[key] = answer
            self._cached_bytes += len(answer.body)
        while self._cached_bytes > self._max_cached_bytes:
            self._cached_bytes -= len(self._cache.popitem(last=False)[1].body)
