"""Outline of a study file, from which a study is planned before it starts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from pasto.arrays import FloatArray
from pasto.document_validation import nearest_name
from pasto.errors import OptionError, UnsupportedError
from pasto.metrics import Metric
from pasto.optimize.learners import Thompson
from pasto.planning import MetricFacts, RoundsOutline, StudyOutline, TrafficOutline, complete_facts
from pasto.planning.study_outline import DEFAULT_COMPETITION, DailySwing
from pasto.service.study_file.spec import GuardrailSpec, StudySpec
from pasto.space import Candidates, Space
from pasto.study.candidate_growth import choose_first_points

SPACE_SEED = 0


def outline_study(
    spec: StudySpec,
    units_per_day: float,
    facts: Mapping[str, MetricFacts],
    *,
    daily_swing: DailySwing = "unknown",
    competition: float = DEFAULT_COMPETITION,
) -> StudyOutline:
    """Return the outline of a study file; `facts` are by metric of the file, and what is missing is assumed.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> outline = outline_study(read_spec(EXAMPLE, "yaml"), 2e6, {"like_rate": MetricFacts(mean=0.04)})
    >>> outline.candidates, outline.facts["like_rate"].sources["deviation"], outline.rounds.maturity
    (9, 'one event', 7200.0)
    """
    if not isinstance(spec.learner, Thompson):
        raise UnsupportedError(
            f"a plan forecasts the learner 'thompson', and the study file names {spec.learner.name!r}; plan with "
            "learner: thompson"
        )
    labels = {
        name: metric.numerator.name if metric.denominator is None else name for name, metric in spec.metrics.items()
    }
    if unknown := [name for name in facts if name not in labels]:
        raise OptionError(f"{unknown[0]!r} is not a metric of {spec.name}; {nearest_name(unknown[0], labels)}")
    planned = {labels[name] for name in aimed_metrics(spec)}
    known = {
        label: assume_deviation(spec.metrics[name], facts.get(name, MetricFacts()))
        for name, label in labels.items()
        if label in planned
    }
    complete = complete_facts(spec.objective, known)
    candidates = spec.candidates
    if not isinstance(candidates, Candidates):
        candidates = choose_first_points(candidates, SPACE_SEED)
    windows = [column.window or 0.0 for metric in spec.metrics.values() for column in metric.columns]
    return StudyOutline(
        objective=spec.objective,
        facts=complete,
        candidates=len(candidates),
        traffic=TrafficOutline(
            units_per_day,
            spec.traffic.control,
            spec.traffic.enrolled(len(spec.traffic.ramp) or 1),
            spec.traffic.min_share,
            spec.traffic.max_share,
            spec.traffic.new_candidate_share,
        ),
        rounds=RoundsOutline(spec.rounds.every, spec.rounds.maturity, max(windows, default=0.0), daily_swing),
        confidence=spec.confidence,
        loss_budgets={rail.name: rail.loss_budget for rail in spec.guardrails if rail.loss_budget is not None},
        stop_levels={
            rail.name: level
            for rail in spec.guardrails
            if (level := _stop_level(rail, complete[labels[rail.metric]])) is not None
        },
        competition=competition,
        points=_positions(candidates, spec),
        is_space=isinstance(spec.candidates, Space),
        unit=spec.assigned_unit,
    )


def aimed_metrics(spec: StudySpec) -> list[str]:
    """Return the metrics of the goal and of the guardrails, by their names in the file.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> aimed_metrics(read_spec(EXAMPLE, "yaml"))
    ['watch_time', 'like_rate']
    """
    goals = {source if isinstance(source, str) else source.name for source in spec.objective.goal_metrics}
    rails = {rail.metric for rail in spec.guardrails}
    return [
        name
        for name, metric in spec.metrics.items()
        if name in rails or (metric.numerator.name if metric.denominator is None else name) in goals
    ]


def assume_deviation(metric: Metric, facts: MetricFacts) -> MetricFacts:
    """Return facts with a deviation that follows from the mean and the kind of metric, if none is known.

    A share of units has the deviation √(m (1 − m)). A ratio of counts has it too, with one event a unit in the
    denominator. Counts are taken to be geometric, with the variance m + m². The deviation between clusters does not
    follow from the mean of their members.

    >>> from pasto.metrics import Column
    >>> clicked = Metric("clicked", Column("clicked", "click", None, "any"))
    >>> assume_deviation(clicked, MetricFacts(mean=0.2)).deviation
    0.4
    """
    mean = facts.mean
    if facts.deviation is not None or mean is None or mean <= 0 or metric.is_per_member:
        return facts
    counted = metric.numerator.aggregate in ("count", "any")
    if metric.is_ratio:
        if not counted or mean >= 1:
            return facts
        return replace(
            facts, deviation=math.sqrt(mean * (1.0 - mean)), sources={**facts.sources, "deviation": "one event"}
        )
    if metric.numerator.reach == (0.0, 1.0) and mean < 1:
        deviation = math.sqrt(mean * (1.0 - mean))
        return replace(facts, deviation=deviation, sources={**facts.sources, "deviation": "zero or one"})
    if metric.numerator.aggregate == "count":
        deviation = math.sqrt(mean + mean**2)
        return replace(facts, deviation=deviation, sources={**facts.sources, "deviation": "count"})
    return facts


def _stop_level(rail: GuardrailSpec, facts: MetricFacts) -> float | None:
    """Return the stop level in the terms of the limit; None if the mean that this needs is not known."""
    if rail.stop_at.relative == rail.at.relative:
        return rail.stop_at.number
    if not facts.mean or facts.sources.get("mean") == "default":
        return None
    if rail.at.relative:
        return 100.0 * (rail.stop_at.number / facts.mean - 1.0)
    return facts.mean * (1.0 + rail.stop_at.number / 100.0)


def _positions(candidates: Candidates, spec: StudySpec) -> FloatArray | None:
    """Return the positions of the candidates with the baseline first; None if they do not differ in numbers."""
    rows = [candidates[place] for place in range(len(candidates))]
    numeric = [
        name
        for name in candidates.parameters
        if len({row[name] for row in rows}) > 1 and all(isinstance(row[name], (int, float)) for row in rows)
    ]
    if not numeric:
        return None
    features = candidates.features()
    baseline = next((place for place, row in enumerate(rows) if row == dict(spec.baseline)), 0)
    order = [baseline, *(place for place in range(len(rows)) if place != baseline)]
    return features[order]
