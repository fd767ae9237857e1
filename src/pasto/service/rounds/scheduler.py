"""The thread that closes rounds when they are due, and keeps the board fresh."""

from __future__ import annotations

import logging
from threading import Event, Thread
from typing import TYPE_CHECKING

from pasto.errors import PastoError

if TYPE_CHECKING:
    from pasto.service.service import Service

log = logging.getLogger("pasto.rounds")
PATIENCE = 60.0
"""Seconds, at most, between two tries at a study that cannot be closed."""


class Scheduler:
    """Closes due rounds, one study after another, and refreshes the board, every `poll` seconds.

    Several schedulers may run over one store: whoever commits a close first wins. One study's trouble is logged and
    tried again, ever more rarely, and never holds up another's.
    """

    def __init__(self, service: Service, poll: float = 1.0) -> None:
        self._service = service
        self._poll = poll
        self._stop = Event()
        self._thread: Thread | None = None
        self._troubled: dict[str, tuple[int, int]] = {}
        """By study: rounds of the clock still to wait, and failures in a row."""

    @property
    def alive(self) -> bool:
        """Whether its thread is running."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Begin; a second start does nothing."""
        if not self.alive:
            self._stop.clear()
            self._thread = Thread(target=self._run, name="pasto-scheduler", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Finish what is being closed, and end."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def tick(self) -> int:
        """Look once at every study; how many rounds were closed."""
        closed = 0
        try:
            self._service.board.refresh()
        except PastoError as error:
            log.warning("the board could not be refreshed: %s", error)
            return 0
        for name in self._service.board.names():
            if self._stop.is_set():
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

    def _run(self) -> None:
        while not self._stop.is_set():
            self.tick()
            self._stop.wait(self._poll)
