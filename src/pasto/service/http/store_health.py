"""Health of the store under a running service: a real test of writing, and a search for damage in the background."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from threading import Event, Thread

from pasto.errors import StoreDamagedError, StoreLostError
from pasto.store import Store
from pasto.store.failures import is_damage, is_disk_full

log = logging.getLogger("pasto.store")
PATIENCE_SECONDS = 2.0
"""Time that the store may take to show that it works."""
CACHE_SECONDS = 1.0
"""Time for which an answer stands, so that asking often does not write often."""
DAMAGE_CHECK_SECONDS = 86_400.0
"""Time between two searches for damage."""


class StoreHealth:
    """Tells whether the store can be read, takes writes and is sound.

    The whole file is searched for damage when the service starts and once a day, by a thread that only reads. Until
    the first search is done the store does not count as healthy.
    """

    def __init__(self, store: Store, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._known: list[str] = []
        self._known_until: float | None = None
        self._test: asyncio.Task[list[str]] | None = None
        self._first_search: Future[None] | None = None
        self._stop = Event()
        self._thread: Thread | None = None
        self.cache_seconds = CACHE_SECONDS

    def start(self) -> None:
        """Begin to search for damage."""
        self._first_search = Future()
        self._thread = Thread(target=self._search_repeatedly, name="pasto-damage-search", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the search, also in the middle of one."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    async def problems(self) -> list[str]:
        """Return what is wrong with the store now, in sentences; callers at the same time share one test."""
        if self._known_until is not None and self._monotonic() < self._known_until:
            return self._known
        if self._test is None:
            self._test = asyncio.create_task(self._test_store())
        try:
            return await asyncio.wait_for(asyncio.shield(self._test), PATIENCE_SECONDS)
        except TimeoutError:
            if self._first_search is not None and not self._first_search.done():
                return ["the store's file is still being searched for damage; this is done once after the start"]
            return ["the store does not answer in time"]

    async def _test_store(self) -> list[str]:
        try:
            await asyncio.to_thread(self._store.list_keys)
            if self._first_search is not None:
                await asyncio.wrap_future(self._first_search)
            await asyncio.wrap_future(self._store.check_writable())
            self._known = []
        except Exception as error:  # whatever it is, the store does not work, and that is the answer
            log.warning("the store failed its test: %s: %s", type(error).__name__, error)
            self._known = [describe_failure(error)]
        finally:
            self._known_until = self._monotonic() + self.cache_seconds
            self._test = None
        return self._known

    def _search_repeatedly(self) -> None:
        first = self._first_search
        while True:
            try:
                finding = self._store.find_damage(self._stop.is_set)
                if finding is not None:
                    log.error("the store's file is damaged: %s", finding)
            except Exception as error:  # it cannot be read, or it is being closed; the test of the store tells
                if not self._stop.is_set():
                    log.error("the store's file could not be searched for damage: %s", error)
            if first is not None and not first.done():
                first.set_result(None)
            if self._stop.wait(DAMAGE_CHECK_SECONDS):
                return


def describe_failure(error: Exception) -> str:
    """Return a sentence about a failure that strangers may read: it names no path and no address.

    >>> describe_failure(ValueError("/var/lib/secret"))
    'the store does not answer (ValueError)'
    """
    if is_disk_full(error):
        return "the store takes no writes, because its disk is full; make room, and it goes on by itself"
    if isinstance(error, StoreLostError):
        return (
            "the store's file was removed, replaced or emptied while the service runs, so nothing is acknowledged; "
            "stop the service, put the file back or restore a backup, and start it again"
        )
    if is_damage(error) or isinstance(error, StoreDamagedError):
        return "the store's file is damaged; run `pasto store check`, and restore a backup"
    return f"the store does not answer ({type(error).__name__})"
