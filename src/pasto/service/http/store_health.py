"""Health of the store: a test write on demand, and a periodic search for damage."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future

from pasto.errors import StoreDamagedError, StoreLostError
from pasto.store import Store
from pasto.store.disk_errors import is_damage, is_disk_full
from pasto_sdk.periodic_thread import PeriodicThread

log = logging.getLogger("pasto.store")
PATIENCE_SECONDS = 2.0
"""Seconds that a test of the store may take."""
CACHE_SECONDS = 1.0
"""Seconds for which a result is reused, so that frequent requests do not cause frequent writes."""
DAMAGE_CHECK_SECONDS = 86_400.0
"""Seconds between two searches for damage."""


class StoreHealth:
    """Monitor of the store: it can be read, takes writes and is not damaged.

    The whole file is searched for damage when the service starts and once a day, by a thread that only reads. Until
    the first search is done the store does not count as healthy.
    """

    def __init__(self, store: Store, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._problems: list[str] = []
        self._valid_until: float | None = None
        self._test: asyncio.Task[list[str]] | None = None
        self._first_search: Future[None] | None = None
        self._thread = PeriodicThread("damage-search", self._search_damage, DAMAGE_CHECK_SECONDS, log.error)
        self.cache_seconds = CACHE_SECONDS

    def start(self) -> None:
        """Start the thread that searches for damage."""
        self._first_search = Future()
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; a search in progress ends early."""
        self._thread.stop()

    async def problems(self) -> list[str]:
        """Return the problems of the store as sentences. Concurrent callers share one test."""
        if self._valid_until is not None and self._monotonic() < self._valid_until:
            return self._problems
        if self._test is None:
            self._test = asyncio.create_task(self._test_store())
        try:
            return await asyncio.wait_for(asyncio.shield(self._test), PATIENCE_SECONDS)
        except TimeoutError:
            if self._first_search is not None and not self._first_search.done():
                return ["the first search of the store's file for damage is not finished; wait for it"]
            return ["the store did not answer in time"]

    async def _test_store(self) -> list[str]:
        try:
            await asyncio.to_thread(self._store.list_keys)
            if self._first_search is not None:
                await asyncio.wrap_future(self._first_search)
            await asyncio.wrap_future(self._store.check_writable())
            self._problems = []
        except Exception as error:  # any failure of the test means that the store does not work
            log.warning("the store failed its test: %s: %s", type(error).__name__, error)
            self._problems = [describe_failure(error)]
        finally:
            self._valid_until = self._monotonic() + self.cache_seconds
            self._test = None
        return self._problems

    def _search_damage(self) -> None:
        first = self._first_search
        try:
            damage = self._store.find_damage(lambda: self._thread.is_stopping)
            if damage is not None:
                log.error("the store's file is damaged: %s", damage)
        except Exception as error:  # the file is unreadable or being closed; the test write reports that
            if not self._thread.is_stopping:
                log.error("the store's file could not be searched for damage: %s", error)
        if first is not None and not first.done():
            first.set_result(None)


def describe_failure(error: Exception) -> str:
    """Describe a failure for callers without a key: no path and no address is named.

    >>> describe_failure(ValueError("/var/lib/secret"))
    'the store does not answer (ValueError)'
    """
    if is_disk_full(error):
        return "the store takes no writes, because its disk is full; free some space, and it continues by itself"
    if isinstance(error, StoreLostError):
        return (
            "the store's file was removed, replaced or emptied while the service was running, so no event is accepted; "
            "stop the service, put the file back or restore a backup, and start it again"
        )
    if is_damage(error) or isinstance(error, StoreDamagedError):
        return "the store's file is damaged; run `pasto store check`, and restore a backup"
    return f"the store does not answer ({type(error).__name__})"
