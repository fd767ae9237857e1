"""The guardrails and the quality of the data, as a report shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pasto.errors import PastoError
from pasto.inference.round_data import MeasuredRound
from pasto.objective import Guardrail, Objective, Ratio
from pasto.service.reports.candidate_estimates import CandidateEstimates, shown
from pasto.service.reports.what_if import answer_question, solve_question
from pasto.service.study_file import StudySpec
from pasto.service.study_file.quantities import find_stop_basis


def report_guardrails(
    spec: StudySpec, answer: Mapping[str, Any] | None, verdicts: Sequence[Mapping[str, Any]] = ()
) -> list[dict[str, Any]]:
    """Every guardrail with its three numbers, what the answer makes of it, and what the breaker last said.

    >>> from pasto.service.study_file import EXAMPLE, read_spec
    >>> rail = report_guardrails(read_spec(EXAMPLE, "yaml"), None)[0]
    >>> rail["name"], rail["side"], rail["at"], rail["floor"], rail["state"]
    ('like_rate', 'at_least', '-2%', '-5%', None)
    """
    found = []
    for rail in spec.guardrails:
        certificate = (answer or {}).get("certificate") or {}
        said = [verdict for verdict in verdicts if verdict["name"] == rail.name]
        worst = max(said, key=lambda verdict: SEVERITY[verdict["state"]], default=None)
        found.append(
            {
                "name": rail.name,
                "metric": rail.metric,
                "side": "at_least" if rail.lower else "at_most",
                "at": rail.at.written(),
                "kind": "hard" if rail.penalty is None else "soft",
                "penalty": rail.penalty,
                "budget": rail.loss_budget,
                "floor": rail.stop_at.written(),
                "judged": find_stop_basis(spec, rail) or "control",
                "allowed": None if worst is None else worst.get("allowed"),
                "holds": certificate.get("holds", {}).get(rail.name),
                "price": (answer or {}).get("prices", {}).get(rail.name),
                "state": None if worst is None else worst["state"],
                "p_value": None if worst is None else worst["p_value"],
            }
        )
    return found


SEVERITY = {"holds": 0, "warning": 1, "breach": 2}
"""What the breaker says, as a number that rises with the trouble."""


def understated_errors(report: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics whose standard errors are too small, and by which factor; see `Certificate`.

    >>> understated_errors({"blend": {"certificate": {"understated_errors": {"revenue": 2.1}}}})
    {'revenue': 2.1}
    """
    answer = report.get("frozen") or report.get("blend") or {}
    return dict((answer.get("certificate") or {}).get("understated_errors") or {})


def quality(spec: StudySpec, rounds: Sequence[MeasuredRound], accounting: Mapping[str, Any] | None) -> dict[str, Any]:
    """How sound the data are: what came late, what was lost, what was cut to its range, what could not be credited."""
    units = sum(one.units for one in rounds)
    events = (accounting or {}).get("events", {})
    came = events.get("exposures", 0) + events.get("metrics", 0)
    late = (accounting or {}).get("late", {}).get("events", 0)
    clipped = (accounting or {}).get("clipped", {})
    return {
        "units": units,
        "events": came,
        "late": {"events": late, "share": late / came if came else None},
        "clipped": {
            column.name: {"units": clipped.get(column.name, 0), "share": clipped.get(column.name, 0) / units}
            for column in spec.columns
            if units
        },
        "uncredited": events.get("uncredited", 0),
        "excluded": events.get("excluded", 0),
        "rejected": (accounting or {}).get("rejected", {"events": 0, "reasons": []}),
        "missing": (accounting or {}).get("senders", {}).get("missing", 0),
        "departures": (accounting or {}).get("departures", []),
        "gap": sum(version["gap"] for version in (accounting or {}).get("versions", ())),
    }


POINTS = 15
"""Of a trade-off curve."""

MOST_SINGLES = 200


def estimate_prices(spec: StudySpec, known: CandidateEstimates) -> list[dict[str, Any]]:
    """What relaxing each guardrail by one unit buys, between which numbers that lies, and in words."""
    objective = spec.objective
    if not objective.guardrails:
        return []
    chosen = [k for k in range(len(known.names)) if known.usable[k]]
    blend, draws = answer_question(known, objective, chosen)
    found = []
    for name, rail in zip(objective.names, objective.guardrails, strict=True):
        price = shown(
            blend.prices.get(name, float("nan")), [one.prices.get(name, np.nan) for one in draws], spec.confidence
        )
        found.append({"guardrail": name, **price, "words": _words(price, rail, objective, spec.confidence)})
    return found


def describe_trade_off(spec: StudySpec, known: CandidateEstimates) -> dict[str, Any] | None:
    """The goal beside the first guardrail's metric: over blends, at levels of the latter, and by single candidates."""
    objective = spec.objective
    if not objective.guardrails or len(objective.goal_metrics) != 1:
        return None
    rail, goal = objective.guardrails[0], objective.goal_metrics[0]
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
            best = solve_question(table, replace(bare, guardrails=(limit,)), [known.names[k] for k in chosen], None)
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


def placed(
    spec: StudySpec, known: CandidateEstimates, told: dict[str, Any], answer: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The trade-off with the study's answer in it."""
    if answer is None:
        return told
    shares = np.array([answer["probabilities"].get(name, 0.0) for name in known.names])[:, None]
    objective = spec.objective
    bare = replace(objective, guardrails=objective.guardrails[:1])
    table = known.table(0, bare.metrics, range(len(known.names)))
    return {**told, "answer": _point(table @ shares, bare, objective.goal_metrics[0], objective.guardrails[0].metric)}


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
    goal = _name(objective.goal_metrics[0]) if len(objective.goal_metrics) == 1 else "the goal"
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
