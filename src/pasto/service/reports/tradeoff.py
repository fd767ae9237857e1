"""Trade-off of a study by its expected means: single candidates, the best blend, and blends at other limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pasto.arrays import FloatArray
from pasto.blend import Blend
from pasto.errors import NotFittedError, PastoError
from pasto.objective import Objective, Ratio
from pasto.optimize import summarize_blend
from pasto.report.lift_records import GuardrailKind, GuardrailSide
from pasto.report.records import BlendRecord, BrokenLimit, SinglePoint, TradeoffPoint, TradeoffReport, extend_record
from pasto.service.policy_cache import StudySnapshot
from pasto.service.reports.candidate_estimates import solve_means
from pasto.service.study_state import describe_blend

CURVE_POINTS = 24
"""Limits at which the curve is solved."""
MAX_CHART_SINGLES = 400
"""Single candidates in the chart; of more, the best in the goal and an even choice of the others."""
MAX_REPORT_SINGLES = 200
MAX_ROUNDING = 1e-9
"""Share of a limit by which rounding may miss it."""


@dataclass(frozen=True, slots=True)
class ChartGoal:
    """Goal of the trade-off chart."""

    name: str
    unit: str


@dataclass(frozen=True, slots=True)
class LimitSlider:
    """Guardrail whose limit the chart can move."""

    name: str
    side: GuardrailSide
    at: float
    stated: float
    """Limit in the study file."""
    low: float
    high: float
    unit: str
    kind: GuardrailKind


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """Position of a blend: its metric of each guardrail, and its goal."""

    x: tuple[float, ...]
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartBlend(BlendRecord):
    """Best blend at the limits of the chart, with its position."""

    x: tuple[float, ...]
    y: float


@dataclass(frozen=True, slots=True)
class ChartSingle:
    """Position of a single candidate."""

    name: str
    x: float
    y: float
    role: Literal["baseline", "best_single", ""]
    broken: tuple[BrokenLimit, ...] = ()
    """Limits that the candidate breaks, those of guardrails that the chart does not show included."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Position of the best blend at one limit."""

    limit: float
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class TradeoffChart:
    """Trade-off chart of the dashboard: the goal against the metric of one guardrail."""

    goal: ChartGoal
    rails: tuple[LimitSlider, ...]
    blend: ChartBlend | None
    current: ChartPoint | None
    across: int
    """Place of the guardrail that the chart shows."""
    candidates: int
    singles: tuple[ChartSingle, ...] = ()
    curve: tuple[CurvePoint, ...] = ()


@dataclass(frozen=True, slots=True)
class PosteriorMeans:
    """Expected means of a study's candidates after the last close; retired candidates are left out."""

    names: tuple[str, ...]
    means: FloatArray
    """(metrics, candidates), in the order of the objective's metrics."""
    baseline: int | None
    objective: Objective
    current: Mapping[str, float]
    """Probabilities of the frozen blend, or of the blend so far, by name."""


def read_posterior_means(snapshot: StudySnapshot) -> PosteriorMeans | None:
    """Return the expected means of a study's candidates; None before a round is learned."""
    return snapshot.compute_once("posterior means", lambda: _compute_posterior_means(snapshot))


def _compute_posterior_means(snapshot: StudySnapshot) -> PosteriorMeans | None:
    study, frozen = snapshot.study, snapshot.state.frozen
    if study is None:
        return None
    try:
        means = study.posterior_samples()[0]
    except (NotFittedError, AttributeError):
        return None
    served = [k for k in range(len(study.candidates.names)) if k not in study.retired]
    baseline = served.index(study.baseline) if study.baseline in served else None
    names = tuple(study.candidates.names[k] for k in served)
    answer = None if frozen is None else frozen.answer
    current = _current_probabilities(snapshot) if answer is None else dict(answer.probabilities)
    return PosteriorMeans(names, np.asarray(means)[:, served], baseline, study.objective, current)


def _current_probabilities(snapshot: StudySnapshot) -> dict[str, float]:
    """Return the answer so far; nothing if it cannot be computed, because the rest is useful without it."""
    try:
        blend = snapshot.blend
    except (PastoError, ArithmeticError):
        return {}
    return {blend.names[k]: blend.probabilities[k] for k in blend.support}


def trace_curve(posterior: PosteriorMeans, objective: Objective, across: int) -> Iterator[tuple[float, Blend]]:
    """Yield the best blend at each of several limits of the guardrail `across`, if it is feasible."""
    levels = _guardrail_levels(posterior, across)
    for limit in np.linspace(float(levels.min()), float(levels.max()), CURVE_POINTS).tolist():
        blend = _solve_blend(posterior, shift_objective(objective, {across: limit}))
        if blend is not None and blend.feasible:
            yield limit, blend


def report_tradeoff(posterior: PosteriorMeans, answer: BlendRecord | None) -> TradeoffReport | None:
    """Report the goal and the first guardrail's metric as levels: of blends, single candidates and the answer.

    None if the goal is a sum, if there is no guardrail, or if a ratio has no value.
    """
    objective = posterior.objective
    if not objective.guardrails or len(objective.goal_metrics) != 1:
        return None
    goal, guarded = _metric_name(objective.goal_metrics[0]), objective.guardrails[0].label
    x, y = _metric_row(posterior, objective.goal_metrics[0]), _metric_row(posterior, objective.guardrails[0].metric)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return None
    levels = [_guardrail_levels(posterior, place) for place in range(len(objective.guardrails))]
    blends = [blend for _, blend in trace_curve(posterior, objective, 0)]
    current = None if answer is None else _summarize_shares(posterior, answer.probabilities)
    return TradeoffReport(
        x=goal,
        y=guarded,
        blends=tuple(TradeoffPoint(blend.metrics[goal], blend.metrics[guarded]) for blend in blends),
        singles=tuple(
            SinglePoint(name, float(x[k]), float(y[k]), _list_broken(objective, levels, k))
            for k, name in enumerate(posterior.names[:MAX_REPORT_SINGLES])
        ),
        limit=_limit_level(posterior, y),
        side="at_least" if objective.guardrails[0].lower else "at_most",
        answer=None if current is None else TradeoffPoint(current.metrics[goal], current.metrics[guarded]),
    )


def _limit_level(posterior: PosteriorMeans, levels: FloatArray) -> float | None:
    """Return the first guardrail's limit as a level of its metric; None without the baseline of a percentage."""
    rail = posterior.objective.guardrails[0]
    if not rail.relative:
        return rail.at
    return None if posterior.baseline is None else float(levels[posterior.baseline]) * (1.0 + rail.at / 100.0)


def chart_tradeoff(posterior: PosteriorMeans, limits: Mapping[int, float], across: int = 0) -> TradeoffChart:
    """Return the dashboard's chart: singles, the blend at these limits, and the curve of `across`.

    Levels are in percent over the baseline if that is possible.
    """
    objective = shift_objective(posterior.objective, limits)
    goal = _goal_levels(posterior)
    guardrail_levels = [_guardrail_levels(posterior, place) for place in range(len(objective.guardrails))]
    blend = _solve_blend(posterior, objective)
    current = _summarize_shares(posterior, posterior.current)
    chart = TradeoffChart(
        goal=ChartGoal(
            name=", ".join(map(_metric_name, objective.goal_metrics)), unit="%" if _is_percent(posterior) else ""
        ),
        rails=tuple(_slider(posterior, objective, place, levels) for place, levels in enumerate(guardrail_levels)),
        blend=None if blend is None else _chart_blend(posterior, blend),
        current=None if current is None else _chart_point(posterior, current),
        across=across,
        candidates=len(posterior.names),
    )
    if not 0 <= across < len(guardrail_levels):
        return chart
    best = None if blend is None else blend.best_single
    singles = [
        ChartSingle(
            posterior.names[k],
            x=float(guardrail_levels[across][k]),
            y=float(goal[k]),
            role="baseline" if k == posterior.baseline else "best_single" if k == best else "",
            broken=_list_broken(objective, guardrail_levels, k),
        )
        for k in _select_singles(goal, posterior.baseline, best)
    ]
    curve = []
    for limit, limited in trace_curve(posterior, objective, across):
        point = _chart_point(posterior, limited)
        curve.append(CurvePoint(limit, point.x[across], point.y))
    return replace(chart, singles=tuple(singles), curve=tuple(sorted(curve, key=lambda point: (point.x, point.y))))


def _list_broken(objective: Objective, levels: Sequence[FloatArray], candidate: int) -> tuple[BrokenLimit, ...]:
    """Return the guardrails whose limits a single candidate breaks by more than rounding."""
    broken = []
    for name, rail, row in zip(objective.names, objective.guardrails, levels, strict=True):
        level = float(row[candidate])
        missing = rail.at - level if rail.lower else level - rail.at
        if missing > MAX_ROUNDING * max(1.0, abs(rail.at)):
            broken.append(BrokenLimit(name, level, rail.at, "%" if rail.relative else ""))
    return tuple(broken)


def shift_objective(objective: Objective, limits: Mapping[int, float]) -> Objective:
    """Return the objective with other limits, by the guardrail's place.

    >>> import pasto
    >>> print(shift_objective(pasto.maximize("x").keep("y", at_least=1), {0: 2.5}))
    maximize x, keep y >= 2.5
    """
    rails = [
        replace(rail, at=limits[place]) if place in limits else rail for place, rail in enumerate(objective.guardrails)
    ]
    return replace(objective, guardrails=tuple(rails))


def _is_percent(posterior: PosteriorMeans) -> bool:
    """Return whether the goal can be given in percent over the baseline."""
    if posterior.baseline is None:
        return False
    rows = _goal_rows(posterior)
    return all(float(row[posterior.baseline]) > 0 for _, row in rows)


def _goal_rows(posterior: PosteriorMeans) -> list[tuple[float, FloatArray]]:
    target = posterior.objective.target
    if isinstance(target, Mapping):
        return [(weight, _metric_row(posterior, name)) for name, weight in target.items()]
    return [(1.0, _metric_row(posterior, source)) for source in posterior.objective.goal_metrics]


def _metric_row(posterior: PosteriorMeans, source: str | Ratio) -> FloatArray:
    place = posterior.objective.metrics.index
    if isinstance(source, Ratio):
        under = posterior.means[place(source.denominator)]
        return np.asarray(posterior.means[place(source.numerator)] / np.where(under == 0, np.nan, under))
    return np.asarray(posterior.means[place(source)])


def _goal_levels(posterior: PosteriorMeans) -> FloatArray:
    """Return the goal of every candidate alone, in percent over the baseline if that is possible."""
    rows = _goal_rows(posterior)
    if _is_percent(posterior):
        at = posterior.baseline
        parts = [weight * 100.0 * (row / row[at] - 1.0) for weight, row in rows]
    else:
        parts = [weight * row for weight, row in rows]
    return np.asarray(np.nan_to_num(np.sum(parts, axis=0)))


def _guardrail_levels(posterior: PosteriorMeans, place: int) -> FloatArray:
    """Return a guardrail's metric for every candidate alone, in the unit of its limit."""
    rail = posterior.objective.guardrails[place]
    row = _metric_row(posterior, rail.metric)
    if rail.relative and posterior.baseline is not None:
        row = 100.0 * (row / row[posterior.baseline] - 1.0)
    return np.asarray(np.nan_to_num(row))


def _slider(posterior: PosteriorMeans, objective: Objective, place: int, levels: FloatArray) -> LimitSlider:
    rail, stated = objective.guardrails[place], posterior.objective.guardrails[place]
    low, high = float(min(levels.min(), stated.at)), float(max(levels.max(), stated.at))
    margin = 0.05 * ((high - low) or max(1.0, abs(high)))
    return LimitSlider(
        name=objective.names[place],
        side="at_least" if rail.lower else "at_most",
        at=rail.at,
        stated=stated.at,
        low=low - margin,
        high=high + margin,
        unit="%" if rail.relative else "",
        kind="hard" if rail.penalty is None else "soft",
    )


def _select_singles(goal: FloatArray, baseline: int | None, best: int | None) -> list[int]:
    if len(goal) <= MAX_CHART_SINGLES:
        return list(range(len(goal)))
    top = np.argsort(-goal, kind="stable")[: MAX_CHART_SINGLES // 2].tolist()
    even = np.linspace(0, len(goal) - 1, MAX_CHART_SINGLES // 2).astype(int).tolist()
    special = [k for k in (baseline, best) if k is not None]
    return sorted({*top, *even, *special})


def _metric_name(source: str | Ratio) -> str:
    return source if isinstance(source, str) else source.name


def _solve_blend(posterior: PosteriorMeans, objective: Objective) -> Blend | None:
    try:
        return solve_means(posterior.means, objective, posterior.names, posterior.baseline)
    except (PastoError, ArithmeticError):
        return None


def _summarize_shares(posterior: PosteriorMeans, shares: Mapping[str, float]) -> Blend | None:
    """Return the blend of given shares; None if there are none, or if a candidate is retired."""
    if not shares or not set(shares) <= set(posterior.names):
        return None
    probabilities = np.array([shares.get(name, 0.0) for name in posterior.names])
    try:
        return summarize_blend(
            probabilities, posterior.means, posterior.objective, names=posterior.names, baseline=posterior.baseline
        )
    except (PastoError, ArithmeticError):
        return None


def _chart_blend(posterior: PosteriorMeans, blend: Blend) -> ChartBlend:
    point = _chart_point(posterior, blend)
    return extend_record(describe_blend(blend), ChartBlend, x=point.x, y=point.y)


def _chart_point(posterior: PosteriorMeans, blend: Blend) -> ChartPoint:
    """Return a blend's position in the units of the limits and the goal; a blend's ratio is not a mean of ratios."""
    objective = posterior.objective
    x = tuple((blend.lifts if rail.relative else blend.metrics).get(rail.label, 0.0) for rail in objective.guardrails)
    levels = blend.lifts if _is_percent(posterior) else blend.metrics
    target = objective.target
    weights = (
        target if isinstance(target, Mapping) else {_metric_name(source): 1.0 for source in objective.goal_metrics}
    )
    return ChartPoint(x, sum(weight * levels.get(name, 0.0) for name, weight in weights.items()))
