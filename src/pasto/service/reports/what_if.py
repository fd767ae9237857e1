"""Another question, answered from what was learned: a goal, a threshold or a set of candidates that nobody ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import ObjectiveError, OptionError, PastoError
from pasto.objective import Objective, Ratio
from pasto.objective.parsing import parse_objective
from pasto.optimize import solve_exact, summarize_blend
from pasto.records import Blend
from pasto.service.reports.candidate_estimates import CandidateEstimates, shown
from pasto.service.study_file import StudySpec
from pasto.service.study_file.amounts import GuardrailLevel
from pasto.service.study_file.guardrail_bounds import describe_bound_problem
from pasto.service.study_state import blend_document as shown_blend

ASSUMED = (
    "Computed from what the study believes now, without new traffic: candidates are taken to stay as they were "
    "measured, hard guardrails are met by the expected means and not with a stated confidence, and a blend's metrics "
    "are taken to be the shares' average of its candidates'. Confirm before you rely on it."
)


@dataclass(frozen=True, slots=True)
class WhatIfQuestion:
    """Which parts of a study's own objective are replaced."""

    maximize: tuple[str, ...] = ()
    minimize: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    only: tuple[str, ...] = ()


def answer_what_if(spec: StudySpec, known: CandidateEstimates, question: WhatIfQuestion) -> dict[str, Any]:
    """The best blend for another objective, with what it is expected to do and between which that lies."""
    objective = read_question(spec, question)
    chosen = _candidates(known, question)
    blend, draws = answer_question(known, objective, chosen)
    measured = _metrics(known, objective, blend, chosen)
    return {
        "objective": str(objective),
        "candidates": len(chosen),
        "answer": shown_blend(blend),
        "metrics": {name: shown(values[0], values[1:], spec.confidence) for name, values in measured["levels"].items()},
        "lifts": {name: shown(values[0], values[1:], spec.confidence) for name, values in measured["lifts"].items()},
        "prices": {
            name: shown(price, [one.prices.get(name, np.nan) for one in draws], spec.confidence)
            for name, price in blend.prices.items()
        },
        "confidence": spec.confidence,
        "from_log": [name for name in known.from_log if name in objective.metrics],
        "assumes": ASSUMED,
    }


def read_question(spec: StudySpec, question: WhatIfQuestion) -> Objective:
    """The study's objective with the parts replaced that were asked for, in the study's own names.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> spec = read_spec(EXAMPLE, "yaml")
    >>> print(read_question(spec, WhatIfQuestion(keep=("like_rate >= -1%",))))
    maximize watch_time, keep like_rate >= -1%
    """
    own = spec.objective
    goal = replace(own, guardrails=())
    if question.maximize or question.minimize:
        goal = _named(spec, parse_objective(maximize=question.maximize, minimize=question.minimize))
    dropped = set(question.drop)
    if unknown := dropped - {rail.label for rail in own.guardrails}:
        kept = ", ".join(rail.label for rail in own.guardrails) or "none"
        raise OptionError(f"there is no guardrail {sorted(unknown)[0]!r} to drop; the study keeps {kept}")
    first = next(iter(spec.metrics))
    stated = [
        rail
        for text in question.keep
        for rail in _named(spec, parse_objective(maximize=[first], keep=[text])).guardrails
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


def answer_question(
    known: CandidateEstimates, objective: Objective, chosen: Sequence[int]
) -> tuple[Blend, list[Blend]]:
    """The best blend of the expected means, and the best one of every draw that has one."""
    names, place = [known.names[k] for k in chosen], _baseline(known, chosen)
    best = solve_question(known.table(0, objective.metrics, chosen), objective, names, place)
    draws = []
    for draw in range(1, len(known.truths)):
        try:
            draws.append(solve_question(known.table(draw, objective.metrics, chosen), objective, names, place))
        except PastoError:  # a draw whose baseline is not positive has no percentages
            continue
    return best, draws


def solve_question(means: FloatArray, objective: Objective, names: Sequence[str], baseline: int | None) -> Blend:
    """As `pasto.solve`, without its advice on penalties."""
    form = objective.form(None if baseline is None else means[:, baseline])
    found = solve_exact(form, means)
    return summarize_blend(found.probabilities, means, objective, names=names, baseline=baseline, duals=found.duals)


def _baseline(known: CandidateEstimates, chosen: Sequence[int]) -> int | None:
    return None if known.baseline is None or known.baseline not in chosen else list(chosen).index(known.baseline)


def _metrics(known: CandidateEstimates, objective: Objective, blend: Blend, chosen: Sequence[int]) -> dict[str, Any]:
    """The blend's metrics and lifts, as expected and in every draw."""
    shares = np.array(blend.probabilities)
    levels: dict[str, list[float]] = {}
    lifts: dict[str, list[float]] = {}
    place = _baseline(known, chosen)
    sources = {ratio.name: (ratio.numerator, ratio.denominator) for ratio in objective.ratios}
    parts = {name for pair in sources.values() for name in pair}
    sources |= {name: (name, "") for name in objective.metrics if name not in parts}
    for name, (top, bottom) in sources.items():
        for draw in range(len(known.truths)):
            columns = [top, bottom] if bottom else [top]
            table = known.table(draw, columns, chosen)
            values = _ratio(table @ shares)
            levels.setdefault(name, []).append(values)
            if place is not None:
                base = _ratio(table[:, place])
                lifts.setdefault(name, []).append(values / base - 1.0 if base > 0 else float("nan"))
    return {"levels": levels, "lifts": lifts}


def _ratio(values: Any) -> float:
    return float(values[0]) if len(values) == 1 else float(values[0] / values[1]) if values[1] else float("nan")


def _named(spec: StudySpec, objective: Objective) -> Objective:
    """An objective over metrics as people name them, over the study's columns."""
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


def _candidates(known: CandidateEstimates, question: WhatIfQuestion) -> list[int]:
    """The candidates that may take part; the baseline always does, for percentages are counted over it."""
    for name in question.only:
        if name not in known.names:
            raise OptionError(f"there is no candidate {name!r}; the study has {', '.join(known.names[:10])}")
    wanted = set(question.only) or set(known.names)
    return [k for k, name in enumerate(known.names) if known.usable[k] and (name in wanted or k == known.baseline)]
