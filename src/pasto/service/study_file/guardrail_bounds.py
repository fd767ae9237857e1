"""Bounds of guardrails that their metric cannot reach: a guardrail that cannot fail protects nothing."""

from __future__ import annotations

from pasto.metrics import Metric
from pasto.objective.guardrails import likely_percentage
from pasto.service.study_file.amounts import GuardrailLevel
from pasto.service.study_file.spec import GuardrailSpec


def find_useless_bound(rail: GuardrailSpec, metric: Metric) -> tuple[str, str] | None:
    """Return the field of a bound that its metric can never cross or never reach, and the problem."""
    side = "at_least" if rail.lower else "at_most"
    if (problem := describe_bound_problem(metric, rail.at, lower=rail.lower)) is not None:
        return side, problem
    near = metric.reach[0 if rail.lower else 1]
    if near is None or rail.stop_at == rail.at or not _is_beyond(rail.stop_at, near, lower=rail.lower):
        return None
    return "stop_at", (
        f"is {_format_level(rail.stop_at)}, and {metric.name} is never {'below' if rail.lower else 'above'} {near:g}, "
        f"so it cannot stop the study. Put it between {near:g} and {side} ({_format_level(rail.at)}), or name a "
        "smaller tolerance"
    )


def describe_bound_problem(metric: Metric, bound: GuardrailLevel, *, lower: bool) -> str | None:
    """Return the problem of a bound outside of the range of its metric, or None.

    >>> from pasto.metrics import parse_metrics
    >>> likes = parse_metrics({"likes": {"event": "like", "aggregate": "count"}})["likes"]
    >>> describe_bound_problem(likes, GuardrailLevel(-0.02, False), lower=True)
    "is -0.02, and likes is never below 0, so the guardrail cannot fail. For a change against the baseline write '-2%'"
    >>> describe_bound_problem(likes, GuardrailLevel(-2.0, True), lower=True) is None
    True
    """
    low, high = metric.reach
    near, far = (low, high) if lower else (high, low)
    if near is not None and _is_beyond(bound, near, lower=lower):
        meant = "+2%" if not lower else "-2%" if bound.relative else likely_percentage(bound.number)
        return (
            f"is {_format_level(bound)}, and {metric.name} is never {'below' if lower else 'above'} {near:g}, so the "
            f"guardrail cannot fail. For a change against the baseline write '{meant}'"
        )
    if far is not None and not bound.relative and (bound.number > far if lower else bound.number < far):
        return (
            f"is {_format_level(bound)}, and {metric.name} is never {'above' if lower else 'below'} {far:g}, so the "
            f"guardrail cannot hold. Write a level {'up to' if lower else 'from'} {far:g}, or a change against the "
            f"baseline such as '{'-2%' if lower else '+2%'}'"
        )
    return None


def _is_beyond(bound: GuardrailLevel, near: float, *, lower: bool) -> bool:
    """Return whether a metric that ends at `near` can never be on the wrong side of a bound."""
    if bound.relative:  # a metric that is not negative falls by 100% at most
        return lower and near >= 0 and bound.number <= -100
    return bound.number <= near if lower else bound.number >= near


def _format_level(bound: GuardrailLevel) -> str:
    return str(bound.written()) if bound.relative else f"{bound.number:g}"
