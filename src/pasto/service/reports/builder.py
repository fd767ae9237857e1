"""What a report adds to the answer and the books: everything that can be trusted under changing traffic."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any

import numpy as np

from pasto.errors import NotFittedError, PastoError
from pasto.inference.round_data import MeasuredRound
from pasto.metrics import Moments
from pasto.service.event_ledger import EventLedger
from pasto.service.generation_cache import GenerationCache
from pasto.service.policy_cache import StudySnapshot
from pasto.service.reports.candidate_estimates import CandidateEstimates, estimate_candidates
from pasto.service.reports.confirmation_report import build_confirmation, judge_confirmation
from pasto.service.reports.contradictions import find_contradictions
from pasto.service.reports.guardrail_report import (
    describe_trade_off,
    estimate_prices,
    placed,
    quality,
    report_guardrails,
    understated_errors,
)
from pasto.service.reports.lift_report import report_learned_lifts, spreads
from pasto.service.reports.what_if import WhatIfQuestion, answer_what_if
from pasto.service.round_history import InterimLook, RoundHistory, RoundHistoryReader, judged_rounds, shares
from pasto.service.rounds.held_rounds import held_rounds
from pasto.service.rounds.learner_step import load_update
from pasto.service.rounds.sender_check import SenderRecord, describe_departures, read_record
from pasto.service.serializers import close_summary
from pasto.service.study_file import StudySpec
from pasto.service.study_state import FrozenBlend, StudyState, blend_document, with_joint_bound
from pasto.store import Store, StudyRow
from pasto.study import Study


class LiftReports:
    """Computes a study's trusted numbers, once for each of its generations."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._readers: dict[int, RoundHistoryReader] = {}
        self._computed: GenerationCache[dict[str, Any]] = GenerationCache()
        self._lock = Lock()

    def told(self, standing: StudySnapshot, report: Mapping[str, Any]) -> dict[str, Any]:
        """The keys that a report gains; `report` is what it has already."""
        row, spec = standing.row, standing.spec
        measured = self.measured(row)
        found = self._computed.get(row.number, row.generation, lambda: self._compute(standing, measured, report))
        phase = found["confirmation"] if row.state in ("confirming", "deployed") else None
        ratio = (phase or found["learning"])["sample_ratio"]
        return {
            **found,
            "quality": {
                **quality(spec, measured.rounds, report.get("accounting")),
                "sample_ratio": ratio,
                "understated_errors": understated_errors(report),
            },
        }

    def what_if(self, standing: StudySnapshot, question: WhatIfQuestion) -> dict[str, Any]:
        """Another question, answered from what the study has learned."""
        study = self._study(standing)
        if study is None or not study.rounds:
            raise NotFittedError(f"study {standing.row.name!r} has learned no round yet, so nothing can be asked of it")
        known = estimate_candidates(standing.spec, study, self.measured(standing.row).rounds)
        return {
            "name": standing.row.name,
            "rounds_learned": study.rounds,
            **answer_what_if(standing.spec, known, question),
        }

    def measured(self, row: StudyRow) -> RoundHistory:
        """What a study's closes measured."""
        with self._lock:
            reader = self._readers.setdefault(row.number, RoundHistoryReader(self._store, row.number))
        return reader.read(row.round)

    def verdict(
        self, row: StudyRow, spec: StudySpec, elapsed: float, cells: Sequence[Moments], now: float
    ) -> dict[str, Any]:
        """Return the verdict on the confirmation that a study is in, with a look that is not written yet."""
        policy = self._store.read_policy(row.number, row.version)
        served = {} if policy is None else shares(json.loads(policy.document))
        look = InterimLook(row.round, row.version, row.state, elapsed, now, MeasuredRound(row.version, served, cells))
        horizon = StudyState.from_text(row.details).horizon
        told = build_confirmation(spec, [*self.measured(row).looks, look], (), horizon=horizon)
        return judge_confirmation(spec, None) if told is None else dict(told["verdict"])

    def past(self, study: int) -> Callable[[], Iterable[MeasuredRound]]:
        """A study's judged rounds, read when they are asked for."""
        return lambda: judged_rounds(self._store, study)

    def _study(self, standing: StudySnapshot) -> Study | None:
        saved = self._store.read_learner_state(standing.row.number) if standing.row.version else None
        return None if saved is None else Study.from_state(json.loads(saved))

    def _compute(self, standing: StudySnapshot, measured: RoundHistory, report: Mapping[str, Any]) -> dict[str, Any]:
        spec, details = standing.spec, StudyState.from_text(standing.row.details)
        study, frozen = self._study(standing), details.frozen
        names = () if study is None else tuple(study.candidates.names)
        answer = report.get("blend") if frozen is None else dict(frozen.answer)
        learning = report_learned_lifts(spec, measured.rounds, names, answer, None if study is None else study.baseline)
        found: dict[str, Any] = {
            "claims": learning["claims"],
            "learning": learning,
            "confirmation": None,
            "breaker": {"verdicts": list(details.breaker.verdicts), "tripped": details.breaker.tripped},
            "guardrails": report_guardrails(spec, answer, details.breaker.verdicts),
            "prices": [],
            "trade_off": None,
            "spreads": spreads(spec, measured.rounds),
        }
        known = _believed(spec, study, measured)
        if known is not None:
            found |= _worth(spec, known, answer)
        if frozen is not None:
            promised = {} if known is None else _promised(spec, known, frozen)
            found["confirmation"] = told = build_confirmation(
                spec, measured.looks, names, horizon=details.horizon, promised=promised
            )
            if told is not None:
                found["claims"] = told["claims"]
        confirming = (found["confirmation"] or {}).get("lifts", ())
        found["contradictions"] = find_contradictions(spec, answer, learning["lifts"], confirming)
        return found


def _believed(spec: StudySpec, study: Study | None, measured: RoundHistory) -> CandidateEstimates | None:
    """What is believed, where anything was learned and can be told."""
    if study is None or not study.rounds:
        return None
    try:
        return estimate_candidates(spec, study, measured.rounds)
    except (PastoError, ArithmeticError, ValueError):
        return None


def _worth(spec: StudySpec, known: CandidateEstimates, answer: Mapping[str, Any] | None) -> dict[str, Any]:
    """Prices and the trade-off; neither keeps the rest of a report from being shown."""
    try:
        curve = describe_trade_off(spec, known)
        return {
            "prices": estimate_prices(spec, known),
            "trade_off": None if curve is None else placed(spec, known, curve, answer),
        }
    except (PastoError, ArithmeticError, ValueError):
        return {}


def _promised(spec: StudySpec, known: CandidateEstimates, frozen: FrozenBlend) -> dict[str, dict[str, float]]:
    """The lifts that the frozen answer was expected to have when it was frozen, by arm and metric."""
    if known.baseline is None:
        return {}
    arms = {"blend": dict(frozen.blend)} | ({} if frozen.single is None else {"single": {frozen.single: 1.0}})
    found: dict[str, dict[str, float]] = {}
    for arm, parts in arms.items():
        shares = np.array([parts.get(k, 0.0) for k in range(len(known.names))])
        for name, metric in spec.metrics.items():
            table = known.table(0, [column.name for column in metric.columns], range(len(known.names)))
            levels = [
                values[0] if len(values) == 1 else values[0] / values[1]
                for values in (table @ shares, table[:, known.baseline])
            ]
            if levels[1] > 0:
                found.setdefault(arm, {})[name] = float(levels[0] / levels[1] - 1.0)
    return found


HISTORY = 100
"""Closed rounds that a report shows, the latest ones."""


class ReportBuilder:
    """Reports on studies; what only changes with a close is computed once for each."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._learned: GenerationCache[tuple[dict[str, Any], tuple[str, ...]]] = GenerationCache()
        self._records: dict[int, tuple[int, SenderRecord | None]] = {}
        self._ledgers: dict[int, EventLedger] = {}
        self._lock = Lock()

    def report(self, standing: StudySnapshot) -> dict[str, Any]:
        """Everything that is known of a study."""
        row, spec = standing.row, standing.spec
        learned, names = self._learned.get(row.number, row.generation, lambda: self._fresh(standing))
        return {
            "name": row.name,
            "state": row.state,
            "round": row.round,
            "version": row.version,
            "metrics": list(spec.metrics),
            **learned,
            "accounting": self._accounting(standing, names) if row.version else None,
        }

    def _accounting(self, standing: StudySnapshot, names: Sequence[str]) -> dict[str, Any]:
        row, spec = standing.row, standing.spec
        with self._lock:
            known = self._records.get(row.number)
        if known is None or known[0] != row.generation:
            known = row.generation, read_record(self._store, row.number, row.round - 1)
            with self._lock:
                self._records[row.number] = known
        record = known[1]
        shown = self._ledger(row.number).shown(names, [column.name for column in spec.columns], record)
        return {**shown, "departures": [] if record is None else describe_departures(spec, record, names)}

    def keep_up(self, study: int) -> None:
        """Bring a study's books up to date."""
        self._ledger(study).keep_up()

    def _ledger(self, study: int) -> EventLedger:
        with self._lock:
            return self._ledgers.setdefault(study, EventLedger(self._store, study))

    def _fresh(self, standing: StudySnapshot) -> tuple[dict[str, Any], tuple[str, ...]]:
        row, hard = standing.row, standing.spec.objective.hard
        details = StudyState.from_text(row.details)
        found: dict[str, Any] = {
            "rounds_learned": 0,
            "blend": None,
            "problem": None,
            "frozen": None if details.frozen is None else with_joint_bound(details.frozen.answer, hard),
            "waiting": [one.round for one in details.waiting],
            "held": held_rounds(details),
            "policy": [],
            "history": [],
        }
        saved = self._store.read_learner_state(row.number) if row.version else None
        if saved is None:
            return found, ()
        study = load_update(saved).study
        names = tuple(study.candidates.names)
        found["rounds_learned"] = study.rounds
        found["policy"] = [
            {"name": name, "probability": share}
            for name, share in zip(names, study.policy.probabilities, strict=True)
            if share > 0
        ]
        try:
            found["blend"] = with_joint_bound(blend_document(study.blend()), hard)
        except NotFittedError:
            found["problem"] = "no round has been learned yet"
        except (PastoError, ArithmeticError) as error:
            found["problem"] = f"the answer could not be computed: {type(error).__name__}: {error}"
        first = max(0, row.round - 1 - HISTORY)
        found["history"] = [
            close_summary(close) for close in self._store.list_closes(row.number, after=first, limit=HISTORY + 1)
        ]
        return found, names
