"""Tables with named columns, from any data frame library that narwhals reads (pandas, polars, PyArrow and others)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pasto.errors import InputError

NAME_COLUMNS = ("name", "candidate")
"""Text columns that hold the rows' names even if there are other text columns."""

PLAIN = (str, bytes, int, float, list, tuple, set, Iterator, Mapping, np.ndarray, np.generic)


@dataclass(frozen=True, slots=True)
class DataTable:
    """The columns of a table by name, and the labels of its rows.

    >>> DataTable({"name": ["a", "b"], "x": [1.0, 2.0], "note": ["", "new"]}).text_columns()
    ('name', 'note')
    """

    columns: Mapping[str, Any]
    """Lists of plain values; a missing number is NaN, anything else that is missing None."""
    labels: tuple[str, ...] | None = None
    """The index of a pandas table if it has a name or is not of whole numbers; None otherwise."""

    def text_columns(self) -> tuple[str, ...]:
        """Return the columns in which every value is text."""
        return tuple(name for name, values in self.columns.items() if is_text(values))

    def row_names(self, column: str | None, refuse: type[InputError], *, apart_from: Collection[str] = ()) -> RowNames:
        """Return the rows' names: of a named column, else the labels, else the only text column not in apart_from."""
        if column is not None:
            if column not in self.columns:
                raise refuse(f"names={column!r} is not a column; the table has {self.listed()}")
            return RowNames(column, tuple(map(str, self.columns[column])))
        if self.labels is not None:
            return RowNames(None, self.labels)
        texts = [name for name in self.text_columns() if name not in apart_from]
        called = [name for name in texts if name.lower() in NAME_COLUMNS]
        candidates = called or texts
        if len(candidates) > 1:
            raise refuse(
                f"the text columns {', '.join(map(repr, candidates))} could all hold the rows' names; "
                "leave all but one out"
            )
        return RowNames(candidates[0], tuple(self.columns[candidates[0]])) if candidates else RowNames(None, None)

    def listed(self) -> str:
        """Return the columns' names for a message."""
        return ", ".join(map(repr, self.columns)) or "no columns"


@dataclass(frozen=True, slots=True)
class RowNames:
    """The names of a table's rows, and the column that they came from."""

    column: str | None
    names: tuple[str, ...] | None


def read_table(given: Any, refuse: type[InputError]) -> DataTable | None:
    """Return a data frame or a series as a table, and None for anything else.

    >>> read_table([[1.0, 2.0]], InputError) is None
    True
    """
    if given is None or isinstance(given, PLAIN):
        return None  # importing narwhals takes a tenth of a second
    import narwhals.stable.v2 as nw

    try:
        frame = nw.from_native(given, pass_through=True, allow_series=True)
        if isinstance(frame, nw.Series):
            frame = frame.to_frame()
        if isinstance(frame, nw.LazyFrame):
            raise refuse(f"the table is a lazy {type(given).__name__}; collect it first (.collect() or .df())")
        if not isinstance(frame, nw.DataFrame):
            return None
        columns = {str(series.name): _values(series) for series in frame.iter_columns()}
    except nw.exceptions.NarwhalsError as error:
        raise refuse(f"the table cannot be read: {' '.join(str(error).split())}") from error
    if len(columns) < len(frame.columns):
        raise refuse(f"the table has two columns of one name among {', '.join(map(repr, columns))}; rename one")
    return DataTable(columns, _labels(nw.maybe_get_index(frame)))


def read_columns(given: Mapping[str, Any], refuse: type[InputError]) -> DataTable:
    """Return a mapping of columns as a table; the index that pandas series have in common labels its rows.

    >>> read_columns({"x": [1.0, 2.0]}, InputError)
    DataTable(columns={'x': [1.0, 2.0]}, labels=None)
    """
    columns = dict(given)
    indexes: dict[str, list[Any]] = {}
    labels: tuple[str, ...] | None = None
    for name, values in given.items():
        table = read_table(values, refuse)
        if table is None or len(table.columns) != 1:
            continue
        (columns[name],) = table.columns.values()
        if (index := getattr(values, "index", None)) is not None and not callable(index):
            indexes[name], labels = list(index), table.labels
    for name, index in indexes.items():
        first = next(iter(indexes))
        if index != indexes[first]:
            raise refuse(
                f"the series {first!r} and {name!r} have different indexes, so their rows may not belong together; "
                "align them first, as pandas.DataFrame(...) of the same mapping does"
            )
    return DataTable(columns, labels)


def read_rows(given: Any, refuse: type[InputError]) -> DataTable | None:
    """Return a list of rows, each a mapping with the same keys, as a table; None for anything else.

    >>> read_rows([{"x": 1.0, "y": 3.0}, {"y": 4.0, "x": 2.0}], InputError)
    DataTable(columns={'x': [1.0, 2.0], 'y': [3.0, 4.0]}, labels=None)
    """
    if not isinstance(given, Sequence) or not given or not all(isinstance(row, Mapping) for row in given):
        return None
    for place, row in enumerate(given):
        if row.keys() != given[0].keys():
            raise refuse(
                f"row {place} has {', '.join(map(repr, row)) or 'nothing'}, and row 0 has "
                f"{', '.join(map(repr, given[0])) or 'nothing'}; every row needs the same columns"
            )
    return DataTable({str(name): [row[name] for row in given] for name in given[0]})


def is_text(values: Any) -> bool:
    """Return whether a column holds text in every row.

    >>> is_text(["a", "b"]), is_text([1, "b"]), is_text([])
    (True, False, False)
    """
    if isinstance(values, np.ndarray):
        return values.ndim == 1 and values.dtype.kind in "UOT" and is_text(values.tolist())
    return isinstance(values, (list, tuple)) and bool(values) and all(isinstance(value, str) for value in values)


def _values(series: Any) -> list[Any]:
    """Return a narwhals series as a list of plain values, with NaN for a missing number and None for missing text."""
    values, missing = series.to_list(), series.is_null().to_list()
    if series.dtype.is_decimal():
        values = [None if absent else float(value) for value, absent in zip(values, missing, strict=True)]
    empty = float("nan") if series.dtype.is_numeric() else None
    return [empty if absent else value for value, absent in zip(values, missing, strict=True)]


def _labels(index: Any) -> tuple[str, ...] | None:
    """Return a pandas index as text, unless it only counts the rows."""
    if index is None:
        return None
    labels = list(index)
    counts = all(isinstance(label, (int, np.integer)) for label in labels)
    if counts and all(name is None for name in index.names):
        return None
    return tuple(", ".join(map(str, label)) if isinstance(label, tuple) else str(label) for label in labels)
