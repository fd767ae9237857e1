"""Measurements of a study in data frames: metrics by column, rows matched to assignments or candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from pasto.errors import BadMeasurement
from pasto.records import Observation
from pasto.space import Candidates
from pasto.tables import Table, read_table

Labels = tuple[str, ...]
"""The texts that may label the row of one assignment: its id first, then its candidate's name and index."""
OBSERVATION_COLUMNS = ("version", "candidate", "units", "control")
"""Columns of an observed round that are not metrics."""


def match_rows(table: Table, metrics: Sequence[str], assignments: Sequence[Labels], what: str) -> list[list[Any]]:
    """Return one row of metrics for each assignment, in their order.

    Rows labelled by assignment ids may come in any order. Rows labelled by candidates must be in the order of the
    assignments, because several assignments may share a candidate.

    >>> table = Table({"y": [3.0, 1.0], "x": [4.0, 2.0]}, labels=("0/1", "0/0"))
    >>> match_rows(table, ("x", "y"), [("0/0", "a", "0"), ("0/1", "b", "1")], "metrics")
    [[2.0, 1.0], [4.0, 3.0]]
    """
    labels = table.row_names(None, BadMeasurement, apart_from=metrics)
    _check_columns(table, [*metrics, *([] if labels.column is None else [labels.column])], metrics, what)
    for name in metrics:
        if not hasattr(table.columns[name], "__len__") or len(table.columns[name]) != len(table.columns[metrics[0]]):
            raise BadMeasurement(f"the columns {metrics[0]!r} and {name!r} of {what} differ in length; give equal ones")
    rows = [list(row) for row in zip(*(table.columns[name] for name in metrics), strict=True)]
    if len(rows) != len(assignments):
        raise BadMeasurement(f"{what} has {len(rows)} rows for {len(assignments)} assignments; give one row for each")
    if labels.names is None:
        return rows
    by_label = dict(zip(labels.names, rows, strict=True))
    identities = [own[0] for own in assignments]
    if len(by_label) == len(rows) and by_label.keys() == set(identities):
        return [by_label[identity] for identity in identities]
    if all(label in own[1:] for label, own in zip(labels.names, assignments, strict=True)):
        return rows
    raise BadMeasurement(
        f"the rows of {what} are labelled {_short(labels.names)}, which are neither the assignments' ids "
        f"({_short(identities)}) nor their candidates in the same order; label each row with its assignment's id, or "
        "leave the labels out (reset_index(drop=True) in pandas) to give the rows in the order of the assignments"
    )


def read_observations(
    given: Any, standard_errors: Any, metrics: Sequence[str], candidates: Candidates
) -> Sequence[Observation]:
    """Return observations as they are, or read them from a data frame with a row for each candidate."""
    table = read_table(given, BadMeasurement)
    if table is None:
        if standard_errors is not None:
            raise BadMeasurement("standard_errors= is for a data frame; an Observation carries its own covariance")
        return cast(Sequence[Observation], given)
    if clash := [name for name in metrics if name in OBSERVATION_COLUMNS]:
        raise BadMeasurement(
            f"the metric {clash[0]!r} is called like a column that says something else; pass a list of "
            "pasto.Observation instead of a data frame"
        )
    places = _candidates(table, metrics, candidates)
    own = None if "candidate" in table.columns else table.row_names(None, BadMeasurement, apart_from=metrics).column
    known = [*metrics, *OBSERVATION_COLUMNS, *([] if own is None else [own])]
    _check_columns(table, known, metrics, "the table of observations")
    for name, cure in (("version", "study.policy.version when it was served"), ("units", "how many units it had")):
        if name not in table.columns:
            raise BadMeasurement(f"the table of observations lacks the column {name!r}; give each row {cure}")
    count = len(places)
    means = list(zip(*(table.columns[name] for name in metrics), strict=True))
    spreads: Sequence[Any] = [None] * count
    if standard_errors is not None:
        errors = read_table(standard_errors, BadMeasurement)
        if errors is None:
            raise BadMeasurement("standard_errors must be a data frame with the rows and the metrics of the first one")
        names = [(candidates.names[place], candidates.names[place], str(place)) for place in places]
        spreads = match_rows(errors, metrics, names, "standard_errors")
    controls = table.columns.get("control", [False] * count)
    if strange := [control for control in controls if not isinstance(control, bool)]:
        raise BadMeasurement(f"the column 'control' must hold True or False, got {strange[0]!r}")
    return [
        Observation(version, place, units, mean, _covariance(spread), control)
        for version, place, units, mean, spread, control in zip(
            table.columns["version"], places, table.columns["units"], means, spreads, controls, strict=True
        )
    ]


def _candidates(table: Table, metrics: Sequence[str], candidates: Candidates) -> list[int]:
    """Return the candidate of each row, named in the column `candidate`, the index or a text column."""
    named = table.columns.get("candidate")
    if named is None:
        named = table.row_names(None, BadMeasurement, apart_from=metrics).names
    if named is None:
        raise BadMeasurement("the table of observations names no candidates; add a column 'candidate'")
    known = set(candidates.names)
    return [
        candidates.index(int(label) if isinstance(label, str) and label not in known and label.isdecimal() else label)
        for label in named
    ]


def _check_columns(table: Table, known: Sequence[str], metrics: Sequence[str], what: str) -> None:
    if missing := [name for name in metrics if name not in table.columns]:
        raise BadMeasurement(f"{what} lacks the column {missing[0]!r}; it has {table.listed()}")
    if unknown := [name for name in table.columns if name not in known]:
        raise BadMeasurement(
            f"{what} has the column {unknown[0]!r}, which this study does not measure; leave it out, as in "
            f"table[{list(metrics)!r}]"
        )


def _covariance(spread: Sequence[Any] | None) -> tuple[tuple[float, ...], ...] | None:
    """Return the covariance of means with independent standard errors."""
    if spread is None:
        return None
    try:
        variances = [float(error) ** 2 for error in spread]
    except (TypeError, ValueError) as error:
        raise BadMeasurement(f"standard_errors must be numbers, got {list(spread)!r}") from error
    return tuple(
        tuple(variance if i == k else 0.0 for k in range(len(variances))) for i, variance in enumerate(variances)
    )


def _short(labels: Sequence[str]) -> str:
    return ", ".join(map(repr, labels[:3])) + (", …" if len(labels) > 3 else "")
