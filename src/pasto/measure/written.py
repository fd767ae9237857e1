"""Metric definitions as a study file writes them, from what was read."""

from __future__ import annotations

from typing import Any

from pasto.measure.definitions import Column, Metric


def metric_document(metric: Metric) -> dict[str, Any]:
    """One definition as a plain JSON value that `parse_metrics` reads back.

    >>> metric_document(Metric("watch", Column("watch", "watch", "seconds", "sum", 0.0, 60.0)))
    {'event': 'watch', 'value': 'seconds', 'per_unit': 'sum', 'range': [0.0, 60.0]}
    """
    if metric.denominator is None:
        written = _column(metric.numerator)
    else:
        written = {"ratio": [_column(metric.numerator), _column(metric.denominator)]}
    if metric.lower_is_better:
        written["lower_is_better"] = True
    if metric.covariate is not None:
        told = metric.covariate
        written["covariate"] = {"lookback": told.lookback, "metric": told.metric}
        if told.cap is not None:
            written["covariate"]["cap"] = told.cap
    return written


def _column(column: Column) -> dict[str, Any]:
    written: dict[str, Any] = {"event": column.event}
    if column.value is not None:
        written["value"] = column.value
    written["per_unit"] = column.per_unit
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
