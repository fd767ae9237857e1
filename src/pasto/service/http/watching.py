"""What an operator is woken for: the disk, the clock, rounds that are overdue, samples out of balance."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from pasto.errors import PastoError
from pasto.service.details import Details
from pasto.service.service import Service
from pasto.store import StudyRow

BUDGET = 2.0
"""Seconds that one look may spend on samples that changed; the others are looked at the next time."""
SERVED = ("learning", "confirming", "deployed")
Told = tuple[str, str, float, str | Mapping[str, str] | None]


class Watch:
    """Looks at one service when Prometheus asks.

    >>> from pasto.store import open_store
    >>> service = Service(open_store("memory:"))
    >>> [name for name, _, _, _ in Watch(service).look()]
    ['pasto_time_seconds', 'pasto_store_silence_seconds']
    >>> service.shutdown()
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._store = service.store
        self._alarms: dict[int, tuple[int, bool, bool]] = {}

    def look(self) -> Iterator[Told]:
        """Everything, as (name, meaning, value, and its study or None) each."""
        now = time.time()
        yield "pasto_time_seconds", "This machine's clock.", now, None
        silence = self._service.board.silence
        yield "pasto_store_silence_seconds", "How long the store has not answered.", silence, None
        with suppress(OSError):  # an alarm for that alone; whatever else is told here must not go with it
            if self._store.folder is not None:
                free = shutil.disk_usage(self._store.folder).free
                yield "pasto_store_free_bytes", "Room on the disk of the store's directory.", free, None
        try:
            rows = self._store.studies()
        except Exception:  # whatever it is, pasto_store_up tells it
            return
        until = time.monotonic() + BUDGET
        for row in rows:
            if row.state in SERVED:
                told: list[Told] | None = None
                with suppress(Exception):  # the board logs it; the other studies' alarms must not go with it
                    told = list(self._study(row, now, may_compute=time.monotonic() < until))
                meaning = "1 while this node cannot make sense of a study that is to be served."
                yield "pasto_study_unreadable", meaning, float(told is None), row.name
                yield from told or ()

    def _study(self, row: StudyRow, now: float, *, may_compute: bool) -> Iterator[Told]:
        spec = self._service.board.spec(row)
        if spec.source is None:
            yield "pasto_study_served", "1 while a study is served and its events are to come here.", 1.0, row.name
        held = sum(one.is_held for one in Details.from_text(row.details).waiting)
        yield "pasto_held_rounds", "Rounds that are held back for lack of events.", float(held), row.name
        every = spec.rounds.every
        if row.state == "learning" and every is not None:
            late = max(0.0, now - row.opened_at - every)
            yield "pasto_round_overdue_seconds", "How long a round should have been closed.", late, row.name
        known = self._alarms.get(row.number)
        if may_compute and (known is None or known[0] != row.generation):
            known = self._alarms[row.number] = row.generation, *self._quality_alarms(row.name)
        if known is not None:
            meaning = "1 while candidates or arms get other shares of the sample than the policy gave them."
            yield "pasto_sample_ratio_alarm", meaning, float(known[1]), row.name
            meaning = "1 while units of one key or source depart from those of the others."
            yield "pasto_sender_alarm", meaning, float(known[2]), row.name

    def _quality_alarms(self, name: str) -> tuple[bool, bool]:
        """Return whether the sample ratio is wrong, and whether a sender departs."""
        try:
            quality: Any = self._service.report(name).get("quality") or {}
        except PastoError:  # nothing is learned yet, or the study has just gone
            return False, False
        ratio = quality.get("sample_ratio") or {}
        return bool(ratio.get("alarm")), bool(quality.get("departures"))
