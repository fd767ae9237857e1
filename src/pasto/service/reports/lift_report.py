"""Lifts over the concurrent control in plain JSON: what the learner served, the best single candidate, the blend."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pasto.errors import MeasurementError
from pasto.inference import Interval, Quantity, ValueRange, unit_covariances
from pasto.inference.lift import (
    AdjustedLift,
    BoundedLift,
    Lift,
    LiftEstimate,
    LiftTarget,
    estimate_history,
    estimate_lifts,
)
from pasto.inference.multiple_comparisons import find_winners
from pasto.inference.round_data import WHOLE_ARM, MeasuredRound, RoundRecord, record_rounds
from pasto.inference.sample_ratio import SampleRatioCheck, check_sample_ratio
from pasto.report.summary import summary_paragraph
from pasto.service.round_history import latest
from pasto.service.study_file import StudySpec
from pasto.service.study_file.quantities import build_quantities

HISTORY = 200
"""Rounds whose history is told, the latest ones."""

MOST_CLAIMS = 500
"""Candidates up to which winners are looked for: of more, claims made together say next to nothing."""

NOTHING = "Nothing was measured yet, and nothing can be claimed."

TOO_LITTLE = "Too little was measured yet to claim anything: a side of a comparison needs fifty units at least."


def report_learned_lifts(
    spec: StudySpec,
    rounds: Sequence[MeasuredRound],
    names: Sequence[str],
    answer: Mapping[str, Any] | None,
    baseline: int | None,
) -> dict[str, Any]:
    """The lifts of a learning study, by round and over all rounds, with its sample ratio and what can be claimed.

    `answer` is the blend so far as a report shows it. Its own lift, and that of the best single candidate, were chosen
    on the rounds they are measured on, and look better than they are: a confirmation tells them fairly.
    """
    chosen = [one for one in latest(rounds) if one.cells]
    if not chosen:
        return _told(spec, (), (), [], None, None, NOTHING)
    record = record_rounds(chosen)
    targets = _targets(record, names, answer)
    metrics = build_quantities(spec)
    found = estimate_lifts(
        record, metrics, targets, confidence=spec.confidence, covariates=covariates(spec), ranges=ranges(spec)
    )
    checked = check_sample_ratio(record)
    recent = record if len(chosen) <= HISTORY else record_rounds(chosen[-HISTORY:])
    series = [
        {"target": target.name, "metric": name, **_series(recent, spec, name, target)}
        for target in targets
        for name in metrics
    ]
    said = report_claims(spec, [lift for lift in found if lift.target != "the best single candidate"], checked, names)
    return _told(
        spec,
        record.versions,
        found,
        series,
        sample_ratio_document(checked, names),
        _winner(record, spec, names, baseline),
        said,
    )


def report_claims(
    spec: StudySpec, found: Sequence[Lift], checked: SampleRatioCheck | None, names: Sequence[str]
) -> str:
    """What can be said, in one paragraph, of the goal and the guardrails."""
    aims = aimed_quantities(spec)
    ends = [(lift, lift.best.relative) for lift in found if lift.metric in aims]
    telling = [lift for lift, told in ends if math.isfinite(told.low + told.high)]
    if not telling and not (checked is not None and checked.alarm):
        return TOO_LITTLE
    return summary_paragraph(telling, balance=checked, names=names)


def covariates(spec: StudySpec) -> dict[str, Quantity]:
    """By metric: where what it is adjusted by was measured, behind the study's own columns.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> covariates(read_spec(EXAMPLE.replace("cap: 7200}", "cap: 7200, covariate: 7d}"), "yaml"))
    {'watch_time': Quantity(numerator=3, denominator=None)}
    """
    places = {column: place for place, column in enumerate(spec.measured_columns)}
    return {
        name: Quantity(*(places[column] for column in metric.covariate.columns))
        for name, metric in spec.metrics.items()
        if metric.covariate is not None
    }


def ranges(spec: StudySpec) -> dict[str, ValueRange]:
    """By metric: between which a unit's number lies, of those that are no ratios and say so.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> ranges(read_spec(EXAMPLE, "yaml"))
    {'watch_time': ValueRange(low=0.0, high=7200.0)}
    """
    return {
        name: ValueRange(metric.numerator.low, metric.numerator.high)
        for name, metric in spec.metrics.items()
        if metric.denominator is None and metric.numerator.low is not None and metric.numerator.high is not None
    }


def aimed_quantities(spec: StudySpec) -> list[str]:
    """The metrics that a study is about: those of its goal, then those of its guardrails.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> aimed_quantities(read_spec(EXAMPLE, "yaml"))
    ['watch_time', 'like_rate']
    """
    goals = [source if isinstance(source, str) else source.name for source in spec.objective.goal_metrics]
    by_column = {metric.numerator.name: name for name, metric in spec.metrics.items() if metric.denominator is None}
    named = [by_column.get(goal, goal) for goal in goals]
    return list(dict.fromkeys([*named, *(rail.metric for rail in spec.guardrails)]))


def lift_document(lift: Lift) -> dict[str, Any]:
    """One lift in JSON; an end that is not known is null."""
    return {
        "target": lift.target,
        "metric": lift.metric,
        "level": finite(lift.level),
        "control": finite(lift.control),
        "absolute": estimate_document(lift.absolute),
        "relative": estimate_document(lift.relative),
        "told": lift.absolute.direction,
        "adjusted": None if lift.adjusted is None else _shown_adjusted(lift.adjusted),
        "bounded": None if lift.bounded is None else _shown_bounded(lift.bounded),
        "rounds": lift.rounds,
        "confidence": lift.confidence,
        "sequential": lift.sequential,
    }


def _shown_bounded(bounded: BoundedLift) -> dict[str, Any]:
    relative = None if bounded.relative is None else estimate_document(bounded.relative)
    return {"absolute": estimate_document(bounded.absolute), "relative": relative}


def _shown_adjusted(adjusted: AdjustedLift) -> dict[str, Any]:
    return {
        "absolute": estimate_document(adjusted.absolute),
        "relative": estimate_document(adjusted.relative),
        "told": adjusted.absolute.direction,
        "variance_reduced_by": finite(adjusted.reduction),
    }


def estimate_document(estimate: LiftEstimate) -> dict[str, float | None]:
    """A number between its ends, in JSON."""
    return {"value": finite(estimate.value), "low": finite(estimate.low), "high": finite(estimate.high)}


def sample_ratio_document(checked: SampleRatioCheck, names: Sequence[str]) -> dict[str, Any]:
    """Return the sample ratio in JSON: units by arm with what was expected; no candidate if a whole arm is suspect."""
    suspect = None
    if checked.suspect is not None:
        arm, candidate = checked.suspect
        name = None if candidate == WHOLE_ARM else _name(names, candidate)
        suspect = {"arm": arm, "candidate": name, "left": finite(checked.remaining_share or 0.0)}
    arms: dict[str, dict[str, float]] = {}
    for (arm, _), units in checked.observed.items():
        arms.setdefault(arm, {"units": 0.0, "expected": 0.0})["units"] += units
    for (arm, _), units in checked.expected.items():
        arms[arm]["expected"] += units
    return {"alarm": checked.alarm, "p_value": checked.p_value, "suspect": suspect, "arms": arms}


def finite(value: float) -> float | None:
    """A number as JSON has it.

    >>> finite(0.5), finite(float("inf"))
    (0.5, None)
    """
    return float(value) if math.isfinite(value) else None


def _targets(record: RoundRecord, names: Sequence[str], answer: Mapping[str, Any] | None) -> list[LiftTarget]:
    if not record.cell_indices("control") or not record.cell_indices("learner"):
        return []
    found = [LiftTarget("the learner's traffic")]
    if answer is None:
        return found
    place = {name: number for number, name in enumerate(names)}
    known = {candidate for arm, candidate in record.keys if arm == "learner"}
    single = place.get(answer["single"]) if answer.get("single") is not None else None
    if single in known and single is not None:
        found.append(LiftTarget("the best single candidate", shares={single: 1.0}))
    parts = {place[name]: share for name, share in answer["probabilities"].items() if name in place}
    if parts and set(parts) <= known:
        found.append(LiftTarget("the blend", shares=parts))
    return found


def _series(record: RoundRecord, spec: StudySpec, metric: str, target: LiftTarget) -> dict[str, Any]:
    told = estimate_history(record, build_quantities(spec)[metric], target, confidence=spec.confidence)
    return {
        "rounds": list(record.versions),
        "by_round": _ends(told.by_round),
        "cumulative": _ends(told.cumulative),
    }


def _ends(interval: Interval) -> dict[str, list[float | None]]:
    return {
        name: [finite(value) for value in ends.tolist()]
        for name, ends in (("value", interval.estimate), ("low", interval.low), ("high", interval.high))
    }


def _winner(record: RoundRecord, spec: StudySpec, names: Sequence[str], baseline: int | None) -> dict[str, Any] | None:
    """Which candidates beat the control in the goal, all claims together; None where the goal is a sum."""
    aims = [source for source in aimed_quantities(spec)[:1] if source in spec.metrics]
    if not aims or len(spec.objective.goal_metrics) != 1 or len(record.cell_indices("learner")) > MOST_CLAIMS:
        return None
    lower = spec.objective.sign < 0
    try:
        told = find_winners(
            record, build_quantities(spec)[aims[0]], confidence=spec.confidence, at_most=lower, leave_out=baseline
        )
    except MeasurementError:
        return None
    return {
        "metric": aims[0],
        "best_looking": _name(names, told.best),
        "beat_the_control": [_name(names, candidate) for candidate in told.winners],
        "winner": None if told.winner is None else _name(names, told.winner),
    }


def _name(names: Sequence[str], candidate: int) -> str:
    return names[candidate] if 0 <= candidate < len(names) else f"candidate {candidate}"


def _told(
    spec: StudySpec,
    versions: Sequence[int],
    found: Sequence[Lift],
    series: list[dict[str, Any]],
    checked: dict[str, Any] | None,
    winner: dict[str, Any] | None,
    said: str,
) -> dict[str, Any]:
    return {
        "claims": said,
        "confidence": spec.confidence,
        "rounds": list(versions),
        "lifts": [lift_document(lift) for lift in found],
        "history": series,
        "sample_ratio": checked,
        "winner": winner,
    }


RECENT = 50
"""Rounds that a plan is made from, the latest ones."""


def spreads(spec: StudySpec, rounds: Sequence[MeasuredRound]) -> dict[str, dict[str, float]]:
    """By metric: units a round, the control's mean, the deviation of one unit, and the control's share.

    A ratio's deviation is that of its linear form N − cD, in units of the ratio.
    """
    chosen = [one for one in rounds if any(cell.arm == "control" and cell.units > 1 for cell in one.cells)][-RECENT:]
    if not chosen:
        return {}
    record = record_rounds(chosen)
    place = record.control
    units = record.cells.units
    weight = units[:, place] / units[:, place].sum()
    mean = weight @ record.cells.mean[:, place]
    covariance = np.einsum("t,tij->ij", weight, unit_covariances(record.cells)[:, place])
    found = {}
    for name, quantity in build_quantities(spec).items():
        form, level = np.zeros(len(mean)), float(mean[quantity.numerator])
        form[quantity.numerator] = 1.0
        if quantity.denominator is not None:
            bottom = float(mean[quantity.denominator])
            if bottom == 0:
                continue
            level /= bottom
            form[quantity.numerator], form[quantity.denominator] = 1.0 / bottom, -level / bottom
        found[name] = {
            "units": float(units.sum(axis=1).mean()),
            "mean": level,
            "deviation": float(np.sqrt(max(form @ covariance @ form, 0.0))),
            "control": float(record.shares[:, place].mean()),
        }
    return found
