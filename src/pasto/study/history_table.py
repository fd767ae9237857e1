"""History table: earlier results of candidates, or of other settings, with units, means and their errors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from pasto.arrays import FloatArray
from pasto.data_frames import DataTable, read_columns, read_rows, read_table
from pasto.errors import HistoryError
from pasto_sdk.policy_document import Value

if TYPE_CHECKING:
    pass

CANDIDATE_COLUMN, UNITS_COLUMN = "candidate", "units"
ERROR_SUFFIX, COVARIANCE_SUFFIX = "_se", "_cov"
"""Endings of the columns of standard errors (`watch_time_se`) and of covariances of two means (`likes_views_cov`)."""
MAX_NUMBER = 1e15
"""Largest number in a history, as for every measurement."""


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """Earlier result of one setting, which is named like a candidate or described by its parameters."""

    candidate: str | None
    values: Mapping[str, Value] | None
    means: tuple[float, ...]
    units: float | None = None
    covariance: tuple[tuple[float, ...], ...] | None = None
    """Covariance of the means; None if their errors are not known."""


@dataclass(frozen=True, slots=True)
class History:
    """Table of earlier results: a row for each setting, with the means of some metrics.

    >>> history = History.read(
    ...     [{"weight": 0, "units": 900, "x": 1.0, "x_se": 0.1}, {"weight": 1, "units": 1100, "x": 1.4, "x_se": 0.1}],
    ...     metrics=["x", "y"], parameters=["weight"],
    ... )
    >>> history.metrics, history.rows[1].values, history.rows[1].means
    (('x',), {'weight': 1}, (1.4,))
    >>> History.read(history.to_rows(), metrics=["x", "y"], parameters=["weight"]) == history
    True
    """

    metrics: tuple[str, ...]
    """Metrics of the table, in the order of the rows' means."""
    rows: tuple[HistoryRow, ...]

    def __post_init__(self) -> None:
        for what in ("units", "covariance"):
            if len({getattr(row, what) is None for row in self.rows}) > 1:
                raise HistoryError(f"only some rows of the history have {what}; give it in every row, or in none")

    @classmethod
    def read(cls, given: Any, metrics: Sequence[str], parameters: Sequence[str]) -> History:
        """Return the history in a data frame, a list of rows or a mapping of columns.

        Its columns are `candidate` or all parameters; a column for each metric, of which some may be missing; the
        standard error of each mean with the ending `_se`; `units`; and covariances such as `likes_views_cov`.
        """
        if isinstance(given, History):
            _check_metrics(given.metrics, metrics)
            return given
        return _HistoryReader(read_any_table(given, "history"), tuple(metrics), tuple(parameters)).read()

    def to_rows(self) -> list[dict[str, Any]]:
        """Return the table as a list of rows with named columns, as `read` takes it."""
        pairs = [
            (left, right)
            for left, right in combinations(range(len(self.metrics)), 2)
            if any(row.covariance is not None and row.covariance[left][right] for row in self.rows)
        ]
        return [self._name_columns(row, pairs) for row in self.rows]

    def _name_columns(self, row: HistoryRow, pairs: list[tuple[int, int]]) -> dict[str, Any]:
        columns: dict[str, Any] = {} if row.candidate is None else {CANDIDATE_COLUMN: row.candidate}
        columns.update(row.values or {})
        columns.update({} if row.units is None else {UNITS_COLUMN: row.units})
        for place, metric in enumerate(self.metrics):
            columns[metric] = row.means[place]
            if row.covariance is not None:
                columns[metric + ERROR_SUFFIX] = math.sqrt(row.covariance[place][place])
        for left, right in pairs:
            assert row.covariance is not None  # noqa: S101 -- all rows have errors, or none
            name = _covariance_column(self.metrics[left], self.metrics[right])
            columns[name] = row.covariance[left][right]
        return columns


def read_any_table(given: Any, what: str) -> DataTable:
    """Return a data frame, a list of rows or a mapping of columns as a table; `what` names it in errors."""
    table = read_table(given, HistoryError) or read_rows(given, HistoryError)
    if table is None and isinstance(given, Mapping):
        table = read_columns(given, HistoryError)
    if table is None:
        raise HistoryError(
            f"the {what} must be a data frame, a list of rows such as {{'candidate': 'a', 'x': 1.2}}, or a mapping of "
            f"columns, got {type(given).__name__}"
        )
    lengths = {len(values) if hasattr(values, "__len__") else -1 for values in table.columns.values()}
    if len(lengths) != 1 or lengths <= {-1, 0}:
        raise HistoryError(f"the {what} needs at least one row, and columns of the same length")
    return table


@dataclass(frozen=True, slots=True)
class _HistoryReader:
    """Reader of a table whose columns name metrics and parameters."""

    table: DataTable
    metrics: tuple[str, ...]
    parameters: tuple[str, ...]

    def read(self) -> History:
        """Return the history; HistoryError names the column or cell that is wrong."""
        metrics = tuple(metric for metric in self.metrics if metric in self.table.columns)
        if not metrics:
            raise HistoryError(
                f"the history has none of the metrics {', '.join(self.metrics)}; its columns are {self.table.listed()}"
            )
        with_errors = [metric for metric in metrics if metric + ERROR_SUFFIX in self.table.columns]
        if with_errors and len(with_errors) < len(metrics):
            lacking = next(metric for metric in metrics if metric not in with_errors)
            raise HistoryError(
                f"the history has the column {with_errors[0] + ERROR_SUFFIX!r} and lacks {lacking + ERROR_SUFFIX!r}; "
                "give the standard errors of all its metrics, or of none"
            )
        pairs = {
            pair: name
            for pair in combinations(range(len(metrics)), 2)
            for name in (
                _covariance_column(metrics[pair[0]], metrics[pair[1]]),
                _covariance_column(metrics[pair[1]], metrics[pair[0]]),
            )
            if name in self.table.columns
        }
        names, values = self._settings([*metrics, *(metric + ERROR_SUFFIX for metric in metrics), *pairs.values()])
        means = np.array([self._numbers(metric) for metric in metrics]).T
        units = self._numbers(UNITS_COLUMN, above=0.0) if UNITS_COLUMN in self.table.columns else None
        covariances = self._covariances(metrics, pairs) if with_errors else None
        if pairs and covariances is None:
            raise HistoryError(f"the column {next(iter(pairs.values()))!r} needs the standard errors of both metrics")
        return History(
            metrics,
            tuple(
                HistoryRow(
                    None if names is None else names[row],
                    None if values is None else values[row],
                    tuple(means[row].tolist()),
                    None if units is None else float(units[row]),
                    None if covariances is None else tuple(map(tuple, covariances[row].tolist())),
                )
                for row in range(len(means))
            ),
        )

    def _settings(self, others: list[str]) -> tuple[tuple[str, ...] | None, list[dict[str, Value]] | None]:
        """Return the candidate's name and the parameters' values of each row, and refuse unknown columns."""
        columns = self.table.columns
        named = CANDIDATE_COLUMN if CANDIDATE_COLUMN in columns and CANDIDATE_COLUMN not in self.parameters else None
        present = [parameter for parameter in self.parameters if parameter in columns]
        clash = [parameter for parameter in present if parameter in {*others, UNITS_COLUMN}]
        if clash:
            raise HistoryError(f"the column {clash[0]!r} is a metric and a parameter; name candidates in 'candidate'")
        labels = None if named or present else self.table.row_names(None, HistoryError, apart_from=others)
        known = {*others, *present, UNITS_COLUMN, named, None if labels is None else labels.column}
        if unknown := [name for name in columns if name not in known]:
            raise HistoryError(
                f"the history has the column {unknown[0]!r}, which is not a metric, an error or a parameter here; "
                f"leave it out. Metrics: {', '.join(self.metrics)}; parameters: {', '.join(self.parameters)}"
            )
        if present and len(present) < len(self.parameters) and not named:
            lacking = next(parameter for parameter in self.parameters if parameter not in present)
            raise HistoryError(
                f"the history lacks the parameter {lacking!r}; add a column with its value in the earlier data, or "
                "name candidates in a column 'candidate'"
            )
        names = tuple(map(str, columns[named])) if named else None if labels is None else labels.names
        if names is None and not present:
            raise HistoryError(
                f"the history does not name its candidates; add a column 'candidate', or {', '.join(self.parameters)}"
            )
        if len(present) < len(self.parameters):
            return names, None
        rows = zip(*(columns[parameter] for parameter in self.parameters), strict=True)
        return names, [dict(zip(self.parameters, map(_plain, row), strict=True)) for row in rows]

    def _numbers(self, name: str, *, above: float | None = None, least: float | None = None) -> FloatArray:
        """Return a column of finite numbers."""
        for row, value in enumerate(self.table.columns[name], start=1):
            number = None if isinstance(value, (str, bool)) else value
            try:
                number = math.nan if number is None else float(number)
            except (TypeError, ValueError):
                number = math.nan
            too_low = (above is not None and number <= above) or (least is not None and number < least)
            if not abs(number) <= MAX_NUMBER or too_low:
                need = "a positive number" if above is not None else "zero or more" if least is not None else "a number"
                raise HistoryError(
                    f"column {name!r} of the history must be {need}, got {value!r} in row {row}; leave the row out"
                )
        return np.array([float(value) for value in self.table.columns[name]])

    def _covariances(self, metrics: tuple[str, ...], pairs: Mapping[tuple[int, int], str]) -> FloatArray:
        """Return the covariance of each row's means, (rows, metrics, metrics)."""
        errors = np.array([self._numbers(metric + ERROR_SUFFIX, least=0.0) for metric in metrics]).T
        covariances = np.square(errors)[:, :, None] * np.eye(len(metrics))
        for (left, right), name in pairs.items():
            covariances[:, left, right] = covariances[:, right, left] = self._numbers(name)
        for row, covariance in enumerate(covariances, start=1):
            if np.linalg.eigvalsh(covariance)[0] < -1e-9 * float(np.trace(covariance)):
                raise HistoryError(
                    f"the covariances in row {row} of the history are larger than the standard errors allow; the "
                    "columns with the ending _cov are covariances of means, not of units"
                )
        return np.asarray(covariances)


def _check_metrics(metrics: Iterable[str], known: Sequence[str]) -> None:
    if unknown := [metric for metric in metrics if metric not in known]:
        raise HistoryError(
            f"the history has the metric {unknown[0]!r}, which this study does not measure; its metrics are "
            f"{', '.join(known)}"
        )


def _covariance_column(left: str, right: str) -> str:
    return f"{left}_{right}{COVARIANCE_SUFFIX}"


def _plain(value: Any) -> Value:
    """Return a number of numpy as one of Python."""
    plain: Value = value.item() if isinstance(value, np.generic) else value
    return plain
