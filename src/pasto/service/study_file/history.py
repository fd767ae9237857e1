"""History of a study file: the rows of earlier results that a study starts from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pasto.document_validation import MAX_TEXT_CHARACTERS, ProblemList, show_value
from pasto.errors import HistoryError
from pasto.metrics import Metric
from pasto.objective import Objective
from pasto.service.study_file.schema import MAX_CANDIDATES
from pasto.space import Candidates, Space
from pasto.study.history_table import ERROR_SUFFIX, History


def read_history(
    problems: ProblemList,
    given: object,
    metrics: Mapping[str, Metric],
    objective: Objective,
    candidates: Candidates | Space,
) -> History | None:
    """Return the history, or None and its problem.

    >>> import pasto
    >>> problems, objective = ProblemList(), pasto.maximize("likes")
    >>> rows = [{"weight": 1, "likes": 0.31}, {"weight": 2, "likes": "many"}]
    >>> read_history(problems, rows, {}, objective, pasto.grid(weight=[1, 2])) is None
    True
    >>> problems.found["history"]
    "cannot be used: column 'likes' of the history must be a number, got 'many' in row 2; leave the row out"
    """
    if not isinstance(given, (list, tuple)) or not 0 < len(given) <= MAX_CANDIDATES:
        came = f"{len(given):,} rows" if isinstance(given, (list, tuple)) else show_value(given)
        problems.add(
            "history", f"must be a list of 1 to {MAX_CANDIDATES:,} rows such as {{weight: 1, likes: 0.31}}, got {came}"
        )
        return None
    for place, row in enumerate(given):
        if not isinstance(row, Mapping) or not all(map(_is_plain, row.values())):
            problems.add(
                f"history[{place}]",
                f"must have a number, a text, true or false by column, got {show_value(row)}",
            )
            return None
    parameters = candidates.parameters
    halves = {column.name for metric in metrics.values() if metric.denominator is not None for column in metric.columns}
    for label, metric in metrics.items():
        if metric.denominator is not None and label in given[0] and label not in halves:
            problems.add(
                "history",
                f"has the ratio {label}; give its two means per unit instead, in the columns {metric.numerator.name} "
                f"and {metric.denominator.name}",
            )
            return None
    unused = halves.union(metrics).difference(objective.metrics, parameters)
    ignored = {*unused, *(name + ERROR_SUFFIX for name in unused)}
    rows = [{str(name): value for name, value in row.items() if name not in ignored} for row in given]
    try:
        return History.read(rows, objective.metrics, tuple(parameters))
    except HistoryError as error:
        problems.add("history", f"cannot be used: {error}")
        return None


def _is_plain(value: Any) -> bool:
    return isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= MAX_TEXT_CHARACTERS)
