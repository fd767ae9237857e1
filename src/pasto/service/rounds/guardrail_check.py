"""The breaker in the course of a close: what it is shown, what it says, and what then happens."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from pasto.errors import PastoError
from pasto.inference import Comparison, chance_of_error, compare, log_evidence, side
from pasto.inference.change_detection import MIXTURE
from pasto.inference.comparison import WARM
from pasto.inference.guardrail_evidence import StopLevel
from pasto.inference.guardrail_monitor import GuardrailMonitor, GuardrailVerdict
from pasto.inference.round_data import MeasuredRound, RoundRecord, record_rounds
from pasto.inference.stop_level import DAY_SECONDS, REFERENCE_SHARE, STUDY_ERROR, crash_level
from pasto.metrics import Column, Metric, Moments
from pasto.report.guardrail_text import BASIS_TEXT
from pasto.service.round_history import join_arms, judged_round
from pasto.service.rounds.guardrail_state import GuardrailState
from pasto.service.rounds.round_clock import PHASES
from pasto.service.study_file import StudySpec
from pasto.service.study_file.quantities import floors
from pasto.service.study_state import ArmVerdict, GuardrailStatus

CONFIDENCE = 0.95
"""That a phase of a study in which nothing falls through a floor is never stopped for it."""

WARNING = 0.8
"""The confidence at which a warning is given."""

SERVED = {"learning": ("learner",), "confirming": ("blend", "single"), "deployed": ("blend",)}
"""The arms that the breaker watches, by state."""

GROWING = ("sum", "count", "any", "max")
"""What makes a unit's number grow with the time it is watched."""


def judge_learning(spec: StudySpec, monitor: GuardrailMonitor) -> list[ArmVerdict]:
    """Return the verdict on every guardrail after learning rounds; [] while there is nothing to judge."""
    return [_arm_verdict(verdict) for verdict in monitor.verdicts(floors(spec), confidence=CONFIDENCE, warning=WARNING)]


def judge_phase(
    spec: StudySpec,
    measured: MeasuredRound,
    state: str,
    elapsed: float,
    allowed: Mapping[str, float] = MappingProxyType({}),
) -> list[ArmVerdict]:
    """The same for a phase in which units keep their arm, and are one row each; `elapsed` is in rounds.

    Such a phase is judged whole, as a sum that grows: harm that begins late shows late. What a unit adds up grows with
    the phase, so a floor in the metric's own units is taken as the change against the control that it allowed while
    the study learned: `allowed`, by guardrail.
    """
    cells = join_arms(("control", *SERVED[state]), measured.cells)
    arms = [arm for arm in SERVED[state] if any(cell.arm == arm for cell in cells)]
    if not spec.guardrails or not arms:
        return []
    record = record_rounds([MeasuredRound(measured.version, {}, cells)])
    watched = _watched(spec, record, elapsed, allowed)
    if not watched:
        return []
    claims = len(watched) * len(arms)
    errors = [chance_of_error(level, claims) for level in (CONFIDENCE, WARNING)]
    found = []
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
            found.append(
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
    return found


STATES = ("breach", "warning")


def has_breach(verdicts: Sequence[ArmVerdict]) -> bool:
    """Return whether a guardrail is breached, so that traffic must be stopped."""
    return any(verdict.state == "breach" for verdict in verdicts)


def describe_breach(spec: StudySpec, verdicts: Sequence[ArmVerdict]) -> str:
    """Return the sentence that says why traffic is stopped."""
    rails = {rail.name: rail for rail in spec.guardrails}
    parts = []
    for verdict in verdicts:
        if verdict.state != "breach":
            continue
        rail = rails[verdict.name]
        way = "fell below" if rail.lower else "rose above"
        when = f", most likely since round {verdict.since}" if verdict.arm == "learner" else ""
        against = " of the control" if rail.stop_at.relative else f" (judged {BASIS_TEXT[verdict.judged]})"
        parts.append(f"{rail.name} {way} its floor {rail.stop_at.written()}{against} in the arm {verdict.arm}{when}")
    return "breaker: " + "; ".join(parts)


def holding(state: str) -> str:
    """What a study stands still on when it trips: not the blend, where that is what fell through the floor.

    >>> holding("learning"), holding("deployed")
    ('blend', 'baseline')
    """
    return "blend" if state == "learning" else "baseline"


def _watched(spec: StudySpec, record: RoundRecord, elapsed: float, allowed: Mapping[str, float]) -> list[StopLevel]:
    """The floors that a phase can be held against; those that it cannot are left out."""
    control = len(record.places("control")) == 1
    days = elapsed * spec.rounds.pace / DAY_SECONDS
    metrics = {rail.name: spec.metrics[rail.metric] for rail in spec.guardrails}
    found = []
    for floor in floors(spec):
        if floor.basis == "control" and control and floor.name in allowed:
            found.append(replace(floor, value=allowed[floor.name], relative=True))
        elif floor.relative and control:
            found.append(floor)
        elif floor.basis == "days" and not grows_with_phase(spec, metrics[floor.name]):
            level = _level_of_days(floor, days)
            if level is not None:
                found.append(replace(floor, value=level))
    return found


def grows_with_phase(spec: StudySpec, metric: Metric) -> bool:
    """Return whether a unit's number grows with the phase."""
    column = metric.numerator
    growing = metric.denominator is None and column.aggregate in GROWING and column.window is None
    return growing and spec.unit != "request"


def _level_of_days(floor: StopLevel, days: float) -> float | None:
    """Return the stop level for the mean of a phase, of which the last day may not be over.

    That part of a day may be at the level of a crash; None if nothing can be said of it.

    >>> from pasto.inference import Quantity
    >>> floor = StopLevel("likes", Quantity(0), 0.04, basis="days")
    >>> [round(_level_of_days(floor, days), 4) for days in (0.5, 1.0, 1.5, 10.5)]
    [0.02, 0.04, 0.0333, 0.039]
    """
    whole = math.floor(days)
    part, crash = days - whole, crash_level(floor)
    if crash is None:
        return floor.value if whole and part < 1.0 / 24.0 else None
    return (whole * floor.value + part * crash) / days


def _evidence(record: RoundRecord, floor: StopLevel, arm: str, elapsed: float) -> float:
    cells, place, covariances = record.view(arm, running=True)
    served = side(cells, covariances, place)
    control = side(cells, covariances, record.control) if record.places("control") else served
    told = compare(served, control, floor.quantity)
    gap, variance = _gap(told, floor)
    if float(told.warm) < WARM or not np.isfinite(gap) or not np.isfinite(variance) or variance <= 0:
        return 0.0
    standard = gap / np.sqrt(variance)
    return float(log_evidence(np.asarray(standard * np.sqrt(elapsed)), np.asarray(elapsed), MIXTURE))


def _gap(told: Comparison, floor: StopLevel) -> tuple[float, float]:
    """How far beyond the floor it lies, and the variance of that."""
    sign = -1.0 if floor.at_most else 1.0
    if not floor.relative:
        return sign * (floor.value - float(told.treated)), float(told.treated_variance)
    factor = 1.0 + floor.value
    variance = float(told.treated_variance) + factor**2 * float(told.control_variance)
    return sign * (factor * float(told.control) - float(told.treated)), variance


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
    """As many digits as anyone reads."""
    return float(f"{value:.4g}")


Past = Callable[[], Iterable[MeasuredRound]]
"""The learning rounds that were measured before, as the breaker sees them."""

Said = Sequence[ArmVerdict]


@dataclass(frozen=True, slots=True)
class GuardrailResult:
    """What came of judging a close."""

    said: Said
    carried: Mapping[str, Any]
    """What the next close goes on from."""
    problems: tuple[str, ...] = ()
    """What kept the breaker from saying more."""


def nothing() -> Iterable[MeasuredRound]:
    """A study without a past."""
    return ()


def look_elapsed(spec: StudySpec, since: float, now: float) -> float:
    """How long a phase has run, in rounds."""
    return max(1.0, (now - since) / spec.rounds.pace)


def lengthened(spec: StudySpec, elapsed: float) -> StudySpec:
    """A study file for a phase that is measured whole: what a unit adds up may be so many rounds' worth of its range.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> [column.high for column in lengthened(read_spec(EXAMPLE, "yaml"), 10.0).columns]
    [72000.0, 2000.0, 10000.0]
    """
    return replace(spec, columns=tuple(_lengthened(column, elapsed) for column in spec.columns))


def _lengthened(column: Column, elapsed: float) -> Column:
    if column.window is not None or column.aggregate not in ("sum", "count"):
        return column
    low = column.low if column.low is None or column.low > 0 else column.low * elapsed
    return replace(column, low=low, high=None if column.high is None else column.high * elapsed)


def check_guardrails(
    spec: StudySpec,
    state: str,
    watch: GuardrailStatus,
    rounds: Sequence[tuple[int, Sequence[Moments]]],
    past: Past = nothing,
    look: tuple[float, Sequence[Moments]] | None = None,
    first_open: int | None = None,
    seconds: Mapping[int, float | None] = MappingProxyType({}),
) -> GuardrailResult:
    """What the breaker says after rounds or a look.

    Rounds are new ones, or older ones measured again that take their former place; those from `first_open` on may be
    measured again at a later close. `seconds` says how long each was served. Only a study that was last closed before
    evidence was carried, or gathered as it is now, is asked for its `past`. What cannot be judged must not keep a round
    from being closed.
    """
    carried = GuardrailState.read(watch.carried)
    if carried is None:
        again = [*(number for number, _ in rounds), *(() if first_open is None else (first_open,))]
        carried = GuardrailState.of(spec, past(), watch.since, min(again, default=None))
    try:
        known = carried.with_rounds([judged_round(number, moments, seconds.get(number)) for number, moments in rounds])
        whole = known.until(spec, None, watch.since)
        said: list[ArmVerdict] = []
        if look is not None:
            allowed = whole.vigil.allowed(floors(spec))
            said = judge_phase(spec, MeasuredRound(0, {}, look[1]), state, look[0], allowed)
        elif any(number >= watch.since for number, _ in rounds):
            said = judge_learning(spec, whole.vigil)
        kept = whole if first_open is None else known.until(spec, first_open, watch.since)
        return GuardrailResult(said, kept.written())
    except (PastoError, ArithmeticError, ValueError) as error:
        return GuardrailResult(
            [], carried.written(), (f"the breaker could not judge: {type(error).__name__}: {error}",)
        )


def rearm(watch: GuardrailStatus, before: str, after: str, round: int) -> GuardrailStatus:
    """The breaker as a close finds it; where a person resumes what it stopped, evidence starts anew.

    >>> rearm(GuardrailStatus(tripped={"reason": "breaker: likes"}), "paused", "learning", 7)
    GuardrailStatus(since=8, verdicts=(), tripped=None, carried=None)
    """
    if before == "paused" and after not in ("paused", "archived") and watch.tripped is not None:
        carried = GuardrailState.read(watch.carried)
        return GuardrailStatus(since=round + 1, carried=None if carried is None else carried.re_armed().written())
    return watch


def after_close(
    watch: GuardrailStatus, before: str, after: str, judged: GuardrailResult, trip: Mapping[str, Any] | None
) -> GuardrailStatus:
    """The breaker as a close leaves it."""
    known: Said = judged.said
    if not judged.said and after in (before, "paused"):
        known = watch.verdicts
    tripped = watch.tripped if trip is None else trip
    return replace(watch, verdicts=tuple(known), tripped=tripped, carried=judged.carried)


def must_pause(state: str, said: Said) -> bool:
    """Whether a close that would go on serving must pull traffic instead.

    >>> breach = ArmVerdict("likes", "learner", "breach", p_value=0.001)
    >>> must_pause("learning", [breach]), must_pause("archived", [breach])
    (True, False)
    """
    return state in ("learning", *PHASES) and has_breach(said)


def newly_warned(watch: GuardrailStatus, said: Said) -> tuple[str, ...]:
    """Guardrails that are warned of now and were not before."""
    known = {(verdict.name, verdict.arm) for verdict in watch.verdicts if verdict.state != "holds"}
    warned = (verdict for verdict in said if verdict.state == "warning")
    return tuple(dict.fromkeys(verdict.name for verdict in warned if (verdict.name, verdict.arm) not in known))
