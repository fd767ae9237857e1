"""Checks of a whole study file: warnings, and times that do not fit together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pasto.document_validation import ProblemList
from pasto.formatting import format_duration
from pasto.metrics import Column, Metric
from pasto.objective.goals import likely_percentage
from pasto.service.study_file.goals import find_useless_bound
from pasto.service.study_file.spec import GuardrailSpec, StudySpec, TeamSource

MIN_COST_SHARE = 1e-3
"""Share of the goal's range: a penalty that costs less at a total breach does nothing."""


def find_warnings(spec: StudySpec) -> Iterator[str]:
    """Yield a sentence for each field that can be used and was probably meant otherwise."""
    goals = _find_goals(spec)
    for metric in goals:
        if not metric.bounded:
            yield (
                f"metrics.{metric.name} is the goal and has neither range nor cap{_describe_halves(metric)}: one "
                "extreme unit could steer the study; add cap: with a value that no honest unit exceeds"
            )
        if metric.lower_is_better == (spec.objective.sign > 0) and len(goals) == 1:
            verb, better = ("maximize", "lower") if spec.objective.sign > 0 else ("minimize", "higher")
            yield f"goal.{verb} names {metric.name}, of which {better} is better; change one of them"
    for place, rail in enumerate(spec.guardrails):
        yield from _find_guardrail_warnings(spec, f"guardrails[{place}]", rail, goals)
    if not spec.traffic.control and spec.objective.relative:
        yield (
            "traffic.control is 0 while a guardrail is relative to the baseline: it will be judged on what the learner "
            "itself sends there; hold a share such as 10% as a control"
        )
    if spec.rounds.every is not None and spec.expires_after < spec.rounds.every:
        yield (
            "expires_after is shorter than a round: a caller that misses one refresh goes back to the baseline before "
            "the next policy; make it a few rounds long"
        )
    if spec.covariates and spec.unit == "request":
        yield (
            f"unit is request, and {spec.covariates[0].name} looks at what a unit did before: a request that comes "
            "once has no past; assign by user, or leave covariate out"
        )


def _find_goals(spec: StudySpec) -> list[Metric]:
    names = [source if isinstance(source, str) else source.name for source in spec.objective.goal_metrics]
    return [spec.metrics[name] for name in names]


def _describe_halves(metric: Metric) -> str:
    return " on both of its halves" if metric.is_ratio else ""


def _find_guardrail_warnings(spec: StudySpec, path: str, rail: GuardrailSpec, goals: list[Metric]) -> Iterator[str]:
    metric = spec.metrics[rail.metric]
    if metric not in goals and not metric.bounded:
        yield (
            f"metrics.{metric.name} is a guardrail's and has neither range nor cap{_describe_halves(metric)}: one "
            "extreme unit could trip or mask it; add cap: with a value that no honest unit exceeds"
        )
    if (useless := find_useless_bound(rail, metric)) is not None:  # of a study that is stored already
        yield f"{path}.{useless[0]} {useless[1]}"
    elif not rail.at.relative and rail.lower and rail.at.number <= 0 and metric.reach[0] is None:
        yield (
            f"{path}.at_least is {rail.at.number:g}, which cannot fail unless {metric.name} can be negative; for a "
            f"change against the baseline write '{likely_percentage(rail.at.number)}', or declare a range"
        )
    if not rail.stop_at.relative and not spec.traffic.control:
        yield (
            f"{path}.stop_at is a number and traffic.control is 0: it is judged over whole days, so harm shows after a "
            "day at the earliest; hold a share such as 10% as a control"
        )
    if metric.lower_is_better == rail.lower:
        side, other, move, cure = (
            ("at_least", "at_most", "fall", "remove lower_is_better from")
            if rail.lower
            else ("at_most", "at_least", "rise", "write lower_is_better: true in")
        )
        yield (
            f"{path} keeps {metric.name} {side} {rail.at.written()}, but a {move} of {metric.name} counts as good; "
            f"{cure} metrics.{metric.name}, or keep it with {other}"
        )
    if rail.penalty is None:
        return
    if rail.stop_at == rail.at:
        yield (
            f"{path}.stop_at is the target itself, and a soft guardrail settles a little beyond its target by design: "
            "the study would stop. Write stop_at beyond the target, or a tolerance"
        )
    worst_cost = _estimate_worst_cost(rail, metric)
    span = 100.0 if rail.at.relative else _measure_goal_range(goals)
    if worst_cost is not None and span is not None and worst_cost < MIN_COST_SHARE * span:
        yield (
            f"{path}.penalty of {rail.penalty:g} does nothing: losing all of {metric.name} would cost {worst_cost:.3g} "
            f"of a goal that ranges over {span:g}; raise it, or leave it out to make the guardrail hard"
        )


def _estimate_worst_cost(rail: GuardrailSpec, metric: Metric) -> float | None:
    """Return the cost of a breach as large as the target itself; None if it is not known."""
    if rail.penalty is None:
        return None
    if rail.at.relative:
        return rail.penalty * 100.0**2
    size = 1.0 if metric.denominator is None else metric.denominator.high
    return None if size is None or not rail.at.number else rail.penalty * (rail.at.number * size) ** 2


def _measure_goal_range(goals: list[Metric]) -> float | None:
    """Return the width of the range of a goal of one plain metric."""
    column = goals[0].numerator
    if len(goals) > 1 or goals[0].denominator is not None or column.low is None or column.high is None:
        return None
    return column.high - column.low


def check_times(
    problems: ProblemList, metrics: Mapping[str, Metric], maturity: float, source: TeamSource | None
) -> None:
    """Note windows that are not over when a round is learned, and tables without times that are needed.

    >>> likes = Metric("likes", Column("likes", "like", None, "count", window=7200.0))
    >>> problems = ProblemList()
    >>> check_times(problems, {"likes": likes}, 3600.0, None)
    >>> list(problems.found)
    ['metrics.likes.window']
    """
    for path, column in _windows(metrics):
        if column.window is not None and column.window > maturity:
            window, available = format_duration(column.window), format_duration(maturity)
            problems.add(
                path,
                f"of {window} is longer than rounds.maturity of {available}: units that come at a round's end would be "
                f"measured before their window is over; raise rounds.maturity to {window}, or shorten the window",
            )
    if source is None:
        return
    timed = [path for path, _ in _windows(metrics)]
    timed += [f"metrics.{name}.covariate" for name, metric in metrics.items() if metric.covariate is not None]
    if not timed:
        return
    named = [("source.exposures", source.tables.exposures.time)]
    named += [(f"source.events[{place}]", table.time) for place, table in enumerate(source.tables.events)]
    for path, time in named:
        if time is None:
            problems.add(f"{path}.time", f"is missing; {timed[0]} needs the time of events: name the column")


def _windows(metrics: Mapping[str, Metric]) -> Iterator[tuple[str, Column]]:
    """Yield every column with a window, with its path in the file."""
    for name, metric in metrics.items():
        for place, column in enumerate(metric.columns):
            if column.window is not None:
                half = f".ratio[{place}]" if metric.is_ratio else ""
                yield f"metrics.{name}{half}.window", column
