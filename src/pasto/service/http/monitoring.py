"""What operators ask: is it alive, is it ready, what does it count, what does it understand."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress

from prometheus_client import CONTENT_TYPE_LATEST

from pasto.errors import PastoError
from pasto.service.http.request import Context, HttpRequest
from pasto.service.http.responses import ApiError, HttpResponse, json_response
from pasto.service.service import Service
from pasto.service.study_state import StudyState
from pasto.store import StudyRow

PATIENCE = 2.0
"""Seconds that a store may take to say it is there."""

QUIET: tuple[str, ...] = ("archived",)
"""States whose studies are of no interest to an alarm."""


async def healthy(call: HttpRequest) -> HttpResponse:
    """Answers as long as the process does."""
    call.query()
    return json_response({"status": "ok"})


async def ready(call: HttpRequest) -> HttpResponse:
    """Whether requests can be served: the store answers and takes writes, and rounds are being closed."""
    call.query()
    problems = list(await call.context.health.problems())
    if call.context.scheduler is not None and not call.context.scheduler.alive:
        problems.append("rounds are not being closed: the scheduler has ended")
    if problems:
        return json_response({"status": "unavailable", "problems": problems}, 503)
    warnings = await _source_warnings(call)
    return json_response({"status": "ok", "warnings": warnings} if warnings else {"status": "ok"})


async def _source_warnings(call: HttpRequest) -> list[str]:
    """Say which studies' own tables could not be read: the reasons only to callers who may read studies."""
    context = call.context
    try:
        async with asyncio.timeout(PATIENCE):
            failing = await asyncio.to_thread(context.service.failing_sources)
    except Exception:  # the store answered a moment ago; the next call tells
        return []
    if not failing:
        return []
    try:
        context.guard.admit(call.headers, ("read",))
    except ApiError:
        return [f"studies whose source cannot be read: {len(failing)}; ask with a key that may read to see which"]
    return [f"study {name!r} since round {found['round']}: {found['message']}" for name, found in failing.items()]


async def metrics(call: HttpRequest) -> HttpResponse:
    """Every counter, as Prometheus reads them."""
    call.query()
    text = await asyncio.to_thread(call.context.meters.text)
    return HttpResponse(200, text, ((b"content-type", CONTENT_TYPE_LATEST.encode()),))


async def interface(call: HttpRequest) -> HttpResponse:
    """The OpenAPI document."""
    from pasto.service.http.openapi import interface as written

    call.query()
    return HttpResponse(200, written())


def gauges(context: Context) -> Iterator[tuple[str, str, float, str | Mapping[str, str] | None]]:
    """What is looked up when Prometheus asks: (name, meaning, value, and its study, its labels, or None) each."""
    yield "pasto_requests_in_progress", "Requests being answered now.", context.working, None
    waiting = context.threads["questions"].waiting
    yield "pasto_questions_waiting", "Slow questions that wait for a thread.", waiting, None
    yield "pasto_policy_waiters", "Callers waiting for a policy to change.", context.waiting.number, None
    if context.scheduler is not None:
        yield "pasto_scheduler_up", "1 while rounds are being closed.", float(context.scheduler.alive), None
    yield "pasto_store_waiting", "Events waiting to be written.", context.store.queued_events, None
    for look in context.looks:
        yield from look()
    now = time.time()
    try:
        rows = context.store.list_studies()
    except Exception:  # whatever it is: that is the news, and the other counters still matter
        rows = None
    yield "pasto_store_up", "1 while the store answers.", float(rows is not None), None
    for row in rows or ():
        if row.state not in QUIET:
            yield "pasto_policy_version", "Of the policy being served.", row.version, row.name
            yield "pasto_rounds_closed", "Rounds closed so far.", max(0, row.round - 1), row.name
            severities: Mapping[str, int] = {}
            with suppress(Exception):  # it cannot be read, which is told above
                severities = context.service.breaker(row)
            for guardrail, severity in severities.items():
                labels = {"study": row.name, "guardrail": guardrail}
                yield "pasto_breaker", "0 while a guardrail holds, 1 at a warning, 2 when tripped.", severity, labels
            unlogged = context.service.unlogged.get(row.name, 0)
            yield "pasto_unlogged_exposures", "Exposures of the service's own that were lost.", unlogged, row.name
            if row.state == "learning":  # what is paused or deployed stands still, and is never overdue
                age = max(0.0, now - row.opened_at)
                yield "pasto_round_age_seconds", "How long a learning study's round is open.", age, row.name


BUDGET = 2.0
"""Seconds that one look may spend on samples that changed; the others are looked at the next time."""

SERVED = ("learning", "confirming", "deployed")

Told = tuple[str, str, float, str | Mapping[str, str] | None]


class AlertGauges:
    """Looks at one service when Prometheus asks.

    >>> from pasto.store import open_store
    >>> service = Service(open_store("memory:"))
    >>> [name for name, _, _, _ in AlertGauges(service).look()]
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
            if self._store.directory is not None:
                free = shutil.disk_usage(self._store.directory).free
                yield "pasto_store_free_bytes", "Room on the disk of the store's directory.", free, None
        try:
            rows = self._store.list_studies()
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
        held = sum(one.is_held for one in StudyState.from_text(row.details).waiting)
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
            quality = self._service.report(name).quality
        except PastoError:  # nothing is learned yet, or the study has just gone
            return False, False
        if quality is None:
            return False, False
        return quality.sample_ratio is not None and quality.sample_ratio.alarm, bool(quality.departures)
