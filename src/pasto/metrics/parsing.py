"""Metric definitions as a study file writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast, get_args

from pasto.durations import read_duration
from pasto.metrics.definitions import Aggregate, Column, Comparison, Condition, Covariate, Metric
from pasto.records import Value
from pasto.validation import ProblemList, nearest_name, show_value, within

COVARIATE_FIELDS = ("lookback", "metric", "cap")

GROWING = ("sum", "count")
"""What makes a unit's number grow with the time it is watched, so that a round's bounds do not fit a look-back."""


def read_covariate(problems: ProblemList, path: str, name: str, given: object) -> Covariate | None:
    """The field `covariate` of the metric `name`: a look-back, or one with the metric to look at; no columns yet.

    >>> read_covariate(ProblemList(), "metrics.likes.covariate", "likes", "7d").lookback
    604800.0
    """
    if not isinstance(given, Mapping):
        given = {"lookback": given}
    fields = problems.fields(path, given, COVARIATE_FIELDS)
    if "lookback" not in fields:
        problems.add(within(path, "lookback"), "is missing; say how far back to look, as in covariate: 7d")
        return None
    lookback = read_duration(problems, within(path, "lookback"), fields["lookback"], low=1.0)
    metric = fields.get("metric", name)
    if not isinstance(metric, str):
        problems.add(within(path, "metric"), f"must be the name of a metric of this study, got {show_value(metric)}")
        return None
    cap = None
    if fields.get("cap") is not None:
        cap = problems.number(within(path, "cap"), fields["cap"])
        if cap is not None and cap <= 0:
            problems.add(within(path, "cap"), f"must be above 0, got {cap:g}")
    return None if lookback is None else Covariate(metric, lookback, cap=cap)


def with_covariates(problems: ProblemList, path: str, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """The metrics with the columns that their covariates read; those that are defined alike are one column.

    >>> likes = Metric("likes", Column("likes", "like", None, "count", 0.0, 5.0), covariate=Covariate("likes", 3600.0))
    >>> with_covariates(ProblemList(), "metrics", {"likes": likes})["likes"].covariate.columns[0].name
    'likes.covariate'
    """
    first: dict[Column, Column] = {}
    found = {}
    for name, metric in metrics.items():
        wanted = metric.covariate
        if wanted is not None:
            spot = f"{within(path, name)}.covariate"
            source = metrics.get(wanted.metric)
            if source is None:
                problems.add(f"{spot}.metric", f"is no metric of this study; {nearest_name(wanted.metric, metrics)}")
            elif source.denominator is not None and wanted.cap is not None:
                problems.add(f"{spot}.cap", f"cannot bound {wanted.metric}, which is a ratio; leave it out")
            else:
                halves = (_before(half, label, wanted) for half, label in _labelled(name, source))
                columns = tuple(first.setdefault(replace(half, name=""), half) for half in halves)
                metric = replace(metric, covariate=replace(wanted, columns=columns))
        found[name] = metric
    return found


def _labelled(name: str, source: Metric) -> list[tuple[Column, str]]:
    labels = ("", ".numerator", ".denominator")[bool(source.denominator) :]
    return [(half, f"{name}.covariate{label}") for half, label in zip(source.columns, labels, strict=False)]


def _before(column: Column, name: str, wanted: Covariate) -> Column:
    """A column over the look-back."""
    low, high = (None, None) if column.aggregate in GROWING else (column.low, column.high)
    if wanted.cap is not None:
        low, high = 0.0, wanted.cap
    return replace(column, name=name, low=low, high=high, window=None, lookback=wanted.lookback)


MOST = 64
"""Metrics in one study."""

MOST_CONDITIONS = 32
"""Conditions, and values in one list, of one metric."""

AGGREGATES: tuple[str, ...] = get_args(Aggregate)

COMPARISONS: tuple[str, ...] = get_args(Comparison)

MOST_VALUES = 1000
"""Values that all conditions of a study compare with, together; engines bind each of them several times."""

COLUMN_FIELDS = ("event", "value", "aggregate", "cap", "range", "where", "by", "window")

METRIC_FIELDS = (*COLUMN_FIELDS, "ratio", "lower_is_better", "covariate")

OLD_NAMES = {"per_unit": "aggregate"}
"""Today's names of renamed fields, by their former names."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")

_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")

_EVENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/ -]{0,127}")


def parse_metrics(document: Mapping[str, object], path: str = "metrics") -> dict[str, Metric]:
    """Read every definition, or raise BadSpec with all that is wrong with them, by field.

    Halves of ratios that are defined alike are one column, measured once; a plain metric lends it its name.

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
        problems.refuse()
    if len(document) > MOST:
        problems.add(path, f"has {len(document)} metrics, more than the {MOST} that one study may have")
        problems.refuse()
    found = {}
    for name, given in document.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            problems.add(
                within(path, show_value(name)),
                "is no metric's name: up to 63 letters, digits, _ and -, and a letter or _ first",
            )
            continue
        metric = _metric(problems, within(path, name), name, given)
        if metric is not None:
            found[name] = metric
    found = with_covariates(problems, path, _shared(found))
    compared = sum(len(test.values) for metric in found.values() for half in _all(metric) for test in half.where)
    if compared > MOST_VALUES:
        problems.add(path, f"compares with {compared:,} values in all, more than {MOST_VALUES:,}; count simpler events")
    problems.refuse()
    return found


def _metric(problems: ProblemList, path: str, name: str, given: object) -> Metric | None:
    fields = problems.fields(path, given, METRIC_FIELDS, OLD_NAMES)
    if not isinstance(given, Mapping):
        return None
    lower = fields.pop("lower_is_better", False)
    if not isinstance(lower, bool):
        problems.add(within(path, "lower_is_better"), f"must be true or false, got {show_value(lower)}")
        lower = False
    covariate = None
    if "covariate" in fields:
        covariate = read_covariate(problems, within(path, "covariate"), name, fields.pop("covariate"))
    if "ratio" not in fields:
        column = _column(problems, path, name, fields)
        return None if column is None else Metric(name, column, None, lower, covariate)
    halves = fields.pop("ratio")
    if fields:
        problems.add(within(path, next(iter(fields))), "stands beside ratio; write it inside one of the ratio's halves")
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
        columns.append(_column(problems, spot, f"{name}.{role}", problems.fields(spot, half, COLUMN_FIELDS, OLD_NAMES)))
    top, bottom = columns
    if top is None or bottom is None:
        return None
    if replace(top, name="") == replace(bottom, name=""):
        problems.add(within(path, "ratio"), "has two halves that are defined alike, so it is always 1; change one")
        return None
    if bottom.low is not None and bottom.low < 0:
        problems.add(f"{path}.ratio[1].range", "lets the denominator be negative; start it at 0")
    return Metric(name, top, bottom, lower, covariate)


def _column(problems: ProblemList, path: str, name: str, fields: Mapping[str, object]) -> Column | None:
    event, value, by = (_named(problems, path, fields, field) for field in ("event", "value", "by"))
    if "event" not in fields:
        problems.add(within(path, "event"), "is missing; name the event that the metric reads, as in event: watch")
    aggregate = fields.get("aggregate", "count" if value is None else "sum")
    if not isinstance(aggregate, str) or aggregate not in AGGREGATES:
        problems.add(
            within(path, "aggregate"),
            f"must be one of {', '.join(AGGREGATES)}, got {show_value(aggregate)}{_meant_aggregate(aggregate)}",
        )
        return None
    if aggregate in ("count", "any"):
        if "value" in fields:
            problems.add(
                within(path, "value"),
                f"is not read by aggregate: {aggregate}, which counts events; leave it out, or write aggregate: sum",
            )
    elif "value" not in fields:
        problems.add(
            within(path, "value"), f"is missing; aggregate: {aggregate} needs the event's field that holds the number"
        )
    if aggregate == "last" and "by" not in fields:
        problems.add(
            within(path, "by"),
            "is missing; aggregate: last needs the event's field that says which is the latest (such as your own "
            "timestamp), because events may arrive in any order",
        )
    if aggregate != "last" and "by" in fields:
        problems.add(within(path, "by"), "is only read by aggregate: last; leave it out")
    low, high = _bounds(problems, path, fields)
    where = _where(problems, within(path, "where"), fields["where"]) if "where" in fields else ()
    window = read_duration(problems, within(path, "window"), fields["window"], low=1.0) if "window" in fields else None
    if event is None:
        return None
    return Column(name, event, value, cast(Aggregate, aggregate), low, high, where, by, window)


def _named(problems: ProblemList, path: str, fields: Mapping[str, object], field: str) -> str | None:
    if field not in fields:
        return None
    pattern = _EVENT if field == "event" else _FIELD
    given = fields[field]
    if isinstance(given, str) and pattern.fullmatch(given):
        return given
    rule = (
        "an event's name: up to 128 letters, digits, spaces and _ . : / -"
        if field == "event"
        else "a field's name: up to 64 letters, digits and _ . -, and a letter or _ first"
    )
    problems.add(within(path, field), f"must be {rule}; got {show_value(given)}")
    return None


def _bounds(problems: ProblemList, path: str, fields: Mapping[str, object]) -> tuple[float | None, float | None]:
    if "cap" in fields and "range" in fields:
        problems.add(within(path, "cap"), "stands beside range; cap: c is short for range: [0, c], so keep one")
        return None, None
    if "cap" in fields:
        high = problems.number(within(path, "cap"), fields["cap"])
        if high is not None and high <= 0:
            problems.add(within(path, "cap"), f"must be above 0, got {high:g}; for negative values write range: [a, b]")
        return 0.0, high
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


def _where(problems: ProblemList, path: str, given: object) -> tuple[Condition, ...]:
    if not isinstance(given, Mapping) or not given:
        problems.add(
            path,
            f'must be conditions by field, such as {{surface: home, seconds: {{">=": 3}}}}, got {show_value(given)}',
        )
        return ()
    found: list[Condition] = []
    for field, wanted in given.items():
        spot = within(path, field if isinstance(field, str) else show_value(field))
        if not isinstance(field, str) or not _FIELD.fullmatch(field):
            problems.add(spot, "is no field's name: up to 64 letters, digits and _ . -, and a letter or _ first")
        elif isinstance(wanted, Mapping):
            if not wanted:
                problems.add(spot, 'has no comparison; write one such as {">=": 3}')
            for sign, value in wanted.items():
                found += _condition(problems, f"{spot}[{show_value(sign)}]", field, sign, value)
        else:
            found += _condition(problems, spot, field, "in" if isinstance(wanted, (list, tuple)) else "=", wanted)
    if len(found) > MOST_CONDITIONS:
        problems.add(path, f"has {len(found)} conditions, more than {MOST_CONDITIONS}; count a simpler event")
    return tuple(found)


def _condition(problems: ProblemList, path: str, field: str, sign: object, given: object) -> list[Condition]:
    if not isinstance(sign, str) or sign not in COMPARISONS:
        problems.add(path, f"must be one of {' '.join(COMPARISONS)}")
        return []
    several = list(given) if sign == "in" and isinstance(given, (list, tuple)) else [given]
    if sign == "in" and not (isinstance(given, (list, tuple)) and 0 < len(given) <= MOST_CONDITIONS):
        problems.add(path, f"must be a list of 1 to {MOST_CONDITIONS} values, got {show_value(given)}")
        return []
    values: list[Value] = []
    for value in several:
        if isinstance(value, bool):
            values.append(value)
        elif isinstance(value, (int, float)) or sign in ("<", "<=", ">", ">="):
            number = problems.number(path, value)
            values += [] if number is None else [number]
        elif isinstance(value, str) and len(value) <= 256 and value.isprintable():
            values.append(value)
        else:
            problems.add(
                path, f"must compare with a number, a bool or up to 256 printable characters, got {show_value(value)}"
            )
    if isinstance(given, bool) and sign in ("<", "<=", ">", ">="):
        problems.add(path, f"must compare with a number, got {show_value(given)}")
    return [Condition(field, cast(Comparison, sign), tuple(values))] if values else []


def _all(metric: Metric) -> tuple[Column, ...]:
    return metric.columns if metric.covariate is None else (*metric.columns, *metric.covariate.columns)


def _shared(metrics: dict[str, Metric]) -> dict[str, Metric]:
    """The metrics with equal halves of ratios as one column."""
    plain = [metric.numerator for metric in metrics.values() if metric.denominator is None]
    first: dict[Column, Column] = {}
    for column in plain:
        first.setdefault(replace(column, name=""), column)
    found = {}
    for name, metric in metrics.items():
        if metric.denominator is not None:
            top, bottom = (first.setdefault(replace(half, name=""), half) for half in metric.columns)
            metric = replace(metric, numerator=top, denominator=bottom)
        found[name] = metric
    return found


def _meant_aggregate(given: object) -> str:
    """Return a hint at the aggregate that was probably meant."""
    hint = nearest_name("mean" if given in ("avg", "average") else given, AGGREGATES)
    return f"; {hint}" if hint.startswith("did you mean") else ""


def metric_document(metric: Metric) -> dict[str, Any]:
    """One definition as a plain JSON value that `parse_metrics` reads back.

    >>> metric_document(Metric("watch", Column("watch", "watch", "seconds", "sum", 0.0, 60.0)))
    {'event': 'watch', 'value': 'seconds', 'aggregate': 'sum', 'range': [0.0, 60.0]}
    """
    if metric.denominator is None:
        written = _write_column(metric.numerator)
    else:
        written = {"ratio": [_write_column(metric.numerator), _write_column(metric.denominator)]}
    if metric.lower_is_better:
        written["lower_is_better"] = True
    if metric.covariate is not None:
        told = metric.covariate
        written["covariate"] = {"lookback": told.lookback, "metric": told.metric}
        if told.cap is not None:
            written["covariate"]["cap"] = told.cap
    return written


def _write_column(column: Column) -> dict[str, Any]:
    written: dict[str, Any] = {"event": column.event}
    if column.value is not None:
        written["value"] = column.value
    written["aggregate"] = column.aggregate
    if column.low is not None and column.high is not None:
        written["range"] = [column.low, column.high]
    if column.by is not None:
        written["by"] = column.by
    if column.window is not None:
        written["window"] = column.window
    where: dict[str, dict[str, Any]] = {}
    for condition in column.where:
        values: Any = list(condition.values) if condition.comparison == "in" else condition.values[0]
        where.setdefault(condition.field, {})[condition.comparison] = values
    return {**written, "where": where} if where else written
