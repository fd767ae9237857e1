"""Scheduler: threads that close the rounds that are due, and refresh the policy cache."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pasto_sdk.periodic_thread import PeriodicThread

if TYPE_CHECKING:
    from pasto.service.service import Service

log = logging.getLogger("pasto.rounds")
MAX_RETRY_SECONDS = 60.0
"""Longest time between two tries at a study that cannot be closed."""


class Scheduler:
    """Two threads that close due rounds, one study after another, and refresh the policy cache, every `poll` seconds.

    The cache has its own thread, so that this node reads another node's pause while it computes a long close. Several
    schedulers may run over one store: the first commit of a close wins. A failing study is logged and tried again,
    with increasing back-off, and never delays another study.
    """

    def __init__(self, service: Service, poll: float = 1.0) -> None:
        self._service = service
        self._poll = poll
        self._refresher = PeriodicThread("refresh", self.refresh, poll, log.warning)
        self._closer = PeriodicThread("close_due", self._close_due, poll, log.warning)
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
        """Finish the present close and stop the threads."""
        self._closer.stop()
        self._refresher.stop()

    def tick(self) -> int:
        """Check every study once; return the number of closed rounds."""
        self.refresh()
        return self.close_due()

    def _close_due(self) -> None:
        self.close_due()

    def refresh(self) -> None:
        """Read the changes of other nodes."""
        try:
            self._service.policy_cache.refresh()
        except Exception as error:  # the store may be unreachable for a while, and the thread must survive that
            log.warning("the policy cache could not be refreshed: %s: %s", type(error).__name__, error)

    def close_due(self) -> int:
        """Close the rounds that are over; return the number that this node closed."""
        closed = 0
        for name in self._service.policy_cache.names():
            if self._closer.is_stopping:
                break
            wait, failures = self._failing.get(name, (0, 0))
            if wait:
                self._failing[name] = (wait - 1, failures)
                continue
            try:
                closed += self._service.close_if_due(name)
                self._failing.pop(name, None)
            except Exception as error:  # the failure of one study must not end the thread for all
                polls = int(min(2**failures, MAX_RETRY_SECONDS / max(self._poll, 1e-3)))
                self._failing[name] = (polls, failures + 1)
                log.warning("a round of study %r could not be closed: %s: %s", name, type(error).__name__, error)
        return closed
