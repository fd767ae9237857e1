"""Report builder: builds a study's report from its closes and its events."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from threading import Lock

import numpy as np

from pasto.errors import NotFittedError, PastoError
from pasto.inference.round_data import MeasuredRound
from pasto.metrics import MEMBERS, Moments
from pasto.report.data_quality_records import AccountingReport, ClippedUnits, LateEvents, QualityReport, RejectedEvents
from pasto.report.lift_records import ConfirmationReport, ConfirmationVerdict, SampleRatioReport
from pasto.report.records import (
    BlendRecord,
    CandidateShare,
    ClosedRoundRecord,
    ConcurrentStudy,
    MonitorReport,
    PriceReport,
    Report,
    SourceProblem,
    TradeoffReport,
    WhatIfAnswer,
)
from pasto.service.close_record import describe_closed_round
from pasto.service.event_accounting import EventAccounting
from pasto.service.policy_cache import StudySnapshot
from pasto.service.ramp import report_ramp
from pasto.service.reports.candidate_estimates import CandidateEstimates, estimate_candidates, estimate_prices
from pasto.service.reports.confirmation_report import judge_missing_confirmation, report_confirmation
from pasto.service.reports.lift_report import (
    count_members,
    measure_spreads,
    read_sample_ratio,
    report_clusters,
    report_learned_lifts,
)
from pasto.service.reports.tradeoff import read_posterior_means, report_tradeoff
from pasto.service.reports.verdict import judge_study, report_guardrails
from pasto.service.reports.what_if import WhatIfQuestion, answer_what_if
from pasto.service.round_history import InterimLook, shares
from pasto.service.rounds.data_quality_check import list_departures, list_held_rounds, read_sender_record
from pasto.service.study_file import StudySpec
from pasto.service.study_state import FrozenBlend, describe_blend, with_joint_bound
from pasto.store import Store
from pasto_sdk.enrolment import EnrolmentSlice
from pasto_sdk.policy import PublishedPolicy
from pasto_sdk.policy_document import BUCKET_TOTAL

MAX_HISTORY_CLOSES = 100
"""Latest closed rounds that a report lists."""


@dataclass(frozen=True, slots=True)
class StudySpan:
    """Time in which a study served policies, and the slices of its latest one."""

    since: float
    until: float | None
    """Time at which it was archived; None if it serves a policy."""
    slices: tuple[EnrolmentSlice, ...]

    def overlaps(self, other: StudySpan) -> bool:
        """Return whether both served policies at some time."""
        ends = (math.inf if span.until is None else span.until for span in (self, other))
        return max(self.since, other.since) < min(ends)


class ReportBuilder:
    """Builder of reports; everything that changes only with a close is computed once for each generation."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._accountings: dict[int, EventAccounting] = {}
        self._starts: dict[int, float] = {}
        """Start of the first round by number of the study."""
        self._ended: dict[int, StudySpan] = {}
        """Spans of archived studies."""
        self._lock = Lock()

    def build(
        self,
        snapshot: StudySnapshot,
        others: Iterable[StudySnapshot] = (),
        *,
        age: float = 0.0,
        source_problem: SourceProblem | None = None,
    ) -> Report:
        """Build the report of a study: its closes once for each generation, its events at every call.

        `others` are the studies that may have run at the same time.
        """
        report = snapshot.compute_once("report", lambda: self.build_from_closes(snapshot))
        accounting = self._count_events(snapshot) if snapshot.row.version else None
        is_phase = snapshot.row.state in ("confirming", "deployed")
        measured = report.confirmation if is_phase and report.confirmation is not None else report.learning
        sample_ratio = None if measured is None else measured.sample_ratio
        quality = report_quality(snapshot.spec, snapshot.rounds.rounds, accounting, report.answer, sample_ratio)
        live = replace(
            report,
            accounting=accounting,
            quality=quality,
            age=age,
            source_problem=source_problem,
            concurrent=self.find_concurrent(snapshot, others),
        )
        return replace(live, verdict=judge_study(snapshot, live))

    def find_concurrent(self, snapshot: StudySnapshot, others: Iterable[StudySnapshot]) -> tuple[ConcurrentStudy, ...]:
        """Return the other studies that ran on units of a study at the same time, the largest share first."""
        span = self._read_span(snapshot)
        if span is None:
            return ()
        found = []
        for other in others:
            other_span = None if other.row.number == snapshot.row.number else self._read_span(other)
            if other_span is None or not span.overlaps(other_span):
                continue
            is_comparable = other.spec.assigned_unit == snapshot.spec.assigned_unit and not other.spec.is_external
            share = common_share(span.slices, other_span.slices) if is_comparable else None
            if share != 0.0:
                row = other.row
                found.append(ConcurrentStudy(row.name, row.state, other_span.since, other_span.until, share))
        return tuple(sorted(found, key=lambda study: (-(study.share or 0.0), study.name)))

    def _read_span(self, snapshot: StudySnapshot) -> StudySpan | None:
        """Return when a study served policies, and on which slices; None if it never did."""
        row = snapshot.row
        if not row.version or row.number in self._ended:
            return self._ended.get(row.number)
        if row.number not in self._starts:
            first = self._store.read_policy(row.number, 1)
            if first is None:
                return None
            self._starts[row.number] = first.published_at
        since = self._starts[row.number]
        if row.state != "archived":
            return None if snapshot.policy is None else StudySpan(since, None, snapshot.policy.enrolment)
        last = self._store.read_policy(row.number, row.version)
        closes = self._store.list_closes(row.number, after=row.round - 1, limit=1)
        if last is None or not closes:
            return None
        slices = PublishedPolicy.from_text(last.document, last.checksum).enrolment
        return self._ended.setdefault(row.number, StudySpan(since, closes[0].closed_at, slices))

    def build_from_closes(self, snapshot: StudySnapshot) -> Report:
        """Build the part of a report that changes only with a close."""
        row, spec, state, study = snapshot.row, snapshot.spec, snapshot.state, snapshot.study
        names = candidate_names(snapshot)
        rounds = snapshot.rounds.rounds
        blend, problem = _read_answer(snapshot)
        history = self._list_closes(snapshot)
        if problem is not None and history and history[-1].problems:
            problem = "; ".join((problem, *history[-1].problems))
        frozen = state.frozen_answer(spec.objective.hard)
        answer = frozen or blend
        learning = report_learned_lifts(spec, rounds, names, answer, None if study is None else study.baseline)
        estimates = _estimate_or_none(snapshot)
        prices, trade_off = _report_prices(snapshot, estimates, answer)
        confirmation = None if state.frozen is None else _report_confirmation(snapshot, estimates, state.frozen)
        return Report(
            name=row.name,
            state=row.state,
            round=row.round,
            version=row.version,
            metrics=tuple(spec.metrics),
            rounds_learned=0 if study is None else study.rounds,
            blend=blend,
            problem=problem,
            frozen=frozen,
            waiting=tuple(entry.round for entry in state.waiting),
            held=list_held_rounds(state),
            policy=_policy_shares(snapshot),
            history=history,
            learning=learning,
            confirmation=confirmation,
            guardrail_monitor=_monitor_report(snapshot),
            guardrails=report_guardrails(spec, answer, state.guardrail_monitor.verdicts),
            prices=prices,
            trade_off=trade_off,
            spreads=measure_spreads(spec, rounds),
            assigned_by="external" if spec.is_external else "pasto",
            ramp=None
            if state.ramp is None
            else report_ramp(
                spec, state.ramp, state.paused_from or row.state, row.round, state.guardrail_monitor.verdicts
            ),
            clusters=report_clusters(spec, [*rounds, *(look.measured for look in snapshot.rounds.looks[-1:])]),
        )

    def answer_what_if(self, snapshot: StudySnapshot, question: WhatIfQuestion) -> WhatIfAnswer:
        """Answer another question from what the study has learned."""
        study = snapshot.study
        if study is None or not study.rounds:
            raise NotFittedError(f"study {snapshot.row.name!r} has learned no round yet, so nothing can be asked of it")
        return answer_what_if(snapshot.row.name, study.rounds, snapshot.spec, _estimate(snapshot), question)

    def judge_confirmation(
        self, snapshot: StudySnapshot, elapsed: float, cells: Sequence[Moments], now: float
    ) -> ConfirmationVerdict:
        """Return the verdict on the confirmation that a study is in, with a look that is not written yet."""
        _, confirmation = self.compare_confirmations(snapshot, elapsed, cells, now)
        return judge_missing_confirmation(snapshot.spec) if confirmation is None else confirmation.verdict

    def compare_confirmations(
        self, snapshot: StudySnapshot, elapsed: float, cells: Sequence[Moments], now: float
    ) -> tuple[ConfirmationReport | None, ConfirmationReport | None]:
        """Return the confirmation that a study is in before and after a look that is not written yet."""
        row, spec, horizon = snapshot.row, snapshot.spec, snapshot.state.horizon
        policy = self._store.read_policy(row.number, row.version)
        served = {} if policy is None else shares(json.loads(policy.document))
        look = InterimLook(row.round, row.version, row.state, elapsed, now, MeasuredRound(row.version, served, cells))
        before = report_confirmation(spec, snapshot.rounds.looks, (), horizon=horizon)
        return before, report_confirmation(spec, [*snapshot.rounds.looks, look], (), horizon=horizon)

    def read_sample_ratio(self, snapshot: StudySnapshot) -> SampleRatioReport | None:
        """Return the sample ratio of the phase that a study is in, without the rest of its report."""
        names = candidate_names(snapshot)
        if snapshot.row.state != "confirming":
            return read_sample_ratio(snapshot.rounds.rounds, names)
        confirmation = report_confirmation(snapshot.spec, snapshot.rounds.looks, names, horizon=snapshot.state.horizon)
        return None if confirmation is None else confirmation.sample_ratio

    def update_counts(self, study: int) -> None:
        """Count a study's new events, so that its next report does not wait for them."""
        self._accounting(study).keep_up()

    def _count_events(self, snapshot: StudySnapshot) -> AccountingReport:
        row, spec, names = snapshot.row, snapshot.spec, candidate_names(snapshot)
        record = snapshot.compute_once("senders", lambda: read_sender_record(self._store, row.number, row.round - 1))
        counts = self._accounting(row.number).summarize(names, [column.name for column in spec.columns], record)
        return counts if record is None else replace(counts, departures=list_departures(spec, record, names))

    def _accounting(self, study: int) -> EventAccounting:
        with self._lock:
            return self._accountings.setdefault(study, EventAccounting(self._store, study))

    def _list_closes(self, snapshot: StudySnapshot) -> tuple[ClosedRoundRecord, ...]:
        row = snapshot.row
        if snapshot.study is None:
            return ()
        first = max(0, row.round - 1 - MAX_HISTORY_CLOSES)
        closes = self._store.list_closes(row.number, after=first, limit=MAX_HISTORY_CLOSES + 1)
        return tuple(map(describe_closed_round, closes))


def common_share(own: Sequence[EnrolmentSlice], other: Sequence[EnrolmentSlice]) -> float:
    """Return the share of a study's units that are in the slices of another study, too.

    Slices of different salts are independent, so their shares are multiplied. Those of one salt are intersected.

    >>> half = EnrolmentSlice("layer", "layer:home", 0, BUCKET_TOTAL // 2)
    >>> common_share([half], [EnrolmentSlice("layer", "layer:home", BUCKET_TOTAL // 2, BUCKET_TOTAL)])
    0.0
    >>> common_share([half], [EnrolmentSlice("ramp", "ramp:search", 0, BUCKET_TOTAL // 4)])
    0.25
    >>> common_share([half], [half])
    1.0
    """
    share = 1.0
    for salt in dict.fromkeys(part.salt for part in (*own, *other)):
        own_length = _intersect(salt, own)
        if own_length:
            share *= _intersect(salt, (*own, *other)) / own_length
    return share


def _intersect(salt: str, slices: Sequence[EnrolmentSlice]) -> int:
    """Return the length of the part of a hash line that is in all slices of its salt."""
    parts = [part for part in slices if part.salt == salt]
    start, until = max((part.start for part in parts), default=0), min((p.until for p in parts), default=BUCKET_TOTAL)
    return max(0, until - start)


def candidate_names(snapshot: StudySnapshot) -> tuple[str, ...]:
    """Return the names of a study's candidates; none before its first round."""
    return () if snapshot.study is None else tuple(snapshot.study.candidates.names)


def _read_answer(snapshot: StudySnapshot) -> tuple[BlendRecord | None, str | None]:
    """Return the blend so far, or the reason why there is none."""
    if snapshot.study is None:
        return None, None
    try:
        blend = describe_blend(snapshot.blend, snapshot.spec.rounds.every)
        return with_joint_bound(blend, snapshot.spec.objective.hard), None
    except NotFittedError:
        return None, "no round has been learned yet"
    except (PastoError, ArithmeticError) as error:
        return None, f"the answer could not be computed: {type(error).__name__}: {error}"


def _policy_shares(snapshot: StudySnapshot) -> tuple[CandidateShare, ...]:
    if snapshot.study is None:
        return ()
    probabilities = snapshot.study.policy.probabilities
    pairs = zip(candidate_names(snapshot), probabilities, strict=True)
    return tuple(CandidateShare(name, probability) for name, probability in pairs if probability > 0)


def _monitor_report(snapshot: StudySnapshot) -> MonitorReport:
    status = snapshot.state.guardrail_monitor
    return MonitorReport(status.verdicts, status.tripped)


def _estimate(snapshot: StudySnapshot) -> CandidateEstimates:
    """Return the estimates of a study's candidates, computed once for each generation."""
    study = snapshot.study
    if study is None:
        raise NotFittedError(f"study {snapshot.row.name!r} has no learner yet; start it")
    return snapshot.compute_once("estimates", lambda: estimate_candidates(snapshot.spec, study, snapshot.rounds.rounds))


def _estimate_or_none(snapshot: StudySnapshot) -> CandidateEstimates | None:
    """Return the estimates if a round was learned and they can be computed."""
    if snapshot.study is None or not snapshot.study.rounds:
        return None
    try:
        return _estimate(snapshot)
    except (PastoError, ArithmeticError, ValueError):
        return None


def _report_prices(
    snapshot: StudySnapshot, estimates: CandidateEstimates | None, answer: BlendRecord | None
) -> tuple[tuple[PriceReport, ...], TradeoffReport | None]:
    """Return prices and trade-off; nothing if one cannot be computed, because the rest is useful without them."""
    if estimates is None:
        return (), None
    try:
        posterior = read_posterior_means(snapshot)
        trade_off = None if posterior is None else report_tradeoff(posterior, answer)
        return estimate_prices(snapshot.spec, estimates), trade_off
    except (PastoError, ArithmeticError, ValueError):
        return (), None


def _report_confirmation(
    snapshot: StudySnapshot, estimates: CandidateEstimates | None, frozen: FrozenBlend
) -> ConfirmationReport | None:
    promised = {} if estimates is None else predict_lifts(snapshot.spec, estimates, frozen)
    return report_confirmation(
        snapshot.spec,
        snapshot.rounds.looks,
        candidate_names(snapshot),
        horizon=snapshot.state.horizon,
        promised=promised,
    )


def predict_lifts(spec: StudySpec, estimates: CandidateEstimates, frozen: FrozenBlend) -> dict[str, dict[str, float]]:
    """Return the lifts that the frozen answer is expected to have, by arm and metric."""
    if estimates.baseline is None:
        return {}
    arms = {"blend": dict(frozen.blend)}
    if frozen.best_single is not None:
        arms["best_single"] = {frozen.best_single: 1.0}
    candidates = range(len(estimates.names))
    lifts: dict[str, dict[str, float]] = {}
    for arm, parts in arms.items():
        probabilities = np.array([parts.get(k, 0.0) for k in candidates])
        for name, metric in spec.metrics.items():
            table = estimates.table(0, [column.name for column in metric.columns], candidates)
            level, base = (
                values[0] if len(values) == 1 else values[0] / values[1]
                for values in (table @ probabilities, table[:, estimates.baseline])
            )
            if base > 0:
                lifts.setdefault(arm, {})[name] = float(level / base - 1.0)
    return lifts


def report_quality(
    spec: StudySpec,
    rounds: Sequence[MeasuredRound],
    accounting: AccountingReport | None,
    answer: BlendRecord | None,
    sample_ratio: SampleRatioReport | None,
) -> QualityReport:
    """Report the quality of a study's data; without `accounting`, no event has been counted yet."""
    units = sum(entry.units for entry in rounds)
    members = count_members(spec, rounds)
    certificate = None if answer is None else answer.certificate
    understated_errors = {} if certificate is None else certificate.understated_errors
    if accounting is None:
        return QualityReport(
            units=units,
            events=0,
            late=LateEvents(0, None),
            clipped={},
            uncredited=0,
            excluded=0,
            rejected=RejectedEvents(),
            missing=0,
            departures=(),
            gap=0,
            sample_ratio=sample_ratio,
            understated_errors=understated_errors,
        )
    events = accounting.events.exposures + accounting.events.metrics
    late = accounting.late.events
    return QualityReport(
        units=units,
        events=events,
        late=LateEvents(late, late / events if events else None),
        clipped=_count_clipped(spec, accounting, units if members is None else members),
        uncredited=accounting.events.uncredited,
        excluded=accounting.events.excluded,
        rejected=accounting.rejected,
        missing=accounting.senders.missing,
        departures=accounting.departures,
        gap=sum(version.gap for version in accounting.versions),
        sample_ratio=sample_ratio,
        understated_errors=understated_errors,
    )


def _count_clipped(spec: StudySpec, accounting: AccountingReport, units: int) -> dict[str, ClippedUnits]:
    if not units:
        return {}
    columns = [column for column in spec.columns if column != MEMBERS]
    counts = {column.name: accounting.clipped.get(column.name, 0) for column in columns}
    return {name: ClippedUnits(count, count / units) for name, count in counts.items()}
