"""Goal and guardrails of a study file, and bounds that a metric cannot reach: they protect nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pasto.document_validation import ProblemList, nearest_name, show_value, within
from pasto.errors import ObjectiveError
from pasto.metrics import Metric
from pasto.objective import EACH_SEGMENT, Objective, Ratio, maximize, minimize
from pasto.objective.goals import likely_percentage
from pasto.service.study_file.amounts import read_loss
from pasto.service.study_file.schema import FIELDS, MAX_GUARDRAILS
from pasto.service.study_file.spec import GuardrailLevel, GuardrailSpec, plain


def read_goals(
    problems: ProblemList,
    document: Mapping[str, object],
    metrics: Mapping[str, Metric],
    segments: Sequence[str] = (),
    *,
    stored: bool = False,
) -> tuple[Objective, tuple[GuardrailSpec, ...]] | None:
    """Return the objective and its guardrails, or None and problems; `segments` are the names of all segments.

    A bound that the metric cannot cross is refused, except in a study that is stored already: it goes on as it is.
    """
    objective = _read_goal(problems, document, metrics)
    given = document.get("guardrails", [])
    if not isinstance(given, (list, tuple)) or len(given) > MAX_GUARDRAILS:
        problems.add("guardrails", f"must be a list of at most {MAX_GUARDRAILS} guardrails, got {show_value(given)}")
        return None
    rails = []
    for place, row in enumerate(given):
        path = f"guardrails[{place}]"
        rail = _read_rail(problems, path, row, metrics)
        if rail is None or not _check_within(problems, path, rail, segments):
            continue
        if not stored and (wrong := find_useless_bound(rail, metrics[rail.metric])) is not None:
            problems.add(within(path, wrong[0]), wrong[1])
            continue
        if objective is None:
            continue
        target = objective.target
        if rail.penalty is not None and isinstance(target, Ratio) and metrics[target.name].is_per_member:
            problems.add(
                within(path, "penalty"),
                f"cannot be given, because {target.name} is averaged over the members of clusters; leave it out, which "
                "makes the guardrail hard",
            )
            continue
        side = {"at_least" if rail.lower else "at_most": rail.at.written()}
        try:
            objective = objective.keep(
                objective_metric(metrics[rail.metric]), penalty=rail.penalty, within=rail.within, **side
            )
        except ObjectiveError as error:
            problems.add(path, f"cannot be used: {error}")
            continue
        rails.append(rail)
    if objective is None or len(rails) < len(given):
        return None
    return objective, tuple(replace(rail, name=name) for rail, name in zip(rails, objective.names, strict=True))


def objective_metric(metric: Metric) -> str | Ratio:
    """Return a metric as objectives name it."""
    if metric.denominator is None:
        return metric.numerator.name
    return Ratio(metric.numerator.name, metric.denominator.name, metric.name)


def goal_document(objective: Objective) -> dict[str, Any]:
    """Return the goal as a study file writes it."""
    target = objective.target
    aim: Any = target.name if isinstance(target, Ratio) else target  # a file states no utility, so it is weights
    if isinstance(aim, Mapping):
        aim = next(iter(aim)) if list(aim.values()) == [1.0] else dict(aim)
    return {"maximize" if objective.sign > 0 else "minimize": aim}


def rail_document(rail: GuardrailSpec) -> dict[str, Any]:
    """Return a guardrail as a study file writes it."""
    percent = rail.at.relative
    written: dict[str, Any] = {"metric": rail.metric, "at_least" if rail.lower else "at_most": rail.at.written()}
    if rail.within is not None:
        written["within"] = rail.within
    if rail.penalty is not None:
        written["penalty"] = rail.penalty
    if rail.loss_budget is not None:
        written["loss_budget"] = f"{plain(rail.loss_budget)}%" if percent else rail.loss_budget
    written["stop_at"] = rail.stop_at.written()
    written["tolerance"] = f"{plain(rail.tolerance)}%" if percent else rail.tolerance
    return written


def _read_goal(
    problems: ProblemList, document: Mapping[str, object], metrics: Mapping[str, Metric]
) -> Objective | None:
    if "goal" not in document:
        problems.add("goal", "is missing; write {maximize: METRIC} or {minimize: METRIC}")
        return None
    goal = document["goal"]
    if isinstance(goal, str):
        problems.add("goal", f"must say maximize or minimize, got {show_value(goal)}; write {{maximize: {goal[:60]}}}")
        return None
    fields = FIELDS.read(problems, "goal", goal)
    if not fields and document["goal"]:
        return None  # misspelt, which is noted
    if len(fields) != 1:
        problems.add("goal", f"needs either maximize or minimize, one of them only, got {show_value(document['goal'])}")
        return None
    (verb, given), build = next(iter(fields.items())), maximize if "maximize" in fields else minimize
    path = within("goal", verb)
    if not isinstance(given, Mapping):
        metric = _find_metric(problems, path, given, metrics)
        return None if metric is None else build(objective_metric(metric))
    if not given:
        problems.add(path, "names no metric; write one, or weights such as {watch_time: 1, comments: 0.3}")
    weights: dict[str, float] = {}
    for name, weight in given.items():
        spot = within(path, name if isinstance(name, str) else show_value(name))
        metric = _find_metric(problems, spot, name, metrics)
        number = problems.number(spot, weight)
        if number == 0:
            problems.add(spot, "has the weight 0, which does nothing; leave it out")
        elif metric is not None and metric.denominator is not None:
            kind = "a ratio" if metric.is_ratio else "averaged over the members of clusters of different sizes"
            problems.add(spot, f"is {kind}, which must be the only goal and without a weight: write {verb}: {name}")
        elif metric is not None and number is not None:
            weights[metric.numerator.name] = number
    return build(weights) if weights and len(weights) == len(given) else None


def _read_rail(problems: ProblemList, path: str, given: object, metrics: Mapping[str, Metric]) -> GuardrailSpec | None:
    fields = FIELDS.read(problems, "guardrails", given, path)
    if not isinstance(given, Mapping):
        return None
    if "metric" not in fields:
        problems.add(within(path, "metric"), "is missing; name the metric, as in {metric: like_rate, at_least: -2%}")
        return None
    metric = _find_metric(problems, within(path, "metric"), fields["metric"], metrics)
    sides = [side for side in ("at_least", "at_most") if side in given]
    if len(sides) != 1:
        problems.add(path, "needs either at_least or at_most, one of them only")
        return None
    at: GuardrailLevel | None = fields.get(sides[0])
    if at is None or metric is None or any(within(path, name) in problems.found for name in ("penalty", "stop_at")):
        return None
    lower, penalty = sides[0] == "at_least", fields.get("penalty")
    losses = {
        name: read_loss(problems, within(path, name), fields[name], relative=at.relative) if name in fields else None
        for name in ("loss_budget", "tolerance")
    }
    tolerance = losses["tolerance"]
    if tolerance is None:
        tolerance = 0.0 if penalty is None else _default_tolerance(at)
    stop_at: GuardrailLevel = fields.get("stop_at", at.moved(-tolerance if lower else tolerance))
    is_before = stop_at.number > at.number if lower else stop_at.number < at.number
    if stop_at.relative == at.relative and is_before:
        side, word = ("above", "below") if lower else ("below", "above")
        problems.add(
            within(path, "stop_at"),
            f"is {stop_at.written()}, {side} the threshold ({sides[0]}: {at.written()}): the study would stop while it "
            f"meets its guardrail. Put it at or {word} {at.written()}",
        )
        return None
    inside = fields.get("within")
    return GuardrailSpec("", metric.name, at, lower, penalty, losses["loss_budget"], stop_at, tolerance, inside)


def _check_within(problems: ProblemList, path: str, rail: GuardrailSpec, segments: Sequence[str]) -> bool:
    """Return whether a guardrail is about all units, or about segments that there are."""
    if rail.within is None or (segments and rail.within in (EACH_SEGMENT, *segments)):
        return True
    if segments:
        hint = nearest_name(rail.within, (EACH_SEGMENT, *segments))
        problems.add(within(path, "within"), f"names no segment: {show_value(rail.within)}; {hint}")
    else:
        problems.add(
            within(path, "within"),
            f"is {show_value(rail.within)}, and the study has no segments; leave it out, or give segments such as "
            "{attribute: activity, values: [new, heavy]}",
        )
    return False


def _default_tolerance(at: GuardrailLevel) -> float:
    """Return the tolerance of a soft guardrail: as much again in percent, a tenth in the metric's own units."""
    return max(abs(at.number), 1.0) if at.relative else 0.1 * abs(at.number)


def _find_metric(problems: ProblemList, path: str, given: object, metrics: Mapping[str, Metric]) -> Metric | None:
    if isinstance(given, str) and given in metrics:
        return metrics[given]
    if metrics:  # without any usable metric, that alone is the problem
        problems.add(path, f"names no metric: {show_value(given)}; {nearest_name(given, metrics)}")
    return None


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
