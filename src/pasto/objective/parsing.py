"""Parser of objectives as people type them: "y >= 0", "like_rate >= -2%, penalty=5", "likes/views", "comments=0.3"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NotRequired, TypedDict

from pasto.errors import ObjectiveError
from pasto.objective.objective import Objective, maximize, minimize
from pasto.objective.ratio_metric import Ratio, ratio

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_KEEP = re.compile(
    rf"\s*(?P<metric>[^<>=≤≥]+?)\s*(?P<side>>=|<=|≥|≤)\s*(?P<at>{_NUMBER}|[+-]?\s*[\d.]+\s*%)\s*"
    rf"(?:(?:,\s*within\s*=\s*|within\s+)(?P<within>[^\s,()=](?:[^,()=]*[^\s,()=])?)\s*)?"
    rf"(?:,\s*penalty\s*=\s*(?P<penalty>{_NUMBER})\s*|\(penalty\s+(?P<printed>{_NUMBER})\)\s*)?"
)
_WEIGHTED = re.compile(rf"\s*(?P<metric>[^<>=]+?)\s*(?:=\s*(?P<weight>{_NUMBER})\s*)?")


class ParsedGuardrail(TypedDict):
    """Arguments of `Objective.keep`, by name."""

    metric: str | Ratio
    at_least: NotRequired[float | str]
    at_most: NotRequired[float | str]
    penalty: NotRequired[float]
    within: NotRequired[str]


def parse_keep(text: str) -> ParsedGuardrail:
    """Read a guardrail, as the arguments of `keep`.

    A metric or a ratio of two, `>=` or `<=`, a number or a signed percentage, the segment that it limits, if it limits
    one, and for a soft guardrail its penalty. The form in which an objective prints its guardrails is read as well.

    >>> import pasto
    >>> parse_keep("like_rate >= -2%, penalty=5")
    {'metric': 'like_rate', 'at_least': '-2%', 'penalty': 5.0}
    >>> print(pasto.maximize("watch_time").keep(**parse_keep("likes/views>=0.03")))
    maximize watch_time, keep likes/views >= 0.03
    >>> parse_keep("likes >= 3, within=each")
    {'metric': 'likes', 'at_least': 3.0, 'within': 'each'}
    """
    match = _KEEP.fullmatch(text)
    if match is None:
        raise ObjectiveError(f"cannot read the guardrail {text!r}: {_suggest_text(text)}")
    at = match["at"] if match["at"].endswith("%") else float(match["at"])
    arguments = ParsedGuardrail(metric=parse_metric(match["metric"]))
    if match["side"] in (">=", "≥"):
        arguments["at_least"] = at
    else:
        arguments["at_most"] = at
    if match["within"]:
        arguments["within"] = match["within"]
    if penalty := match["penalty"] or match["printed"]:
        arguments["penalty"] = float(penalty)
    return arguments


def parse_metric(text: str) -> str | Ratio:
    """Read a metric's name, or a ratio of two metrics.

    >>> parse_metric(" likes / views ")
    Ratio(numerator='likes', denominator='views', name='likes/views')
    """
    parts = [part.strip() for part in text.split("/")]
    if not all(parts) or len(parts) > 2:
        raise ObjectiveError(f"cannot read the metric {text!r}; write a name, or two as in 'likes/views'")
    return parts[0] if len(parts) == 1 else ratio(*parts)


def parse_objective(
    *, maximize: Sequence[str] = (), minimize: Sequence[str] = (), keep: Sequence[str] = ()
) -> Objective:
    """Read a whole objective: goals to raise and to lower, each with its weight if it has one, and guardrails.

    >>> print(parse_objective(maximize=["watch_time", "comments=0.3"], minimize=["load=2"], keep=["likes >= 3"]))
    maximize 1 watch_time + 0.3 comments - 2 load, keep likes >= 3
    >>> print(parse_objective(minimize=["cost/sales"]))
    minimize cost/sales
    """
    objective = _build_goal([_read_weighted(text) for text in maximize], [_read_weighted(text) for text in minimize])
    for text in keep:
        objective = objective.keep(**parse_keep(text))
    return objective


def _build_goal(raised: list[tuple[str | Ratio, float]], lowered: list[tuple[str | Ratio, float]]) -> Objective:
    if not raised and not lowered:
        raise ObjectiveError("no goal was given; name at least one metric to maximize or to minimize")
    goals = [*raised, *((metric, -weight) for metric, weight in lowered)]
    names = [metric.name if isinstance(metric, Ratio) else metric for metric, _ in goals]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ObjectiveError(f"{twice[0]!r} is a goal twice; give it one weight")
    weights: dict[str, float] = {}
    for metric, weight in goals:
        if not isinstance(metric, Ratio):
            weights[metric] = weight
        elif len(goals) > 1 or abs(weight) != 1:
            raise ObjectiveError(
                f"the ratio {metric.name} must be the only goal, and without a weight: sums are not concave"
            )
        else:
            return maximize(metric) if raised else minimize(metric)
    if raised:
        return maximize(weights)
    return minimize({metric: -weight for metric, weight in weights.items()})


def _read_weighted(text: str) -> tuple[str | Ratio, float]:
    """Return a goal and its weight, 1 if none is given."""
    match = _WEIGHTED.fullmatch(text)
    if match is None:
        raise ObjectiveError(
            f"cannot read the goal {text!r}; write a metric, or a metric and its weight as in 'comments=0.3'"
        )
    weight = float(match["weight"] or 1)
    if not weight > 0:
        raise ObjectiveError(
            f"the goal {text!r} has the weight {weight:g}; weights are positive, and minimize lowers a metric"
        )
    return parse_metric(match["metric"]), weight


def _suggest_text(text: str) -> str:
    """Return a hint at the text to write instead."""
    if not re.search(r"[<>=≤≥]", text):
        return "it has no threshold; write it in quotes, as in 'like_rate >= 0.03', so that the shell keeps the >"
    if len(re.findall(r">=|<=|≥|≤", text)) > 1:
        return "it has two thresholds; state each side as a guardrail of its own"
    if not re.search(r">=|<=|≥|≤", text):
        return "write >= for at least or <= for at most"
    return "write it as 'like_rate >= 0.03', 'like_rate >= -2%' or 'like_rate >= 0.03, penalty=5'"
