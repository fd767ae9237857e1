"""Columns of Parquet files as arrays, read by DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pasto.errors import BadInput, MissingExtra

Columns = dict[str, NDArray[Any]]


def columns(path: Path, *names: str, unnest: str | None = None) -> Columns:
    """Some columns of a file; a column of lists can be unnested, one row for each of its elements."""
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtra("Parquet files need DuckDB", "serve") from error
    wanted = [f'"{name}"' for name in names] + ([f'unnest("{unnest}") AS "{unnest}"'] if unnest else [])
    if not path.exists():
        raise BadInput(f"there is no file {str(path)!r}")
    connection = duckdb.connect()
    try:
        statement = f"SELECT {', '.join(wanted)} FROM read_parquet(?)"  # noqa: S608 -- our own column names
        found = connection.execute(statement, [str(path)]).fetchnumpy()
    except duckdb.Error as error:
        raise BadInput(f"cannot read {', '.join((*names, unnest or ''))} of {str(path)!r}: {error}") from error
    finally:
        connection.close()
    return {name: _filled(values) for name, values in found.items()}


def _filled(values: Any) -> NDArray[Any]:
    """Missing numbers as NaN, missing text as None."""
    if not isinstance(values, np.ma.MaskedArray):
        return np.asarray(values)
    empty: Any = None if values.dtype == object else np.nan
    return np.asarray(np.where(np.ma.getmaskarray(values), empty, np.ma.getdata(values)))
