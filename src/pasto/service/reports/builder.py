"""What a report adds to the answer and the books: everything that can be trusted under changing traffic."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from threading import Lock
from typing import Any

import numpy as np

from pasto.errors import NotFittedError, PastoError
from pasto.inference.round_data import MeasuredRound
from pasto.metrics import Moments
from pasto.service.event_ledger import EventLedger
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
from pasto.service.round_history import InterimLook, RoundHistory, shares
from pasto.service.rounds.data_check import describe_held_rounds
from pasto.service.rounds.sender_check import describe_departures, read_record
from pasto.service.serializers import close_summary
from pasto.service.study_file import StudySpec
from pasto.service.study_state import FrozenBlend, blend_document, with_joint_bound
from pasto.store import Store
from pasto.study import Study


class LiftReports:
    """Computes a study's trusted numbers, once for each of its generations."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def told(self, standing: StudySnapshot, report: Mapping[str, Any]) -> dict[str, Any]:
        """The keys that a report gains; `report` is what it has already."""
        row, spec = standing.row, standing.spec
        measured = standing.rounds
        found = standing.compute_once("lifts", lambda: self._compute(standing, measured, report))
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
        study = standing.study
        if study is None or not study.rounds:
            raise NotFittedError(f"study {standing.row.name!r} has learned no round yet, so nothing can be asked of it")
        known = _estimates(standing, study)
        return {
            "name": standing.row.name,
            "rounds_learned": study.rounds,
            **answer_what_if(standing.spec, known, question),
        }

    def verdict(self, standing: StudySnapshot, elapsed: float, cells: Sequence[Moments], now: float) -> dict[str, Any]:
        """Return the verdict on the confirmation that a study is in, with a look that is not written yet."""
        row, spec = standing.row, standing.spec
        policy = self._store.read_policy(row.number, row.version)
        served = {} if policy is None else shares(json.loads(policy.document))
        look = InterimLook(row.round, row.version, row.state, elapsed, now, MeasuredRound(row.version, served, cells))
        told = build_confirmation(spec, [*standing.rounds.looks, look], (), horizon=standing.state.horizon)
        return judge_confirmation(spec, None) if told is None else dict(told["verdict"])

    def _compute(self, standing: StudySnapshot, measured: RoundHistory, report: Mapping[str, Any]) -> dict[str, Any]:
        spec, details, study = standing.spec, standing.state, standing.study
        frozen = details.frozen
        names = () if study is None else tuple(study.candidates.names)
        answer = report.get("blend") if frozen is None else dict(frozen.answer)
        learning = report_learned_lifts(spec, measured.rounds, names, answer, None if study is None else study.baseline)
        verdicts = [asdict(verdict) for verdict in details.breaker.verdicts]
        found: dict[str, Any] = {
            "claims": learning["claims"],
            "learning": learning,
            "confirmation": None,
            "breaker": {"verdicts": verdicts, "tripped": details.breaker.tripped},
            "guardrails": report_guardrails(spec, answer, verdicts),
            "prices": [],
            "trade_off": None,
            "spreads": spreads(spec, measured.rounds),
        }
        known = _believed(standing)
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


def _estimates(standing: StudySnapshot, study: Study) -> CandidateEstimates:
    """Return the estimates of a study's candidates, computed once for each generation."""
    return standing.compute_once("estimates", lambda: estimate_candidates(standing.spec, study, standing.rounds.rounds))


def _believed(standing: StudySnapshot) -> CandidateEstimates | None:
    """Return the estimates if a round was learned and they can be computed."""
    study = standing.study
    if study is None or not study.rounds:
        return None
    try:
        return _estimates(standing, study)
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
        self._ledgers: dict[int, EventLedger] = {}
        self._lock = Lock()

    def report(self, standing: StudySnapshot) -> dict[str, Any]:
        """Everything that is known of a study."""
        row, spec = standing.row, standing.spec
        learned, names = standing.compute_once("learned", lambda: self._fresh(standing))
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
        record = standing.compute_once("senders", lambda: read_record(self._store, row.number, row.round - 1))
        shown = self._ledger(row.number).summarize(names, [column.name for column in spec.columns], record)
        return {**shown, "departures": [] if record is None else describe_departures(spec, record, names)}

    def keep_up(self, study: int) -> None:
        """Bring a study's books up to date."""
        self._ledger(study).keep_up()

    def _ledger(self, study: int) -> EventLedger:
        with self._lock:
            return self._ledgers.setdefault(study, EventLedger(self._store, study))

    def _fresh(self, standing: StudySnapshot) -> tuple[dict[str, Any], tuple[str, ...]]:
        row, hard = standing.row, standing.spec.objective.hard
        details = standing.state
        found: dict[str, Any] = {
            "rounds_learned": 0,
            "blend": None,
            "problem": None,
            "frozen": None if details.frozen is None else with_joint_bound(details.frozen.answer, hard),
            "waiting": [one.round for one in details.waiting],
            "held": describe_held_rounds(details),
            "policy": [],
            "history": [],
        }
        study = standing.study
        if study is None:
            return found, ()
        names = tuple(study.candidates.names)
        found["rounds_learned"] = study.rounds
        found["policy"] = [
            {"name": name, "probability": share}
            for name, share in zip(names, study.policy.probabilities, strict=True)
            if share > 0
        ]
        try:
            found["blend"] = with_joint_bound(blend_document(standing.blend), hard)
        except NotFittedError:
            found["problem"] = "no round has been learned yet"
        except (PastoError, ArithmeticError) as error:
            found["problem"] = f"the answer could not be computed: {type(error).__name__}: {error}"
        first = max(0, row.round - 1 - HISTORY)
        found["history"] = [
            close_summary(close) for close in self._store.list_closes(row.number, after=first, limit=HISTORY + 1)
        ]
        return found, names
