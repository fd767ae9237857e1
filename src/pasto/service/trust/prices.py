"""What guardrails cost, with intervals, and what can be had of two metrics together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pasto.errors import PastoError
from pasto.objective import Guardrail, Objective, Ratio
from pasto.service.spec import Spec
from pasto.service.trust.believed import Believed, shown
from pasto.service.trust.what_if import answered, best_blend

POINTS = 15
"""Of a trade-off curve."""
MOST_SINGLES = 200


def prices(spec: Spec, known: Believed) -> list[dict[str, Any]]:
    """What relaxing each guardrail by one unit buys, between which numbers that lies, and in words."""
    objective = spec.objective
    if not objective.guardrails:
        return []
    chosen = [k for k in range(len(known.names)) if known.usable[k]]
    blend, draws = answered(known, objective, chosen)
    found = []
    for name, rail in zip(objective.names, objective.guardrails, strict=True):
        price = shown(
            blend.prices.get(name, float("nan")), [one.prices.get(name, np.nan) for one in draws], spec.confidence
        )
        found.append({"guardrail": name, **price, "words": _words(price, rail, objective, spec.confidence)})
    return found


def trade_off(spec: Spec, known: Believed) -> dict[str, Any] | None:
    """The goal beside the first guardrail's metric: over blends, at levels of the latter, and by single candidates."""
    objective = spec.objective
    if not objective.guardrails or len(objective.shown) != 1:
        return None
    rail, goal = objective.guardrails[0], objective.shown[0]
    chosen = [k for k in range(len(known.names)) if known.usable[k]]
    bare = replace(objective, guardrails=(replace(rail, penalty=None, relative=False),))
    table = known.table(0, bare.metrics, chosen)
    across, along = _levels(table, bare, goal), _levels(table, bare, rail.metric)
    if not (np.isfinite(across).all() and np.isfinite(along).all()):
        return None
    blends = []
    for at in np.linspace(along.min(), along.max(), POINTS):
        limit = replace(rail, at=float(at), penalty=None, relative=False)
        try:
            best = best_blend(table, replace(bare, guardrails=(limit,)), [known.names[k] for k in chosen], None)
        except PastoError:
            continue
        if best.feasible:
            shares = np.array(best.probabilities)[:, None]
            blends.append(_point(table @ shares, bare, goal, rail.metric))
    singles = [
        {"name": known.names[k], "x": float(across[place]), "y": float(along[place])}
        for place, k in enumerate(chosen[:MOST_SINGLES])
    ]
    return {"x": _name(goal), "y": _name(rail.metric), "blends": blends, "singles": singles}


def placed(spec: Spec, known: Believed, told: dict[str, Any], answer: Mapping[str, Any] | None) -> dict[str, Any]:
    """The trade-off with the study's answer in it."""
    if answer is None:
        return told
    shares = np.array([answer["probabilities"].get(name, 0.0) for name in known.names])[:, None]
    objective = spec.objective
    bare = replace(objective, guardrails=objective.guardrails[:1])
    table = known.table(0, bare.metrics, range(len(known.names)))
    return {**told, "answer": _point(table @ shares, bare, objective.shown[0], objective.guardrails[0].metric)}


def _point(blended: Any, objective: Objective, goal: str | Ratio, other: str | Ratio) -> dict[str, float]:
    return {
        "x": float(_levels(blended, objective, goal)[0]),
        "y": float(_levels(blended, objective, other)[0]),
    }


def _levels(table: Any, objective: Objective, source: str | Ratio) -> Any:
    """A metric of every candidate, or of every blend: a column's row, or a ratio of two."""
    if isinstance(source, str):
        return table[objective.metrics.index(source)]
    with np.errstate(divide="ignore", invalid="ignore"):
        return table[objective.metrics.index(source.numerator)] / table[objective.metrics.index(source.denominator)]


def _words(price: Mapping[str, float | None], rail: Guardrail, objective: Objective, confidence: float) -> str:
    value = price["value"]
    if value is None:
        return f"The price of {rail.label} is not known."
    goal = _name(objective.shown[0]) if len(objective.shown) == 1 else "the goal"
    verb = "buys" if objective.sign > 0 else "saves"
    unit = "%" if objective.relative else ""
    step, size = ("0.1 percentage points", 0.1) if rail.relative else _step(rail.at)
    told = f"Relaxing {rail.label} by {step} {verb} {_digits(value * size)}{unit} of {goal}"
    if price["low"] is None or price["high"] is None:
        return f"{told}."
    span = f"{_digits(price['low'] * size)}{unit} to {_digits(price['high'] * size)}{unit}"
    return f"{told} ({span}, {confidence:.0%} of what is believed)."


def _step(at: float) -> tuple[str, float]:
    """A step that suits a threshold: a hundredth of it, rounded to a power of ten."""
    size = 1.0 if at == 0 else 10.0 ** np.floor(np.log10(abs(at)) - 1.0)
    return f"{size:g}", float(size)


def _digits(value: float) -> str:
    return f"{0.0 if abs(value) < 1e-12 else value:.3g}"


def _name(source: str | Ratio) -> str:
    return source if isinstance(source, str) else source.name
