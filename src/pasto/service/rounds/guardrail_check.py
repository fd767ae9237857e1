"""Guardrail check of a close: judge the measured rounds or the look at a phase, and decide about a pause."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from pasto.errors import PastoError
from pasto.inference import Comparison, build_side, compare, error_per_claim, log_evidence
from pasto.inference.comparison import MIN_SEQUENCE_UNITS
from pasto.inference.guardrail_evidence import MIXTURE_ROUNDS
from pasto.inference.guardrail_monitor import GuardrailMonitor, GuardrailVerdict
from pasto.inference.round_data import MeasuredRound, RoundRecord, record_rounds
from pasto.inference.stop_level import DAY_SECONDS, REFERENCE_SHARE, STUDY_ERROR, StopLevel, crash_level
from pasto.metrics import Column, Moments
from pasto.report.guardrail_text import BASIS_TEXT
from pasto.report.records import ArmVerdict, PauseRecord
from pasto.service.lifecycle import PHASES
from pasto.service.rounds.guardrail_state import GuardrailState, join_arms, judged_round
from pasto.service.study_file import StudySpec
from pasto.service.study_file.spec import build_stop_levels
from pasto.service.study_state import GuardrailStatus

CONFIDENCE = 0.95
"""Probability that a phase without any breach is never paused by the monitor."""

WARNING_CONFIDENCE = 0.8
"""Confidence from which on a guardrail has a warning."""

WATCHED_ARMS = {"learning": ("learner",), "confirming": ("blend", "best_single"), "deployed": ("blend",)}
"""Arms that the monitor watches, by state."""


def judge_learning(spec: StudySpec, monitor: GuardrailMonitor) -> list[ArmVerdict]:
    """Return the verdict on every guardrail after learning rounds; [] while there is nothing to judge."""
    return [
        _arm_verdict(verdict)
        for verdict in monitor.verdicts(build_stop_levels(spec), confidence=CONFIDENCE, warning=WARNING_CONFIDENCE)
    ]


def judge_phase(
    spec: StudySpec,
    measured: MeasuredRound,
    state: str,
    elapsed: float,
    allowed: Mapping[str, float] = MappingProxyType({}),
) -> list[ArmVerdict]:
    """Return the verdicts on a phase in which units keep their arm; `elapsed` is its length in rounds.

    Each unit is one row, and the phase is judged as one growing sum, so harm that begins late is found late. A unit's
    number grows with the phase. A stop level in the metric's own units is therefore judged as the change against the
    control that it allowed while the study learned: `allowed`, by guardrail.
    """
    cells = join_arms(("control", *WATCHED_ARMS[state]), measured.cells)
    arms = [arm for arm in WATCHED_ARMS[state] if any(cell.arm == arm for cell in cells)]
    if not spec.guardrails or not arms:
        return []
    record = record_rounds([MeasuredRound(measured.version, {}, cells)])
    watched = _watched(spec, record, elapsed, allowed)
    if not watched:
        return []
    claims = len(watched) * len(arms)
    errors = [error_per_claim(level, claims) for level in (CONFIDENCE, WARNING_CONFIDENCE)]
    verdicts = []
    for arm in arms:
        for floor in watched:
            evidence = _evidence(record, floor, arm, elapsed)
            p_value = min(1.0, claims * float(np.exp(-evidence)))
            if floor.basis == "control":
                evidence += np.log1p(-REFERENCE_SHARE)
                p_value = min(1.0, p_value + REFERENCE_SHARE * STUDY_ERROR)
            state_now = next(
                (name for name, error in zip(STATES, errors, strict=True) if evidence >= -np.log(error)), ""
            )
            verdicts.append(
                ArmVerdict(
                    name=floor.name,
                    arm=arm,
                    state=state_now or "holds",
                    p_value=_digits(p_value),
                    since=measured.version if state_now == "breach" else None,
                    judged=floor.basis or "control",
                    allowed=_change(floor.value if floor.basis == "control" else None),
                )
            )
    return verdicts


STATES = ("breach", "warning")


def has_breach(verdicts: Sequence[ArmVerdict]) -> bool:
    """Return whether a guardrail is breached, so that traffic must be stopped."""
    return any(verdict.state == "breach" for verdict in verdicts)


def describe_breach(spec: StudySpec, verdicts: Sequence[ArmVerdict]) -> str:
    """Return the reason for stopping traffic, as one sentence."""
    rails = {rail.name: rail for rail in spec.guardrails}
    parts = []
    for verdict in verdicts:
        if verdict.state != "breach":
            continue
        rail = rails[verdict.name]
        way = "fell below" if rail.lower else "rose above"
        when = f", most likely since round {verdict.since}" if verdict.arm == "learner" else ""
        against = " of the control" if rail.stop_at.relative else f" (judged {BASIS_TEXT[verdict.judged]})"
        parts.append(
            f"{rail.name} {way} its stop level {rail.stop_at.written()}{against} in the arm {verdict.arm}{when}"
        )
    return "guardrail monitor: " + "; ".join(parts)


def choose_hold(state: str) -> str:
    """Return the policy that a tripped study serves: the baseline if the blend itself breached a guardrail.

    >>> choose_hold("learning"), choose_hold("deployed")
    ('blend', 'baseline')
    """
    return "blend" if state == "learning" else "baseline"


def _watched(spec: StudySpec, record: RoundRecord, elapsed: float, allowed: Mapping[str, float]) -> list[StopLevel]:
    """Return the stop levels that a phase can be compared with."""
    control = len(record.cell_indices("control")) == 1
    days = elapsed * spec.rounds.interval_seconds / DAY_SECONDS
    metrics = {rail.name: spec.metrics[rail.metric] for rail in spec.guardrails}
    watched = []
    for floor in build_stop_levels(spec):
        if floor.basis == "control" and control and floor.name in allowed:
            watched.append(replace(floor, value=allowed[floor.name], relative=True))
        elif floor.relative and control:
            watched.append(floor)
        elif floor.basis == "days" and not spec.grows_with_phase(metrics[floor.name]):
            level = _level_of_days(floor, days)
            if level is not None:
                watched.append(replace(floor, value=level))
    return watched


def _level_of_days(floor: StopLevel, days: float) -> float | None:
    """Return the stop level for the mean of a phase, of which the last day may not be over.

    That part of a day may be at the level of a crash; None without a crash level.

    >>> from pasto.inference import Quantity
    >>> floor = StopLevel("likes", Quantity(0), 0.04, basis="days")
    >>> [round(_level_of_days(floor, days), 4) for days in (0.5, 1.0, 1.5, 10.5)]
    [0.02, 0.04, 0.0333, 0.039]
    """
    full_days = math.floor(days)
    part, crash = days - full_days, crash_level(floor)
    if crash is None:
        return floor.value if full_days and part < 1.0 / 24.0 else None
    return (full_days * floor.value + part * crash) / days


def _evidence(record: RoundRecord, floor: StopLevel, arm: str, elapsed: float) -> float:
    cells, place, covariances = record.arm_view(arm, running=True)
    served = build_side(cells, covariances, place)
    control = build_side(cells, covariances, record.control) if record.cell_indices("control") else served
    comparison = compare(served, control, floor.quantity)
    gap, variance = _gap(comparison, floor)
    has_units = float(comparison.smaller_units) >= MIN_SEQUENCE_UNITS
    if not has_units or not np.isfinite(gap) or not np.isfinite(variance) or variance <= 0:
        return 0.0
    standard = gap / np.sqrt(variance)
    return float(log_evidence(np.asarray(standard * np.sqrt(elapsed)), np.asarray(elapsed), MIXTURE_ROUNDS))


def _gap(comparison: Comparison, floor: StopLevel) -> tuple[float, float]:
    """Return the distance beyond the stop level and its variance."""
    sign = -1.0 if floor.at_most else 1.0
    if not floor.relative:
        return sign * (floor.value - float(comparison.treated)), float(comparison.treated_variance)
    factor = 1.0 + floor.value
    variance = float(comparison.treated_variance) + factor**2 * float(comparison.control_variance)
    return sign * (factor * float(comparison.control) - float(comparison.treated)), variance


def _arm_verdict(verdict: GuardrailVerdict) -> ArmVerdict:
    return ArmVerdict(
        name=verdict.name,
        arm="learner",
        state=verdict.state,
        p_value=_digits(verdict.p_value),
        since=verdict.since,
        bounded=verdict.bounded,
        judged=verdict.basis or "control",
        allowed=_change(verdict.allowed),
    )


def _change(allowed: float | None) -> float | None:
    return None if allowed is None else _digits(allowed)


def _digits(value: float) -> float:
    """Return a number with four significant digits."""
    return float(f"{value:.4g}")


Past = Callable[[], Iterable[MeasuredRound]]
"""Reads the learning rounds that were measured before."""


@dataclass(frozen=True, slots=True)
class GuardrailResult:
    """Verdicts of the guardrail monitor at a close."""

    verdicts: tuple[ArmVerdict, ...]
    carried: Mapping[str, Any]
    """Evidence for the next close to continue from."""
    problems: tuple[str, ...] = ()
    """Sentences about guardrails that could not be judged."""


def no_past() -> Iterable[MeasuredRound]:
    """Return no rounds: a study without a past."""
    return ()


def phase_length(spec: StudySpec, since: float, now: float) -> float:
    """Return the length of a phase so far, in rounds."""
    return max(1.0, (now - since) / spec.rounds.interval_seconds)


def lengthen_ranges(spec: StudySpec, elapsed: float) -> StudySpec:
    """Return the study file for the measurement of a whole phase: sums of a unit may be `elapsed` times as large.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> [column.high for column in lengthen_ranges(read_spec(EXAMPLE, "yaml"), 10.0).columns]
    [72000.0, 2000.0, 10000.0]
    """
    return replace(spec, columns=tuple(_lengthen_range(column, elapsed) for column in spec.columns))


def _lengthen_range(column: Column, elapsed: float) -> Column:
    if column.window is not None or column.aggregate not in ("sum", "count", "distinct"):
        return column
    low = column.low if column.low is None or column.low > 0 else column.low * elapsed
    return replace(column, low=low, high=None if column.high is None else column.high * elapsed)


def check_guardrails(
    spec: StudySpec,
    state: str,
    status: GuardrailStatus,
    rounds: Sequence[tuple[int, Sequence[Moments]]],
    past: Past = no_past,
    look: tuple[float, Sequence[Moments]] | None = None,
    first_open: int | None = None,
    seconds: Mapping[int, float | None] = MappingProxyType({}),
) -> GuardrailResult:
    """Judge the guardrails after rounds or a look; a failure does not prevent the close.

    Rounds are new ones, or corrected ones that replace their former measurement; those from `first_open` on may be
    corrected at a later close. `seconds` is the time that each was served. `past` is read only if the state carries no
    evidence that was gathered by the present method.
    """
    carried = GuardrailState.read(status.carried)
    if carried is None:
        again = [*(number for number, _ in rounds), *(() if first_open is None else (first_open,))]
        carried = GuardrailState.of(spec, past(), status.since, min(again, default=None))
    try:
        rounds_so_far = carried.with_rounds(
            [judged_round(number, moments, seconds.get(number)) for number, moments in rounds]
        )
        final = rounds_so_far.until(spec, None, status.since)
        verdicts: list[ArmVerdict] = []
        if look is not None:
            allowed = final.monitor.allowed_changes(build_stop_levels(spec))
            verdicts = judge_phase(spec, MeasuredRound(0, {}, look[1]), state, look[0], allowed)
        elif any(number >= status.since for number, _ in rounds):
            verdicts = judge_learning(spec, final.monitor)
        carried_on = final if first_open is None else rounds_so_far.until(spec, first_open, status.since)
        return GuardrailResult(tuple(verdicts), carried_on.written())
    except (PastoError, ArithmeticError, ValueError) as error:
        return GuardrailResult(
            (), carried.written(), (f"the guardrail monitor could not judge: {type(error).__name__}: {error}",)
        )


def rearm(status: GuardrailStatus, before: str, after: str, round: int) -> GuardrailStatus:
    """Return the monitor before a close; its evidence starts again if a person resumes the study that it paused.

    >>> rearm(GuardrailStatus(tripped=PauseRecord(6, 0.0, "guardrail monitor: likes")), "paused", "learning", 7)
    GuardrailStatus(since=8, verdicts=(), tripped=None, carried=None)
    """
    if before == "paused" and after not in ("paused", "archived") and status.tripped is not None:
        carried = GuardrailState.read(status.carried)
        return GuardrailStatus(
            since=round + 1, carried=None if carried is None else carried.without_evidence().written()
        )
    return status


def after_close(
    status: GuardrailStatus, before: str, after: str, judged: GuardrailResult, trip: PauseRecord | None
) -> GuardrailStatus:
    """Return the monitor after a close."""
    verdicts = judged.verdicts
    if not verdicts and after in (before, "paused"):
        verdicts = status.verdicts
    tripped = status.tripped if trip is None else trip
    return replace(status, verdicts=verdicts, tripped=tripped, carried=judged.carried)


def must_pause(state: str, verdicts: Sequence[ArmVerdict]) -> bool:
    """Return whether a breach turns the requested state into a pause.

    >>> breach = ArmVerdict("likes", "learner", "breach", p_value=0.001)
    >>> must_pause("learning", [breach]), must_pause("archived", [breach])
    (True, False)
    """
    return state in ("learning", *PHASES) and has_breach(verdicts)


def newly_warned(status: GuardrailStatus, verdicts: Sequence[ArmVerdict]) -> tuple[str, ...]:
    """Return the guardrails that have a warning now and had none before."""
    known = {(verdict.name, verdict.arm) for verdict in status.verdicts if verdict.state != "holds"}
    warned = (verdict for verdict in verdicts if verdict.state == "warning")
    return tuple(dict.fromkeys(verdict.name for verdict in warned if (verdict.name, verdict.arm) not in known))
