"""Monitoring routes: liveness, readiness, Prometheus metrics and the OpenAPI document, with the gauges of studies."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress

from prometheus_client import CONTENT_TYPE_LATEST

from pasto.errors import PastoError
from pasto.service.http.prometheus import Gauge
from pasto.service.http.request import Context, HttpRequest
from pasto.service.http.responses import ApiError, HttpResponse, json_response
from pasto.service.service import Service
from pasto.service.study_state import StudyState
from pasto.store import StudyRow

SOURCE_TIMEOUT_SECONDS = 2.0
"""Seconds that readiness waits for the list of failing sources."""

UNMONITORED_STATES: tuple[str, ...] = ("archived",)
"""States of studies without gauges."""


async def check_liveness(call: HttpRequest) -> HttpResponse:
    """Respond, which shows that the process runs."""
    call.query()
    return json_response({"status": "ok"})


async def check_readiness(call: HttpRequest) -> HttpResponse:
    """Respond with 200 if the store takes writes and rounds are closed, else with 503 and the problems."""
    call.query()
    problems = list(await call.context.store_health.problems())
    if call.context.scheduler is not None and not call.context.scheduler.alive:
        problems.append("rounds are not closed, because the scheduler has stopped; restart the service")
    if problems:
        return json_response({"status": "unavailable", "problems": problems}, 503)
    warnings = await _source_warnings(call)
    return json_response({"status": "ok", "warnings": warnings} if warnings else {"status": "ok"})


async def _source_warnings(call: HttpRequest) -> list[str]:
    """Return warnings about sources that cannot be read; the reasons only if the caller may read studies."""
    context = call.context
    try:
        async with asyncio.timeout(SOURCE_TIMEOUT_SECONDS):
            failing = await asyncio.to_thread(context.service.failing_sources)
    except Exception:  # the store answered a moment ago; the next request reports it
        return []
    if not failing:
        return []
    try:
        context.authenticator.admit(call.headers, ("read",), request=call.scope)
    except ApiError:
        return [f"the sources of {len(failing)} studies cannot be read; send a key with the scope read to see which"]
    return [f"study {name!r} since round {problem.round}: {problem.message}" for name, problem in failing.items()]


async def get_metrics(call: HttpRequest) -> HttpResponse:
    """Return all metrics in the text format of Prometheus."""
    call.query()
    text = await asyncio.to_thread(call.context.metrics.text)
    return HttpResponse(200, text, ((b"content-type", CONTENT_TYPE_LATEST.encode()),))


async def get_openapi(call: HttpRequest) -> HttpResponse:
    """Return the OpenAPI document."""
    from pasto.service.http.openapi import encode_document

    call.query()
    return HttpResponse(200, encode_document())


def collect_gauges(context: Context) -> Iterator[Gauge]:
    """Yield all gauges when Prometheus scrapes."""
    yield "pasto_requests_in_progress", "Requests being answered now.", context.active_requests, None
    waiting = context.pools["questions"].waiting
    yield "pasto_questions_waiting", "Slow questions that wait for a thread.", waiting, None
    yield "pasto_policy_waiters", "Callers that wait for a policy to change.", context.long_poll.number, None
    if context.scheduler is not None:
        yield "pasto_scheduler_up", "1 if the scheduler runs.", float(context.scheduler.alive), None
        yield from context.scheduler.read_metrics()
    yield "pasto_store_waiting", "Events waiting to be written.", context.store.queued_events, None
    for collect in context.gauge_sources:
        yield from collect()
    now = time.time()
    try:
        rows = context.store.list_studies()
    except Exception:  # pasto_store_up reports it, and the other metrics still matter
        rows = None
    yield "pasto_store_up", "1 if the store answers.", float(rows is not None), None
    for row in rows or ():
        if row.state not in UNMONITORED_STATES:
            yield "pasto_policy_version", "Version of the served policy.", row.version, row.name
            yield "pasto_rounds_closed", "Rounds closed so far.", max(0, row.round - 1), row.name
            severities: Mapping[str, int] = {}
            with suppress(Exception):  # an unreadable study is reported by pasto_study_unreadable
                severities = context.service.guardrail_severities(row)
            for guardrail, severity in severities.items():
                labels = {"study": row.name, "guardrail": guardrail}
                yield (
                    "pasto_guardrail_state",
                    "0 if a guardrail holds, 1 at a warning, 2 if it stopped the study.",
                    severity,
                    labels,
                )
            unlogged = context.service.unlogged.get(row.name, 0)
            yield "pasto_unlogged_exposures", "Exposures logged by the service that were lost.", unlogged, row.name
            if row.state == "learning":  # a paused or deployed study closes no rounds
                age = max(0.0, now - row.opened_at)
                yield "pasto_round_age_seconds", "Age of the open round of a learning study.", age, row.name


REPORT_BUDGET_SECONDS = 2.0
"""Seconds per scrape for reports of studies that changed; the other studies wait for the next scrape."""

SERVED_STATES = ("learning", "confirming", "deployed")


class AlertGauges:
    """Gauges of a service that the alerting rules use.

    >>> from pasto.store import open_store
    >>> service = Service(open_store("memory:"))
    >>> [name for name, _, _, _ in AlertGauges(service).collect()]
    ['pasto_time_seconds', 'pasto_store_silence_seconds']
    >>> service.shutdown()
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._store = service.store
        self._alarms: dict[int, tuple[int, bool, bool]] = {}

    def collect(self) -> Iterator[Gauge]:
        """Yield all gauges."""
        now = time.time()
        yield "pasto_time_seconds", "Clock of this machine.", now, None
        silence = self._service.policy_cache.silence
        yield "pasto_store_silence_seconds", "Seconds since the store answered last.", silence, None
        with suppress(OSError):  # without this gauge an alert fires, and the other gauges are not lost
            if self._store.directory is not None:
                free = shutil.disk_usage(self._store.directory).free
                yield "pasto_store_free_bytes", "Free bytes on the disk of the store's directory.", free, None
        try:
            rows = self._store.list_studies()
        except Exception:  # pasto_store_up reports it
            return
        until = time.monotonic() + REPORT_BUDGET_SECONDS
        for row in rows:
            if row.state in SERVED_STATES:
                study_gauges: list[Gauge] | None = None
                with suppress(Exception):  # the policy cache logs it; the gauges of other studies are not lost
                    study_gauges = list(self._collect_study(row, now, may_compute=time.monotonic() < until))
                meaning = "1 if this node cannot read a study that it should serve."
                yield "pasto_study_unreadable", meaning, float(study_gauges is None), row.name
                yield from study_gauges or ()

    def _collect_study(self, row: StudyRow, now: float, *, may_compute: bool) -> Iterator[Gauge]:
        spec = self._service.policy_cache.spec(row)
        if spec.source is None:
            yield "pasto_study_served", "1 if a study is served and its events are sent to the service.", 1.0, row.name
        held = sum(pending.is_held for pending in StudyState.from_text(row.details).waiting)
        yield "pasto_held_rounds", "Rounds that are held back because events are missing.", float(held), row.name
        every = spec.rounds.every
        if row.state == "learning" and every is not None:
            late = max(0.0, now - row.opened_at - every)
            yield "pasto_round_overdue_seconds", "Seconds since the open round should have been closed.", late, row.name
        cached = self._alarms.get(row.number)
        if may_compute and (cached is None or cached[0] != row.generation):
            cached = self._alarms[row.number] = row.generation, *self._quality_alarms(row.name)
        if cached is not None:
            meaning = "1 if the sample ratio of candidates or arms does not match the policy."
            yield "pasto_sample_ratio_alarm", meaning, float(cached[1]), row.name
            meaning = "1 if the units of one key or source differ from the others."
            yield "pasto_sender_alarm", meaning, float(cached[2]), row.name

    def _quality_alarms(self, name: str) -> tuple[bool, bool]:
        """Return whether the sample ratio is wrong, and whether a sender differs from the others."""
        try:
            quality = self._service.report(name).quality
        except PastoError:  # nothing is learned yet, or the study was deleted
            return False, False
        if quality is None:
            return False, False
        return quality.sample_ratio is not None and quality.sample_ratio.alarm, bool(quality.departures)
