"""The trade-off of a study as it is believed now: every single candidate, the best blend, and what other limits buy."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import NotFittedError, PastoError, PastoWarning
from pasto.objective import Objective, Ratio
from pasto.optimize import solve, summarize_blend
from pasto.records import Blend
from pasto.service.policy_cache import StudySnapshot
from pasto.service.study_state import blend_document
from pasto.store import Store

STEPS = 24
"""Limits that a curve tries."""
DRAWN = 400
"""Single candidates that are drawn; of more, the best in the goal and an even choice of the others."""


@dataclass(frozen=True, slots=True)
class PosteriorSamples:
    """What is believed of every candidate after the last close."""

    generation: int
    names: tuple[str, ...]
    means: FloatArray
    """(metrics, candidates), in the order of the objective's metrics; retired candidates are left out."""
    baseline: int | None
    objective: Objective
    current: Mapping[str, float]
    """The blend so far, or the one that was frozen, by name."""


class TradeoffCache:
    """Believed means, read once for each generation of a study."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def belief(self, standing: StudySnapshot) -> PosteriorSamples | None:
        """What is believed of a study's candidates; None before anything was learned."""
        return standing.compute_once("posterior samples", lambda: _believed(standing))


def _believed(standing: StudySnapshot) -> PosteriorSamples | None:
    study, frozen = standing.study, standing.state.frozen
    if study is None:
        return None
    try:
        means = study.posterior_samples()[0]
    except (NotFittedError, AttributeError):
        return None
    retired = set(study.state()["retired"])
    left = [k for k in range(len(study.candidates.names)) if k not in retired]
    baseline = left.index(study.baseline) if study.baseline in left else None
    names = tuple(study.candidates.names[k] for k in left)
    current = _current(standing) if frozen is None else dict(frozen.answer["probabilities"])
    return PosteriorSamples(
        standing.row.generation, names, np.asarray(means)[:, left], baseline, study.objective, current
    )


def _current(standing: StudySnapshot) -> dict[str, float]:
    """Return the answer so far; nothing if it cannot be computed, because the rest is useful without it."""
    try:
        answer = standing.blend
    except (PastoError, ArithmeticError):
        return {}
    return {answer.names[k]: answer.probabilities[k] for k in answer.support}


def compute_tradeoff(belief: PosteriorSamples, limits: Mapping[int, float], across: int = 0) -> dict[str, Any]:
    """Singles, the blend at these limits, and the curve that moving the guardrail `across` draws."""
    objective = shifted_objective(belief.objective, limits)
    goal = _goal_levels(belief)
    rails = [_rail_levels(belief, place) for place in range(len(objective.guardrails))]
    answer = _solved(belief, objective)
    found: dict[str, Any] = {
        "goal": {"name": ", ".join(map(_name, objective.goal_metrics)), "unit": "%" if _percent(belief) else ""},
        "rails": [_slider(belief, objective, place, rails[place]) for place in range(len(rails))],
        "blend": None if answer is None else {**blend_document(answer), **_point(belief, answer)},
        "current": _mixed(belief, belief.current),
        "singles": [],
        "curve": [],
        "across": across,
        "candidates": len(belief.names),
    }
    if not rails or not 0 <= across < len(rails):
        return found
    best = None if answer is None else answer.best_single
    for k in _drawn(goal, belief.baseline, best):
        role = "baseline" if k == belief.baseline else "single" if k == best else ""
        found["singles"].append(
            {"name": belief.names[k], "x": float(rails[across][k]), "y": float(goal[k]), "role": role}
        )
    found["curve"] = _curve(belief, objective, across, rails[across])
    return found


def shifted_objective(objective: Objective, limits: Mapping[int, float]) -> Objective:
    """The objective with other limits, by the guardrail's place.

    >>> import pasto
    >>> print(shifted_objective(pasto.maximize("x").keep("y", at_least=1), {0: 2.5}))
    maximize x, keep y >= 2.5
    """
    rails = [
        replace(rail, at=limits[place]) if place in limits else rail for place, rail in enumerate(objective.guardrails)
    ]
    return replace(objective, guardrails=tuple(rails))


def _solved(belief: PosteriorSamples, objective: Objective) -> Blend | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PastoWarning)
            return solve(objective.by_metric(belief.means), objective, names=belief.names, baseline=belief.baseline)
    except (PastoError, ArithmeticError):
        return None


def _curve(belief: PosteriorSamples, objective: Objective, across: int, levels: FloatArray) -> list[dict[str, float]]:
    """What the goal is at other limits: where each best blend lies."""
    found = []
    for limit in np.linspace(float(levels.min()), float(levels.max()), STEPS).tolist():
        answer = _solved(belief, shifted_objective(objective, {across: limit}))
        if answer is not None and answer.feasible:
            point = _point(belief, answer)
            found.append({"limit": limit, "x": point["x"][across], "y": point["y"]})
    return sorted(found, key=lambda point: (point["x"], point["y"]))


def _percent(belief: PosteriorSamples) -> bool:
    """Whether the goal can be told in percent over the baseline."""
    if belief.baseline is None:
        return False
    rows = _goal_rows(belief)
    return all(float(row[belief.baseline]) > 0 for _, row in rows)


def _goal_rows(belief: PosteriorSamples) -> list[tuple[float, FloatArray]]:
    target = belief.objective.target
    if isinstance(target, Mapping):
        return [(weight, _row(belief, name)) for name, weight in target.items()]
    return [(1.0, _row(belief, source)) for source in belief.objective.goal_metrics]


def _row(belief: PosteriorSamples, source: str | Ratio) -> FloatArray:
    place = belief.objective.metrics.index
    if isinstance(source, Ratio):
        under = belief.means[place(source.denominator)]
        return np.asarray(belief.means[place(source.numerator)] / np.where(under == 0, np.nan, under))
    return np.asarray(belief.means[place(source)])


def _goal_levels(belief: PosteriorSamples) -> FloatArray:
    """The goal of every candidate alone: percent over the baseline where that is possible."""
    rows = _goal_rows(belief)
    if _percent(belief):
        at = belief.baseline
        parts = [weight * 100.0 * (row / row[at] - 1.0) for weight, row in rows]
    else:
        parts = [weight * row for weight, row in rows]
    return np.asarray(np.nan_to_num(np.sum(parts, axis=0)))


def _rail_levels(belief: PosteriorSamples, place: int) -> FloatArray:
    """A guardrail's metric for every candidate alone, in the unit of its limit."""
    rail = belief.objective.guardrails[place]
    row = _row(belief, rail.metric)
    if rail.relative and belief.baseline is not None:
        row = 100.0 * (row / row[belief.baseline] - 1.0)
    return np.asarray(np.nan_to_num(row))


def _point(belief: PosteriorSamples, answer: Blend) -> dict[str, Any]:
    """Where a blend lies, in the units of its limits and goal; a ratio of a blend is no average of ratios."""
    objective = belief.objective
    x = [(answer.lifts if rail.relative else answer.metrics).get(rail.label, 0.0) for rail in objective.guardrails]
    levels = answer.lifts if _percent(belief) else answer.metrics
    weights = (
        objective.target if isinstance(objective.target, Mapping) else {_name(s): 1.0 for s in objective.goal_metrics}
    )
    return {"x": x, "y": sum(weight * levels.get(name, 0.0) for name, weight in weights.items())}


def _mixed(belief: PosteriorSamples, shares: Mapping[str, float]) -> dict[str, Any] | None:
    """Where given shares lie; None where there are none, or of candidates that are gone."""
    if not shares or not set(shares) <= set(belief.names):
        return None
    probabilities = np.array([shares.get(name, 0.0) for name in belief.names])
    try:
        told = summarize_blend(
            probabilities, belief.means, belief.objective, names=belief.names, baseline=belief.baseline
        )
    except (PastoError, ArithmeticError):
        return None
    return _point(belief, told)


def _slider(belief: PosteriorSamples, objective: Objective, place: int, levels: FloatArray) -> dict[str, Any]:
    rail, stated = objective.guardrails[place], belief.objective.guardrails[place]
    low, high = float(min(levels.min(), stated.at)), float(max(levels.max(), stated.at))
    margin = 0.05 * ((high - low) or max(1.0, abs(high)))
    return {
        "name": objective.names[place],
        "side": "at_least" if rail.lower else "at_most",
        "at": rail.at,
        "stated": stated.at,
        "low": low - margin,
        "high": high + margin,
        "unit": "%" if rail.relative else "",
        "kind": "hard" if rail.penalty is None else "soft",
    }


def _drawn(goal: FloatArray, baseline: int | None, best: int | None) -> list[int]:
    if len(goal) <= DRAWN:
        return list(range(len(goal)))
    top = np.argsort(-goal, kind="stable")[: DRAWN // 2].tolist()
    even = np.linspace(0, len(goal) - 1, DRAWN // 2).astype(int).tolist()
    special = [k for k in (baseline, best) if k is not None]
    return sorted({*top, *even, *special})


def _name(source: str | Ratio) -> str:
    return source if isinstance(source, str) else source.name
