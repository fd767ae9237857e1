"""Guardrail report: certificate, verdict and price of every guardrail, and certificates that lifts contradict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from pasto.report.guardrail_text import contradiction_text
from pasto.report.lift_records import GuardrailSide, LiftRecord, MeasuredInterval
from pasto.report.records import (
    ArmVerdict,
    BlendRecord,
    CertificateRecord,
    ContradictionReport,
    GuardrailReport,
    PriceReport,
)
from pasto.report.summary import price_text
from pasto.service.reports.candidate_estimates import CandidateEstimates, solve_draws, summarize_draws
from pasto.service.reports.lift_report import BLEND_TARGET
from pasto.service.study_file import GuardrailSpec, StudySpec
from pasto.service.study_file.spec import GuardrailLevel, find_stop_basis

SEVERITY = {"holds": 0, "warning": 1, "breach": 2}
"""States of the guardrail monitor, from harmless to severe."""


def report_guardrails(
    spec: StudySpec, answer: BlendRecord | None, verdicts: Sequence[ArmVerdict] = ()
) -> tuple[GuardrailReport, ...]:
    """Report every guardrail with its limit and floor, the answer's certificate and the monitor's worst verdict.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> (guardrail,) = report_guardrails(read_spec(EXAMPLE, "yaml"), None)
    >>> guardrail.name, guardrail.side, guardrail.at, guardrail.floor, guardrail.state
    ('like_rate', 'at_least', '-2%', '-5%', None)
    """
    return tuple(_report_guardrail(spec, guardrail, answer, verdicts) for guardrail in spec.guardrails)


def _report_guardrail(
    spec: StudySpec, guardrail: GuardrailSpec, answer: BlendRecord | None, verdicts: Sequence[ArmVerdict]
) -> GuardrailReport:
    certificate = None if answer is None else answer.certificate
    own_verdicts = [verdict for verdict in verdicts if verdict.name == guardrail.name]
    worst = max(own_verdicts, key=lambda verdict: SEVERITY[verdict.state], default=None)
    return GuardrailReport(
        name=guardrail.name,
        metric=guardrail.metric,
        side=guardrail_side(guardrail),
        at=guardrail.at.written(),
        kind="hard" if guardrail.penalty is None else "soft",
        penalty=guardrail.penalty,
        budget=guardrail.loss_budget,
        floor=guardrail.stop_at.written(),
        judged="days" if find_stop_basis(spec, guardrail) == "days" else "control",
        allowed=None if worst is None else worst.allowed,
        holds=None if certificate is None else certificate.holds.get(guardrail.name),
        price=None if answer is None else answer.prices.get(guardrail.name),
        state=None if worst is None else worst.state,
        p_value=None if worst is None else worst.p_value,
    )


def guardrail_side(guardrail: GuardrailSpec) -> GuardrailSide:
    """Return the side of a guardrail as JSON names it."""
    return "at_least" if guardrail.lower else "at_most"


# Prices


def estimate_prices(spec: StudySpec, estimates: CandidateEstimates) -> tuple[PriceReport, ...]:
    """Estimate the gain in the goal if each guardrail is relaxed by one unit, with its interval."""
    objective = spec.objective
    if not objective.guardrails:
        return ()
    blend, draws = solve_draws(estimates, objective, estimates.usable_candidates)
    reports = []
    for name, guardrail in zip(objective.names, objective.guardrails, strict=True):
        draw_prices = [draw.prices.get(name, np.nan) for draw in draws]
        price = summarize_draws(blend.prices.get(name, np.nan), draw_prices, spec.confidence)
        text = price_text(guardrail, objective, price.value, price.low, price.high, confidence=spec.confidence)
        sentence = f"{text[:1].upper()}{text[1:]}."
        reports.append(PriceReport(name, price.value, price.low, price.high, sentence))
    return tuple(reports)


# Contradictions between a certificate and the lifts that were measured of the same blend


def find_contradictions(
    spec: StudySpec,
    answer: BlendRecord | None,
    learning: Sequence[LiftRecord],
    confirming: Sequence[LiftRecord] = (),
) -> tuple[ContradictionReport, ...]:
    """Return every hard guardrail that is certified although the blend's measured interval lies beyond its limit.

    `learning` and `confirming` are the lifts of these phases. A limit in percent is compared with the relative lift,
    and a limit in the metric's own units with the level: the control's plus the lift. The confirmation counts more:
    a guardrail that it contradicts is not listed again for the learning rounds.
    """
    certificate = None if answer is None else answer.certificate
    if certificate is None:
        return ()
    contradictions: dict[str, ContradictionReport] = {}
    for guardrail, holds in _certified_guardrails(spec, certificate):
        for lift in _blend_lifts(learning, guardrail):
            if (interval := _contradicting_interval(guardrail, lift)) is not None:
                contradictions[guardrail.name] = _contradiction(guardrail, "learning", holds, interval)
        if not guardrail.at.relative and spec.grows_with_phase(spec.metrics[guardrail.metric]):
            continue  # a level in the metric's own units is that of a round, and the phase is longer
        for lift in _blend_lifts(confirming, guardrail):
            if (interval := _contradicting_interval(guardrail, lift)) is not None:
                contradictions[guardrail.name] = _contradiction(guardrail, "confirming", holds, interval)
    return tuple(contradictions.values())


def _blend_lifts(lifts: Sequence[LiftRecord], guardrail: GuardrailSpec) -> Iterator[LiftRecord]:
    return (lift for lift in lifts if lift.target == BLEND_TARGET and lift.metric == guardrail.metric)


def _contradicting_interval(guardrail: GuardrailSpec, lift: LiftRecord) -> MeasuredInterval | None:
    """Return the measured interval if all of it lies beyond the guardrail's limit."""
    interval = measured_interval(guardrail.at, lift)
    return interval if interval is not None and is_beyond(guardrail.at, guardrail.lower, interval) else None


def _contradiction(
    guardrail: GuardrailSpec, phase: str, holds: float, interval: MeasuredInterval
) -> ContradictionReport:
    contradiction = ContradictionReport(
        guardrail=guardrail.name,
        metric=guardrail.metric,
        phase="confirming" if phase == "confirming" else "learning",
        side=guardrail_side(guardrail),
        at=guardrail.at.written(),
        holds=holds,
        measured=interval,
        relative=guardrail.at.relative,
    )
    return replace(contradiction, text=contradiction_text(contradiction))


def _certified_guardrails(spec: StudySpec, certificate: CertificateRecord) -> Iterator[tuple[GuardrailSpec, float]]:
    """Yield the hard guardrails that hold by the certificate, with their probabilities."""
    for guardrail in spec.guardrails:
        holds = certificate.holds.get(guardrail.name)
        if guardrail.penalty is None and holds is not None and holds >= certificate.confidence:
            yield guardrail, holds


def measured_interval(level: GuardrailLevel, lift: LiftRecord) -> MeasuredInterval | None:
    """Return the measured interval in the terms of a level; None if an end is not known."""
    start = 0.0 if level.relative else lift.control
    estimate = lift.best.relative if level.relative else lift.best.absolute
    if start is None or estimate.value is None or estimate.low is None or estimate.high is None:
        return None
    return MeasuredInterval(start + estimate.value, start + estimate.low, start + estimate.high)


def is_beyond(level: GuardrailLevel, lower: bool, interval: MeasuredInterval) -> bool:
    """Return whether all of an interval lies on the wrong side of a level."""
    return interval.high < _threshold(level) if lower else interval.low > _threshold(level)


def is_within(level: GuardrailLevel, lower: bool, interval: MeasuredInterval) -> bool:
    """Return whether all of an interval lies on the right side of a level."""
    return interval.low >= _threshold(level) if lower else interval.high <= _threshold(level)


def _threshold(level: GuardrailLevel) -> float:
    return level.number / 100.0 if level.relative else level.number
