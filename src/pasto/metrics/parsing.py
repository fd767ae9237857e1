"""Parser of the metric definitions in a study file, and the writer that it reads back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from pasto.document_validation import ProblemList, nearest_name, show_value, within
from pasto.metrics.definition_fields import (
    COMPARISONS,
    FIELD_NAME,
    MAX_CONDITIONS,
    MAX_VALUE_CHARACTERS,
    METRIC_NAME,
    RATIO_FIELDS,
)
from pasto.metrics.definition_fields import METRIC_FIELDS as FIELDS
from pasto.metrics.definitions import MEMBERS, Aggregate, Column, Comparison, Condition, Covariate, Metric
from pasto_sdk.policy_document import Value

MAX_METRICS = 64
"""Metrics in one study."""
MAX_COMPARED_VALUES = 1000
"""Values in all conditions of a study together; engines bind each of them several times."""
_CUMULATIVE = ("sum", "count", "distinct")
"""Aggregates that grow with the time a unit is watched, so that a round's bounds do not fit a look-back."""

_METRIC_NAME = re.compile(METRIC_NAME)
_FIELD_NAME = re.compile(FIELD_NAME)
_ORDER_SIGNS = ("<", "<=", ">", ">=")


def parse_metrics(document: Mapping[str, object], path: str = "metrics") -> dict[str, Metric]:
    """Return the metrics by name, or raise StudyFileError with all problems by field.

    Halves of ratios that are defined alike are one column, measured once; a plain metric gives it its name.

    >>> metrics = parse_metrics({
    ...     "watch_time": {"event": "watch", "value": "seconds", "aggregate": "sum", "cap": 7200},
    ...     "like_rate": {"ratio": [{"event": "like", "aggregate": "count"}, {"event": "view", "aggregate": "count"}]},
    ... })
    >>> metrics["watch_time"].numerator.high, metrics["like_rate"].denominator.name
    (7200.0, 'like_rate.denominator')
    """
    problems = ProblemList()
    if not isinstance(document, Mapping) or not document:
        problems.add(path, f"must define at least one metric by name, got {show_value(document)}")
    elif len(document) > MAX_METRICS:
        problems.add(path, f"has {len(document)} metrics, more than the {MAX_METRICS} that one study may have")
    problems.refuse()
    metrics = {}
    for name, given in document.items():
        if not isinstance(name, str) or not _METRIC_NAME.fullmatch(name):
            problems.add(
                within(path, show_value(name)),
                "is not a metric name: up to 63 letters, digits, _ and -, and a letter or _ first",
            )
            continue
        metric = _read_metric(problems, within(path, name), name, given)
        if metric is not None:
            metrics[name] = metric
    metrics = _add_covariate_columns(problems, path, _share_columns(metrics))
    count = sum(len(condition.values) for column in _all_columns(metrics) for condition in column.where)
    if count > MAX_COMPARED_VALUES:
        limit = f"more than {MAX_COMPARED_VALUES:,}"
        problems.add(path, f"compares with {count:,} values in all, {limit}; count simpler events")
    problems.refuse()
    return metrics


def _read_metric(problems: ProblemList, path: str, name: str, given: object) -> Metric | None:
    fields = FIELDS.read(problems, "metrics.NAME", given, path)
    if not isinstance(given, Mapping):
        return None
    is_lower_better = fields.pop("lower_is_better", False)
    covariate = None
    if "covariate" in fields:
        covariate = _read_covariate(problems, within(path, "covariate"), name, fields.pop("covariate"))
    if "ratio" not in fields:
        column = _read_column(problems, path, name, fields)
        return None if column is None else Metric(name, column, None, is_lower_better, covariate)
    halves = _read_ratio(problems, path, name, fields)
    return None if halves is None else Metric(name, *halves, is_lower_better, covariate)


def _read_ratio(problems: ProblemList, path: str, name: str, fields: Mapping[str, Any]) -> tuple[Column, Column] | None:
    """Return numerator and denominator."""
    others = [field for field in fields if field != "ratio"]
    if others:
        problems.add(within(path, others[0]), "cannot be given with ratio; write it inside one of the ratio's halves")
    halves = fields["ratio"]
    if not isinstance(halves, (list, tuple)) or len(halves) != 2:
        problems.add(
            within(path, "ratio"),
            f"must be two definitions, [numerator, denominator], such as [{{event: like, aggregate: count}}, "
            f"{{event: view, aggregate: count}}], got {show_value(halves)}",
        )
        return None
    columns = []
    for place, (half, role) in enumerate(zip(halves, ("numerator", "denominator"), strict=True)):
        spot = f"{path}.ratio[{place}]"
        half_fields = RATIO_FIELDS.read(problems, "metrics.NAME.ratio", half, spot)
        columns.append(_read_column(problems, spot, f"{name}.{role}", half_fields))
    numerator, denominator = columns
    if numerator is None or denominator is None:
        return None
    if replace(numerator, name="") == replace(denominator, name=""):
        problems.add(within(path, "ratio"), "has two halves that are defined alike, so it is always 1; change one")
        return None
    if denominator.low is not None and denominator.low < 0:
        problems.add(f"{path}.ratio[1].range", "allows a negative denominator; start it at 0")
    return numerator, denominator


def _read_column(problems: ProblemList, path: str, name: str, fields: Mapping[str, Any]) -> Column | None:
    if "event" not in fields:
        problems.add(within(path, "event"), "is missing; name the event that the metric reads, as in event: watch")
    if within(path, "aggregate") in problems.found:
        return None
    aggregate = fields.get("aggregate", "sum" if "value" in fields else "count")
    if aggregate in ("count", "any"):
        if "value" in fields:
            problems.add(
                within(path, "value"),
                f"is not read by aggregate: {aggregate}, which counts events; leave it out, or write aggregate: sum",
            )
    elif "value" not in fields:
        problems.add(
            within(path, "value"),
            f"is missing; aggregate: {aggregate} needs the event's field "
            + ("whose different values it counts" if aggregate == "distinct" else "that holds the number"),
        )
    if aggregate == "last" and "by" not in fields:
        problems.add(
            within(path, "by"),
            "is missing; aggregate: last needs the event's field by which events are ordered (such as your own "
            "timestamp), because events may arrive in any order",
        )
    if aggregate != "last" and "by" in fields:
        problems.add(within(path, "by"), "is only read by aggregate: last; leave it out")
    low, high = _read_bounds(problems, path, fields)
    conditions = _read_conditions(problems, within(path, "where"), fields["where"]) if "where" in fields else ()
    if "event" not in fields:
        return None
    return Column(
        name,
        fields["event"],
        fields.get("value"),
        cast(Aggregate, aggregate),
        low,
        high,
        conditions,
        fields.get("by"),
        fields.get("window"),
    )


def _read_bounds(problems: ProblemList, path: str, fields: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the lowest and the highest number of a unit, None if there is none."""
    if "cap" in fields and "range" in fields:
        problems.add(within(path, "cap"), "cannot be given with range; cap: c is short for range: [0, c], so keep one")
        return None, None
    if "cap" in fields:
        return 0.0, fields["cap"]
    if "range" not in fields:
        return (0.0, 1.0) if fields.get("aggregate") == "any" else (None, None)
    spot, given = within(path, "range"), fields["range"]
    if not isinstance(given, (list, tuple)) or len(given) != 2:
        problems.add(spot, f"must be two numbers, [lowest, highest], got {show_value(given)}")
        return None, None
    low, high = (problems.number(f"{spot}[{place}]", end) for place, end in enumerate(given))
    if low is None or high is None:
        return None, None
    if not low < high:
        problems.add(spot, f"must have its lowest number first, got [{low:g}, {high:g}]")
    elif not low <= 0 <= high:
        problems.add(
            spot,
            f"must hold 0, because a unit without such events counts 0, got [{low:g}, {high:g}]; widen it to 0",
        )
    return low, high


def _read_conditions(problems: ProblemList, path: str, given: object) -> tuple[Condition, ...]:
    if not isinstance(given, Mapping) or not given:
        problems.add(
            path,
            f'must be conditions by field, such as {{surface: home, seconds: {{">=": 3}}}}, got {show_value(given)}',
        )
        return ()
    conditions: list[Condition] = []
    for field, wanted in given.items():
        spot = within(path, field if isinstance(field, str) else show_value(field))
        if not isinstance(field, str) or not _FIELD_NAME.fullmatch(field):
            problems.add(spot, "is not a field name: up to 64 letters, digits and _ . -, and a letter or _ first")
        elif isinstance(wanted, Mapping):
            if not wanted:
                problems.add(spot, 'has no comparison; write one such as {">=": 3}')
            for sign, value in wanted.items():
                conditions += _read_condition(problems, f"{spot}[{show_value(sign)}]", field, sign, value)
        else:
            sign = "in" if isinstance(wanted, (list, tuple)) else "="
            conditions += _read_condition(problems, spot, field, sign, wanted)
    if len(conditions) > MAX_CONDITIONS:
        problems.add(path, f"has {len(conditions)} conditions, more than {MAX_CONDITIONS}; count a simpler event")
    return tuple(conditions)


def _read_condition(problems: ProblemList, path: str, field: str, sign: object, given: object) -> list[Condition]:
    """Return one condition in a list; an empty list if it has a problem."""
    if not isinstance(sign, str) or sign not in COMPARISONS:
        problems.add(path, f"must be one of {' '.join(COMPARISONS)}")
        return []
    if sign == "in" and not (isinstance(given, (list, tuple)) and 0 < len(given) <= MAX_CONDITIONS):
        problems.add(path, f"must be a list of 1 to {MAX_CONDITIONS} values, got {show_value(given)}")
        return []
    if isinstance(given, bool) and sign in _ORDER_SIGNS:
        problems.add(path, f"must compare with a number, got {show_value(given)}")
    values: list[Value] = []
    for value in cast("list[object]", given) if sign == "in" else [given]:
        if isinstance(value, bool):
            values.append(value)
        elif isinstance(value, (int, float)) or sign in _ORDER_SIGNS:
            number = problems.number(path, value)
            values += [] if number is None else [number]
        elif isinstance(value, str) and len(value) <= MAX_VALUE_CHARACTERS and value.isprintable():
            values.append(value)
        else:
            limit = f"a number, a bool or up to {MAX_VALUE_CHARACTERS} printable characters"
            problems.add(path, f"must compare with {limit}, got {show_value(value)}")
    return [Condition(field, cast(Comparison, sign), tuple(values))] if values else []


def _read_covariate(problems: ProblemList, path: str, name: str, given: object) -> Covariate | None:
    """Return the covariate of the metric `name`, without columns: a look-back, or a mapping with the metric to use."""
    fields = FIELDS.read(
        problems, "metrics.NAME.covariate", given if isinstance(given, Mapping) else {"lookback": given}, path
    )
    if "lookback" not in fields:
        problems.add(within(path, "lookback"), "is missing; say how far back to look, as in covariate: 7d")
        return None
    return Covariate(fields.get("metric", name), fields["lookback"], cap=fields.get("cap"))


def _add_covariate_columns(problems: ProblemList, path: str, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return the metrics with the columns that their covariates read; equal columns are measured once."""
    shared: dict[Column, Column] = {}
    completed = {}
    for name, metric in metrics.items():
        covariate = metric.covariate
        if covariate is not None:
            spot = f"{within(path, name)}.covariate"
            source = metrics.get(covariate.metric)
            if source is None:
                problems.add(
                    f"{spot}.metric", f"is not a metric of this study; {nearest_name(covariate.metric, metrics)}"
                )
            elif source.denominator is not None and covariate.cap is not None:
                problems.add(f"{spot}.cap", f"cannot bound {covariate.metric}, which is a ratio; leave it out")
            else:
                own = (_look_back(column, label, covariate) for column, label in _label_columns(name, source))
                columns = tuple(shared.setdefault(replace(column, name=""), column) for column in own)
                metric = replace(metric, covariate=replace(covariate, columns=columns))
        completed[name] = metric
    return completed


def _label_columns(name: str, source: Metric) -> list[tuple[Column, str]]:
    """Return the columns of a covariate's source, each with its name as a covariate of the metric `name`."""
    labels = ("", ".numerator", ".denominator")[bool(source.denominator) :]
    return [(column, f"{name}.covariate{label}") for column, label in zip(source.columns, labels, strict=False)]


def _look_back(column: Column, name: str, covariate: Covariate) -> Column:
    """Return a column over the look-back instead of the round."""
    low, high = (None, None) if column.aggregate in _CUMULATIVE else (column.low, column.high)
    if covariate.cap is not None:
        low, high = 0.0, covariate.cap
    return replace(column, name=name, low=low, high=high, window=None, lookback=covariate.lookback)


def _share_columns(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return the metrics with equal halves of ratios as one column."""
    shared: dict[Column, Column] = {}
    for metric in metrics.values():
        if metric.denominator is None:
            shared.setdefault(replace(metric.numerator, name=""), metric.numerator)
    completed = {}
    for name, metric in metrics.items():
        if metric.denominator is not None:
            halves = (shared.setdefault(replace(half, name=""), half) for half in metric.columns)
            numerator, denominator = halves
            metric = replace(metric, numerator=numerator, denominator=denominator)
        completed[name] = metric
    return completed


def _all_columns(metrics: Mapping[str, Metric]) -> Iterator[Column]:
    """Yield the columns of every metric and of its covariate."""
    for metric in metrics.values():
        yield from metric.columns
        if metric.covariate is not None:
            yield from metric.covariate.columns


def average_over_members(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return the metrics of units in clusters: a mean over units is a sum over clusters by their number of members.

    >>> metrics = average_over_members(parse_metrics({"likes": {"event": "like", "aggregate": "count"}}))
    >>> [column.name for column in metrics["likes"].columns]
    ['likes.numerator', 'cluster.members']
    """
    numerators = {
        metric.numerator: replace(metric.numerator, name=f"{name}.numerator")
        for name, metric in metrics.items()
        if not metric.is_ratio
    }
    averaged = {}
    for name, metric in metrics.items():
        numerator = numerators.get(metric.numerator, metric.numerator)
        denominator = MEMBERS if metric.denominator is None else metric.denominator
        averaged[name] = replace(metric, numerator=numerator, denominator=numerators.get(denominator, denominator))
    return averaged


def metric_document(metric: Metric) -> dict[str, Any]:
    """Return a definition as a plain JSON value that `parse_metrics` reads back.

    >>> metric_document(Metric("watch", Column("watch", "watch", "seconds", "sum", 0.0, 60.0)))
    {'event': 'watch', 'value': 'seconds', 'aggregate': 'sum', 'range': [0.0, 60.0]}
    """
    document = _column_document(metric.numerator)
    if metric.denominator is not None and metric.is_ratio:
        document = {"ratio": [document, _column_document(metric.denominator)]}
    if metric.lower_is_better:
        document["lower_is_better"] = True
    if metric.covariate is not None:
        covariate = metric.covariate
        document["covariate"] = {"lookback": covariate.lookback, "metric": covariate.metric}
        if covariate.cap is not None:
            document["covariate"]["cap"] = covariate.cap
    return document


def _column_document(column: Column) -> dict[str, Any]:
    document: dict[str, Any] = {"event": column.event}
    if column.value is not None:
        document["value"] = column.value
    document["aggregate"] = column.aggregate
    if column.low is not None and column.high is not None:
        document["range"] = [column.low, column.high]
    if column.by is not None:
        document["by"] = column.by
    if column.window is not None:
        document["window"] = column.window
    where: dict[str, dict[str, Any]] = {}
    for condition in column.where:
        values: Any = list(condition.values) if condition.comparison == "in" else condition.values[0]
        where.setdefault(condition.field, {})[condition.comparison] = values
    return {**document, "where": where} if where else document
