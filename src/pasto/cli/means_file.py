"""Table of means from a CSV, JSON or Parquet file, with errors that name the row and the column."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeGuard

from pasto.errors import InputError, MeansError, MissingExtraError, PastoWarning

NAME_HEADERS = ("name", "candidate", "")
"""Headers of a first column that always holds the candidates' names."""
ROW_NUMBER_HEADERS = ("", "Unnamed: 0", "__index_level_0__")
"""Headers under which pandas writes the index of a table."""
SEGMENT_COLUMN = "segment"
"""Column that names the segment of each row."""
PARQUET_MAGIC = b"PAR1"
ZIP_MAGIC = b"PK\x03\x04"


@dataclass(frozen=True, slots=True)
class MeansTable:
    """Mean metrics of named candidates."""

    names: tuple[str, ...]
    metrics: dict[str, list[float]]
    ignored: tuple[str, ...] = ()
    """Columns without any number, such as remarks."""
    percent: tuple[str, ...] = ()
    """Columns that were written with percent signs; their numbers are shares."""


@dataclass(frozen=True, slots=True)
class SegmentedMeans:
    """Mean metrics of the same candidates in each segment, with the segments' shares of traffic."""

    shares: dict[str, float]
    tables: dict[str, MeansTable]


def read_means(source: str, name_column: str | None = None) -> MeansTable:
    """Read a CSV, JSON or Parquet file, or stdin for "-"; `name_column` holds the candidates' names."""
    label = "stdin" if source == "-" else source
    columns, places = _read_columns(source, label)
    return _read_table(columns, places, label, name_column)


def read_segmented_means(
    source: str, name_column: str | None = None, shares: dict[str, float] | None = None
) -> MeansTable | SegmentedMeans:
    """Read a file of means as `read_means` does, or one with segments.

    With shares, the column `segment` names the segment of each row. JSON can have both as sections:
    {"segments": {"new": 0.3, "heavy": 0.7}, "means": {"new": {"x": [2, 0]}, "heavy": {"x": [3, 1]}}}.
    """
    label = "stdin" if source == "-" else source
    raw = _bytes(source)
    if (section := _find_segments(raw, label)) is not None:
        if shares is not None:
            raise MeansError(f"{label} has a section 'segments', and --segments is given too; leave out one of them")
        shares, parts = section
    else:
        columns, places = _parse_columns(source, label, raw)
        if shares is None:
            if len(set(map(str, columns.get(SEGMENT_COLUMN, ())))) < len(columns.get(SEGMENT_COLUMN, ())):
                raise MeansError(
                    f"{label} has a column {SEGMENT_COLUMN!r} and no shares of traffic; give them, as in "
                    "--segments new=0.3,heavy=0.7"
                )
            return _read_table(columns, places, label, name_column)
        parts = _split_rows(columns, places, label, shares)
    tables = {
        name: _read_table(columns, places, f"segment {name!r} of {label}", name_column)
        for name, (columns, places) in parts.items()
    }
    first, names = next(iter(tables)), next(iter(tables.values())).names
    for name, table in tables.items():
        if odd := sorted(set(table.names) ^ set(names)):
            raise MeansError(
                f"segments {first!r} and {name!r} of {label} differ in the candidate {odd[0]!r}; every segment needs a "
                "row for each candidate"
            )
        order = [table.names.index(candidate) for candidate in names]
        metrics = {metric: [cells[place] for place in order] for metric, cells in table.metrics.items()}
        tables[name] = replace(table, names=names, metrics=metrics)
    return SegmentedMeans(shares, tables)


def _find_segments(
    raw: bytes, label: str
) -> tuple[dict[str, float], dict[str, tuple[dict[str, list[Any]], list[str]]]] | None:
    """Return the shares and the columns of each segment if a file is JSON with the sections segments and means."""
    if raw.startswith(PARQUET_MAGIC) or not (text := _text(raw, label)).lstrip().startswith("{"):
        return None
    value = _parse_json(text, label)
    if not isinstance(value, dict) or not isinstance(value.get("segments"), dict):
        return None
    shares, means = value["segments"], value.get("means")
    if not isinstance(means, dict) or set(means) != set(shares) or set(value) != {"segments", "means"}:
        raise MeansError(
            f"{label} has a section 'segments', so it needs a section 'means' with the means of exactly these "
            f"segments, {_list(shares)}, and no other section"
        )
    return shares, {name: _from_value(means[name], f"segment {name!r} of {label}") for name in shares}


def _split_rows(
    columns: dict[str, list[Any]], places: list[str], label: str, shares: dict[str, float]
) -> dict[str, tuple[dict[str, list[Any]], list[str]]]:
    """Return the columns of each segment, without the column that names it."""
    if SEGMENT_COLUMN not in columns:
        raise MeansError(
            f"{label} has no column {SEGMENT_COLUMN!r}, which names the segment of each row; it has {_list(columns)}"
        )
    segments = [str(cell).strip() for cell in columns[SEGMENT_COLUMN]]
    for segment, place in zip(segments, places, strict=True):
        if segment not in shares:
            raise MeansError(
                f"{place} of {label} is of segment {segment!r}, and --segments gives no share of it; it has "
                f"{_list(shares)}"
            )
    others = {column: cells for column, cells in columns.items() if column != SEGMENT_COLUMN}
    if not others:
        raise MeansError(f"{label} has no column but {SEGMENT_COLUMN!r}; every metric is a column")
    parts = {}
    for name in shares:
        rows = [row for row, segment in enumerate(segments) if segment == name]
        if not rows:
            raise MeansError(f"{label} has no rows of segment {name!r}; it needs one for each candidate")
        picked = {column: [cells[row] for row in rows] for column, cells in others.items()}
        parts[name] = (picked, [places[row] for row in rows])
    return parts


def _read_table(columns: dict[str, list[Any]], places: list[str], label: str, name_column: str | None) -> MeansTable:
    """Return the table of columns by name."""
    if name_column is not None and name_column not in columns:
        raise MeansError(f"{label} has no column {name_column!r} to take names from; it has {_list(columns)}")
    columns = _without_row_numbers(columns, name_column)
    header = name_column if name_column is not None else _find_name_column(columns)
    names = _names(None if header is None else [str(cell).strip() for cell in columns.pop(header)], places, label)
    ignored = tuple(column for column, cells in columns.items() if all(_number(cell) is None for cell in cells))
    written = {column: cells for column, cells in columns.items() if column not in ignored}
    metrics = {
        column: [_checked(cell, column, place, label) for cell, place in zip(cells, places, strict=True)]
        for column, cells in written.items()
    }
    if not metrics:
        raise MeansError(
            f"{label} has no column of numbers{_first_cell(columns, places)}; every metric is a column with one mean "
            "for each candidate, such as 6.5"
        )
    percent = tuple(column for column, cells in written.items() if _all_percent(cells, column, places, label))
    return MeansTable(names, metrics, ignored, percent)


def read_rows(source: str) -> list[dict[str, Any]]:
    """Read a CSV, JSON or Parquet file, or stdin for "-", as rows of numbers, texts and bools by column.

    In CSV, a column is of numbers if every cell is one, and of bools if every cell is true or false.
    """
    columns, places = _read_columns(source, "stdin" if source == "-" else source)
    typed = {column: _typed(cells) for column, cells in _without_row_numbers(columns, None).items()}
    if "" in typed:
        typed = {column or NAME_HEADERS[1]: cells for column, cells in typed.items()}
    return [{column: cells[row] for column, cells in typed.items()} for row in range(len(places))]


def _typed(cells: list[Any]) -> list[Any]:
    """Return a column of texts as numbers or bools if all its cells are, and any other column as it is."""
    if not all(isinstance(cell, str) for cell in cells):
        return cells
    texts = [cell.strip() for cell in cells]
    if all(text.lower() in ("true", "false") for text in texts):
        return [text.lower() == "true" for text in texts]
    numbers = [_number(text) for text in texts]
    if any(number is None for number in numbers):
        return texts
    return [int(number) if number is not None and number.is_integer() else number for number in numbers]


def _read_columns(source: str, label: str) -> tuple[dict[str, list[Any]], list[str]]:
    """Return the columns of a file by name, and the place of each row."""
    return _parse_columns(source, label, _bytes(source))


def _parse_columns(source: str, label: str, raw: bytes) -> tuple[dict[str, list[Any]], list[str]]:
    """Return the columns of a file's bytes by name, and the place of each row."""
    if raw.startswith(PARQUET_MAGIC):
        return _from_parquet(source, label)
    text = _text(raw, label)
    if not text.strip():
        raise MeansError(f"{label} is empty; it needs a header and one row for each candidate")
    return _from_json(text, label) if text.lstrip()[0] in "{[" else _from_csv(text, label)


def note_percent(means: MeansTable) -> None:
    """Warn that percentages were read as shares, because a guardrail's percentage is one of the baseline."""
    if means.percent:
        warnings.warn(
            f"percentages are read as shares, 3% as 0.03, in {', '.join(map(repr, means.percent))}. Write guardrails "
            "on them as shares too (0.03); a percentage in a guardrail is a change against the baseline",
            PastoWarning,
            stacklevel=2,
        )


def _bytes(source: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"there is no file {source!r}; name a CSV, JSON or Parquet file, or - for stdin") from error
    except OSError as error:
        raise InputError(f"cannot read {source!r}: {error.strerror or error}") from error


def _text(raw: bytes, label: str) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        kind = "an Excel file or another archive" if raw.startswith(ZIP_MAGIC) else "not a text file in UTF-8"
        where = "" if raw.startswith(ZIP_MAGIC) else f": byte {error.start} cannot be read"
        raise MeansError(f"{label} is {kind}{where}; save it as CSV in UTF-8, as JSON or as Parquet") from error


def _from_parquet(source: str, label: str) -> tuple[dict[str, list[Any]], list[str]]:
    """Return columns by name and the place of each row; DuckDB reads the file."""
    if source == "-":
        raise MeansError("Parquet cannot be read from stdin; save it and name the file")
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtraError(f"{label} is a Parquet file, which needs duckdb", "serve") from error
    try:
        with duckdb.connect() as connection:
            found = connection.execute("SELECT * FROM read_parquet(?)", [source])
            header = [column[0] for column in found.description]
            rows = found.fetchall()
    except duckdb.Error as error:
        raise MeansError(f"{label} cannot be read as Parquet: {' '.join(str(error).split())[:300]}") from error
    if not rows:
        raise MeansError(f"{label} has no rows; it needs one row for each candidate")
    cells = [
        [float(cell) if isinstance(cell, Decimal) else cell for cell in column] for column in zip(*rows, strict=True)
    ]
    return dict(zip(header, cells, strict=True)), [f"row {place}" for place in range(1, len(rows) + 1)]


def _from_csv(text: str, label: str) -> tuple[dict[str, list[Any]], list[str]]:
    """Return columns by header and the place of each row, with its line."""
    first = text.lstrip().splitlines()[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=first.count))
    header: list[str] = []
    rows: list[list[str]] = []
    places: list[str] = []
    try:
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            if not header:
                header = [cell.strip() for cell in row]
                continue
            if len(row) != len(header):
                raise MeansError(
                    f"line {reader.line_num} of {label} has {len(row)} fields where the header has {len(header)}"
                )
            rows.append(row)
            places.append(f"row {len(rows)} (line {reader.line_num})")
    except csv.Error as error:
        raise MeansError(f"line {reader.line_num} of {label} is not CSV: {error}") from error
    for place, column in enumerate(header):
        if header.index(column) < place:
            raise MeansError(f"{label} has two columns called {column!r}; every column needs a name of its own")
        if place and not column:
            raise MeansError(f"column {place + 1} of {label} has no name in the header")
    if not rows:
        raise MeansError(f"{label} has a header but no rows; it needs one row for each candidate")
    return {column: [row[place] for row in rows] for place, column in enumerate(header)}, places


def _from_json(text: str, label: str) -> tuple[dict[str, list[Any]], list[str]]:
    """Return the columns of a JSON text, and the place of each row."""
    return _from_value(_parse_json(text, label), label)


def _parse_json(text: str, label: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise MeansError(f"{label} is not JSON: {error.msg} in line {error.lineno}, column {error.colno}") from error


def _from_value(value: Any, label: str) -> tuple[dict[str, list[Any]], list[str]]:
    """Return columns of {"x": […], …} or of a list of row objects, and the place of each row."""
    if isinstance(value, dict) and value and all(isinstance(cells, list) for cells in value.values()):
        columns: dict[str, list[Any]] = value
        lengths = {column: len(cells) for column, cells in columns.items()}
        first, count = next(iter(lengths.items()))
        if odd := [column for column, length in lengths.items() if length != count]:
            raise MeansError(f"in {label}, {first!r} has {count} means and {odd[0]!r} has {lengths[odd[0]]}")
    elif isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        count = len(value)
        for place, row in enumerate(value, start=1):
            if odd := sorted(set(row) ^ set(value[0])):
                raise MeansError(
                    f"row {place} of {label} and row 1 differ in {odd[0]!r}; every row needs the same metrics"
                )
        columns = {column: [row[column] for row in value] for column in value[0]}
    else:
        raise MeansError(
            f'{label} must hold lists of means by metric, {{"x": [2, 0], "y": [-2, 2]}}, or a list of rows, '
            '[{"x": 2, "y": -2}, {"x": 0, "y": 2}]'
        )
    if not count or not columns:
        raise MeansError(f"{label} has no candidates; every metric needs one mean for each")
    return columns, [f"row {place}" for place in range(1, count + 1)]


def _find_name_column(columns: dict[str, list[Any]]) -> str | None:
    """Return the column with the candidates' names: the first with such a header or without numbers, or a later one."""
    first = next(iter(columns))
    if first.lower() in NAME_HEADERS or all(_number(cell) is None for cell in columns[first]):
        return first
    for column, cells in columns.items():
        if (column.lower() in NAME_HEADERS or column in ROW_NUMBER_HEADERS) and all(
            _number(cell) is None for cell in cells
        ):
            return column
    return None


def _names(given: list[str] | None, places: list[str], label: str) -> tuple[str, ...]:
    if given is None:
        return tuple(f"row {place}" for place in range(1, len(places) + 1))
    places_by_name: dict[str, str] = {}
    for name, place in zip(given, places, strict=True):
        if not name:
            raise MeansError(f"{place} of {label} has no name")
        if name in places_by_name:
            raise MeansError(
                f"{places_by_name[name]} and {place} of {label} are both called {name!r}; names must differ"
            )
        places_by_name[name] = place
    return tuple(given)


def _without_row_numbers(columns: dict[str, list[Any]], name_column: str | None) -> dict[str, list[Any]]:
    """Leave out the row numbers of pandas if another column holds the candidates' names."""
    for column in (next(iter(columns)), next(reversed(columns))):  # CSV has it first, Parquet last
        if column not in ROW_NUMBER_HEADERS or column == name_column:
            continue
        if any(_number(cell) is None for cell in columns[column]):
            continue
        others = {other: cells for other, cells in columns.items() if other != column}
        if name_column is not None or column != "" or (others and _find_name_column(others) is not None):
            return others
    return columns


def _number(cell: Any) -> float | None:
    """Return the number in a cell, or None without one; 3% is 0.03."""
    if isinstance(cell, bool) or not isinstance(cell, (int, float, str)) or (isinstance(cell, str) and "_" in cell):
        return None
    if isinstance(cell, str):
        cell = cell.replace("\N{MINUS SIGN}", "-")
    try:
        if _is_percent(cell):
            return float(Decimal(cell.strip()[:-1].strip()) / 100)
        return float(cell)
    except (ValueError, OverflowError, ArithmeticError):
        return None


def _is_percent(cell: Any) -> TypeGuard[str]:
    return isinstance(cell, str) and cell.strip().endswith("%")


def _all_percent(cells: list[Any], column: str, places: list[str], label: str) -> bool:
    """Return whether a column is written in percent; raise an error if only some cells are."""
    written = [_is_percent(cell) for cell in cells]
    if any(written) and not all(written):
        odd = written.index(False)
        raise MeansError(
            f"{places[odd]}, column {column!r} of {label} is {cells[odd]!r}, while {places[written.index(True)]} has "
            f"{cells[written.index(True)]!r}; write every number of the column with a percent sign, or none"
        )
    return any(written)


def _first_cell(columns: dict[str, list[Any]], places: list[str]) -> str:
    """Return a description of the first cell, for a message."""
    for column, cells in columns.items():
        return f": {places[0]} of column {column!r} is {cells[0]!r}"
    return ""


def _checked(cell: Any, column: str, place: str, label: str) -> float:
    value = _number(cell)
    if value is None:
        found = "nothing" if cell is None or not str(cell).strip() else repr(cell)
        cure = f"if {column!r} holds the candidates' names, add --name-column {column}"
        if isinstance(cell, str) and _number(cell.replace(",", "")) is not None:
            cure = "write it without commas, with a point before the decimals"
        raise MeansError(f"{place}, column {column!r} of {label}: a number was expected, got {found}; {cure}")
    if not math.isfinite(value):
        raise MeansError(f"{place}, column {column!r} of {label} is {cell}; every mean must be a finite number")
    return value


def _list(columns: Iterable[str]) -> str:
    return ", ".join(map(repr, columns))
