"""Work sharing between nodes: one claims a task, such as the close of a round, and the others leave it to that node."""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock

from pasto.errors import StoreError
from pasto.store import Store

log = logging.getLogger("pasto.claims")
CLAIM_SECONDS = 60.0
"""Seconds after which another node may do the work of a node that died; a living node extends its claims."""


class WorkClaims:
    """Claims of one node in a store that several nodes share. They save work: correctness does not depend on them.

    >>> from pasto.store import open_store
    >>> store = open_store("memory:")
    >>> one, other = WorkClaims(store, lambda: 0.0), WorkClaims(store, lambda: 0.0)
    >>> with one.hold("close/1") as is_mine, other.hold("close/1") as is_others:
    ...     print(is_mine, is_others)
    True False
    >>> with other.hold("close/1") as is_others:
    ...     print(is_others)
    True
    >>> store.close()
    """

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._node = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
        self._ends: dict[str, float] = {}
        """Claims of this node, with the times at which they end."""
        self._lock = Lock()

    @contextmanager
    def hold(self, name: str) -> Iterator[bool]:
        """Claim work for the block, and yield whether this node may do it; False if another node does it.

        A store that cannot be written does not prevent the work: its result may still fit on a full disk.
        """
        with self._lock:
            is_mine = self._claim(name)
        try:
            yield is_mine
        finally:
            if is_mine:
                with self._lock:
                    del self._ends[name]
                with suppress(StoreError):  # it ends by itself
                    self._store.release_claim(name, self._node)

    def extend(self) -> None:
        """Extend the claims of this node that end soon."""
        with self._lock:
            for name, end in list(self._ends.items()):
                if end - self._clock() < CLAIM_SECONDS / 2:
                    self._claim(name)

    def _claim(self, name: str) -> bool:
        now = self._clock()
        try:
            if not self._store.claim(name, self._node, now, now + CLAIM_SECONDS):
                return False
        except StoreError as error:
            log.warning("%s could not be claimed: %s", name, error)
        self._ends[name] = now + CLAIM_SECONDS
        return True
