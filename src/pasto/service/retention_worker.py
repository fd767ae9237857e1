"""The upkeep of a running service's events: archived, deleted and let go in time, by a thread of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from threading import Event, Thread
from time import monotonic

from pasto.service.retention import trim_rows
from pasto.service.service import Service
from pasto.service.settings import Settings

log = logging.getLogger("pasto.upkeep")
RARELY = 60
"""How many times rarer than rounds are looked for."""
PART = 100
"""Into how many parts an age is parted: looking at all rounds takes time, and a hundredth later is soon enough."""


class RetentionWorker:
    """Looks at every study in turn and does what its age asks for; one study's trouble is logged and tried again.

    Each step is a short one of the store's, so events are taken in meanwhile. Several nodes may do it over one store
    and one archive: they take turns, and what is done is not done again.
    """

    def __init__(self, service: Service, settings: Settings) -> None:
        self._service = service
        self._settings = settings
        self._stop = Event()
        self._thread: Thread | None = None
        self._trimmed: dict[str, int] = {}
        """By study: the generation in which nothing was left to let go."""
        self._later: dict[str, float] = {}
        """By study: when its archive is to be looked at again."""
        self.archived = 0
        self.trimmed = 0
        self.errors = 0

    def start(self) -> None:
        """Begin; a second start does nothing."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name="pasto-upkeep", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Finish the study that is being kept up, and end; what takes too long is cut off, and done the next time."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(self._settings.shutdown_timeout)
            self._thread = None

    def tick(self) -> None:
        """Look once at every study."""
        for standing in self._service.board.all():  # archived ones too: their events grow old like others
            name = standing.row.name
            if self._stop.is_set():
                return
            try:
                self._keep(name)
            except Exception as error:  # one study's trouble must not end the thread for all
                self.errors += 1
                log.warning("the upkeep of study %r failed: %s: %s", name, type(error).__name__, error)

    def told(self) -> Iterator[tuple[str, str, float, Mapping[str, str] | None]]:
        """What /metrics tells: (name, meaning, value, labels) each."""
        yield "pasto_archived_events", "Events moved to the archive so far.", self.archived, None
        yield "pasto_trimmed_exposures", "Exposures let go that nothing is credited to.", self.trimmed, None
        yield "pasto_retention_errors", "Failures of archiving and deleting so far.", self.errors, None

    def _keep(self, name: str) -> None:
        service, settings = self._service, self._settings
        row = service.board.standing(name).row
        if not row.version:  # it has not begun
            return
        ages = [age for age in (settings.archive_after, settings.archive_keep) if age]
        if ages and monotonic() >= self._later.get(name, 0.0):
            if settings.archive_after:
                self.archived += service.keeping.archive(name, older=settings.archive_after)["events"]
            if settings.archive_keep:
                service.keeping.drop(name, older=settings.archive_keep)
            self._later[name] = monotonic() + min(ages) / PART
        if self._trimmed.get(name) != row.generation:  # what may still be credited changes with the study
            self.trimmed += trim_rows(service.store, row)
            self._trimmed[name] = row.generation

    def _run(self) -> None:
        while not self._stop.wait(RARELY * self._settings.poll):
            self.tick()
