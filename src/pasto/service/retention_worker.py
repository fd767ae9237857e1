"""Retention worker: the thread that archives and deletes the events of a running service in time."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from time import monotonic

from pasto.service.retention import delete_old_exposures
from pasto.service.service import Service
from pasto.service.settings import Settings
from pasto_sdk.periodic_thread import PeriodicThread

log = logging.getLogger("pasto.retention")
POLLS_PER_RUN = 60
"""Polls of the scheduler for each run of the worker."""
ARCHIVE_RUNS_PER_AGE = 100
"""Runs of the archive within the age of a round: all rounds are read, and a hundredth later is soon enough."""


class RetentionWorker:
    """Applies the retention settings to every study in turn; a failure of one study is logged and tried again.

    Each step is one short transaction of the store, so events are ingested meanwhile. Several nodes may run it over one
    store and one archive: they take turns, and nothing is done twice.
    """

    def __init__(self, service: Service, settings: Settings) -> None:
        self._service = service
        self._settings = settings
        interval = POLLS_PER_RUN * settings.poll
        self._thread = PeriodicThread("retention", self.tick, interval, log.warning, waits_first=True)
        self._trimmed_generations: dict[str, int] = {}
        """By study: the generation in which no exposure was left to delete."""
        self._next_archive: dict[str, float] = {}
        """By study: the time of the next archive run."""
        self.archived = 0
        self.trimmed = 0
        self.errors = 0

    def start(self) -> None:
        """Start the thread, unless it runs."""
        self._thread.start()

    def stop(self) -> bool:
        """Finish the study that is being processed, and stop; returns whether the thread ended in time.

        A step that takes too long is cut off, and repeated by the next run.
        """
        return self._thread.stop(self._settings.shutdown_timeout)

    def tick(self) -> None:
        """Process every study once."""
        for snapshot in self._service.policy_cache.all():  # archived ones too: their events grow old as well
            name = snapshot.row.name
            if self._thread.is_stopping:
                return
            try:
                self._process_study(name)
            except Exception as error:  # a failure of one study must not affect the others
                self.errors += 1
                log.warning("retention of study %r failed: %s: %s", name, type(error).__name__, error)

    def read_metrics(self) -> Iterator[tuple[str, str, float, Mapping[str, str] | None]]:
        """Yield the metrics for /metrics: (name, help, value, labels) each."""
        yield "pasto_archived_events", "Events moved to the archive so far.", self.archived, None
        yield (
            "pasto_trimmed_exposures",
            "Latest exposures deleted because no metric can be credited.",
            self.trimmed,
            None,
        )
        yield "pasto_retention_errors", "Failures of the retention worker so far.", self.errors, None

    def _process_study(self, name: str) -> None:
        service, settings = self._service, self._settings
        row = service.policy_cache.snapshot(name).row
        if not row.version:  # it has not started
            return
        ages = [age for age in (settings.archive_after, settings.archive_keep) if age]
        if ages and monotonic() >= self._next_archive.get(name, 0.0):
            if settings.archive_after:
                self.archived += service.retention.archive(name, older=settings.archive_after).events
            if settings.archive_keep:
                service.retention.drop(name, older=settings.archive_keep)
            self._next_archive[name] = monotonic() + min(ages) / ARCHIVE_RUNS_PER_AGE
        if self._trimmed_generations.get(name) != row.generation:  # the creditable policies change with the study
            self.trimmed += delete_old_exposures(service.store, row)
            self._trimmed_generations[name] = row.generation
