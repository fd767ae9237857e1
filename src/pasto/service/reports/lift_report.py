"""Lift report: lifts over the concurrent control of the learner's traffic, the best single candidate and the blend."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import MeasurementError
from pasto.inference import Interval, Quantity, ValueRange, unit_covariances
from pasto.inference.lift import Lift, LiftEstimate, LiftTarget, estimate_history, estimate_lifts
from pasto.inference.multiple_comparisons import find_winners
from pasto.inference.round_data import WHOLE_ARM, MeasuredRound, RoundRecord, measure_design_effect, record_rounds
from pasto.inference.sample_ratio import SampleRatioCheck, check_sample_ratio
from pasto.metrics import MEMBERS
from pasto.planning.metric_history import MIN_CANDIDATES, effect_spread
from pasto.planning.study_outline import DAY_SECONDS
from pasto.report.lift_records import (
    AdjustedLiftRecord,
    ArmUnits,
    BoundedLiftRecord,
    IntervalEstimate,
    IntervalSeries,
    LearningReport,
    LiftDirection,
    LiftHistoryRecord,
    LiftRecord,
    MetricSpread,
    SampleRatioReport,
    SuspectCell,
    WinnerReport,
)
from pasto.report.records import BlendRecord, ClusterReport, finite
from pasto.service.round_history import latest
from pasto.service.study_file import StudySpec
from pasto.service.study_file.spec import build_quantities

BLEND_TARGET = "the blend"
SINGLE_TARGET = "the best single candidate"
LEARNER_TARGET = "the learner's traffic"
MAX_HISTORY_ROUNDS = 200
"""Latest rounds that a report has a history of."""
MAX_CLAIMED_CANDIDATES = 500
"""Candidates up to which winners are searched: more claims together say next to nothing."""
MAX_SPREAD_ROUNDS = 50
"""Latest rounds that a plan is made from."""


def report_learned_lifts(
    spec: StudySpec,
    rounds: Sequence[MeasuredRound],
    names: Sequence[str],
    answer: BlendRecord | None,
    baseline: int | None,
) -> LearningReport:
    """Report the lifts of a learning study, by round and over all rounds, with its sample ratio.

    The lifts of `answer` and of the best single candidate look better than they are, because both were chosen on the
    rounds they are measured on. A confirmation measures them without this bias.
    """
    measured = [entry for entry in latest(rounds) if entry.cells]
    if not measured:
        return LearningReport(spec.confidence)
    record = record_rounds(measured)
    targets = _list_targets(record, names, answer)
    metrics = build_quantities(spec)
    lifts = estimate_lifts(
        record, metrics, targets, confidence=spec.confidence, covariates=covariates(spec), ranges=ranges(spec)
    )
    sample_ratio = check_sample_ratio(record)
    recent = record if len(measured) <= MAX_HISTORY_ROUNDS else record_rounds(measured[-MAX_HISTORY_ROUNDS:])
    return LearningReport(
        confidence=spec.confidence,
        rounds=tuple(record.versions),
        lifts=tuple(map(lift_record, lifts)),
        history=tuple(_lift_history(recent, spec, name, target) for target in targets for name in metrics),
        sample_ratio=sample_ratio_report(sample_ratio, names),
        winner=_find_winner(record, spec, names, baseline),
    )


def covariates(spec: StudySpec) -> dict[str, Quantity]:
    """Return the covariate of each metric that has one, as a quantity of the measured columns.

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
    """Return the range of a unit's value for each metric that states one and is not a ratio.

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
    """Return the metrics of a study's goal, then those of its guardrails.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> aimed_quantities(read_spec(EXAMPLE, "yaml"))
    ['watch_time', 'like_rate']
    """
    goals = [source if isinstance(source, str) else source.name for source in spec.objective.goal_metrics]
    by_column = {metric.numerator.name: name for name, metric in spec.metrics.items() if metric.denominator is None}
    goal_metrics = [by_column.get(goal, goal) for goal in goals]
    return list(dict.fromkeys([*goal_metrics, *(guardrail.metric for guardrail in spec.guardrails)]))


def lift_record(lift: Lift) -> LiftRecord:
    """Return a lift as a report holds it."""
    adjusted, bounded = lift.adjusted, lift.bounded
    return LiftRecord(
        target=lift.target,
        metric=lift.metric,
        level=finite(lift.level),
        control=finite(lift.control),
        absolute=interval_estimate(lift.absolute),
        relative=interval_estimate(lift.relative),
        direction=_direction(lift.absolute),
        adjusted=None
        if adjusted is None
        else AdjustedLiftRecord(
            interval_estimate(adjusted.absolute),
            interval_estimate(adjusted.relative),
            _direction(adjusted.absolute),
            finite(adjusted.reduction),
        ),
        bounded=None
        if bounded is None
        else BoundedLiftRecord(
            interval_estimate(bounded.absolute),
            None if bounded.relative is None else interval_estimate(bounded.relative),
        ),
        rounds=lift.rounds,
        confidence=lift.confidence,
        sequential=lift.sequential,
    )


def interval_estimate(estimate: LiftEstimate) -> IntervalEstimate:
    """Return an estimate as a report holds it: None for an end that is not known."""
    return IntervalEstimate(finite(estimate.value), finite(estimate.low), finite(estimate.high))


def _direction(estimate: LiftEstimate) -> LiftDirection:
    return "up" if estimate.low > 0 else "down" if estimate.high < 0 else "unclear"


def read_sample_ratio(rounds: Sequence[MeasuredRound], names: Sequence[str]) -> SampleRatioReport | None:
    """Return the sample ratio of learning rounds, without the rest of their report; None before the first."""
    measured = [entry for entry in latest(rounds) if entry.cells]
    return sample_ratio_report(check_sample_ratio(record_rounds(measured)), names) if measured else None


def sample_ratio_report(check: SampleRatioCheck, names: Sequence[str]) -> SampleRatioReport:
    """Return the sample ratio as a report holds it: units by arm with the expected ones."""
    suspect = None
    if check.suspect is not None:
        arm, candidate = check.suspect
        name = None if candidate == WHOLE_ARM else _candidate_name(names, candidate)
        suspect = SuspectCell(arm, name, finite(check.remaining_share or 0.0))
    observed: dict[str, float] = {}
    expected: dict[str, float] = {}
    for (arm, _), units in check.observed.items():
        observed[arm] = observed.get(arm, 0.0) + units
    for (arm, _), units in check.expected.items():
        expected[arm] = expected.get(arm, 0.0) + units
    arms = {arm: ArmUnits(float(units), float(expected.get(arm, 0.0))) for arm, units in observed.items()}
    return SampleRatioReport(bool(check.alarm), float(check.p_value), suspect, arms)


def _list_targets(record: RoundRecord, names: Sequence[str], answer: BlendRecord | None) -> list[LiftTarget]:
    if not record.cell_indices("control") or not record.cell_indices("learner"):
        return []
    targets = [LiftTarget(LEARNER_TARGET)]
    if answer is None:
        return targets
    place = {name: number for number, name in enumerate(names)}
    measured = {candidate for arm, candidate in record.keys if arm == "learner"}
    single = None if answer.best_single is None else place.get(answer.best_single)
    if single is not None and single in measured:
        targets.append(LiftTarget(SINGLE_TARGET, shares={single: 1.0}))
    shares = {place[name]: share for name, share in answer.probabilities.items() if name in place}
    if shares and set(shares) <= measured:
        targets.append(LiftTarget(BLEND_TARGET, shares=shares))
    return targets


def _lift_history(record: RoundRecord, spec: StudySpec, metric: str, target: LiftTarget) -> LiftHistoryRecord:
    history = estimate_history(record, build_quantities(spec)[metric], target, confidence=spec.confidence)
    return LiftHistoryRecord(
        target=target.name,
        metric=metric,
        rounds=tuple(record.versions),
        by_round=_interval_series(history.by_round),
        cumulative=_interval_series(history.cumulative),
    )


def _interval_series(interval: Interval) -> IntervalSeries:
    value, low, high = (
        tuple(finite(number) for number in numbers.tolist())
        for numbers in (interval.estimate, interval.low, interval.high)
    )
    return IntervalSeries(value, low, high)


def _find_winner(
    record: RoundRecord, spec: StudySpec, names: Sequence[str], baseline: int | None
) -> WinnerReport | None:
    """Find the candidates that beat the control in the goal, all claims together; None if the goal is a sum."""
    goals = [metric for metric in aimed_quantities(spec)[:1] if metric in spec.metrics]
    if (
        not goals
        or len(spec.objective.goal_metrics) != 1
        or len(record.cell_indices("learner")) > MAX_CLAIMED_CANDIDATES
    ):
        return None
    try:
        winners = find_winners(
            record,
            build_quantities(spec)[goals[0]],
            confidence=spec.confidence,
            at_most=spec.objective.sign < 0,
            leave_out=baseline,
            covariate=covariates(spec).get(goals[0]),
        )
    except MeasurementError:
        return None
    return WinnerReport(
        metric=goals[0],
        best_looking=_candidate_name(names, winners.best),
        beat_the_control=tuple(_candidate_name(names, candidate) for candidate in winners.winners),
        winner=None if winners.winner is None else _candidate_name(names, winners.winner),
    )


def _candidate_name(names: Sequence[str], candidate: int) -> str:
    return names[candidate] if 0 <= candidate < len(names) else f"candidate {candidate}"


def report_clusters(spec: StudySpec, rounds: Sequence[MeasuredRound]) -> ClusterReport | None:
    """Report the clusters of a study with their design effects; None if units are assigned, or nothing is measured."""
    measured = [entry for entry in latest(rounds) if entry.cells]
    if spec.cluster is None or not measured:
        return None
    place = spec.columns.index(MEMBERS)
    effects = {
        name: measure_design_effect(measured, quantity.numerator, quantity.denominator, place)
        for name, quantity in build_quantities(spec).items()
        if quantity.denominator is not None
    }
    return ClusterReport(
        cluster=spec.cluster,
        unit=spec.unit,
        clusters=measured[-1].units,
        members=count_members(spec, measured[-1:]) or 0,
        design_effects={name: effect for name, effect in effects.items() if effect is not None},
    )


def count_members(spec: StudySpec, rounds: Sequence[MeasuredRound]) -> int | None:
    """Return the units in the clusters of some rounds; None if units are not in clusters."""
    if spec.cluster is None:
        return None
    place = spec.columns.index(MEMBERS)
    return round(math.fsum(cell.units * cell.mean[place] for entry in rounds for cell in entry.cells))


def measure_spreads(spec: StudySpec, rounds: Sequence[MeasuredRound]) -> Mapping[str, MetricSpread]:
    """Return traffic and spread of each metric over the latest rounds.

    A ratio's deviation is that of its linear form N − cD, in units of the ratio.
    """
    measured = [entry for entry in rounds if any(cell.arm == "control" and cell.units > 1 for cell in entry.cells)][
        -MAX_SPREAD_ROUNDS:
    ]
    if not measured:
        return {}
    record = record_rounds(measured)
    place = record.control
    units = record.cells.units
    weight = units[:, place] / units[:, place].sum()
    mean = weight @ record.cells.mean[:, place]
    covariance = np.einsum("t,tij->ij", weight, unit_covariances(record.cells)[:, place])
    length = spec.rounds.every
    shows_hours = length is not None and length < DAY_SECONDS <= length * len(measured)
    spreads = {}
    for name, quantity in build_quantities(spec).items():
        form, level = np.zeros(len(mean)), float(mean[quantity.numerator])
        form[quantity.numerator] = 1.0
        if quantity.denominator is not None:
            bottom = float(mean[quantity.denominator])
            if bottom == 0:
                continue
            level /= bottom
            form[quantity.numerator], form[quantity.denominator] = 1.0 / bottom, -level / bottom
        variance = max(float(form @ covariance @ form), 0.0)
        levels = record.cells.mean @ form
        spreads[name] = MetricSpread(
            units=float(units.sum(axis=1).mean()),
            mean=level,
            deviation=math.sqrt(variance),
            control=float(record.shares[:, place].mean()),
            effect_spread=_relative(_measure_effect_spread(record, levels, variance), level),
            swing=_relative(_measure_swing(levels[:, place], units[:, place], variance), level)
            if shows_hours
            else None,
        )
    return spreads


def _measure_effect_spread(record: RoundRecord, levels: FloatArray, variance: float) -> float | None:
    """Return the deviation of the candidates' effects over the control beyond their noise; None with few candidates.

    `levels` (rounds, cells) are the metric's means, and `variance` is that of one unit.
    """
    control, units = record.control, record.cells.units
    effects, noises = [], []
    for place in record.cell_indices("learner"):
        both = (units[:, place] > 0) & (units[:, control] > 0)
        if record.keys[place][1] == record.keys[control][1] or not both.any():
            continue
        own, base = units[both, place], units[both, control]
        weight = own * base / (own + base)
        effects.append(float(weight @ (levels[both, place] - levels[both, control]) / weight.sum()))
        noises.append(variance * float(weight**2 @ (1.0 / own)) / float(weight.sum()) ** 2)
    return effect_spread(np.array(effects), np.array(noises)) if len(effects) >= MIN_CANDIDATES else None


def _measure_swing(levels: FloatArray, units: FloatArray, variance: float) -> float | None:
    """Return the deviation of a round's level from that of all rounds, beyond its noise; None for one round."""
    served = units > 0
    if served.sum() < 2:
        return None
    noise = float(np.mean(variance / units[served]))
    return math.sqrt(max(float(np.var(levels[served], ddof=1)) - noise, 0.0))


def _relative(deviation: float | None, level: float) -> float | None:
    """Return a deviation as a share of a level; None if one of them is not known."""
    return None if deviation is None or level == 0 else deviation / abs(level)
