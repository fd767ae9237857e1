"""Questions of the form "what if": the best blend for another goal, threshold or set of candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pasto.arrays import FloatArray
from pasto.blend import Blend
from pasto.errors import ObjectiveError, OptionError
from pasto.objective import Objective, Ratio
from pasto.objective.parsing import parse_objective
from pasto.report.records import WhatIfAnswer
from pasto.report.summary import WHAT_IF_ASSUMPTIONS
from pasto.service.reports.candidate_estimates import (
    CandidateEstimates,
    baseline_place,
    solve_draws,
    summarize_draws,
)
from pasto.service.study_file import StudySpec
from pasto.service.study_file.goals import describe_bound_problem
from pasto.service.study_file.spec import GuardrailLevel
from pasto.service.study_state import describe_blend


@dataclass(frozen=True, slots=True)
class WhatIfQuestion:
    """Parts of a study's own objective that are replaced."""

    maximize: tuple[str, ...] = ()
    minimize: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    only: tuple[str, ...] = ()


def answer_what_if(
    name: str, rounds_learned: int, spec: StudySpec, estimates: CandidateEstimates, question: WhatIfQuestion
) -> WhatIfAnswer:
    """Return the best blend for another objective, with its expected metrics and their intervals."""
    objective = read_question(spec, question)
    candidates = _select_candidates(estimates, question)
    blend, draws = solve_draws(estimates, objective, candidates)
    levels, lifts = _sample_metrics(estimates, objective, blend, candidates)
    return WhatIfAnswer(
        name=name,
        rounds_learned=rounds_learned,
        objective=str(objective),
        candidates=len(candidates),
        answer=describe_blend(blend),
        metrics={metric: summarize_draws(values[0], values[1:], spec.confidence) for metric, values in levels.items()},
        lifts={metric: summarize_draws(values[0], values[1:], spec.confidence) for metric, values in lifts.items()},
        prices={
            guardrail: summarize_draws(price, [draw.prices.get(guardrail, np.nan) for draw in draws], spec.confidence)
            for guardrail, price in blend.prices.items()
        },
        confidence=spec.confidence,
        from_log=tuple(column for column in estimates.from_log if column in objective.metrics),
        assumes=WHAT_IF_ASSUMPTIONS,
    )


def read_question(spec: StudySpec, question: WhatIfQuestion) -> Objective:
    """Return the study's objective with the requested parts replaced, in the study's own names.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> spec = read_spec(EXAMPLE, "yaml")
    >>> print(read_question(spec, WhatIfQuestion(keep=("like_rate >= -1%",))))
    maximize watch_time, keep like_rate >= -1%
    """
    own = spec.objective
    goal = replace(own, guardrails=())
    if question.maximize or question.minimize:
        goal = _over_columns(spec, parse_objective(maximize=question.maximize, minimize=question.minimize))
    dropped = set(question.drop)
    if unknown := dropped - {rail.label for rail in own.guardrails}:
        labels = ", ".join(rail.label for rail in own.guardrails) or "none"
        raise OptionError(f"there is no guardrail {sorted(unknown)[0]!r} to drop; the study keeps {labels}")
    first = next(iter(spec.metrics))
    stated = [
        rail
        for text in question.keep
        for rail in _over_columns(spec, parse_objective(maximize=[first], keep=[text])).guardrails
    ]
    for rail in stated:
        metric = spec.metrics.get(rail.label)
        if metric is not None and (
            wrong := describe_bound_problem(metric, GuardrailLevel(rail.at, rail.relative), lower=rail.lower)
        ):
            raise ObjectiveError(f"the threshold of {rail.label!r} {wrong}")
    replaced = {(rail.label, rail.lower) for rail in stated}
    rails = [
        rail for rail in own.guardrails if rail.label not in dropped and (rail.label, rail.lower) not in replaced
    ] + stated
    if isinstance(goal.target, Ratio) and (soft := [rail.label for rail in rails if rail.penalty is not None]):
        raise ObjectiveError(f"a ratio goal takes hard guardrails only; drop {soft[0]!r}, or keep it without a penalty")
    return replace(goal, guardrails=tuple(rails))


def _sample_metrics(
    estimates: CandidateEstimates, objective: Objective, blend: Blend, candidates: Sequence[int]
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return the blend's metrics and its lifts over the baseline, as expected and in every draw."""
    shares = np.array(blend.probabilities)
    levels: dict[str, list[float]] = {}
    lifts: dict[str, list[float]] = {}
    baseline = baseline_place(estimates, candidates)
    columns = {ratio.name: [ratio.numerator, ratio.denominator] for ratio in objective.ratios}
    ratio_parts = {part for pair in columns.values() for part in pair}
    columns |= {name: [name] for name in objective.metrics if name not in ratio_parts}
    for name, parts in columns.items():
        for draw in range(len(estimates.means)):
            table = estimates.table(draw, parts, candidates)
            level = _ratio(table @ shares)
            levels.setdefault(name, []).append(level)
            if baseline is not None:
                base = _ratio(table[:, baseline])
                lifts.setdefault(name, []).append(level / base - 1.0 if base > 0 else float("nan"))
    return levels, lifts


def _ratio(values: FloatArray) -> float:
    """Return a metric from its column, or from numerator and denominator."""
    if len(values) == 1:
        return float(values[0])
    return float(values[0] / values[1]) if values[1] else float("nan")


def _over_columns(spec: StudySpec, objective: Objective) -> Objective:
    """Return an objective over metrics as an objective over the study's columns."""
    target = objective.target
    if isinstance(target, dict):
        sources = {name: _source(spec, name) for name in target}
        ratios = [source for source in sources.values() if isinstance(source, Ratio)]
        if ratios and len(target) > 1:
            raise ObjectiveError(f"the ratio {ratios[0].name} must be the only goal: sums are not concave")
        target = ratios[0] if ratios else {str(sources[name]): weight for name, weight in target.items()}
    rails = tuple(
        replace(rail, metric=_source(spec, rail.metric) if isinstance(rail.metric, str) else rail.metric)
        for rail in objective.guardrails
    )
    return replace(objective, target=target, guardrails=rails)


def _source(spec: StudySpec, name: str) -> str | Ratio:
    metric = spec.metrics.get(name)
    if metric is None:
        raise ObjectiveError(f"the study measures no {name!r}; it measures {', '.join(spec.metrics)}")
    if metric.denominator is None:
        return metric.numerator.name
    return Ratio(metric.numerator.name, metric.denominator.name, metric.name)


def _select_candidates(estimates: CandidateEstimates, question: WhatIfQuestion) -> list[int]:
    """Return the candidates that may take part; the baseline always does, because percentages are counted over it."""
    for name in question.only:
        if name not in estimates.names:
            raise OptionError(f"there is no candidate {name!r}; the study has {', '.join(estimates.names[:10])}")
    allowed = set(question.only) or set(estimates.names)
    return [k for k in estimates.usable_candidates if estimates.names[k] in allowed or k == estimates.baseline]
