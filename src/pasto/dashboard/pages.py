"""Pages to look at: the list of studies, one study, and the parts that keep themselves up to date."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote

from pasto.dashboard.action_facts import describe_effect, list_offered
from pasto.dashboard.audit_log import Alarm, AuditLogReader, find_alarms
from pasto.dashboard.chart_data import NO_STORE, RoundSamples, answer_tradeoff, build_series
from pasto.dashboard.renderer import HTML, PageFrame, render_page
from pasto.dashboard.sessions import Session, Sessions
from pasto.errors import PastoError
from pasto.report.data_quality_records import CandidateCounts
from pasto.report.records import BlendRecord, Report, read_record
from pasto.report.sections import ReportSection, cluster_section, concurrent_section
from pasto.report.verdict_records import StudyVerdict
from pasto.service.holdout import HoldoutRecord
from pasto.service.http.request import HttpRequest
from pasto.service.http.responses import ApiError, HttpResponse, json_response
from pasto.service.http.studies import ask_report
from pasto.service.layers import LayerRecord
from pasto.service.service import Service
from pasto.service.study_file import StudySpec
from pasto.service.study_records import StudyOverview
from pasto.store import AuditRow

MAX_CANDIDATES = 100
"""Candidates in the table of exposures."""


@dataclass(frozen=True, slots=True)
class StudyState:
    """State of a study, with the alarms that follow from it."""

    study: StudyOverview
    alarms: list[Alarm]
    now: float
    offered: tuple[str, ...]
    """Actions that can succeed, by what was measured last."""
    is_baseline_served: bool
    """True if everybody gets the baseline."""


@dataclass(frozen=True, slots=True)
class VerdictPart:
    """Verdict on a study, for its page or for the dialog of an action."""

    verdict: StudyVerdict | None
    problem: str
    """Reason why there is no verdict."""
    alarms: list[Alarm]
    effect: str
    """What the action of a dialog changes; empty on the page."""
    is_dialog: bool


@dataclass(frozen=True, slots=True)
class StudyProblem:
    """Problem of a failed action, on the page of its study."""

    problem: str


@dataclass(frozen=True, slots=True)
class StudyLine:
    """Line of a study in the list."""

    study: StudyOverview
    alarms: list[Alarm]
    leader: tuple[str, float] | None
    """The candidate with the largest share outside the control, if a policy is served."""


@dataclass(frozen=True, slots=True)
class StudyLines:
    """List of studies, with their layers and the holdout for a visitor who may read all studies."""

    rows: list[StudyLine]
    layers: Sequence[LayerRecord] = ()
    holdout: HoldoutRecord | None = None


@dataclass(frozen=True, slots=True)
class BlendPart:
    """Blend of a study with its certificate and prices, and the quality of its data."""

    study: StudyOverview
    report: Report
    blend: BlendRecord | None
    parts: set[str]
    """Columns that are only part of a ratio."""
    lines: Sequence[CandidateCounts]
    """Exposures of the candidates that have most."""
    left_out: int
    sections: Sequence[ReportSection] = ()
    """Clusters, and other studies on the same units, if there are any."""


@dataclass(frozen=True, slots=True)
class LogPart:
    """Latest entries of the audit log of a study."""

    name: str
    lines: list[AuditRow]
    everything: bool
    """True if routine entries are listed too."""


class Pages:
    """Pages of the dashboard and their parts."""

    def __init__(self, service: Service, sessions: Sessions, clock: Callable[[], float]) -> None:
        self._service = service
        self._sessions = sessions
        self._clock = clock
        self._audit_log = AuditLogReader(service.store)
        self._samples = RoundSamples(service.store)

    async def studies(self, call: HttpRequest, session: Session) -> HttpResponse:
        """Render the list of studies."""
        return render_page("studies.html", self.frame(session), await call.run(lambda: self._list_studies(session)))

    async def study_list(self, call: HttpRequest, session: Session) -> HttpResponse:
        """Render the part with the list."""
        return render_page(
            "parts/studies.html", self.frame(session), await call.run(lambda: self._list_studies(session))
        )

    async def study(self, call: HttpRequest, session: Session) -> HttpResponse:
        """Render the page of a study."""
        return await self.render_study(call, session, call.path("name"))

    async def render_study(
        self, call: HttpRequest, session: Session, name: str, problem: str = "", status: int = 200
    ) -> HttpResponse:
        """Render the page of a study, with the problem of a failed action."""
        state = await call.run(lambda: self._read_state(name))
        return render_page("study.html", self.frame(session), state, StudyProblem(problem), status=status)

    async def head(self, call: HttpRequest, session: Session) -> HttpResponse:
        """Render the state of a study; the page requests it every few seconds."""
        return await self._part(call, session, "parts/head_update.html", lambda: self._read_state(call.path("name")))

    async def actions(self, call: HttpRequest, session: Session) -> HttpResponse:
        """Render the forms of the allowed actions."""
        return await self._part(call, session, "parts/actions.html", lambda: self._read_state(call.path("name")))

    async def verdict(self, call: HttpRequest, session: Session) -> HttpResponse:
        """Render the verdict on a study; for the dialog of an action, in short and with what the action changes."""
        name, action = call.path("name"), call.query("action").get("action", "")
        problem, body = "", b""
        try:
            body = (await ask_report(call, name, "json", names_others=session.may_read_study(""))).body
        except (PastoError, ApiError) as error:
            problem = str(error)

        def work() -> VerdictPart:
            if problem:
                return VerdictPart(None, problem, self._read_state(name).alarms, "", bool(action))
            report = read_record(json.loads(body), Report)
            spec = self._service.policy_cache.snapshot(name).spec
            return VerdictPart(report.verdict, "", [], describe_effect(action, report, spec), bool(action))

        return await self._part(call, session, "parts/verdict.html", work)

    async def answer(self, call: HttpRequest, session: Session) -> HttpResponse:
        """Render the blend with its certificate and prices, and the data quality."""
        name = call.path("name")
        computed = await ask_report(call, name, "json", names_others=session.may_read_study(""))

        def work() -> BlendPart:
            report = read_record(json.loads(computed.body), Report)
            study = self._service.show(name)
            candidates = () if report.accounting is None else report.accounting.candidates
            lines = sorted(candidates, key=lambda candidate: -candidate.logged)
            return BlendPart(
                study,
                report,
                report.answer,
                _parts(self._service.policy_cache.snapshot(name).spec),
                lines[:MAX_CANDIDATES],
                max(0, len(lines) - MAX_CANDIDATES),
                [
                    *([cluster_section(report.clusters)] if report.clusters is not None else []),
                    *([concurrent_section(report.concurrent)] if report.concurrent else []),
                ],
            )

        return await self._part(call, session, "parts/answer.html", work)

    async def report(self, call: HttpRequest, session: Session) -> HttpResponse:
        """Return the report as a file to download."""
        name = call.path("name")
        computed = await ask_report(call, name, "html", names_others=session.may_read_study(""))
        saved = (b"content-disposition", f'attachment; filename="{quote(name)}.html"'.encode())
        return HttpResponse(200, computed.body, (*HTML, saved))

    async def export(self, call: HttpRequest, session: Session) -> HttpResponse:
        """Return the shares for another platform as a file to download."""
        name, query = call.path("name"), call.query("format", "part")
        form, part = query.get("format", "json"), query.get("part", "policy")
        exported = await call.run(lambda: self._service.export(name, form, part=part))
        saved = (b"content-disposition", f'attachment; filename="{quote(name)}.{form}.json"'.encode())
        return json_response(exported, headers=(*NO_STORE, saved))

    async def log(self, call: HttpRequest, session: Session) -> HttpResponse:
        """Render the latest entries of the audit log."""
        everything = call.query("all").get("all") == "1"
        name = call.path("name")

        def work() -> LogPart:
            row = self._service.policy_cache.reload(name).row
            lines = self._audit_log.entries(row.number, only_notable=not everything)
            return LogPart(name, lines, everything)

        return await self._part(call, session, "parts/log.html", work)

    async def series(self, call: HttpRequest, session: Session) -> HttpResponse:
        """Return shares and metrics by round, as JSON."""
        sent = call.query("first", "last")
        first = call.number(sent, "first", 1, 1, 2**53)
        last = call.number(sent, "last", 2**53, 1, 2**53)
        name = call.path("name")
        found = await call.run(
            lambda: build_series(self._samples, self._service.policy_cache.reload(name), first, last)
        )
        return json_response(found, headers=NO_STORE)

    async def tradeoff(self, call: HttpRequest, session: Session) -> HttpResponse:
        """Return single candidates, blend and curve at the requested limits, in JSON."""
        limits, across = _limits(call)
        name = call.path("name")

        question = partial(answer_tradeoff, name=name, limits=limits, across=across)
        return await call.ask("trade-off", name, question, tuple(sorted(limits.items())), across, cache=True)

    def frame(self, session: Session) -> PageFrame:
        """Return the values that every page has."""
        return PageFrame(session, self._sessions.form_token(session))

    async def _part(
        self, call: HttpRequest, session: Session, template: str, work: Callable[[], object]
    ) -> HttpResponse:
        return render_page(template, self.frame(session), await call.run(work))

    def _read_state(self, name: str) -> StudyState:
        study = self._service.show(name)
        snapshot = self._service.policy_cache.snapshot(name)
        now = self._clock()
        alarms = find_alarms(snapshot, study, self._audit_log, now)
        cells = () if snapshot.policy is None else snapshot.policy.cells
        is_baseline = all(dict(cell.values) == dict(snapshot.spec.baseline) for cell in cells)
        return StudyState(study, alarms, now, list_offered(snapshot), is_baseline)

    def _list_studies(self, session: Session) -> StudyLines:
        lines = []
        for summary in self._service.studies():
            if not session.may_read_study(summary.name):
                continue
            state = self._read_state(summary.name)
            lines.append(StudyLine(state.study, state.alarms, self._leader(summary.name)))
        if not session.may_read_study(""):
            return StudyLines(lines)
        return StudyLines(lines, self._service.layers(), self._service.holdout())

    def _leader(self, name: str) -> tuple[str, float] | None:
        """Return the candidate with the largest share outside the control, if a policy is served."""
        snapshot = self._service.policy_cache.snapshot(name)
        if snapshot.policy is None:
            return None
        served = self._samples.read_policies(snapshot.row.number, [snapshot.row.version])
        return served[0].shares[0] if served and served[0].shares else None


def _parts(spec: StudySpec) -> set[str]:
    """Return the columns that are only part of a ratio."""
    ratios = [metric for metric in spec.metrics.values() if metric.denominator is not None]
    return {column.name for m in ratios for column in (m.numerator, m.denominator) if column} - set(spec.metrics)


def _limits(call: HttpRequest) -> tuple[dict[int, float], int]:
    """Return limits by the guardrail's place, and the guardrail on the chart's axis."""
    sent = call.query("across", *(f"at{place}" for place in range(64)))
    found = {}
    for name, text in sent.items():
        if name == "across":
            continue
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or abs(number) > 1e15:
            raise ApiError(400, "bad_request", f"{name} is a number, got {text[:40]!r}", field=name)
        found[int(name[2:])] = number
    return found, call.number(sent, "across", 0, 0, 63)
