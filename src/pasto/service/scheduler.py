"""The threads that close rounds when they are due, and keep the board fresh."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pasto.service.periodic_thread import PeriodicThread

if TYPE_CHECKING:
    from pasto.service.service import Service

log = logging.getLogger("pasto.rounds")
PATIENCE = 60.0
"""Seconds, at most, between two tries at a study that cannot be closed."""


class Scheduler:
    """Closes due rounds, one study after another, and refreshes the board, every `poll` seconds.

    The board has a thread of its own, so that a pause made elsewhere is heard of while a long close is computed here.
    Several schedulers may run over one store: whoever commits a close first wins. One study's trouble is logged and
    tried again, ever more rarely, and never holds up another's.
    """

    def __init__(self, service: Service, poll: float = 1.0) -> None:
        self._service = service
        self._poll = poll
        self._refresher = PeriodicThread("refresh", self.refresh, poll, log=log)
        self._closer = PeriodicThread("close_due", self.close_due, poll, log=log)
        self._troubled: dict[str, tuple[int, int]] = {}
        """By study: turns still to wait, and failures in a row."""

    @property
    def alive(self) -> bool:
        """Whether its threads are running."""
        return self._refresher.is_alive and self._closer.is_alive

    def start(self) -> None:
        """Begin; a second start does nothing."""
        self._refresher.start()
        self._closer.start()

    def stop(self) -> None:
        """Finish what is being closed, and end."""
        self._closer.stop()
        self._refresher.stop()

    def tick(self) -> int:
        """Look once at every study; how many rounds were closed."""
        self.refresh()
        return self.close_due()

    def refresh(self) -> None:
        """Read what other nodes have changed."""
        try:
            self._service.board.refresh()
        except Exception as error:  # the store may be out of reach for a while, and the thread must outlive that
            log.warning("the board could not be refreshed: %s: %s", type(error).__name__, error)

    def close_due(self) -> int:
        """Close the rounds that are over; how many were closed here."""
        closed = 0
        for name in self._service.board.names():
            if self._closer.is_stopping:
                break
            wait, failures = self._troubled.get(name, (0, 0))
            if wait:
                self._troubled[name] = (wait - 1, failures)
                continue
            try:
                closed += self._service.close_if_due(name)
                self._troubled.pop(name, None)
            except Exception as error:  # one study's trouble must not end the thread for all
                rest = int(min(2**failures, PATIENCE / max(self._poll, 1e-3)))
                self._troubled[name] = (rest, failures + 1)
                log.warning("a round of study %r could not be closed: %s: %s", name, type(error).__name__, error)
        return closed
