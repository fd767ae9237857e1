"""The breaker at a close: whether what was served has fallen through a guardrail's floor, and what is then done.

Pure: the same rounds give the same verdicts, so a replay finds the same trips.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from pasto.estimate.intervals import Comparison, chance_of_error, compare, log_evidence, side
from pasto.estimate.intervals.comparison import WARM
from pasto.estimate.intervals.restarts import MIXTURE
from pasto.measure import Metric
from pasto.report.breaker import Verdict
from pasto.report.guardrail_text import BASIS_TEXT
from pasto.report.measured import CellMoments, MeasuredRound, Moments, Record, Table, recorded
from pasto.report.shortfall import Floor
from pasto.report.stop_level import DAY_SECONDS, REFERENCE_SHARE, STUDY_ERROR, crash_level
from pasto.report.vigil import Vigil
from pasto.service.spec import Spec
from pasto.service.trust.quantities import floors

CONFIDENCE = 0.95
"""That a phase of a study in which nothing falls through a floor is never stopped for it."""
WARNING = 0.8
"""The confidence at which a warning is given."""
SERVED = {"learning": ("learner",), "confirming": ("blend", "single"), "deployed": ("blend",)}
"""The arms that the breaker watches, by state."""
GROWING = ("sum", "count", "any", "max")
"""What makes a unit's number grow with the time it is watched."""


def judged_round(number: int, measured: Sequence[Moments], seconds: float | None = None) -> MeasuredRound:
    """A round as the breaker sees it: its control, and all that the learner served as one cell."""
    return MeasuredRound(number, {}, _wholes(("control", "learner"), measured), seconds)


def verdicts(spec: Spec, vigil: Vigil) -> list[dict[str, Any]]:
    """What the breaker says of every guardrail after learning rounds, in JSON; [] while there is nothing to judge."""
    return [_shown(told) for told in vigil.verdicts(floors(spec), confidence=CONFIDENCE, warning=WARNING)]


def verdicts_of_phase(
    spec: Spec,
    measured: MeasuredRound,
    state: str,
    elapsed: float,
    allowed: Mapping[str, float] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """The same for a phase in which units keep their arm, and are one row each; `elapsed` is in rounds.

    Such a phase is judged whole, as a sum that grows: harm that begins late shows late. What a unit adds up grows with
    the phase, so a floor in the metric's own units is taken as the change against the control that it allowed while
    the study learned: `allowed`, by guardrail.
    """
    cells = _wholes(("control", *SERVED[state]), measured.cells)
    arms = [arm for arm in SERVED[state] if any(cell.arm == arm for cell in cells)]
    if not spec.guardrails or not arms:
        return []
    record = recorded([MeasuredRound(measured.version, {}, cells)])
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
                {
                    "name": floor.name,
                    "arm": arm,
                    "state": state_now or "holds",
                    "p_value": _digits(p_value),
                    "since": measured.version if state_now == "breach" else None,
                    "bounded": False,
                    "judged": floor.basis or "control",
                    "allowed": _change(floor.value if floor.basis == "control" else None),
                }
            )
    return found


STATES = ("breach", "warning")


def breached(said: Sequence[Mapping[str, Any]]) -> bool:
    """Whether traffic must be pulled.

    >>> breached([{"state": "holds"}, {"state": "breach"}])
    True
    """
    return any(verdict["state"] == "breach" for verdict in said)


def reason(spec: Spec, said: Sequence[Mapping[str, Any]]) -> str:
    """Why traffic was pulled, in a sentence."""
    rails = {rail.name: rail for rail in spec.guardrails}
    parts = []
    for verdict in said:
        if verdict["state"] != "breach":
            continue
        rail = rails[verdict["name"]]
        way = "fell below" if rail.lower else "rose above"
        when = f", most likely since round {verdict['since']}" if verdict["arm"] == "learner" else ""
        against = " of the control" if rail.floor.relative else f" (judged {BASIS_TEXT[verdict['judged']]})"
        parts.append(f"{rail.name} {way} its floor {rail.floor.written()}{against} in the arm {verdict['arm']}{when}")
    return "breaker: " + "; ".join(parts)


def holding(state: str) -> str:
    """What a study stands still on when it trips: not the blend, where that is what fell through the floor.

    >>> holding("learning"), holding("deployed")
    ('blend', 'baseline')
    """
    return "blend" if state == "learning" else "baseline"


def _watched(spec: Spec, record: Record, elapsed: float, allowed: Mapping[str, float]) -> list[Floor]:
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


def grows_with_phase(spec: Spec, metric: Metric) -> bool:
    """Return whether a unit's number grows with the phase."""
    column = metric.numerator
    growing = metric.denominator is None and column.per_unit in GROWING and column.window is None
    return growing and spec.unit != "request"


def _level_of_days(floor: Floor, days: float) -> float | None:
    """Return the stop level for the mean of a phase, of which the last day may not be over.

    That part of a day may be at the level of a crash; None if nothing can be said of it.

    >>> from pasto.estimate.intervals import Quantity
    >>> floor = Floor("likes", Quantity(0), 0.04, basis="days")
    >>> [round(_level_of_days(floor, days), 4) for days in (0.5, 1.0, 1.5, 10.5)]
    [0.02, 0.04, 0.0333, 0.039]
    """
    whole = math.floor(days)
    part, crash = days - whole, crash_level(floor)
    if crash is None:
        return floor.value if whole and part < 1.0 / 24.0 else None
    return (whole * floor.value + part * crash) / days


def _evidence(record: Record, floor: Floor, arm: str, elapsed: float) -> float:
    cells, place, covariances = record.view(arm, running=True)
    served = side(cells, covariances, place)
    control = side(cells, covariances, record.control) if record.places("control") else served
    told = compare(served, control, floor.quantity)
    gap, variance = _gap(told, floor)
    if float(told.warm) < WARM or not np.isfinite(gap) or not np.isfinite(variance) or variance <= 0:
        return 0.0
    standard = gap / np.sqrt(variance)
    return float(log_evidence(np.asarray(standard * np.sqrt(elapsed)), np.asarray(elapsed), MIXTURE))


def _gap(told: Comparison, floor: Floor) -> tuple[float, float]:
    """How far beyond the floor it lies, and the variance of that."""
    sign = -1.0 if floor.at_most else 1.0
    if not floor.relative:
        return sign * (floor.value - float(told.treated)), float(told.treated_variance)
    factor = 1.0 + floor.value
    variance = float(told.treated_variance) + factor**2 * float(told.control_variance)
    return sign * (factor * float(told.control) - float(told.treated)), variance


def _wholes(arms: Sequence[str], measured: Sequence[Moments]) -> list[CellMoments]:
    """Each arm's units as one cell; arms that had none are left out."""
    table = measured if isinstance(measured, Table) else Table.of(measured)
    return [cell for arm in arms if (cell := table.whole(arm)) is not None]


def _shown(verdict: Verdict) -> dict[str, Any]:
    return {
        "name": verdict.name,
        "arm": "learner",
        "state": verdict.state,
        "p_value": _digits(verdict.p_value),
        "since": verdict.since,
        "bounded": verdict.bounded,
        "judged": verdict.basis or "control",
        "allowed": _change(verdict.allowed),
    }


def _change(allowed: float | None) -> float | None:
    return None if allowed is None else _digits(allowed)


def _digits(value: float) -> float:
    """As many digits as anyone reads."""
    return float(f"{value:.4g}")
