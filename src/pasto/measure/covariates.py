"""What a metric is adjusted by, as a study file writes it: a definition, over the time before the round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pasto.measure.definitions import Column, Covariate, Metric
from pasto.measure.document import Problems, nearest, shown, within
from pasto.measure.spans import read_span

COVARIATE_FIELDS = ("lookback", "metric", "cap")
GROWING = ("sum", "count")
"""What makes a unit's number grow with the time it is watched, so that a round's bounds do not fit a look-back."""


def read_covariate(problems: Problems, path: str, name: str, given: object) -> Covariate | None:
    """The field `covariate` of the metric `name`: a look-back, or one with the metric to look at; no columns yet.

    >>> read_covariate(Problems(), "metrics.likes.covariate", "likes", "7d").lookback
    604800.0
    """
    if not isinstance(given, Mapping):
        given = {"lookback": given}
    fields = problems.fields(path, given, COVARIATE_FIELDS)
    if "lookback" not in fields:
        problems.add(within(path, "lookback"), "is missing; say how far back to look, as in covariate: 7d")
        return None
    lookback = read_span(problems, within(path, "lookback"), fields["lookback"], low=1.0)
    metric = fields.get("metric", name)
    if not isinstance(metric, str):
        problems.add(within(path, "metric"), f"must be the name of a metric of this study, got {shown(metric)}")
        return None
    cap = None
    if fields.get("cap") is not None:
        cap = problems.number(within(path, "cap"), fields["cap"])
        if cap is not None and cap <= 0:
            problems.add(within(path, "cap"), f"must be above 0, got {cap:g}")
    return None if lookback is None else Covariate(metric, lookback, cap=cap)


def adjusted(problems: Problems, path: str, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """The metrics with the columns that their covariates read; those that are defined alike are one column.

    >>> likes = Metric("likes", Column("likes", "like", None, "count", 0.0, 5.0), covariate=Covariate("likes", 3600.0))
    >>> adjusted(Problems(), "metrics", {"likes": likes})["likes"].covariate.columns[0].name
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
                problems.add(f"{spot}.metric", f"is no metric of this study; {nearest(wanted.metric, metrics)}")
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
    low, high = (None, None) if column.per_unit in GROWING else (column.low, column.high)
    if wanted.cap is not None:
        low, high = 0.0, wanted.cap
    return replace(column, name=name, low=low, high=high, window=None, lookback=wanted.lookback)
